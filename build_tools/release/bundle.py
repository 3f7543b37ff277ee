"""Wheels -> one archive for a site without a network, with all that proves what is in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from securesystemslib.signer import CryptoSigner

from build_tools.errors import UsageError
from build_tools.file_writes import write_whole
from build_tools.release.hashed_requirements import hashed_requirements
from build_tools.release.provenance import make_statement
from build_tools.release.release_files import RUNTIME, ReleaseWheel
from build_tools.release.sbom import make_sbom
from build_tools.release.signing import sign
from build_tools.release.simple_index import IndexedFile, project_page, root_page
from build_tools.release.verifier_archive import verifier_archive
from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.manifest import Manifest
from humming_runtime.verify import bundle_layout as layout
from humming_runtime.verify.bundle_check import manifest_name
from humming_runtime.verify.dsse_envelope import write_envelope
from humming_runtime.verify.strict_tar import write_tar
from humming_runtime.verify.sums import SUMS_FILE, write_sums

_ALL = "all"
_INSTALL = Path(__file__).with_name("install.sh")


@dataclass(frozen=True)
class BundleResult:
    """The archive on disk."""

    path: Path
    size_bytes: int
    sha256: str
    signed_by: str | None  # key id


@dataclass(frozen=True)
class BundleRequest:
    """epoch: seconds since 1970, of every entry. revision: commit of the sources, if known."""

    wheels: Sequence[ReleaseWheel]
    license_text: str
    epoch: int
    signer: CryptoSigner | None = None
    revision: str | None = None


def write_bundle(request: BundleRequest, folder: Path) -> BundleResult:
    """Raises: UsageError for wheels that do not belong together; DiskError."""
    root = bundle_root(request.wheels)
    content = write_tar(root, bundle_files(request), layout.file_mode, request.epoch)
    path = folder / f"{root}.tar"
    write_whole(path, content)
    signer = request.signer
    key = None if signer is None else signer.public_key.keyid
    return BundleResult(path, len(content), hashlib.sha256(content).hexdigest(), key)


def bundle_files(request: BundleRequest) -> dict[str, bytes]:
    """Every file by its name below the root folder."""
    wheels = request.wheels
    root = bundle_root(wheels)
    _require_fit(wheels)
    texts = {
        layout.FACTS_FILE: _facts(root, wheels, request.epoch),
        layout.SBOM_FILE: make_sbom(root, _version(wheels), wheels, request.epoch),
        layout.INSTALL_FILE: _INSTALL.read_text(encoding="utf-8"),
        "LICENSE": request.license_text,
        **_under(layout.INDEX, _index(wheels)),
        **_under(layout.REQUIREMENTS, _requirements(wheels)),
    }
    files = {name: text.encode() for name, text in texts.items()}
    files[layout.VERIFIER_FILE] = verifier_archive()
    for wheel in wheels:
        files[f"{layout.WHEELS}/{wheel.file_name}"] = wheel.content
        if wheel.manifest is not None:
            files[manifest_name(wheel.manifest.package)] = wheel.manifest_content
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files[SUMS_FILE] = write_sums(digests).encode()
    subjects = {n: d for n, d in digests.items() if n.startswith(f"{layout.WHEELS}/")}
    subjects[SUMS_FILE] = hashlib.sha256(files[SUMS_FILE]).hexdigest()
    statement = make_statement(subjects, wheels, request.revision)
    files[layout.PROVENANCE_FILE] = write_envelope(sign(statement, request.signer)).encode()
    return files


def bundle_root(wheels: Sequence[ReleaseWheel]) -> str:
    """`humming-bundle-0.1.0-sm80-sm90-cu13`."""
    manifests = _manifests(wheels)
    archs = [manifest.arch.replace("_", "") for manifest in manifests]
    cudas = sorted({manifest.cuda.partition(".")[0] for manifest in manifests}, key=int)
    words = sorted(set(archs), key=lambda arch: int(arch.removeprefix("sm")))
    return "-".join(("humming-bundle", _version(wheels), *words, *(f"cu{c}" for c in cudas)))


def _version(wheels: Sequence[ReleaseWheel]) -> str:
    return next(wheel.version for wheel in wheels if wheel.manifest is not None)


def _manifests(wheels: Sequence[ReleaseWheel]) -> list[Manifest]:
    """Of the kernel wheels. Raises: UsageError where there is none."""
    found = [wheel.manifest for wheel in wheels if wheel.manifest is not None]
    if not found:
        raise UsageError.of(
            "bundle", "there is no kernel wheel", "humming-build bundle --arch sm_90"
        )
    return found


def _require_fit(wheels: Sequence[ReleaseWheel]) -> None:
    """One release: a runtime, and kernels of its contract and version, each package once."""
    hint = "build all wheels of a bundle from one checkout"
    runtimes = {wheel.version for wheel in wheels if wheel.project == RUNTIME}
    if not runtimes:
        raise UsageError.of("bundle", f"there is no wheel of {RUNTIME}", "make runtime")
    versions = sorted({wheel.version for wheel in wheels})
    if len(versions) > 1:
        raise UsageError.of("bundle", f"wheels of several versions ({', '.join(versions)})", hint)
    packages = [manifest.package for manifest in _manifests(wheels)]
    for package in sorted({name for name in packages if packages.count(name) > 1}):
        raise UsageError.of("bundle", f"{package} is there more than once", hint)
    for manifest in _manifests(wheels):
        if manifest.contract != contract_hash():
            message = f"contract {manifest.contract}, the runtime has {contract_hash()}"
            raise UsageError.of(manifest.package, message, hint)


def _facts(root: str, wheels: Sequence[ReleaseWheel], epoch: int) -> str:
    kernels = [(wheel, wheel.manifest) for wheel in wheels if wheel.manifest is not None]
    facts = {
        "schema_version": layout.SCHEMA_VERSION,
        "root": root,
        "epoch": epoch,
        "version": _version(wheels),
        "contract": contract_hash(),
        "kernels": [
            {
                "arch": manifest.arch,
                "cuda": manifest.cuda,
                "package": manifest.package,
                "profile": manifest.profile,
                "kernels": len(manifest.kernels),
                "wheel": wheel.file_name,
            }
            for wheel, manifest in kernels
        ],
    }
    return json.dumps(facts, indent=2, sort_keys=True) + "\n"


def _index(wheels: Sequence[ReleaseWheel]) -> dict[str, str]:
    """Pages of a simple index (PEP 503) by name below its folder."""
    projects = sorted({wheel.project for wheel in wheels})
    pages = {"index.html": root_page(projects)}
    for project in projects:
        files = [
            IndexedFile(f"{layout.WHEELS}/{wheel.file_name}", wheel.sha256)
            for wheel in wheels
            if wheel.project == project
        ]
        pages[f"{project}/index.html"] = project_page(project, files)
    return pages


def _requirements(wheels: Sequence[ReleaseWheel]) -> dict[str, str]:
    """A file an arch, and one with all of them."""
    runtime = [wheel for wheel in wheels if wheel.manifest is None]
    by_arch: dict[str, list[ReleaseWheel]] = {}
    for wheel in wheels:
        if wheel.manifest is not None:
            by_arch.setdefault(wheel.manifest.arch, []).append(wheel)
    texts = {f"{arch}.txt": hashed_requirements([*runtime, *own]) for arch, own in by_arch.items()}
    return {**texts, f"{_ALL}.txt": hashed_requirements(wheels)}


def _under(folder: str, texts: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in texts.items()}
