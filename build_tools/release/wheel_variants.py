"""Kernel wheels -> an index of wheel variants: one distribution, an installer picks by the GPU.

    folder/humming_cubins-0.1.0-py3-none-any-sm90_cu13.whl      one a kernel wheel
    folder/humming_cubins-0.1.0-variants.json                   what their variant.json say
    folder/simple/humming-cubins/index.html                     PEP 503, with sha256

The folder serves as `--find-links` and, its `simple/`, as `--index`. Which words a wheel carries
and why: `variant_properties.py`. pip does not see variant wheels; ordinary ones stay what they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from build_tools.errors import Fault, UsageError
from build_tools.file_writes import disk_error, write_whole
from build_tools.release.simple_index import IndexedFile, project_page, root_page
from build_tools.release.variant_inputs import VariantInput, read_inputs, routes_of
from build_tools.release.variant_metadata import (
    DISTRIBUTION,
    FILE_STEM,
    VARIANT_FILE,
    Variant,
    core_metadata,
    variants_json,
)
from build_tools.release.variant_properties import Route
from build_tools.release.wheel_archive import (
    archive_bytes,
    dist_info_folder,
    read_archive,
    with_record,
)
from build_tools.wheel import require_epoch


@dataclass(frozen=True)
class VariantWheel:
    """A written wheel."""

    variant: Variant
    path: Path
    size_bytes: int
    sha256: str
    python: str | None  # versions that it takes, `>=3.10`


@dataclass(frozen=True)
class VariantIndex:
    """What was written, by label; and for every capability the wheel that it gets."""

    wheels: tuple[VariantWheel, ...]
    variants_json: Path
    simple: Path  # folder of the PEP 503 index
    routes: tuple[Route, ...]


def write_variant_index(wheels: Sequence[Path], folder: Path) -> VariantIndex:
    """Write the variant wheels of `wheels` and the index of them into `folder`.

    Raises: UsageError with every fault of the inputs; DiskError.
    """
    require_epoch()
    inputs = read_inputs(wheels)
    version = inputs[0].wheel.manifest.version
    json_path = folder / f"{FILE_STEM}-{version}-variants.json"
    paths = [folder / wheel_name(version, item.variant.label) for item in inputs]
    _require_nothing_else(folder, {path.name for path in (*paths, json_path)})
    written = [_write_wheel(item, path) for item, path in zip(inputs, paths, strict=True)]
    text = variants_json([item.variant for item in inputs]).encode()
    write_whole(json_path, text)
    simple = folder / "simple"
    listed = [IndexedFile(wheel.path.name, wheel.sha256, wheel.python) for wheel in written]
    listed.append(IndexedFile(json_path.name, hashlib.sha256(text).hexdigest()))
    write_whole(simple / DISTRIBUTION / "index.html", project_page(DISTRIBUTION, listed).encode())
    write_whole(simple / "index.html", root_page([DISTRIBUTION]).encode())
    return VariantIndex(tuple(written), json_path, simple, routes_of(inputs))


def wheel_name(version: str, label: str) -> str:
    """`humming_cubins-0.1.0-py3-none-any-sm90_cu13.whl`."""
    return f"{FILE_STEM}-{version}-py3-none-any-{label}.whl"


def _require_nothing_else(folder: Path, names: set[str]) -> None:
    """A wheel of another run would be installed without being in the index's JSON."""
    try:
        there = {path.name for path in folder.glob(f"{FILE_STEM}-*") if path.is_file()}
    except OSError as error:
        raise disk_error(folder, error) from error
    faults = [
        Fault(str(folder / name), "not of this index", f"rm {folder / name}")
        for name in sorted(there - names)
    ]
    if faults:
        raise UsageError(faults)


def _write_wheel(item: VariantInput, path: Path) -> VariantWheel:
    """The kernel wheel under its new name; nothing of the package itself changes."""
    wheel = item.wheel
    try:
        files = read_archive(wheel.path)
    except OSError as error:
        raise disk_error(wheel.path, error) from error
    old = dist_info_folder(files)
    new = f"{FILE_STEM}-{wheel.manifest.version}.dist-info"
    renamed = {
        name if not name.startswith(f"{old}/") else new + name[len(old) :]: content
        for name, content in files.items()
    }
    metadata = f"{new}/METADATA"
    text = core_metadata(renamed[metadata].decode(), wheel.manifest, item.variant.label)
    renamed[metadata] = text.encode()
    renamed[f"{new}/{VARIANT_FILE}"] = variants_json([item.variant]).encode()
    content = archive_bytes(with_record(renamed, new))
    write_whole(path, content)
    digest = hashlib.sha256(content).hexdigest()
    python = HeaderParser().parsestr(text).get("Requires-Python")
    return VariantWheel(item.variant, path, len(content), digest, python)
