"""A tar archive with one possible form: equal files give equal bytes, and each byte is checked.

Form: ustar, regular files alone, sorted by name under one root folder, owner 0, one time for all,
permissions by name; two empty blocks and zeros up to a multiple of 10,240 bytes at the end.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping

_BLOCK, _RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE


class StrictTarError(ValueError):
    """The bytes are no archive of this form."""


def write_tar(
    root: str, files: Mapping[str, bytes], mode: Callable[[str], int], epoch: int
) -> bytes:
    """files: content by name below `root`. epoch: seconds since 1970, of every entry."""
    out = io.BytesIO()
    for name in sorted(files):
        content = files[name]
        out.write(_header(f"{root}/{name}", len(content), mode(name), epoch))
        out.write(content)
        out.write(bytes(-len(content) % _BLOCK))
    out.write(bytes(2 * _BLOCK))
    out.write(bytes(-out.tell() % _RECORD))
    return out.getvalue()


def read_tar(image: bytes, mode: Callable[[str], int]) -> tuple[str, int, dict[str, bytes]]:
    """Returns: (root, epoch, content by name below the root). Raises: StrictTarError.

    The archive is written again from what was read: a byte that differs is a fault.
    """
    roots: set[str] = set()
    epochs: set[int] = set()
    files: dict[str, bytes] = {}
    at = 0
    while image[at : at + _BLOCK].strip(b"\0"):
        block = image[at : at + _BLOCK]
        try:
            entry = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            raise StrictTarError(f"byte {at}: no entry ({error})") from error
        root, slash, name = entry.name.partition("/")
        if not slash or not name or name in files:
            raise StrictTarError(f"byte {at}: entry {entry.name!r} is not one file of one folder")
        roots.add(root)
        epochs.add(int(entry.mtime))
        at += _BLOCK
        if entry.size < 0 or at + entry.size > len(image):
            raise StrictTarError(f"{name} is cut off ({len(image) - at} of {entry.size} bytes)")
        files[name] = image[at : at + entry.size]
        at += entry.size + -entry.size % _BLOCK
    if len(roots) != 1 or len(epochs) != 1:
        raise StrictTarError(f"{len(roots)} root folders and {len(epochs)} times, not one of each")
    (root,), (epoch,) = roots, epochs
    written = write_tar(root, files, mode, epoch)
    if written != image:
        raise StrictTarError(f"byte {_first_difference(written, image)} is not as a bundle has it")
    return root, epoch, files


def _header(name: str, size_bytes: int, mode: int, epoch: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size_bytes, mode, epoch
    return entry.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")


def _first_difference(left: bytes, right: bytes) -> int:
    if len(left) != len(right):
        shorter = min(len(left), len(right))
        return next((i for i in range(shorter) if left[i] != right[i]), shorter)
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if left[low:middle] != right[low:middle] else (middle, high)
    return low
