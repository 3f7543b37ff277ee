"""What a cubin's ELF says of itself, read with the standard library alone.

Independent of the build side, which reads the same facts with pyelftools: tests compare the two.
Layout: ELF64, little endian; `.note.nv.tkinfo` has ptxas's arguments, `.nv.info.*` the parameters.
Files of CUDA 12 (ABI version 7) have no such note: e_flags and e_version say it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from humming_runtime.contract.targets import Capability
from humming_runtime.cubin_file import elf_capability

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ATTRIBUTE = struct.Struct("<BBH")
_SYMBOL_TABLE, _NO_BITS = 2, 8
_GLOBAL_FUNCTION = 1 << 4 | 2
_UNDEFINED = 0
_WITH_VALUE, _PARAMETER_INFO, _PARAMETER_SIZE_SHIFT = 4, 0x17, 18
_ABI_VERSION_AT, _CUDA_13_ABI, _ACCELERATED = 8, 8, 0x800
_NOTE = ".note.nv.tkinfo"
_ARCH = re.compile(rb"-arch (sm_\d+[af]?)")
_BUILD = re.compile(rb"(Build [^\x00]+)\x00")


class CubinElfError(ValueError):
    """The bytes are no whole cubin."""


@dataclass(frozen=True)
class CubinElf:
    """target, toolchain: None where the file has no note."""

    capability: Capability
    target: str | None
    toolchain: str | None
    symbols: tuple[str, ...]  # global functions
    parameter_bytes: tuple[int, ...]


def read_elf(image: bytes) -> CubinElf:
    """Raises: CubinElfError."""
    capability = elf_capability(image)
    if isinstance(capability, str):
        raise CubinElfError(capability)
    try:
        sections = _sections(image)
        note = next((data for name, _, _, data in sections if name == _NOTE), b"")
        symbols = _symbols(sections)
        parameters = tuple(
            size
            for name, _, _, data in sections
            if name.startswith(".nv.info")
            for size in _parameter_sizes(data)
        )
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise CubinElfError(f"damaged ELF ({error})") from error
    target, toolchain = _identity(image, capability, note)
    return CubinElf(
        capability,
        target,
        toolchain,
        symbols,
        parameters,
    )


def _identity(image: bytes, capability: Capability, note: bytes) -> tuple[str | None, str | None]:
    """Target and toolchain."""
    if image[_ABI_VERSION_AT] >= _CUDA_13_ABI:
        arch, build = _ARCH.search(note), _BUILD.search(note)
        return arch[1].decode() if arch else None, build[1].decode() if build else None
    header = _HEADER.unpack_from(image)
    version, flags = header[3], header[7]
    suffix = "a" if flags & _ACCELERATED else ""
    target = "sm_{}{}{}".format(*capability, suffix)
    return target, f"release {version // 10}.{version % 10}"


def _sections(image: bytes) -> list[tuple[str, int, int, bytes]]:
    """(name, type, index of the linked section, bytes) of each. Raises: ValueError."""
    header = _HEADER.unpack_from(image)
    at, size, count, names_index = header[6], header[11], header[12], header[13]
    if size != _SECTION.size or not count:
        raise ValueError("no section table")
    programs_end = header[5] + header[9] * header[10]
    if programs_end > len(image):
        raise ValueError(f"program headers end at {programs_end}, the file at {len(image)}")
    rows = [_SECTION.unpack_from(image, at + index * size) for index in range(count)]
    names = _data(image, rows[names_index])
    return [(_text(names, row[0]), row[1], row[6], _data(image, row)) for row in rows]


def _data(image: bytes, row: tuple[int, ...]) -> bytes:
    if row[1] == _NO_BITS:
        return b""
    at, size = row[4], row[5]
    if at + size > len(image):
        raise ValueError(f"a section ends at {at + size}, the file at {len(image)}")
    return image[at : at + size]


def _symbols(sections: list[tuple[str, int, int, bytes]]) -> tuple[str, ...]:
    found = []
    for _, kind, link, data in sections:
        if kind == _SYMBOL_TABLE:
            texts = sections[link][3]
            for name, info, _, section, _, _ in _SYMBOL.iter_unpack(data):
                if info == _GLOBAL_FUNCTION and section != _UNDEFINED:
                    found.append(_text(texts, name))
    return tuple(sorted(found))


def _parameter_sizes(data: bytes) -> list[int]:
    """Sizes in bytes of the kernel parameters that a `.nv.info` section describes."""
    sizes, at = [], 0
    while at + _ATTRIBUTE.size <= len(data):
        form, kind, size = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if form == _WITH_VALUE:
            if kind == _PARAMETER_INFO:
                sizes.append(struct.unpack_from("<I", data, at + 8)[0] >> _PARAMETER_SIZE_SHIFT)
            at += size
    return sizes


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode("ascii")
