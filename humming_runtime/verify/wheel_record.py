"""RECORD of a wheel or an installation: every file with its size and sha256, and no other file."""

from __future__ import annotations

import csv
import hashlib
from base64 import urlsafe_b64encode
from collections import Counter

from humming_runtime.verify.file_tree import FileTree, unsafe_name
from humming_runtime.verify.findings import Link, Report

RECORD = "RECORD"


def record_digest(content: bytes) -> str:
    """`sha256=...` as RECORD writes it: URL-safe base64 without padding."""
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def read_record(text: str) -> dict[str, tuple[str, str]]:
    """(digest, size) by name. Raises: ValueError for a row that is none, or that is there twice."""
    rows: dict[str, tuple[str, str]] = {}
    for row in csv.reader(text.splitlines()):
        if len(row) != 3:
            raise ValueError(f"row {row!r} has {len(row)} fields, not 3")
        if row[0] in rows:
            raise ValueError(f"{row[0]} is listed twice")
        rows[row[0]] = (row[1], row[2])
    return rows


def check_record(tree: FileTree, record: str, place: str, report: Report) -> None:
    """record: name of RECORD in the tree. Files of the tree that it does not list are faults."""
    try:
        rows = read_record(tree.read(record).decode("utf-8"))
    except (OSError, KeyError, ValueError) as error:
        report.fault(Link.RECORD, f"{place}: {record}", f"cannot be read ({error})")
        return
    names = Counter(tree.names())
    for name in sorted(name for name, count in names.items() if count > 1):
        report.fault(Link.RECORD, f"{place}: {name}", "is in the archive twice")
    for name in sorted(set(names) - set(rows)):
        report.fault(Link.RECORD, f"{place}: {name}", "is not in RECORD")
    for name, (digest, size) in rows.items():
        _check_row(tree, name, digest, size, name == record, place, report)


def _check_row(
    tree: FileTree, name: str, digest: str, size: str, is_record: bool, place: str, report: Report
) -> None:
    shown = f"{place}: {name}"
    reason = unsafe_name(name)
    if reason is not None:
        report.fault(Link.RECORD, shown, reason)
        return
    if is_record:
        if digest or size:
            report.fault(Link.RECORD, shown, "has a digest of itself")
        return
    try:
        content = tree.read(name)
    except (OSError, KeyError):
        report.fault(Link.RECORD, shown, "is missing")
        return
    report.count(Link.RECORD)
    if str(len(content)) != size or record_digest(content) != digest:
        found = f"{len(content)} bytes, {record_digest(content)}"
        report.fault(Link.RECORD, shown, f"{found}; RECORD: {size} bytes, {digest}")
