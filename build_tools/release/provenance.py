"""In-toto statement with SLSA provenance: what a bundle is, and from what it was made.

Source: in-toto attestation framework v1 (Statement), SLSA v1.0 (predicate).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from build_tools import __version__
from build_tools.release.release_files import ReleaseWheel
from build_tools.wheel_sbom import sources_sha256
from humming_runtime.verify.dsse_envelope import STATEMENT_TYPE

PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:humming-aot:build-type:bundle:1"
BUILDER = "urn:humming-aot:humming-build"


def make_statement(
    subjects: Mapping[str, str], wheels: Sequence[ReleaseWheel], revision: str | None
) -> bytes:
    """JSON bytes. subjects: sha256 by name. revision: commit of the sources, if known."""
    kernels = [wheel for wheel in wheels if wheel.manifest is not None]
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": n, "digest": {"sha256": subjects[n]}} for n in sorted(subjects)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"wheels": [_parameters(wheel) for wheel in kernels]},
                "resolvedDependencies": [
                    *_revision(revision),
                    *(entry for wheel in kernels for entry in _dependencies(wheel)),
                ],
            },
            "runDetails": {"builder": {"id": BUILDER, "version": {"humming-aot": __version__}}},
        },
    }
    return json.dumps(statement, indent=1, sort_keys=True).encode()


def _parameters(wheel: ReleaseWheel) -> dict[str, object]:
    manifest = wheel.manifest
    return {} if manifest is None else {"arch": manifest.arch, "profile": manifest.profile}


def _dependencies(wheel: ReleaseWheel) -> list[dict[str, object]]:
    """The kernels' sources, and the compiler by its own build identification."""
    manifest = wheel.manifest
    if manifest is None:
        return []
    return [
        {
            "name": f"sources of {wheel.file_name}",
            "digest": {"sha256": sources_sha256(manifest)},
        },
        {
            "name": f"compiler of {wheel.file_name}",
            "annotations": {"cuda": manifest.cuda, "toolchain": manifest.toolchain},
        },
    ]


def _revision(revision: str | None) -> list[dict[str, object]]:
    return [] if revision is None else [{"name": "revision", "digest": {"gitCommit": revision}}]
