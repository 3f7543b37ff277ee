"""One wheel: its RECORD, and for a kernel wheel its manifest and cubins. Nothing is unpacked."""

from __future__ import annotations

import configparser
import io
import re
import zipfile

from humming_runtime.discover import ENTRY_POINT_GROUP
from humming_runtime.verify.file_tree import ZIP_FAULTS, FileTree, SubTree, ZipTree
from humming_runtime.verify.findings import Link, Report
from humming_runtime.verify.kernel_files import KernelFiles, check_kernel_files
from humming_runtime.verify.wheel_record import RECORD, check_record

_NAME = re.compile(r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.!+]+)(?:-[^-]+)?-[^-]+-[^-]+-[^-]+\.whl")


def check_wheel(content: bytes, name: str, report: Report) -> KernelFiles | None:
    """name: file name of the wheel. Returns the manifest of a kernel wheel that can be read."""
    match = _NAME.fullmatch(name)
    if match is None:
        report.fault(Link.RECORD, name, "is no name of a wheel")
        return None
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except ZIP_FAULTS as error:
        report.fault(Link.RECORD, name, f"is no zip archive ({error})")
        return None
    with archive:
        tree = ZipTree(archive)
        information = f"{match[1]}-{match[2]}.dist-info"
        check_record(tree, f"{information}/{RECORD}", name, report)
        found = [
            check_kernel_files(SubTree(tree, package), f"{name}: {package}", report)
            for package in kernel_packages(tree, f"{information}/entry_points.txt", name, report)
        ]
    return next((files for files in found if files is not None), None)


def kernel_packages(tree: FileTree, entry_points: str, place: str, report: Report) -> list[str]:
    """Import packages that a wheel's entry points name as kernels; none for another wheel."""
    try:
        text = tree.read(entry_points).decode("utf-8")
    except KeyError:
        return []
    except (OSError, UnicodeDecodeError):
        return []  # a fault of RECORD already
    parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        report.fault(Link.RECORD, f"{place}: {entry_points}", f"cannot be read ({error})")
        return []
    if not parser.has_section(ENTRY_POINT_GROUP):
        return []
    return [value for _, value in parser.items(ENTRY_POINT_GROUP)]
