"""--against FILE: sums or a manifest that came another way than what is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from humming_runtime.errors import UsageError
from humming_runtime.verify.bundle_check import manifest_name
from humming_runtime.verify.findings import Link, Report
from humming_runtime.verify.kernel_files import KernelFiles
from humming_runtime.verify.sums import SumsError, read_sums


@dataclass(frozen=True)
class TrustedFile:
    """One of the two: sums by name, or the bytes of a manifest of `package`."""

    path: Path
    sums: Mapping[str, str] | None
    manifest: bytes = b""
    package: str = ""


def read_trusted(path: Path) -> TrustedFile:
    """Raises: UsageError for a file that is neither."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--against: {path}: {(error.strerror or str(error)).lower()}") from error
    try:
        if content.lstrip().startswith(b"{"):
            package = json.loads(content)["package"]
            return TrustedFile(path, None, content, str(package))
        return TrustedFile(path, read_sums(content.decode("utf-8")))
    except (KeyError, SumsError, TypeError, ValueError) as error:
        message = f"{path} is neither SHA256SUMS nor a manifest ({error})"
        raise UsageError(f"--against: {message}") from error


def compare_wheel(
    trusted: TrustedFile, name: str, content: bytes, files: KernelFiles | None, report: Report
) -> None:
    """name: the wheel's file name."""
    if trusted.sums is None:
        if files is not None:
            _compare_manifest(trusted, name, files, report)
        elif not report.findings:
            report.fault(Link.MANIFEST, name, "has no manifest to compare")
        return
    lines = {key: digest for key, digest in trusted.sums.items() if key.split("/")[-1] == name}
    if not lines:
        report.fault(Link.SUMS, name, f"is not in {trusted.path}")
    digest = hashlib.sha256(content).hexdigest()
    for key, wanted in lines.items():
        report.count(Link.SUMS)
        report.anchored = True
        if digest != wanted:
            report.fault(Link.SUMS, name, f"sha256 {digest}, {trusted.path} says {wanted} ({key})")


def compare_installed(
    trusted: TrustedFile, packages: Mapping[str, KernelFiles], report: Report
) -> None:
    """packages: by import package."""
    if trusted.sums is None:
        known = [files for files in packages.values() if files.manifest.package == trusted.package]
        if not known:
            report.fault(Link.MANIFEST, trusted.package, "is not installed")
        for files in known:
            _compare_manifest(trusted, trusted.package, files, report)
        others = sorted(f.manifest.package for f in packages.values() if f not in known)
        report.notes += [f"{name} is not compared: {trusted.path} is of another" for name in others]
        return
    for files in packages.values():
        name = manifest_name(files.manifest.package)
        digest = hashlib.sha256(files.content).hexdigest()
        wanted = trusted.sums.get(name)
        report.count(Link.SUMS)
        report.anchored = True
        if wanted is None:
            report.fault(Link.SUMS, files.manifest.package, f"{name} is not in {trusted.path}")
        elif digest != wanted:
            message = f"manifest has sha256 {digest}, {trusted.path} says {wanted}"
            report.fault(Link.SUMS, files.manifest.package, message)


def _compare_manifest(trusted: TrustedFile, name: str, files: KernelFiles, report: Report) -> None:
    report.anchored = True
    if files.content != trusted.manifest:
        report.fault(Link.MANIFEST, name, f"its manifest is not the one in {trusted.path}")
