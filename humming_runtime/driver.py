"""The CUDA driver through ctypes: devices, loading, launching. Opened at first use, not at import.

Only libcuda.so.1 is used: nothing depends on torch's CUDA version. Numbers are those of cuda.h.
"""

from __future__ import annotations

import ctypes as c
import os
import threading
from dataclasses import dataclass

from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.errors import DriverError, NoDeviceError
from humming_runtime.problem import Device

LIBRARY = "libcuda.so.1"

_ATTRIBUTES = {
    "sm_count": 16,
    "shared_per_sm_bytes": 81,
    "shared_limit_bytes": 97,
    "major": 75,
    "minor": 76,
}
_FUNCTION_MAX_DYNAMIC_SHARED = 8
_LAUNCH_CLUSTER, _LAUNCH_OVERLAP = 4, 6
_NO_DEVICE, _STUB_LIBRARY = 100, 34
_CAPTURE_NONE = 0


class _LaunchAttribute(c.Structure):
    _fields_ = (("id", c.c_int), ("pad", c.c_int), ("value", c.c_uint32 * 16))


class _LaunchConfig(c.Structure):
    _fields_ = (
        ("grid", c.c_uint * 3),
        ("block", c.c_uint * 3),
        ("shared_bytes", c.c_uint),
        ("stream", c.c_void_p),
        ("attributes", c.POINTER(_LaunchAttribute)),
        ("attribute_count", c.c_uint),
    )


@dataclass(frozen=True)
class Function:
    """A kernel that is loaded on one device. The library keeps it alive as long as the process."""

    handle: int
    library: int
    device: int


class Driver:
    """Calls of libcuda. Every failing call raises DriverError with its name, code and text.

    Raises: NoDeviceError where the library is missing, is a stub, or finds no device.
    """

    def __init__(self, library: c.CDLL | None = None) -> None:
        self._lib = library if library is not None else _open()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._contexts: dict[int, c.c_void_p] = {}
        code = self._lib.cuInit(0)
        if code in (_NO_DEVICE, _STUB_LIBRARY):
            what = "finds no device" if code == _NO_DEVICE else "is a stub without a driver"
            raise NoDeviceError(f"{LIBRARY}: {what}", "nvidia-smi")
        self._check(code, "cuInit")

    def version(self) -> tuple[int, int]:
        """CUDA version that the driver supports: (13, 0)."""
        value = c.c_int()
        self._call("cuDriverGetVersion", c.byref(value))
        return value.value // 1000, value.value % 1000 // 10

    def device_count(self) -> int:
        count = c.c_int()
        self._call("cuDeviceGetCount", c.byref(count))
        return count.value

    def device(self, ordinal: int) -> Device:
        """Facts of one device by its attributes; the name is for people only."""
        handle = self._device_handle(ordinal)
        facts = {key: self._attribute(number, handle) for key, number in _ATTRIBUTES.items()}
        name = c.create_string_buffer(256)
        self._call("cuDeviceGetName", name, c.c_int(len(name)), handle)
        return Device(
            ordinal=ordinal,
            name=name.value.decode(errors="replace"),
            capability=(facts["major"], facts["minor"]),
            sm_count=facts["sm_count"],
            shared_limit_bytes=facts["shared_limit_bytes"],
            shared_per_sm_bytes=facts["shared_per_sm_bytes"],
        )

    def load(self, image: bytes, symbol: str, shared_bytes: int, ordinal: int) -> Function:
        """Load a cubin in the device's primary context; allow `shared_bytes` of dynamic memory."""
        with _Current(self, ordinal):
            module, function = c.c_void_p(), c.c_void_p()
            self._call("cuModuleLoadData", c.byref(module), image)
            name = symbol.encode()
            self._call("cuModuleGetFunction", c.byref(function), module, name)
            limit = c.c_int(shared_bytes)
            attribute = c.c_int(_FUNCTION_MAX_DYNAMIC_SHARED)
            self._call("cuFuncSetAttribute", function, attribute, limit)
        return Function(function.value or 0, module.value or 0, ordinal)

    def is_capturing(self, stream: int) -> bool:
        status = c.c_int()
        self._call("cuStreamIsCapturing", c.c_void_p(stream), c.byref(status))
        return status.value != _CAPTURE_NONE

    def encode_tensor_map(self, target: int, arguments: tuple[object, ...]) -> None:
        """cuTensorMapEncodeTiled into the 64-byte aligned 128 bytes at `target`."""
        self._call("cuTensorMapEncodeTiled", c.c_void_p(target), *arguments)

    def launch(self, prepared: PreparedLaunch, stream: int) -> None:
        """Launch on `stream` of the function's device; its context is made current for the call."""
        prepared.config.stream = stream
        with _Current(self, prepared.function.device):
            code = self._lib.cuLaunchKernelEx(
                c.byref(prepared.config),
                c.c_void_p(prepared.function.handle),
                prepared.parameters,
                None,
            )
        if code:
            self._check(code, "cuLaunchKernelEx")

    def _attribute(self, number: int, handle: c.c_int) -> int:
        value = c.c_int()
        self._call("cuDeviceGetAttribute", c.byref(value), c.c_int(number), handle)
        return value.value

    def _device_handle(self, ordinal: int) -> c.c_int:
        handle = c.c_int()
        self._call("cuDeviceGet", c.byref(handle), c.c_int(ordinal))
        return handle

    def context(self, ordinal: int) -> c.c_void_p:
        """Primary context of a device, retained once: the one that torch uses as well."""
        known = self._contexts.get(ordinal)
        if known is not None:
            return known
        with self._lock:
            context = c.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", c.byref(context), self._device_handle(ordinal))
            return self._contexts.setdefault(ordinal, context)

    def push(self, ordinal: int) -> bool:
        """Make a device's context current. Returns False where it is already: nothing to pop."""
        wanted, current = self.context(ordinal), c.c_void_p()
        self._call("cuCtxGetCurrent", c.byref(current))
        if current.value == wanted.value:
            return False
        self._call("cuCtxPushCurrent_v2", wanted)
        return True

    def pop(self) -> None:
        self._call("cuCtxPopCurrent_v2", c.byref(c.c_void_p()))

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._lib, name)(*arguments)
        if code:
            self._check(code, name)

    def _check(self, code: int, name: str) -> None:
        if code == 0:
            return
        if os.getpid() != self._pid:
            message = f"{name}: CUDA was in use before this process was forked"
            raise DriverError(message, code, "start workers with the spawn method")
        text = c.c_char_p()
        self._lib.cuGetErrorName(c.c_int(code), c.byref(text))
        shown = (text.value or b"unknown").decode()
        raise DriverError(f"{name}: {shown} (CUresult {code})", code)


class PreparedLaunch:
    """Everything of a launch but the stream; the argument struct is a copy that this object owns.

    overlap: let the kernel start while its predecessor ends (capability 9.0 and up). Only right
    where the predecessor in the stream does not write weights.
    """

    def __init__(
        self, function: Function, shape: LaunchShape, arguments: bytes, *, overlap: bool
    ) -> None:
        self.function = function
        self._storage = aligned_buffer(len(arguments))
        address = aligned_address(self._storage)
        c.memmove(address, arguments, len(arguments))
        self.parameters = (c.c_void_p * 1)(address)
        attributes = (_LaunchAttribute * 2)()
        count = 0
        if shape.cluster > 1:
            attributes[count].id = _LAUNCH_CLUSTER
            attributes[count].value[:3] = (shape.cluster, 1, 1)
            count += 1
        if overlap:
            attributes[count].id = _LAUNCH_OVERLAP
            attributes[count].value[0] = 1
            count += 1
        self._attributes = attributes
        self.config = _LaunchConfig(
            grid=(shape.grid, 1, 1),
            block=(shape.threads, 1, 1),
            shared_bytes=shape.shared_bytes,
            attributes=attributes,
            attribute_count=count,
        )


class _Current:
    """A device's context is current inside."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._pushed = False

    def __enter__(self) -> None:
        self._pushed = self._driver.push(self._ordinal)

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            self._driver.pop()


_ALIGNMENT_BYTES = 64


def aligned_buffer(size_bytes: int) -> c.Array[c.c_char]:
    """Memory that holds `size_bytes` at aligned_address()."""
    return c.create_string_buffer(size_bytes + _ALIGNMENT_BYTES)


def aligned_address(buffer: c.Array[c.c_char]) -> int:
    """First 64-byte aligned address inside."""
    return -(-c.addressof(buffer) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _open() -> c.CDLL:
    try:
        return c.CDLL(LIBRARY)
    except OSError as error:
        message = f"{LIBRARY}: not found, so this machine has no NVIDIA driver ({error})"
        raise NoDeviceError(message, "nvidia-smi") from error
