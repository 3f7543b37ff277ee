"""cubin -> facts, read from the ELF, and compared with what the plan asked for."""

from __future__ import annotations

import hashlib
import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from build_tools.limits import STATIC_SHARED_BYTES
from build_tools.plan import Planned
from humming_runtime.contract.launch_shape import argument_bytes
from humming_runtime.contract.targets import target_capability

RESERVED_SHARED_BYTES = 1024
"""What the driver keeps of a CTA's shared memory from sm_90 on; the ELF counts it as static."""
_RESERVED_FROM = (9, 0)
_NV_INFO, _NV_SHARED, _TKINFO = ".nv.info", ".nv.shared.", ".note.nv.tkinfo"
_WITH_VALUE = 4  # format byte of an attribute that a value follows
_REGISTER_COUNT, _PARAMETER_INFO = 0x2F, 0x17
_PARAMETER_SIZE_SHIFT = 18
_ARCH_NOTE = re.compile(rb"-arch (sm_\d+[af]?)")
_BUILD_NOTE = re.compile(rb"(Build [^\x00]+)\x00")
_CUDA_13_ABI = 8
_CUDA_12_ACCELERATED = 0x800
"""Bit of e_flags that tells sm_90a from sm_90 in files of CUDA 12, which have no note."""
_GLOBAL_FUNCTION = ("STB_GLOBAL", "STT_FUNC")
_MOST_REGISTERS = 255


@dataclass(frozen=True)
class CubinFacts:
    """What the file itself says."""

    symbols: tuple[str, ...]  # global functions
    capability: tuple[int, int]
    target: str | None  # `-arch` of ptxas, in files of CUDA 12 from e_flags
    toolchain: str | None  # build identification of ptxas, of CUDA 12 `release 12.9`
    registers: int
    static_shared_bytes: int  # without the driver's reserve
    parameter_bytes: tuple[int, ...]
    sha256: str
    size_bytes: int


class NotACubinError(Exception):
    """The bytes are no NVIDIA cubin."""


def read_facts(image: bytes) -> CubinFacts:
    """Read a cubin's ELF. Raises: NotACubinError."""
    try:
        elf = ELFFile(io.BytesIO(image))
        sections = {section.name: section for section in elf.iter_sections()}
        note = sections[_TKINFO].data() if _TKINFO in sections else b""
        symbols = _symbols(elf)
        capability = _capability(elf)
        attributes = [
            pair
            for name, section in sections.items()
            if name.startswith(_NV_INFO)
            for pair in _attributes(section.data())
        ]
        shared = sum(s["sh_size"] for name, s in sections.items() if name.startswith(_NV_SHARED))
    except (ELFError, KeyError, struct.error, AssertionError) as error:
        raise NotACubinError(str(error)) from error
    reserved = RESERVED_SHARED_BYTES if capability >= _RESERVED_FROM else 0
    target, toolchain = _noted(note) if _is_cuda_13(elf) else _flagged(elf, capability)
    return CubinFacts(
        symbols=symbols,
        capability=capability,
        target=target,
        toolchain=toolchain,
        registers=max(
            (_word(v, 4) for kind, v in attributes if kind == _REGISTER_COUNT), default=0
        ),
        static_shared_bytes=max(shared - reserved, 0),
        parameter_bytes=tuple(
            _word(value, 8) >> _PARAMETER_SIZE_SHIFT
            for kind, value in attributes
            if kind == _PARAMETER_INFO
        ),
        sha256=hashlib.sha256(image).hexdigest(),
        size_bytes=len(image),
    )


def mismatches(facts: CubinFacts, planned: Planned) -> list[str]:
    """Everything in which a cubin is not what the plan asked for."""
    variant = planned.variant
    checks = (
        ("symbols", facts.symbols, (variant.symbol,)),
        ("capability", facts.capability, target_capability(variant.target)),
        ("target", facts.target, variant.target),
        ("parameter bytes", facts.parameter_bytes, (argument_bytes(variant),)),
    )
    found = [f"{what} {has}, planned {wanted}" for what, has, wanted in checks if has != wanted]
    if facts.static_shared_bytes > STATIC_SHARED_BYTES:
        found.append(
            f"static shared memory {facts.static_shared_bytes}, limit {STATIC_SHARED_BYTES}"
        )
    if not 0 < facts.registers <= _MOST_REGISTERS:
        found.append(f"registers {facts.registers}, not in 1..{_MOST_REGISTERS}")
    return found


def _symbols(elf: ELFFile) -> tuple[str, ...]:
    table: Any = elf.get_section_by_name(".symtab")
    if table is None:
        return ()
    return tuple(
        sorted(
            symbol.name
            for symbol in table.iter_symbols()
            if (symbol["st_info"]["bind"], symbol["st_info"]["type"]) == _GLOBAL_FUNCTION
            and symbol["st_shndx"] != "SHN_UNDEF"
        )
    )


def _noted(note: bytes) -> tuple[str | None, str | None]:
    """Target and toolchain."""
    arch, build = _ARCH_NOTE.search(note), _BUILD_NOTE.search(note)
    return arch[1].decode() if arch else None, build[1].decode() if build else None


def _flagged(elf: ELFFile, capability: tuple[int, int]) -> tuple[str, str]:
    """Target and toolchain: e_version is 129 for CUDA 12.9."""
    major, minor = capability
    accelerated = int(elf.header["e_flags"]) & _CUDA_12_ACCELERATED
    release = divmod(int(elf.header["e_version"]), 10)
    return f"sm_{major}{minor}{'a' if accelerated else ''}", "release {}.{}".format(*release)


def _is_cuda_13(elf: ELFFile) -> bool:
    return int(elf.header["e_ident"]["EI_ABIVERSION"]) >= _CUDA_13_ABI


def _capability(elf: ELFFile) -> tuple[int, int]:
    flags = int(elf.header["e_flags"])
    return divmod(flags >> 8 & 0xFF if _is_cuda_13(elf) else flags & 0xFF, 10)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(kind, value) of the attributes in a `.nv.info` section that carry a sized value."""
    at = 0
    while at + 4 <= len(data):
        form, kind, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _WITH_VALUE:
            yield kind, data[at : at + size]
            at += size


def _word(value: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", value, offset)[0])
