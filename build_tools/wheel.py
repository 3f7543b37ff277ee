"""manifest + cubins -> one data wheel: `py3-none-any`, no host code, equal bytes wherever built."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hatchling.builders.utils import get_reproducible_timestamp
from hatchling.builders.wheel import WheelBuilder

from build_tools.errors import UsageError
from build_tools.file_writes import disk_error, sha256_file, write_if_changed, write_whole
from build_tools.folders import WorkFolder
from humming_runtime.contract.manifest import Manifest, to_json
from humming_runtime.cuda_support import FIRST_DRIVERS, major_of

ENTRY_POINT_GROUP = "humming.cubins"

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
description = "Quantized-GEMM kernels for {arch}, built ahead of time; found by humming-aot"
readme = "README.md"
requires-python = ">=3.10"
license = "Apache-2.0"
license-files = ["LICENSE"]
keywords = ["cuda", "gemm", "quantization", "{arch}"]
classifiers = [
  "Environment :: GPU :: NVIDIA CUDA :: {cuda_major}",
  "Operating System :: POSIX :: Linux",
]

[project.entry-points."{group}"]
{arch} = "{package}"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
core-metadata-version = "2.4"
ignore-vcs = true
sbom-files = ["{sbom}"]

[tool.hatch.build.targets.wheel.force-include]
{cubins}
"""

_README = """\
# {name}

{count} quantized-GEMM kernels (cubins) for NVIDIA {arch}, compiled with CUDA {cuda}; they need a
driver from release {driver} on. The wheel holds data only. `humming-aot` finds it by its entry
point, checks each file against `manifest.json`, and refuses it by name where the contract differs
(this wheel: `{contract}`).

    pip install humming-aot {name}
    humming list
"""

_INIT = '"""Kernels for {arch}. Data only: see manifest.json."""\n'


@dataclass(frozen=True)
class WheelResult:
    """The file, and whether this run wrote it."""

    path: Path
    size_bytes: int
    sha256: str
    written: bool


def import_name(manifest: Manifest) -> str:
    return manifest.package.replace("-", "_")


def wheel_file_name(manifest: Manifest) -> str:
    return f"{import_name(manifest)}-{manifest.version}-py3-none-any.whl"


def build_wheel(
    work: WorkFolder,
    manifest: Manifest,
    compiler_sha256: str,
    folder: Path,
    license_text: str,
    check: Callable[[str, bytes], None] = lambda _name, _content: None,
) -> WheelResult:
    """Write the wheel into `folder` unless it holds just this one already.

    compiler_sha256: for the SBOM, as `Toolchain.digest`. check: is given file name and bytes;
    what it raises leaves no wheel. Raises: DiskError.
    """
    path = folder / wheel_file_name(manifest)
    key = _key(manifest, compiler_sha256, license_text)
    known = _known(work, path, key)
    if known is not None:
        check(path.name, path.read_bytes())
        return known
    _write_project(work, manifest, compiler_sha256, license_text)
    try:
        staging = work.root / "staging"
        built = next(WheelBuilder(str(work.wheel_project)).build(directory=str(staging)))
        content = Path(built).read_bytes()
        Path(built).unlink()
    except OSError as error:
        raise disk_error(path, error) from error
    check(path.name, content)
    write_whole(path, content)
    result = WheelResult(path, len(content), hashlib.sha256(content).hexdigest(), written=True)
    record = {"key": key, "sha256": result.sha256, "size_bytes": result.size_bytes}
    write_if_changed(work.wheel_record, json.dumps(record) + "\n")
    return result


def require_epoch() -> None:
    """Is SOURCE_DATE_EPOCH, where it is set, a time that a wheel can have? Raises: UsageError."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text is not None and not (text.isascii() and text.isdigit()):
        message = f"{text!r} is no number of seconds since 1970"
        raise UsageError.of("SOURCE_DATE_EPOCH", message, "export SOURCE_DATE_EPOCH=$(date +%s)")


def _write_project(
    work: WorkFolder, manifest: Manifest, compiler_sha256: str, license_text: str
) -> None:
    """The folder that hatchling packs; cubins are named there and not copied."""
    from build_tools.wheel_sbom import wheel_sbom  # noqa: PLC0415  slow, and few runs write a wheel

    package = import_name(manifest)
    sbom = f"{manifest.package}.cdx.json"
    cubins = (f'"../{kernel.file}" = "{package}/{kernel.file}"' for kernel in manifest.kernels)
    cuda_major = major_of(manifest.cuda)
    project = _PROJECT.format(
        name=manifest.package,
        version=manifest.version,
        arch=manifest.arch,
        cuda_major=cuda_major,
        group=ENTRY_POINT_GROUP,
        package=package,
        sbom=sbom,
        cubins="\n".join(cubins),
    )
    readme = _README.format(
        name=manifest.package,
        count=len(manifest.kernels),
        arch=manifest.arch,
        cuda=manifest.cuda,
        driver=FIRST_DRIVERS[cuda_major],
        contract=manifest.contract,
    )
    files = {
        "pyproject.toml": project,
        "README.md": readme,
        "LICENSE": license_text,
        sbom: wheel_sbom(
            manifest, wheel_file_name(manifest), compiler_sha256, get_reproducible_timestamp()
        ),
        f"{package}/__init__.py": _INIT.format(arch=manifest.arch),
        f"{package}/manifest.json": to_json(manifest),
    }
    for name, text in files.items():
        write_if_changed(work.wheel_project / name, text)


def _key(manifest: Manifest, compiler_sha256: str, license_text: str) -> str:
    """Everything that the wheel's bytes depend on."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    parts = (to_json(manifest), compiler_sha256, license_text, epoch, _PROJECT, _README, _INIT)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _known(work: WorkFolder, path: Path, key: str) -> WheelResult | None:
    """The wheel of an earlier run, if it was made of the same and is still the same file."""
    try:
        record = json.loads(work.wheel_record.read_text(encoding="utf-8"))
        size = path.stat().st_size
        if (record["key"], record["size_bytes"]) != (key, size) or sha256_file(path) != record[
            "sha256"
        ]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return WheelResult(path, size, record["sha256"], written=False)
