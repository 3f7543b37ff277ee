"""The files of one kernel package against its manifest: sums, ELF, and nothing besides."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.manifest import KernelEntry, Manifest, ManifestError, from_json
from humming_runtime.contract.targets import target_capability
from humming_runtime.verify.cubin_elf import CubinElfError, read_elf
from humming_runtime.verify.file_tree import FileTree, unsafe_name
from humming_runtime.verify.findings import Link, Report

MANIFEST_FILE = "manifest.json"
_MODULE_FILE = "__init__.py"


@dataclass(frozen=True)
class KernelFiles:
    """A package's manifest, and the bytes that it was read from."""

    manifest: Manifest
    content: bytes


def check_kernel_files(tree: FileTree, place: str, report: Report) -> KernelFiles | None:
    """tree: the package's folder. Returns the manifest where it can be read."""
    try:
        content = tree.read(MANIFEST_FILE)
        text = content.decode("utf-8")
    except (OSError, KeyError, UnicodeDecodeError) as error:
        report.fault(Link.MANIFEST, f"{place}/{MANIFEST_FILE}", f"cannot be read ({error})")
        return None
    manifest = _manifest(text, place, report)
    if manifest is None:
        return None
    report.count(Link.MANIFEST)
    known = {MANIFEST_FILE, _MODULE_FILE}
    for entry in manifest.kernels:
        known.add(entry.file)
        _check_cubin(tree, place, manifest, entry, report)
    for name in sorted(set(tree.names()) - known):
        report.fault(Link.MANIFEST, f"{place}/{name}", "is in no manifest")
    return KernelFiles(manifest, content)


def _manifest(text: str, place: str, report: Report) -> Manifest | None:
    """Contract first: the keys of another contract may be anything."""
    shown = f"{place}/{MANIFEST_FILE}"
    try:
        raw = json.loads(text)
    except ValueError as error:
        report.fault(Link.MANIFEST, shown, f"not JSON ({error})")
        return None
    theirs = raw.get("contract") if isinstance(raw, dict) else None
    report.count(Link.CONTRACT)
    if theirs != contract_hash():
        message = f"built for contract {theirs}, this runtime has {contract_hash()}"
        report.fault(Link.CONTRACT, shown, message)
        return None
    try:
        return from_json(text, shown)
    except ManifestError as error:
        report.fault(Link.MANIFEST, shown, str(error).removeprefix(f"{shown}: "))
    except (AttributeError, TypeError, ValueError) as error:
        report.fault(Link.MANIFEST, shown, f"not a manifest ({error})")
    return None


def _check_cubin(
    tree: FileTree, place: str, manifest: Manifest, entry: KernelEntry, report: Report
) -> None:
    shown = f"{place}/{entry.file}"
    reason = unsafe_name(entry.file)
    if reason is not None:
        report.fault(Link.MANIFEST, shown, reason)
        return
    try:
        image = tree.read(entry.file)
    except (OSError, KeyError):
        report.fault(Link.CUBIN, shown, "is missing")
        return
    digest = hashlib.sha256(image).hexdigest()
    report.count(Link.CUBIN)
    if len(image) != entry.size_bytes or digest != entry.sha256:
        sizes = f"{len(image)} bytes, sha256 {digest}"
        report.fault(
            Link.CUBIN, shown, f"{sizes}; manifest: {entry.size_bytes} bytes, {entry.sha256}"
        )
        return
    report.count(Link.ELF)
    for message in elf_differences(image, entry, manifest):
        report.fault(Link.ELF, shown, message)


def elf_differences(image: bytes, entry: KernelEntry, manifest: Manifest) -> list[str]:
    """Everything in which a cubin's own header, notes and symbols contradict its manifest."""
    try:
        elf = read_elf(image)
    except CubinElfError as error:
        return [str(error)]
    variant = entry.variant
    toolchains = manifest.toolchain.split(", ")
    found = []
    checks = (
        ("capability", elf.capability, target_capability(variant.target)),
        ("target", elf.target, variant.target),
        ("symbols", elf.symbols, (variant.symbol,)),
        ("parameter bytes", elf.parameter_bytes, (entry.parameter_bytes,)),
    )
    for what, has, wanted in checks:
        if has != wanted:
            found.append(f"{what} {has}, the manifest says {wanted}")
    if elf.toolchain not in toolchains:
        found.append(f"toolchain {elf.toolchain!r}, the manifest says {manifest.toolchain!r}")
    return found
