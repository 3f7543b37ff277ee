"""Writing so that a reader never sees half a file, and so that equal content touches nothing."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

from build_tools.errors import DiskError, Fault


def sha256_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Temporary file, then rename. Raises: DiskError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".write-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise disk_error(path, error) from error


def write_if_changed(path: Path, text: str) -> bool:
    """Write unless the file already says so. Returns True where it was written."""
    content = text.encode()
    try:
        if path.read_bytes() == content:
            return False
    except FileNotFoundError:
        pass
    except OSError as error:
        raise disk_error(path, error) from error
    write_whole(path, content)
    return True


def write_current(path: Path, text: str) -> bool:
    """Write unless the file already says so, and never leave a time in the future.

    Ninja would take all that is made from such a file (the clock was set back) for old, in every
    run. Returns True where the text was written. Raises: DiskError.
    """
    written = write_if_changed(path, text)
    if path.stat().st_mtime > time.time():
        os.utime(path)
    return written


def disk_error(path: Path, error: OSError) -> DiskError:
    """An OSError as a fault of the disk stage."""
    return DiskError([Fault(str(path), (error.strerror or str(error)).lower())])
