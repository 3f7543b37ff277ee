"""A requirements file that names every wheel by its hash, for `pip install --require-hashes`."""

from __future__ import annotations

from collections.abc import Sequence

from build_tools.release.release_files import ReleaseWheel


def hashed_requirements(wheels: Sequence[ReleaseWheel]) -> str:
    """One entry a project, with the hash of each of its wheels."""
    found: dict[tuple[str, str], list[str]] = {}
    for wheel in wheels:
        found.setdefault((wheel.project, wheel.version), []).append(wheel.sha256)
    out = []
    for project, version in sorted(found):
        hashes = [f"--hash=sha256:{digest}" for digest in sorted(found[project, version])]
        out.append(" \\\n    ".join((f"{project}=={version}", *hashes)) + "\n")
    return "".join(out)
