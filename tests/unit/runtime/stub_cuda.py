# ruff: noqa: N802  (the driver names its calls)
"""libcuda in Python behind real C calls: what the driver gets is read from raw memory.

Offsets are those of cuda.h, written here a second time on purpose.
"""

import ctypes as c
import struct
import threading
from dataclasses import dataclass, field
from typing import ClassVar

_A, _I, _U = c.c_void_p, c.c_int, c.c_uint
FUNCTION_MAX_DYNAMIC_SHARED = 8
INVALID_CONTEXT, NO_BINARY, NOT_INITIALIZED = 201, 209, 3


@dataclass(frozen=True)
class Launch:
    """One cuLaunchKernelEx as the driver sees it."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    attributes: dict[int, tuple[int, int, int]]
    arguments: bytes
    context: int


@dataclass
class StubCuda:
    """Devices are capabilities. `capturing`: streams in capture. `fail`: call name -> CUresult."""

    capabilities: tuple[tuple[int, int], ...] = ((9, 0),)
    struct_bytes: int = 768  # of kernels that take tensor maps
    plain_bytes: int = 256
    capturing: set[int] = field(default_factory=set)
    fail: dict[str, int] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    maps: list[dict[str, object]] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    attributes_set: list[tuple[int, int, int]] = field(default_factory=list)
    unloaded: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    SIGNATURES: ClassVar[dict[str, tuple[type, ...]]] = {
        "cuInit": (_U,),
        "cuGetErrorName": (_I, _A),
        "cuDriverGetVersion": (_A,),
        "cuDeviceGetCount": (_A,),
        "cuDeviceGet": (_A, _I),
        "cuDeviceGetName": (_A, _I, _I),
        "cuDeviceGetAttribute": (_A, _I, _I),
        "cuDevicePrimaryCtxRetain": (_A, _I),
        "cuCtxGetCurrent": (_A,),
        "cuCtxPushCurrent_v2": (_A,),
        "cuCtxPopCurrent_v2": (_A,),
        "cuLibraryLoadData": (_A, _A, _A, _A, _U, _A, _A, _U),
        "cuLibraryGetKernel": (_A, _A, c.c_char_p),
        "cuLibraryUnload": (_A,),
        "cuKernelGetFunction": (_A, _A),
        "cuFuncGetAttribute": (_A, _I, _A),
        "cuFuncSetAttribute": (_A, _I, _I),
        "cuStreamIsCapturing": (_A, _A),
        "cuTensorMapEncodeTiled": (_A, _I, _U, _A, _A, _A, _A, _A, _I, _I, _I, _I),
        "cuLaunchKernelEx": (_A, _A, _A, _A),
    }

    @property
    def contexts(self):
        """The calling thread's stack."""
        if not hasattr(self._local, "contexts"):
            self._local.contexts = []
        return self._local.contexts

    def __post_init__(self):
        self._keep = []
        self._loaded = {}
        self._local = threading.local()
        self._lock = threading.Lock()
        for name, types in self.SIGNATURES.items():
            setattr(self, name, c.CFUNCTYPE(c.c_int, *types)(self._entry(name)))

    def _entry(self, name):
        body = getattr(self, f"_{name}")

        def call(*arguments):
            self.calls.append(name)
            return self.fail.get(name) or body(*arguments) or 0

        return call

    def _cuInit(self, _flags):
        return 0 if self.capabilities else 100

    def _cuGetErrorName(self, code, out):
        text = c.create_string_buffer(f"CUDA_ERROR_{code}".encode())
        self._keep.append(text)
        _write(out, c.c_void_p, c.addressof(text))

    def _cuDriverGetVersion(self, out):
        _write(out, c.c_int, 13000)

    def _cuDeviceGetCount(self, out):
        _write(out, c.c_int, len(self.capabilities))

    def _cuDeviceGet(self, out, ordinal):
        if ordinal >= len(self.capabilities):
            return 101
        _write(out, c.c_int, ordinal)
        return 0

    def _cuDeviceGetName(self, out, _size, _device):
        c.memmove(out, b"Stub GPU\0", 9)

    def _cuDeviceGetAttribute(self, out, number, device):
        major, minor = self.capabilities[device]
        facts = {16: 132, 36: 3_201_000, 37: 6144, 75: major, 76: minor, 81: 233472, 97: 232448}
        _write(out, c.c_int, facts[number])

    def _cuDevicePrimaryCtxRetain(self, out, device):
        _write(out, c.c_void_p, 0x1000 + device)

    def _cuCtxGetCurrent(self, out):
        _write(out, c.c_void_p, self.contexts[-1] if self.contexts else 0)

    def _cuCtxPushCurrent_v2(self, context):
        self.contexts.append(context)

    def _cuCtxPopCurrent_v2(self, out):
        _write(out, c.c_void_p, self.contexts.pop())

    def _cuLibraryLoadData(self, out, image, *_options):
        self.images.append(c.string_at(image, 4))
        _write(out, c.c_void_p, 0x2000 + len(self.images))

    def _cuLibraryGetKernel(self, out, library, name):
        self.symbols.append(name.decode())
        self._loaded[library + 0x2000] = name.decode()
        _write(out, c.c_void_p, library + 0x1000)

    def _cuLibraryUnload(self, library):
        self.unloaded.append(library)

    def _cuKernelGetFunction(self, out, kernel):
        if not self.contexts:
            return INVALID_CONTEXT
        _write(out, c.c_void_p, kernel + 0x1000)
        return 0

    def _cuFuncGetAttribute(self, out, number, _function):
        _write(out, c.c_int, {1: 176}[number])

    def _cuFuncSetAttribute(self, function, number, value):
        self.attributes_set.append((function, number, value))

    def _cuStreamIsCapturing(self, stream, out):
        if self.capturing and not stream:
            return 906
        _write(out, c.c_int, int((stream or 0) in self.capturing))
        return 0

    def _cuTensorMapEncodeTiled(
        self, target, data_type, rank, address, sizes, strides, box, steps, *modes
    ):
        if target % 64 or rank != 2:
            return 1
        if not self.contexts:  # as the real driver (580) does
            return INVALID_CONTEXT
        entry = {
            "data_type": data_type,
            "address": address,
            "sizes": tuple(c.cast(sizes, c.POINTER(c.c_uint64))[:2]),
            "stride_bytes": c.cast(strides, c.POINTER(c.c_uint64))[0],
            "box": tuple(c.cast(box, c.POINTER(c.c_uint32))[:2]),
            "steps": tuple(c.cast(steps, c.POINTER(c.c_uint32))[:2]),
            "modes": modes,  # interleave, swizzle, L2 promotion, out-of-bounds fill
        }
        with self._lock:
            self.maps.append(entry)
            number = len(self.maps)
        c.memmove(target, map_bytes(number), 128)
        return 0

    def _cuLaunchKernelEx(self, config, function, parameters, extra):
        if extra or not self.contexts:
            return INVALID_CONTEXT
        raw = c.string_at(config, 56)
        sizes = struct.unpack_from("<7I", raw, 0)
        stream, attributes = struct.unpack_from("<QQ", raw, 32)
        (count,) = struct.unpack_from("<I", raw, 48)
        found = {}
        for i in range(count):
            attribute = c.string_at(attributes + 72 * i, 72)
            (number,) = struct.unpack_from("<i", attribute, 0)
            found[number] = struct.unpack_from("<3I", attribute, 8)
        address = c.cast(parameters, c.POINTER(c.c_void_p))[0]
        if address % 64:
            return 1
        maps = "prefill" in self._loaded.get(function, "prefill")
        arguments = c.string_at(address, self.struct_bytes if maps else self.plain_bytes)
        self.launches.append(
            Launch(
                function, sizes[:3], sizes[3:6], sizes[6], stream, found, arguments,
                self.contexts[-1],
            )
        )  # fmt: skip
        return 0


def map_bytes(number):
    """What the stub writes for its n-th tensor map."""
    return bytes([number % 256]) * 128


def _write(address, kind, value):
    kind.from_address(address).value = value
