"""Kernel packages (and the runtime) as they are installed: RECORD, manifest, cubins."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path, PurePosixPath

from humming_runtime.discover import ENTRY_POINT_GROUP
from humming_runtime.verify.file_tree import FileTree, FolderTree, MappedTree
from humming_runtime.verify.findings import Link, Report
from humming_runtime.verify.kernel_files import KernelFiles, check_kernel_files
from humming_runtime.verify.wheel_record import RECORD, check_record

_CACHE = "__pycache__"
_RUNTIME = "humming-aot"


def check_installed(report: Report) -> dict[str, KernelFiles]:
    """Every distribution with kernels, and the runtime. Returns manifests by import package."""
    found: dict[str, KernelFiles] = {}
    for distribution in _distributions():
        name = distribution.metadata["Name"]
        _check_files(distribution, name, report)
        for point in distribution.entry_points:
            if point.group != ENTRY_POINT_GROUP:
                continue
            folder = Path(str(distribution.locate_file(point.value)))
            if not folder.is_dir():
                report.fault(Link.RECORD, f"{name}: {point.value}", "folder is missing")
                continue
            tree = FolderTree(folder, skip=frozenset({_CACHE}))
            files = check_kernel_files(tree, f"{name}: {point.value}", report)
            if files is not None:
                found[point.value] = files
    return found


def _distributions() -> list[metadata.Distribution]:
    """Each once: the first on sys.path is the one that is imported."""
    first: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        points = distribution.entry_points
        if name == _RUNTIME or any(point.group == ENTRY_POINT_GROUP for point in points):
            first.setdefault(name, distribution)
    return [first[name] for name in sorted(first)]


def _check_files(distribution: metadata.Distribution, name: str, report: Report) -> None:
    """RECORD's rows with a digest; compiled files and what lies outside of the site have none."""
    text = distribution.read_text(RECORD)
    if text is None:
        report.fault(Link.RECORD, name, "has no RECORD: it cannot be checked")
        return
    rows = [line for line in text.splitlines() if line.strip() and not _is_left_out(line)]
    files: dict[str, bytes] = {}
    own = f"{RECORD}.checked"
    for line in rows:
        file_name = line.split(",", 1)[0].strip('"')
        place = Path(str(distribution.locate_file(file_name)))
        if place.is_file():
            files[file_name] = place.read_bytes()
    files[own] = "".join(f"{line}\n" for line in [*rows, f"{own},,"]).encode()
    tree: FileTree = MappedTree(files)
    check_record(tree, own, name, report)


def _is_left_out(line: str) -> bool:
    name = line.split(",", 1)[0].strip('"')
    path = PurePosixPath(name)
    without_digest = line.endswith(",,")
    return ".." in path.parts or (without_digest and (path.suffix == ".pyc" or path.name == RECORD))
