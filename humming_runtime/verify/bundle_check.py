"""A bundle, packed or unpacked: signature -> sums -> every file -> wheels -> cubins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from humming_runtime.errors import IntegrityError
from humming_runtime.verify import bundle_layout as layout
from humming_runtime.verify.dsse_envelope import Envelope, EnvelopeError, read_envelope
from humming_runtime.verify.file_tree import FileTree, FolderTree, MappedTree
from humming_runtime.verify.findings import Link, Report
from humming_runtime.verify.signature import signature_faults
from humming_runtime.verify.strict_tar import StrictTarError, read_tar
from humming_runtime.verify.sums import SUMS_FILE, SumsError, read_sums
from humming_runtime.verify.wheel_check import check_wheel

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey


def check_bundle(path: Path, keys: Sequence[SSlibKey], report: Report) -> None:
    """keys: public keys; without one the report says `integrity only`. Raises: IntegrityError."""
    facts: tuple[str, int] | None = None
    tree: FileTree
    try:
        if path.is_dir():
            tree = FolderTree(path)
        else:
            root, epoch, files = read_tar(path.read_bytes(), layout.file_mode)
            tree, facts = MappedTree(files), (root, epoch)
            report.count(Link.ARCHIVE)
    except StrictTarError as error:
        report.fault(Link.ARCHIVE, str(path), str(error))
        return
    except OSError as error:
        raise IntegrityError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    envelope = _envelope(tree, report)
    if envelope is not None:
        _check_signature(envelope, keys, report)
    sums = _sums(tree, envelope, report)
    _check_sums(tree, sums, report)
    _check_facts(tree, facts, report)
    _check_wheels(tree, sums, report)


def _envelope(tree: FileTree, report: Report) -> Envelope | None:
    try:
        return read_envelope(tree.read(layout.PROVENANCE_FILE).decode("utf-8"))
    except (OSError, KeyError):
        report.fault(Link.SIGNATURE, layout.PROVENANCE_FILE, "is missing")
    except (EnvelopeError, UnicodeDecodeError) as error:
        report.fault(Link.SIGNATURE, layout.PROVENANCE_FILE, str(error))
    return None


def _check_signature(envelope: Envelope, keys: Sequence[SSlibKey], report: Report) -> None:
    if not keys:
        if not report.signature_unchecked:
            report.notes.append("the signature is not checked: no --key is given")
        return
    faults = signature_faults(envelope, keys)
    for message in faults:
        report.fault(Link.SIGNATURE, layout.PROVENANCE_FILE, message)
    report.count(Link.SIGNATURE, len(envelope.signatures))
    report.anchored = not faults


def _sums(tree: FileTree, envelope: Envelope | None, report: Report) -> dict[str, str]:
    """Digests by name, of a list that is the one the provenance speaks of."""
    try:
        content = tree.read(SUMS_FILE)
        sums = read_sums(content.decode("utf-8"))
    except (OSError, KeyError):
        report.fault(Link.SUMS, SUMS_FILE, "is missing")
        return {}
    except (SumsError, UnicodeDecodeError) as error:
        report.fault(Link.SUMS, SUMS_FILE, str(error))
        return {}
    if envelope is not None:
        try:
            subjects = {SUMS_FILE: hashlib.sha256(content).hexdigest()}
            subjects |= {n: d for n, d in sums.items() if n.startswith(f"{layout.WHEELS}/")}
            for name, digest in subjects.items():
                signed = envelope.digest_of(name)
                if signed != digest:
                    message = f"sha256 {digest}, the provenance says {signed}"
                    report.fault(Link.SUMS, name, message)
        except EnvelopeError as error:
            report.fault(Link.SIGNATURE, layout.PROVENANCE_FILE, str(error))
    return sums


def _check_sums(tree: FileTree, sums: dict[str, str], report: Report) -> None:
    for name in sorted(set(tree.names()) - set(sums) - layout.NOT_IN_SUMS):
        report.fault(Link.SUMS, name, f"is not in {SUMS_FILE}")
    for name, wanted in sums.items():
        try:
            digest = hashlib.sha256(tree.read(name)).hexdigest()
        except (OSError, KeyError):
            report.fault(Link.SUMS, name, "is missing")
            continue
        report.count(Link.SUMS)
        if digest != wanted:
            report.fault(Link.SUMS, name, f"sha256 {digest}, {SUMS_FILE} says {wanted}")


def _check_facts(tree: FileTree, packed: tuple[str, int] | None, report: Report) -> None:
    """Root folder and time of an archive are what the bundle says of itself."""
    try:
        facts = json.loads(tree.read(layout.FACTS_FILE))
        said = (facts["root"], facts["epoch"])
        version = facts["schema_version"]
    except (OSError, KeyError, ValueError, TypeError) as error:
        report.fault(Link.SUMS, layout.FACTS_FILE, f"cannot be read ({error!r})")
        return
    if version != layout.SCHEMA_VERSION:
        message = f"bundle schema {version!r}, this verifier reads {layout.SCHEMA_VERSION}"
        report.fault(Link.CONTRACT, layout.FACTS_FILE, message)
    if packed is not None and packed != said:
        report.fault(Link.ARCHIVE, layout.FACTS_FILE, f"entries are of {packed}, it says {said}")


def _check_wheels(tree: FileTree, sums: dict[str, str], report: Report) -> None:
    """Each wheel by itself, and each manifest beside them against the one in its wheel."""
    manifests = {n for n in sums if n.startswith(f"{layout.MANIFESTS}/")}
    for name in sums:
        folder, _, file_name = name.partition("/")
        if folder != layout.WHEELS:
            continue
        try:
            content = tree.read(name)
        except (OSError, KeyError):
            continue  # said already
        files = check_wheel(content, file_name, report)
        if files is not None:
            beside = manifest_name(files.manifest.package)
            if beside not in manifests:
                report.fault(Link.MANIFEST, beside, f"is missing beside {name}")
                continue
            manifests.discard(beside)
            if sums[beside] != hashlib.sha256(files.content).hexdigest():
                report.fault(Link.MANIFEST, beside, f"is not the manifest inside {name}")
    for name in sorted(manifests):
        report.fault(Link.MANIFEST, name, "is of no wheel of the bundle")


def manifest_name(package: str) -> str:
    """Where a bundle has the manifest of a distribution."""
    return f"{layout.MANIFESTS}/{package.replace('-', '_')}.json"
