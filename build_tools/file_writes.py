"""Writing so that a reader never sees half a file, and so that equal content touches nothing."""

from __future__ import annotations

import hashlib
import os
import tempfile
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


def disk_error(path: Path, error: OSError) -> DiskError:
    """An OSError as a fault of the disk stage."""
    return DiskError([Fault(str(path), (error.strerror or str(error)).lower())])
