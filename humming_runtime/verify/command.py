"""`humming verify BUNDLE | WHEEL | installed`: fail-closed, offline, nothing is executed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from humming_runtime.contract.exit_codes import RuntimeExit
from humming_runtime.errors import HummingError, UsageError
from humming_runtime.verify.bundle_check import check_bundle
from humming_runtime.verify.findings import Link, Report
from humming_runtime.verify.installed_check import check_installed
from humming_runtime.verify.signature import (
    LIBRARY_HINT,
    NoSignatureLibraryError,
    read_public_keys,
)
from humming_runtime.verify.trusted_file import compare_installed, compare_wheel, read_trusted
from humming_runtime.verify.wheel_check import check_wheel

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

INSTALLED = "installed"
_WHEEL = ".whl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `humming verify` and of a bundle's own verify.pyz."""
    parser.add_argument("subject", metavar="BUNDLE|WHEEL|installed")
    key: dict[str, Any] = {"type": Path, "action": "append", "default": [], "metavar": "PEM"}
    parser.add_argument("--key", **key, help="public key of the signature; repeatable")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="SHA256SUMS or manifest that you trust"
    )
    parser.add_argument("--json", action="store_true", help="for scripts")


def verify(given: argparse.Namespace) -> RuntimeExit:
    """Print the report. Raises: UsageError for options that do not fit the subject."""
    report = Report(str(given.subject))
    if given.subject == INSTALLED or str(given.subject).endswith(_WHEEL):
        if given.key:
            hint = "humming verify BUNDLE --key ..., then --against its SHA256SUMS"
            raise UsageError("--key: a bundle is what is signed", hint)
        _verify_against(given.subject, given.against, report)
    else:
        if given.against is not None:
            raise UsageError("--against: a bundle has its own sums; give --key for its signature")
        check_bundle(Path(given.subject), _keys(given.key, report), report)
    if given.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=2, sort_keys=True) + "\n")
    else:
        sys.stdout.write(report.as_text() + "\n")
    return report.exit_code


def _verify_against(subject: str, against: Path | None, report: Report) -> None:
    trusted = None if against is None else read_trusted(against)
    if trusted is None:
        report.notes.append(
            "compared with itself alone; --against FILE compares with what you trust"
        )
    if subject == INSTALLED:
        packages = check_installed(report)
        if not packages and not report.findings:
            report.fault(Link.MANIFEST, INSTALLED, "no kernel package is installed")
        if trusted is not None:
            compare_installed(trusted, packages, report)
        return
    path = Path(subject)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    files = check_wheel(content, path.name, report)
    if trusted is not None:
        compare_wheel(trusted, path.name, content, files, report)


def _keys(paths: Sequence[Path], report: Report) -> list[SSlibKey]:
    try:
        return read_public_keys(paths) if paths else []
    except NoSignatureLibraryError as error:
        report.signature_unchecked = True
        report.notes.append(f"the signature is not checked: {error}; {LIBRARY_HINT}")
        return []


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of verify.pyz."""
    parser = argparse.ArgumentParser(prog="verify.pyz", description=__doc__, allow_abbrev=False)
    add_arguments(parser)
    try:
        return int(verify(parser.parse_args(arguments)))
    except HummingError as error:
        sys.stderr.write(f"verify: {error}\n")
        return int(error.exit_code)
