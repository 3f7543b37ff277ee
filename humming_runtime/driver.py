"""The CUDA driver through ctypes: devices, loading, launching. Opened at first use, not at import.

Only libcuda.so.1 is used: nothing depends on torch's CUDA version.
"""

from __future__ import annotations

import ctypes as c
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from humming_runtime import driver_abi as abi
from humming_runtime.errors import DriverError, NoDeviceError
from humming_runtime.prepared_launch import PreparedLaunch
from humming_runtime.problem import Device


@dataclass(frozen=True)
class Function:
    """A kernel that is loaded in one device's primary context, as long as the process lives."""

    handle: int
    context: int
    device: int


class Driver:
    """Calls of libcuda. Every failing call raises DriverError with its name, code and text.

    Raises: NoDeviceError where the library is missing, is a stub, or finds no device; DriverError
    in a process that was forked after CUDA was in use.
    """

    def __init__(self, library: Any = None) -> None:
        self._calls = abi.bind(abi.open_library() if library is None else library)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._contexts: dict[int, int] = {}
        self.launch_addresses = tuple(abi.address(self._calls[name]) for name in abi.LAUNCH_CALLS)
        self._get_current = self._calls["cuCtxGetCurrent"]
        self._launch_kernel = self._calls["cuLaunchKernelEx"]
        code = self._calls["cuInit"](0)
        if code in (abi.NO_DEVICE, abi.STUB_LIBRARY):
            what = "finds no device" if code == abi.NO_DEVICE else "is a stub without a driver"
            raise NoDeviceError(f"{abi.LIBRARY}: {what} (CUresult {code})", "nvidia-smi")
        if code:
            raise self.failure("cuInit", code)

    def version(self) -> tuple[int, int]:
        """CUDA version that the driver supports: (13, 0)."""
        value = self._int("cuDriverGetVersion")
        return value // 1000, value % 1000 // 10

    def device_count(self) -> int:
        return self._int("cuDeviceGetCount")

    def device(self, ordinal: int) -> Device:
        """Facts of one device by its attributes; the name is for people only."""
        handle = self._device_handle(ordinal)
        facts = {
            key: self._int("cuDeviceGetAttribute", number, handle)
            for key, number in abi.DEVICE_ATTRIBUTES.items()
        }
        name = c.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), handle)
        return Device(
            ordinal=ordinal,
            name=name.value.decode(errors="replace"),
            capability=(facts["major"], facts["minor"]),
            sm_count=facts["sm_count"],
            shared_limit_bytes=facts["shared_limit_bytes"],
            shared_per_sm_bytes=facts["shared_per_sm_bytes"],
            memory_gbps=round(2 * facts["memory_khz"] * facts["memory_bus_bits"] / 8e6),
            driver_cuda=self.version(),
        )

    def context(self, ordinal: int) -> int:
        """Primary context of a device, retained once: the one that torch uses as well."""
        known = self._contexts.get(ordinal)
        if known is not None:
            return known
        with self._lock:
            if ordinal not in self._contexts:
                handle = self._device_handle(ordinal)
                self._contexts[ordinal] = self._address("cuDevicePrimaryCtxRetain", handle)
            return self._contexts[ordinal]

    def load(self, image: bytes, symbol: str, device: Device) -> Function:
        """Load a cubin now, not lazily, and allow its kernel all shared memory of a CTA."""
        with self.current(device.ordinal):
            library = self._address("cuLibraryLoadData", image, None, None, 0, None, None, 0)
            try:
                kernel = self._address("cuLibraryGetKernel", library, symbol.encode())
                handle = self._address("cuKernelGetFunction", kernel)
                static = self._int("cuFuncGetAttribute", abi.FUNCTION_STATIC_SHARED, handle)
                room = device.shared_limit_bytes - static
                self._call("cuFuncSetAttribute", handle, abi.FUNCTION_MAX_DYNAMIC_SHARED, room)
            except DriverError:
                self._calls["cuLibraryUnload"](library)
                raise
        return Function(handle, self.context(device.ordinal), device.ordinal)

    def is_capturing(self, stream: int, ordinal: int) -> bool:
        """Does work on `stream` become a part of a CUDA graph?

        The default stream cannot be asked while another one is captured; that counts as yes.
        """
        status = c.c_int()
        with self.current(ordinal):
            code = self._calls["cuStreamIsCapturing"](stream, c.byref(status))
        if code == abi.CAPTURE_IMPLICIT:
            return True
        if code:
            raise self.failure("cuStreamIsCapturing", code)
        return status.value != abi.CAPTURE_STATUS_NONE

    def encode_tensor_map(self, arguments: tuple[Any, ...]) -> None:
        """cuTensorMapEncodeTiled; the first argument is the 64-byte aligned address to fill."""
        encode = self._calls["cuTensorMapEncodeTiled"]
        code = encode(*arguments)
        if code == abi.INVALID_CONTEXT and self._contexts:
            # A thread that has not used CUDA yet; the encoding is the same in every context.
            with self._pushed(next(iter(self._contexts.values()))):
                code = encode(*arguments)
        if code:
            raise self.failure("cuTensorMapEncodeTiled", code)

    def launch(self, prepared: PreparedLaunch, stream: int, *, overlap: bool) -> None:
        """Enqueue on `stream`; the kernel's context is current for the call.

        overlap: let the kernel start while its predecessor ends. Only right where the predecessor
        in the stream does not write the weights, and the kernel waits before it reads the rest.
        """
        prepared.set_stream(stream, overlap=overlap)
        code = self._get_current(prepared.current_at)
        if code:
            raise self.failure("cuCtxGetCurrent", code)
        if prepared.current.value == prepared.context:
            code = self._launch_kernel(*prepared.call)
        else:
            with self._pushed(prepared.context):
                code = self._launch_kernel(*prepared.call)
        if code:
            raise self.failure("cuLaunchKernelEx", code)

    @contextmanager
    def current(self, ordinal: int) -> Iterator[None]:
        """A device's primary context is current inside; the thread's own comes back after."""
        with self._pushed(self.context(ordinal)):
            yield

    @contextmanager
    def _pushed(self, context: int) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self._address("cuCtxPopCurrent_v2")

    def _device_handle(self, ordinal: int) -> int:
        return self._int("cuDeviceGet", ordinal)

    def _int(self, name: str, *arguments: Any) -> int:
        """A call whose first parameter is where an int goes."""
        value = c.c_int()
        self._call(name, c.byref(value), *arguments)
        return value.value

    def _address(self, name: str, *arguments: Any) -> int:
        """A call whose first parameter is where a handle goes."""
        value = c.c_void_p()
        self._call(name, c.byref(value), *arguments)
        return value.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        if os.getpid() != self._pid:
            raise _forked(name, abi.NOT_INITIALIZED)
        code = self._calls[name](*arguments)
        if code:
            raise self.failure(name, code)

    def failure(self, name: str, code: int) -> DriverError:
        """The error for a call of the driver that returned `code`."""
        # The driver itself refuses every call in a child of a process that has used CUDA.
        if code == abi.NOT_INITIALIZED or os.getpid() != self._pid:
            return _forked(name, code)
        text = c.c_char_p()
        self._calls["cuGetErrorName"](code, c.byref(text))
        shown = (text.value or b"unknown error").decode()
        return DriverError(f"{name}: {shown} (CUresult {code})", code, abi.HINTS.get(code))


def _forked(name: str, code: int) -> DriverError:
    message = f"{name}: CUDA was in use before this process was forked (CUresult {code})"
    return DriverError(message, code, "start workers with the spawn method")
