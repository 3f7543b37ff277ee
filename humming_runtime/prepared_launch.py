"""Everything of a launch that can be laid out ahead: argument struct, configuration, attributes."""

from __future__ import annotations

import ctypes as c
from typing import Any, Protocol

from humming_runtime import driver_abi as abi
from humming_runtime.contract.arguments import STRUCT_ALIGNMENT_BYTES, offsets
from humming_runtime.contract.launch_shape import LaunchShape

_OFFSETS = offsets()


class LoadedKernel(Protocol):
    """A kernel's handle and the context it is loaded in."""

    @property
    def handle(self) -> int: ...

    @property
    def context(self) -> int: ...


class PreparedLaunch:
    """One kernel with its own copy of the arguments, to be patched in place.

    Not thread-safe: whoever patches and launches must own it meanwhile. The driver copies the
    arguments during the call, so it may be patched again as soon as the call has returned.
    """

    def __init__(self, kernel: LoadedKernel, shape: LaunchShape, arguments: bytes) -> None:
        self._storage = aligned_buffer(len(arguments))
        self.address = aligned_address(self._storage)
        c.memmove(self.address, arguments, len(arguments))
        self._parameters = (c.c_void_p * 1)(self.address)
        self._attributes = (abi.LaunchAttribute * 2)()
        self._plain_count = 0
        if shape.cluster > 1:
            self._attributes[0].id = abi.LAUNCH_CLUSTER_DIMENSION
            self._attributes[0].value[:3] = (shape.cluster, 1, 1)
            self._plain_count = 1
        last = self._attributes[self._plain_count]  # counted where a launch asks for overlap
        last.id = abi.LAUNCH_PROGRAMMATIC_SERIALIZATION
        last.value[0] = 1
        self.config = abi.LaunchConfig(
            grid=(shape.grid, 1, 1),
            block=(shape.threads, 1, 1),
            shared_bytes=shape.shared_bytes,
            attributes=self._attributes,
        )
        self.context = kernel.context
        self.current = c.c_void_p()
        self.current_at = c.byref(self.current)
        self.call: tuple[Any, ...] = (
            c.byref(self.config),
            c.c_void_p(kernel.handle),
            self._parameters,
            None,
        )

    def set_stream(self, stream: int, *, overlap: bool) -> None:
        self.config.stream = stream
        self.config.attribute_count = self._plain_count + overlap

    def field(self, name: str) -> c.c_int64:
        """A pointer or stride of the struct; assign its `value`."""
        at = self.address - c.addressof(self._storage) + _OFFSETS[name]
        return c.c_int64.from_buffer(self._storage, at)

    def field_address(self, name: str) -> int:
        return self.address + _OFFSETS[name]

    def arguments(self, size_bytes: int) -> bytes:
        """The struct as the kernel would get it now."""
        return c.string_at(self.address, size_bytes)


def aligned_buffer(size_bytes: int) -> c.Array[c.c_char]:
    """Memory that holds `size_bytes` at aligned_address()."""
    return c.create_string_buffer(size_bytes + STRUCT_ALIGNMENT_BYTES)


def aligned_address(buffer: c.Array[c.c_char]) -> int:
    """First address inside that a tensor map may have."""
    start = c.addressof(buffer)
    return -(-start // STRUCT_ALIGNMENT_BYTES) * STRUCT_ALIGNMENT_BYTES
