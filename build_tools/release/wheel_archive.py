"""The files of a wheel: read and checked against its RECORD, or written as equal bytes everywhere.

Bytes depend on names, contents, SOURCE_DATE_EPOCH (as hatchling reads it) and the version of zlib;
not on folder, clock, umask or the order of a directory.
"""

from __future__ import annotations

import csv
import io
import stat
import zipfile
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from hatchling.builders.utils import get_reproducible_timestamp

from humming_runtime.verify.file_tree import ZIP_FAULTS
from humming_runtime.verify.wheel_record import RECORD, read_record, record_digest

_UNIX = 3  # ZipInfo.create_system; Python would write 0 on Windows
_FILE_MODE = (stat.S_IFREG | 0o644) << 16
_FIRST_TIME = datetime(1980, 1, 1, tzinfo=timezone.utc)  # what a zip file can say
_LAST_TIME = datetime(2107, 12, 31, 23, 59, 58, tzinfo=timezone.utc)


class WheelArchiveError(ValueError):
    """A file that is no whole wheel; the text says why."""


def read_archive(path: Path) -> dict[str, bytes]:
    """Every file of a wheel by name, each as RECORD has it.

    Raises: WheelArchiveError; OSError where the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            files = {name: archive.read(name) for name in names}
    except ZIP_FAULTS as error:
        raise WheelArchiveError(f"not a zip file that can be read ({error})") from error
    if len(files) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise WheelArchiveError(f"holds {double!r} twice")
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise WheelArchiveError(f"{name!r} lies outside of the wheel")
    _check_record(files)
    return files


def dist_info_folder(files: Mapping[str, bytes]) -> str:
    """The one `*.dist-info`. Raises: WheelArchiveError where there is none or are several."""
    folders = sorted({name.split("/")[0] for name in files if ".dist-info/" in name})
    if len(folders) != 1 or not folders[0].endswith(".dist-info"):
        raise WheelArchiveError(f"{len(folders)} dist-info folders, a wheel has one")
    return folders[0]


def with_record(files: Mapping[str, bytes], dist_info: str) -> dict[str, bytes]:
    """The same files in an archive's order, metadata at the end, RECORD last."""
    own = f"{dist_info}/{RECORD}"
    ordered = sorted(files.keys() - {own}, key=lambda name: (name.startswith(dist_info), name))
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    for name in ordered:
        rows.writerow((name, record_digest(files[name]), len(files[name])))
    rows.writerow((own, "", ""))
    return {name: files[name] for name in ordered} | {own: text.getvalue().encode()}


def archive_bytes(files: Mapping[str, bytes]) -> bytes:
    """A zip file of plain files (0644) in the order of the mapping."""
    stream = io.BytesIO()
    when = _time()
    with zipfile.ZipFile(stream, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, when)
            info.create_system = _UNIX
            info.external_attr = _FILE_MODE
            archive.writestr(info, content, compress_type=zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _check_record(files: Mapping[str, bytes]) -> None:
    own = f"{dist_info_folder(files)}/{RECORD}"
    if own not in files:
        raise WheelArchiveError(f"no {own}")
    try:
        recorded = read_record(files[own].decode())
    except (ValueError, csv.Error) as error:
        raise WheelArchiveError(f"{own} is no record ({error})") from error
    odd = sorted(files.keys() ^ recorded.keys())
    if odd:
        where = "the wheel" if odd[0] in recorded else "its RECORD"
        raise WheelArchiveError(f"{odd[0]!r} is missing in {where}")
    for name in sorted(files.keys() - {own}):
        digest, recorded_digest = record_digest(files[name]), recorded[name][0]
        if digest != recorded_digest:
            raise WheelArchiveError(f"{name!r} has {digest}, its RECORD says {recorded_digest}")


def _time() -> tuple[int, int, int, int, int, int]:
    seconds = get_reproducible_timestamp()
    seconds = min(max(seconds, int(_FIRST_TIME.timestamp())), int(_LAST_TIME.timestamp()))
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return when.year, when.month, when.day, when.hour, when.minute, when.second
