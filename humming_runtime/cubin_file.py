"""A cubin on disk is what its manifest says, or it never reaches the driver."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from humming_runtime.contract.manifest import KernelEntry
from humming_runtime.contract.targets import Capability, target_capability
from humming_runtime.errors import IntegrityError

_IDENT = struct.Struct("<4sBBBBB7x")  # magic, class, data, version, OSABI, ABIVERSION
_HEADER = struct.Struct("<HHIQQQI")  # type, machine, version, entry, phoff, shoff, flags
_MAGIC, _CLASS_64, _LITTLE_ENDIAN = b"\x7fELF", 2, 1
_MACHINE_CUDA = 0xBE
_MACHINES = {0x10E: "PPU"}

# (OSABI, ABIVERSION) -> bits that e_flags' SM number is shifted by
_SM_SHIFTS = {(0x41, 8): 8, (0x33, 7): 0}


def read_cubin(path: Path, entry: KernelEntry) -> bytes:
    """Bytes of a cubin of the manifest's size and sha256, and of its name's SM.

    Raises: IntegrityError.
    """
    try:
        image = path.read_bytes()
    except OSError as error:
        raise _wrong(path, (error.strerror or str(error)).lower()) from error
    if len(image) != entry.size_bytes:
        raise _wrong(path, f"{len(image)} bytes, the manifest says {entry.size_bytes}")
    digest = hashlib.sha256(image).hexdigest()
    if digest != entry.sha256:
        raise _wrong(path, f"sha256 is {digest}, the manifest says {entry.sha256}")
    found = elf_capability(image)
    if isinstance(found, str):
        raise _wrong(path, found)
    wanted = target_capability(entry.variant.target)
    if found != wanted:
        shown, named = (f"sm_{major}{minor}" for major, minor in (found, wanted))
        raise _wrong(path, f"its ELF header is for {shown}, its name says {named}")
    return image


def elf_capability(image: bytes) -> Capability | str:
    """SM of a cubin from its ELF header, which does not tell `a` and `f` targets from base ones.

    Returns: the capability, or what is wrong with the header.
    """
    if len(image) < _IDENT.size + _HEADER.size or image[:4] != _MAGIC:
        return "not an ELF file"
    _, elf_class, data, _, osabi, abi_version = _IDENT.unpack_from(image)
    if (elf_class, data) != (_CLASS_64, _LITTLE_ENDIAN):
        return "not a 64-bit little-endian ELF file"
    _, machine, _, _, _, _, flags = _HEADER.unpack_from(image, _IDENT.size)
    if machine != _MACHINE_CUDA:
        known = _MACHINES.get(machine, "unknown")
        return f"ELF machine is {machine:#x} ({known}), not NVIDIA's {_MACHINE_CUDA:#x}"
    shift = _SM_SHIFTS.get((osabi, abi_version))
    if shift is None:
        return f"unknown cubin format (OSABI {osabi:#x}, ABI version {abi_version})"
    return divmod(int(flags) >> shift & 0xFF, 10)


def _wrong(path: Path, what: str) -> IntegrityError:
    return IntegrityError(f"{path}: {what}", "humming doctor")
