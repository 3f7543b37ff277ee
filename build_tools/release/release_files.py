"""Wheels that go into a release, read once: name, bytes, digest, and a kernel wheel's manifest."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hatchling.builders.utils import get_reproducible_timestamp

from build_tools.errors import CubinMismatchError, Fault, UsageError
from build_tools.file_writes import disk_error
from humming_runtime.contract.manifest import Manifest
from humming_runtime.verify.findings import Report
from humming_runtime.verify.wheel_check import check_wheel

_NAME = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[A-Za-z0-9_.!+]+)-.*\.whl")
RUNTIME = "humming-aot"


@dataclass(frozen=True)
class ReleaseWheel:
    """One wheel. manifest, manifest_content: of a kernel wheel."""

    file_name: str
    project: str  # normalised distribution name
    version: str
    content: bytes
    manifest: Manifest | None
    manifest_content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def read_wheels(paths: Sequence[Path]) -> tuple[ReleaseWheel, ...]:
    """By file name. Each is verified as `humming verify` would.

    Raises: UsageError, DiskError, CubinMismatchError with every fault.
    """
    wheels: list[ReleaseWheel] = []
    faults: list[Fault] = []
    for path in sorted(set(paths), key=lambda path: path.name):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise UsageError.of(str(path), "is no wheel")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise disk_error(path, error) from error
        report = Report(str(path))
        files = check_wheel(content, path.name, report)
        faults += [Fault(finding.place, finding.message) for finding in report.findings]
        wheels.append(
            ReleaseWheel(
                file_name=path.name,
                project=re.sub(r"[-_.]+", "-", match["name"]).lower(),
                version=match["version"],
                content=content,
                manifest=None if files is None else files.manifest,
                manifest_content=b"" if files is None else files.content,
            )
        )
    if faults:
        raise CubinMismatchError(faults)
    return tuple(wheels)


def release_epoch() -> int:
    """SOURCE_DATE_EPOCH, else the constant that wheels have: seconds since 1970."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or get_reproducible_timestamp())
