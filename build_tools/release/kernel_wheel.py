"""One finished kernel wheel, as `build_tools.wheel` writes it: is it one, and what does it say?"""

from __future__ import annotations

from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from pathlib import Path

from build_tools.file_writes import disk_error
from build_tools.release.wheel_archive import WheelArchiveError, dist_info_folder, read_archive
from build_tools.wheel import ENTRY_POINT_GROUP, import_name, wheel_file_name
from humming_runtime.contract.manifest import Manifest, ManifestError, from_json

_NAME_PARTS = 5  # name, version, python, abi, platform; a sixth one is a build or a variant


class KernelWheelError(ValueError):
    """A file that is no kernel wheel; the text says why."""


@dataclass(frozen=True)
class KernelWheel:
    """A checked wheel; contents are read again when they are needed, wheels are large."""

    path: Path
    manifest: Manifest

    @property
    def package(self) -> str:
        """The import package."""
        return import_name(self.manifest)

    @property
    def targets(self) -> tuple[str, ...]:
        """What its kernels were compiled for: ("sm_90a",)."""
        return tuple(sorted({kernel.variant.target for kernel in self.manifest.kernels}))


def open_kernel_wheel(path: Path) -> KernelWheel:
    """Read and check everything in the wheel.

    Raises: KernelWheelError; DiskError where the file cannot be read.
    """
    if path.suffix != ".whl" or len(path.stem.split("-")) != _NAME_PARTS:
        raise KernelWheelError("the file's name is not NAME-VERSION-py3-none-any.whl")
    try:
        files = read_archive(path)
        manifest = _manifest(files)
    except OSError as error:
        raise disk_error(path, error) from error
    except WheelArchiveError as error:
        raise KernelWheelError(str(error)) from error
    expected = wheel_file_name(manifest)
    if path.name != expected:
        raise KernelWheelError(f"its manifest is that of {expected}")
    _check_places(files, manifest)
    return KernelWheel(path, manifest)


def _manifest(files: dict[str, bytes]) -> Manifest:
    """By the entry point, as the runtime finds it."""
    arch, package = _entry_point(files)
    place = f"{package}/manifest.json"
    if place not in files:
        raise KernelWheelError(f"no {place}, which its entry point names")
    try:
        manifest = from_json(files[place].decode(), place)
    except (ManifestError, UnicodeDecodeError) as error:
        raise KernelWheelError(str(error)) from error
    if (manifest.arch, import_name(manifest)) != (arch, package):
        named = f"{manifest.arch} = {import_name(manifest)}"
        raise KernelWheelError(f"entry point {arch} = {package}, its manifest has {named}")
    if not manifest.kernels:
        raise KernelWheelError("its manifest has no kernels")
    return manifest


def _entry_point(files: dict[str, bytes]) -> tuple[str, str]:
    content = files.get(f"{dist_info_folder(files)}/entry_points.txt", b"")
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    try:
        parser.read_string(content.decode())
    except (ConfigError, UnicodeDecodeError) as error:
        raise KernelWheelError(f"entry_points.txt cannot be read ({error})") from error
    points = parser.items(ENTRY_POINT_GROUP) if parser.has_section(ENTRY_POINT_GROUP) else []
    if len(points) != 1:
        raise KernelWheelError(f"{len(points)} entry points of {ENTRY_POINT_GROUP}, 1 expected")
    return points[0]


def _check_places(files: dict[str, bytes], manifest: Manifest) -> None:
    """Another distribution's files under one name would meet in site-packages."""
    package, dist_info = import_name(manifest), dist_info_folder(files)
    if dist_info != f"{package}-{manifest.version}.dist-info":
        raise KernelWheelError(f"its metadata is that of {dist_info}")
    metadata = files.get(f"{dist_info}/METADATA", b"").decode(errors="replace")
    if f"Name: {manifest.package}" not in metadata.splitlines():
        raise KernelWheelError(f"no METADATA with 'Name: {manifest.package}'")
    for name in sorted(files):
        if name.split("/")[0] not in {package, dist_info}:
            raise KernelWheelError(f"holds {name!r} besides {package}/, kernels come alone")
