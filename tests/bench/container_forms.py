"""The ways in which a wheel can hold its cubins, and a reader of each: only for the comparison.

Wheels of today hold one file per cubin; the other forms are made of such a wheel here.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from build_tools.release.wheel_archive import dist_info_folder, with_record
from humming_runtime.contract.manifest import from_json

ALIGNMENT = 64
PACK = "cubins.pack"
Files = dict[str, bytes]


@dataclass(frozen=True)
class Stored:
    """Where one kernel lies: a file, and the range in it."""

    file: str
    offset: int
    stored_bytes: int
    sha256: str  # of what the reader gives


@dataclass(frozen=True)
class Form:
    """Every file of a wheel, and its kernels in the manifest's order."""

    name: str
    files: Files
    kernels: tuple[Stored, ...]


@dataclass(frozen=True)
class Source:
    """Cubins and manifest of a wheel with one file per cubin."""

    files: Files
    package: str
    entries: tuple[dict, ...]

    def cubin(self, entry: dict) -> bytes:
        return self.files[f"{self.package}/{entry['file']}"]


def source_of(files: Files) -> Source:
    place = next(name for name in files if name.endswith("/manifest.json"))
    entries = json.loads(files[place])["kernels"]
    return Source(files, place.split("/")[0], tuple(entries))


def with_copies(source: Source, count: int) -> Files:
    """A wheel of `count` kernels: copies whose layout has another name, in the ELF as well.

    The word keeps its length, so the copies are whole cubins that `humming verify` takes.
    """
    place = f"{source.package}/manifest.json"
    manifest = json.loads(source.files[place])
    names = {f"{source.package}/{entry['file']}" for entry in source.entries}
    files = {name: content for name, content in source.files.items() if name not in names}
    entries = []
    for index in range(count):
        number, position = divmod(index, len(source.entries))
        old = source.entries[position]
        layout = old["name"].split("_")[5]
        word = layout if number == 0 else f"l{number:0{len(layout) - 1}d}"
        image = source.cubin(old).replace(f"_{layout}_".encode(), f"_{word}_".encode())
        name = old["name"].replace(f"_{layout}_", f"_{word}_")
        entry = old | {"name": name, "file": f"cubins/{name}.cubin"}
        entry |= {"sha256": hashlib.sha256(image).hexdigest(), "size_bytes": len(image)}
        entries.append(entry)
        files[f"{source.package}/{entry['file']}"] = image
    manifest["kernels"] = sorted(entries, key=lambda entry: entry["name"])
    files[place] = _json(manifest)
    from_json(files[place].decode(), place)
    return with_record(files, dist_info_folder(files))


def with_recompiled(source: Source, count: int) -> Files:
    """The next release, in which `count` kernels are others: one byte of each."""
    files = dict(source.files)
    place = f"{source.package}/manifest.json"
    manifest = json.loads(files[place])
    step = len(source.entries) // count
    for entry in manifest["kernels"][::step][:count]:
        image = bytearray(source.cubin(entry))
        image[len(image) // 2] ^= 0xFF
        files[f"{source.package}/{entry['file']}"] = bytes(image)
        entry["sha256"] = hashlib.sha256(image).hexdigest()
    files[place] = _json(manifest)
    return with_record(files, dist_info_folder(files))


def one_file_each(source: Source) -> Form:
    kernels = [
        Stored(f"{source.package}/{entry['file']}", 0, entry["size_bytes"], entry["sha256"])
        for entry in source.entries
    ]
    return Form("files", source.files, tuple(kernels))


def packed(source: Source) -> Form:
    return _pack("pack", source, lambda image: image)


def packed_zlib(source: Source) -> Form:
    return _pack("pack_zlib", source, lambda image: zlib.compress(image, 9))


def _pack(name: str, source: Source, stored_form: Callable[[bytes], bytes]) -> Form:
    """One file; offsets go into the manifest, which every reader has anyway."""
    archive = bytearray()
    place = f"{source.package}/{PACK}"
    kernels, changes = [], []
    for entry in source.entries:
        archive += bytes(-len(archive) % ALIGNMENT)
        content = stored_form(source.cubin(entry))
        kernels.append(Stored(place, len(archive), len(content), entry["sha256"]))
        changes.append({"file": PACK, "offset": len(archive), "stored_bytes": len(content)})
        archive += content
    return Form(name, _replaced(source, {place: bytes(archive)}, changes), tuple(kernels))


def fatbins(source: Source, fatbinary: Path) -> Form:
    """One compressed fatbin per kernel; sums are of the fatbin, the driver decompresses it."""
    kernels, changes, added = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        for entry in source.entries:
            image = fatbin_of(fatbinary, "size", [(entry["name"], source.cubin(entry))], folder)
            file = f"cubins/{entry['name']}.fatbin"
            digest = hashlib.sha256(image).hexdigest()
            kernels.append(Stored(f"{source.package}/{file}", 0, len(image), digest))
            changes.append({"file": file, "sha256": digest, "size_bytes": len(image)})
            added[f"{source.package}/{file}"] = image
    return Form("fatbins", _replaced(source, added, changes), tuple(kernels))


def fatbin_of(fatbinary: Path, mode: str, cubins: list[tuple[str, bytes]], folder: str) -> bytes:
    """One fatbin of some kernels, by name and image."""
    out = Path(folder, "out.fatbin")
    command = [str(fatbinary), "-64", "--compress-all", f"--compress-mode={mode}"]
    command.append(f"--create={out}")
    for index, (name, image) in enumerate(cubins):
        path = Path(folder, f"in{index}.cubin")
        path.write_bytes(image)
        target = name.rsplit("_sm", 1)[1]
        command.append(f"--image3=kind=elf,sm={target},file={path}")
    subprocess.run(command, check=True, capture_output=True)
    return out.read_bytes()


def _replaced(source: Source, added: Files, changes: list[dict]) -> Files:
    """The wheel's other files with `added` in place of cubins, manifest and RECORD to match."""
    place = f"{source.package}/manifest.json"
    manifest = json.loads(source.files[place])
    kernels = [entry | change for entry, change in zip(source.entries, changes, strict=True)]
    gone = {f"{source.package}/{entry['file']}" for entry in source.entries}
    files = {name: content for name, content in source.files.items() if name not in gone}
    files |= added | {place: _json(manifest | {"kernels": kernels})}
    return with_record(files, dist_info_folder(files))


def _json(value: dict) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


class Reader:
    """File -> checked bytes. A pack is opened once, at the first kernel."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handle: int | None = None

    def read(self, kernel: Stored) -> object:
        """Raises: ValueError where the sum is another."""
        image = self._image(kernel)
        if hashlib.sha256(image).hexdigest() != kernel.sha256:
            raise ValueError(f"{kernel.file}: another sum at {kernel.offset}")
        return image

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def _image(self, kernel: Stored) -> bytes | memoryview:
        return self._root.joinpath(kernel.file).read_bytes()

    def _open(self, kernel: Stored) -> int:
        if self._handle is None:
            self._handle = os.open(self._root / kernel.file, os.O_RDONLY | os.O_CLOEXEC)
        return self._handle


class PackReader(Reader):
    def _image(self, kernel: Stored) -> bytes:
        return os.pread(self._open(kernel), kernel.stored_bytes, kernel.offset)


class ZlibReader(PackReader):
    def _image(self, kernel: Stored) -> bytes:
        return zlib.decompress(super()._image(kernel))


class MappedReader(Reader):
    """No copy: the view is what the driver would be given."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._map: mmap.mmap | None = None

    def _image(self, kernel: Stored) -> memoryview:
        if self._map is None:
            self._map = mmap.mmap(self._open(kernel), 0, access=mmap.ACCESS_READ)
        return memoryview(self._map)[kernel.offset : kernel.offset + kernel.stored_bytes]


READERS: dict[str, dict[str, type[Reader]]] = {
    "files": {"files": Reader},
    "pack": {"pack, pread": PackReader, "pack, mmap": MappedReader},
    "pack_zlib": {"pack_zlib": ZlibReader},
    "fatbins": {"fatbins": Reader},
}
