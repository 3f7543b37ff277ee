"""Decision -> kernel handle: the file is checked before the driver sees it, once per device."""

from __future__ import annotations

import hashlib
import struct
import threading
from pathlib import Path

from humming_runtime.contract.manifest import KernelEntry
from humming_runtime.contract.targets import target_capability
from humming_runtime.driver import Driver, Function
from humming_runtime.errors import CaptureError, DriverError, IntegrityError
from humming_runtime.problem import Device
from humming_runtime.resolve import Accepted
from humming_runtime.selection import STATIC_SHARED_BYTES

_ELF_HEADER = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_MACHINE_CUDA = 190
_CUDA_13_ABI, _CUDA_12_ABI = (0x41, 8), (0x33, 7)  # (OSABI, ABIVERSION)


class Loader:
    """Loaded kernels by (file hash, device). Thread-safe; a failed load leaves nothing behind."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._functions: dict[tuple[str, int], Function] = {}

    def loaded(self, accepted: Accepted, device: Device) -> Function | None:
        """The handle if it is loaded; no lock, no driver call."""
        return self._functions.get((accepted.entry.sha256, device.ordinal))

    def load(self, accepted: Accepted, device: Device, stream: int | None = None) -> Function:
        """Load at first use. stream: refuse while it is captured (0 is the default stream).

        Raises: IntegrityError, CaptureError, DriverError.
        """
        known = self.loaded(accepted, device)
        if known is not None:
            return known
        if stream is not None and self._driver.is_capturing(stream):
            message = f"{accepted.entry.name}: not loaded yet, and the stream is being captured"
            raise CaptureError(message, "call prepare() with the sizes of m before the capture")
        with self._lock:
            known = self.loaded(accepted, device)
            if known is not None:
                return known
            image = read_cubin(accepted.package.cubin(accepted.entry), accepted.entry)
            function = self._load(image, accepted, device)
            self._functions[accepted.entry.sha256, device.ordinal] = function
            return function

    def _load(self, image: bytes, accepted: Accepted, device: Device) -> Function:
        room = device.shared_limit_bytes - STATIC_SHARED_BYTES
        try:
            return self._driver.load(image, accepted.variant.symbol, room, device.ordinal)
        except DriverError as error:
            major, minor = self._driver.version()
            capability = ".".join(str(part) for part in device.capability)
            manifest = accepted.package.manifest
            message = (
                f"{accepted.entry.name}: {error.message} on device {device.ordinal} "
                f"({device.name}, capability {capability}); built for {accepted.variant.target} with CUDA "
                f"{manifest.cuda}, the driver supports CUDA {major}.{minor}"
            )
            raise DriverError(
                message, error.code, "install a driver from release 580 on"
            ) from error


def read_cubin(path: Path, entry: KernelEntry) -> bytes:
    """Bytes of a cubin that is what its manifest says. Raises: IntegrityError."""
    try:
        image = path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if len(image) != entry.size_bytes:
        raise IntegrityError(f"{path}: {len(image)} bytes, the manifest says {entry.size_bytes}")
    digest = hashlib.sha256(image).hexdigest()
    if digest != entry.sha256:
        raise IntegrityError(f"{path}: sha256 is {digest}, the manifest says {entry.sha256}")
    capability = elf_capability(image)
    wanted = target_capability(entry.variant.target)
    if capability != wanted:
        raise IntegrityError(f"{path}: ELF is for {capability}, its name says {wanted}")
    return image


def elf_capability(image: bytes) -> tuple[int, int] | None:
    """SM of a cubin from its ELF header; None for a file that is no NVIDIA cubin."""
    if len(image) < _ELF_HEADER.size:
        return None
    fields = _ELF_HEADER.unpack_from(image)
    magic, osabi, abi_version, machine, flags = (
        fields[0],
        fields[4],
        fields[5],
        fields[7],
        fields[12],
    )
    if magic != b"\x7fELF" or machine != _MACHINE_CUDA:
        return None
    if (osabi, abi_version) == _CUDA_13_ABI:
        number = int(flags) >> 8 & 0xFF
    elif (osabi, abi_version) == _CUDA_12_ABI:
        number = int(flags) & 0xFF
    else:
        return None
    return divmod(number, 10)
