"""What libcuda's calls look like: structs, argument types, numbers of cuda.h, and opening it."""

from __future__ import annotations

import ctypes as c
from typing import Any

from humming_runtime.errors import NoDeviceError

LIBRARY = "libcuda.so.1"

# CUresult
SUCCESS = 0
NOT_INITIALIZED = 3
INVALID_CONTEXT = 201
STUB_LIBRARY = 34
NO_DEVICE = 100
CAPTURE_IMPLICIT = 906

# CUdevice_attribute
DEVICE_ATTRIBUTES = {
    "sm_count": 16,
    "memory_khz": 36,
    "memory_bus_bits": 37,
    "major": 75,
    "minor": 76,
    "shared_per_sm_bytes": 81,
    "shared_limit_bytes": 97,
}

# CUfunction_attribute
FUNCTION_STATIC_SHARED = 1
FUNCTION_MAX_DYNAMIC_SHARED = 8

# CUlaunchAttributeID
LAUNCH_CLUSTER_DIMENSION = 4
LAUNCH_PROGRAMMATIC_SERIALIZATION = 6

CAPTURE_STATUS_NONE = 0

HINTS = {
    209: "humming doctor",  # no binary for the device
    803: "make the user-mode driver (libcuda) match the kernel module: nvidia-smi",
    804: "remove the forward-compatibility libcuda from LD_LIBRARY_PATH",
}


class LaunchAttribute(c.Structure):
    """CUlaunchAttribute: 72 bytes, the value is a union of 64."""

    _fields_ = (("id", c.c_int), ("pad", c.c_int), ("value", c.c_uint32 * 16))


class LaunchConfig(c.Structure):
    """CUlaunchConfig: 56 bytes."""

    _fields_ = (
        ("grid", c.c_uint * 3),
        ("block", c.c_uint * 3),
        ("shared_bytes", c.c_uint),
        ("stream", c.c_void_p),
        ("attributes", c.POINTER(LaunchAttribute)),
        ("attribute_count", c.c_uint),
    )


_ADDRESS, _INT, _UINT, _TEXT = c.c_void_p, c.c_int, c.c_uint, c.c_char_p

# Handles are addresses, CUdevice is an int; out parameters are addresses.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_UINT,),
    "cuGetErrorName": (_INT, _ADDRESS),
    "cuDriverGetVersion": (_ADDRESS,),
    "cuDeviceGetCount": (_ADDRESS,),
    "cuDeviceGet": (_ADDRESS, _INT),
    "cuDeviceGetName": (_ADDRESS, _INT, _INT),
    "cuDeviceGetAttribute": (_ADDRESS, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_ADDRESS, _INT),
    "cuCtxGetCurrent": (_ADDRESS,),
    "cuCtxPushCurrent_v2": (_ADDRESS,),
    "cuCtxPopCurrent_v2": (_ADDRESS,),
    "cuLibraryLoadData": (
        _ADDRESS, _TEXT, _ADDRESS, _ADDRESS, _UINT, _ADDRESS, _ADDRESS, _UINT,
    ),
    "cuLibraryGetKernel": (_ADDRESS, _ADDRESS, _TEXT),
    "cuLibraryUnload": (_ADDRESS,),
    "cuKernelGetFunction": (_ADDRESS, _ADDRESS),
    "cuFuncGetAttribute": (_ADDRESS, _INT, _ADDRESS),
    "cuFuncSetAttribute": (_ADDRESS, _INT, _INT),
    "cuStreamIsCapturing": (_ADDRESS, _ADDRESS),
    "cuTensorMapEncodeTiled": (
        _ADDRESS, _INT, _UINT, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _INT, _INT, _INT,
        _INT,
    ),
    "cuLaunchKernelEx": (_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS),
}  # fmt: skip


LAUNCH_CALLS = (
    "cuLaunchKernelEx",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuTensorMapEncodeTiled",
)
"""What the extension calls by itself, in its order."""


def address(call: Any) -> int:
    """Where a function of the driver is."""
    return c.cast(call, c.c_void_p).value or 0


def open_library() -> Any:
    """libcuda of this machine. Raises: NoDeviceError."""
    try:
        return c.CDLL(LIBRARY)
    except OSError as error:
        message = f"{LIBRARY}: not found, so this machine has no NVIDIA driver ({error})"
        raise NoDeviceError(message, "nvidia-smi") from error


def bind(library: Any) -> dict[str, Any]:
    """Every call of SIGNATURES, typed. Raises: NoDeviceError where the driver lacks one."""
    calls: dict[str, Any] = {}
    for name, types in SIGNATURES.items():
        call = getattr(library, name, None)
        if call is None:
            message = f"{LIBRARY}: has no {name}, so the driver is older than CUDA 12.0"
            raise NoDeviceError(message, "install a driver from release 580 on")
        call.argtypes = types
        calls[name] = call
    return calls
