"""Files by relative name, wherever they lie: in a folder, in a wheel, in memory."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

ZIP_FAULTS = (
    *(zipfile.BadZipFile, zlib.error, EOFError),
    *(NotImplementedError, RuntimeError, ValueError, struct.error),
)
"""What zipfile raises for a damaged archive."""


class FileTree(Protocol):
    """Names are relative, with `/`; read raises KeyError or OSError for one that is not there."""

    def names(self) -> Iterator[str]: ...

    def read(self, name: str) -> bytes: ...


class FolderTree:
    """A folder on disk. skip: names of folders that do not count."""

    def __init__(self, root: Path, skip: frozenset[str] = frozenset()) -> None:
        self.root = root
        self.skip = skip

    def names(self) -> Iterator[str]:
        for path in sorted(self.root.rglob("*")):
            relative = path.relative_to(self.root)
            if not path.is_dir() and not self.skip.intersection(relative.parts):
                yield relative.as_posix()

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


class ZipTree:
    """An open zip archive; folder entries do not count."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive

    def names(self) -> Iterator[str]:
        return (name for name in self.archive.namelist() if not name.endswith("/"))

    def read(self, name: str) -> bytes:
        try:
            return self.archive.read(name)
        except ZIP_FAULTS as error:
            raise OSError(f"cannot be unpacked: {error}") from error


class MappedTree:
    """Files in memory, by name."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def names(self) -> Iterator[str]:
        return iter(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]


class SubTree:
    """Files of one folder of another tree."""

    def __init__(self, tree: FileTree, folder: str) -> None:
        self.tree = tree
        self.prefix = f"{folder}/"

    def names(self) -> Iterator[str]:
        start = len(self.prefix)
        return (name[start:] for name in self.tree.names() if name.startswith(self.prefix))

    def read(self, name: str) -> bytes:
        return self.tree.read(self.prefix + name)


def unsafe_name(name: str) -> str | None:
    """Why a relative name must not be followed; None where it may."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name:
        return "lies outside of its folder"
    return None if path.as_posix() == name else "is written in an unusual way"
