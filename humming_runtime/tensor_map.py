"""TMA tensor maps of one GEMM: what is 2-D, which box a kernel asks for, how it is encoded.

| map | x (contiguous) | y | box |
|---|---|---|---|
| activations | k | m | 64 x min(tile m, m rounded up to 8), swizzled |
| weights | packed tiles in 32-bit words (64-bit above 4 bits) | n / 16 | 128 k x tile n / 16 |
| scales | groups * 16, as wide as they are | n / 16 | 16 * groups of 128 k x tile n / 16 |
| zero points | groups * 16, as wide as they are | n / 16 | the same |
"""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Any

from humming_runtime.contract import launch_shape
from humming_runtime.contract.arguments import FieldKind
from humming_runtime.contract.layouts import TILE_K, TILE_N, pad, tile_bytes
from humming_runtime.contract.number_formats import weight_format
from humming_runtime.contract.variant_name import Variant
from humming_runtime.driver import Driver
from humming_runtime.errors import UsageError
from humming_runtime.prepared_launch import aligned_address, aligned_buffer

ADDRESS_ALIGNMENT_BYTES = 16
_MOST_BOX = 256
_MOST_SIZE = 2**32
_MOST_STRIDE_BYTES = 2**40

# CUtensorMapDataType
_U8, _U16, _U32, _U64, _F16, _BF16 = 0, 1, 2, 4, 6, 9
_WORDS = {1: _U8, 2: _U16, 4: _U32, 8: _U64}
"""By size in bytes: maps of bytes that only the kernel understands."""
_MOST_BITS_OF_SHORT_WORDS = 4
_ACTIVATION_TYPES = {"f16": _F16, "bf16": _BF16}
# CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
_NO_INTERLEAVE, _NO_SWIZZLE, _SWIZZLE_128, _PROMOTE_L2_256, _FILL_ZEROS = 0, 0, 3, 3, 0


@dataclass(frozen=True)
class TensorMap:
    """A 2-D tensor and the box of one copy; x is the contiguous dimension, sizes in elements."""

    name: str
    data_type: int
    address: int
    size_x: int
    size_y: int
    stride_bytes: int
    box_x: int
    box_y: int
    swizzle: int = _NO_SWIZZLE

    def check(self) -> None:
        """Raises: UsageError where TMA cannot address the tensor."""
        for what, value in (("address", self.address), ("row stride in bytes", self.stride_bytes)):
            if value % ADDRESS_ALIGNMENT_BYTES:
                limit = ADDRESS_ALIGNMENT_BYTES
                raise UsageError(f"{self.name}: {what} is no multiple of {limit} ({value})")
        limits = (
            ("row stride in bytes", self.stride_bytes, _MOST_STRIDE_BYTES - 1),
            ("columns", self.size_x, _MOST_SIZE),
            ("rows", self.size_y, _MOST_SIZE),
            ("columns of a box", self.box_x, _MOST_BOX),
            ("rows of a box", self.box_y, _MOST_BOX),
        )
        for what, value, most in limits:
            if not 0 < value <= most:
                raise UsageError(f"{self.name}: {what} out of range ({value}, limit {most})")

    def encoding(self) -> tuple[int, ...]:
        """What cuTensorMapEncodeTiled needs besides address and stride, checked.

        Order: data type, sizes x and y, box x and y, interleave, swizzle, L2 promotion, fill.
        Raises: UsageError.
        """
        self.check()
        return (
            *(self.data_type, self.size_x, self.size_y, self.box_x, self.box_y),
            *(_NO_INTERLEAVE, self.swizzle, _PROMOTE_L2_256, _FILL_ZEROS),
        )


def activation_map(variant: Variant, address: int, stride: int, m: int, k: int) -> TensorMap:
    """Activations (m, k), `stride` elements between rows."""
    rows = launch_shape.activation_box_rows(variant, m)
    data_type = _ACTIVATION_TYPES[variant.activation]
    return TensorMap("activations", data_type, address, k, m, stride * 2, 64, rows, _SWIZZLE_128)


def weight_map(variant: Variant, address: int, n: int, k: int) -> TensorMap:
    """Packed weights: a row is the k64 tiles of 16 channels."""
    bits = weight_format(variant.weight).bits
    size = 4 if bits <= _MOST_BITS_OF_SHORT_WORDS else 8
    row_bytes = pad(k, TILE_K) // TILE_K * tile_bytes(bits)
    box = 2 * tile_bytes(bits) // size
    rows = pad(n, TILE_N) // TILE_N
    words = row_bytes // size
    return TensorMap(
        "weight", _WORDS[size], address, words, rows, row_bytes, box, _box_rows(variant)
    )


def scale_map(variant: Variant, address: int, n: int, groups: int) -> TensorMap:
    """Group scales."""
    size = launch_shape.scale_bytes(variant)
    return _grouped("weight_scale", variant, address, (n, groups), size)


def zero_map(variant: Variant, address: int, n: int, groups: int) -> TensorMap:
    """Zero points of groups."""
    size = launch_shape.zero_point_bytes(variant.scale)
    return _grouped("weight_zero", variant, address, (n, groups), size)


class MapEncoder:
    """Encodes one tensor map again and again in place, for addresses and strides that change."""

    def __init__(self, driver: Driver, tensor: TensorMap, target: int) -> None:
        tensor.check()
        self._driver = driver
        self._address = c.c_void_p(tensor.address)
        self._stride = (c.c_uint64 * 1)(tensor.stride_bytes)
        self._arguments: tuple[Any, ...] = (
            c.c_void_p(target),
            c.c_int(tensor.data_type),
            c.c_uint(2),
            self._address,
            (c.c_uint64 * 2)(tensor.size_x, tensor.size_y),
            self._stride,
            (c.c_uint32 * 2)(tensor.box_x, tensor.box_y),
            (c.c_uint32 * 2)(1, 1),
            c.c_int(_NO_INTERLEAVE),
            c.c_int(tensor.swizzle),
            c.c_int(_PROMOTE_L2_256),
            c.c_int(_FILL_ZEROS),
        )

    def encode(self, address: int, stride_bytes: int) -> None:
        """Both are multiples of 16; the caller has checked."""
        self._address.value = address
        self._stride[0] = stride_bytes
        self._driver.encode_tensor_map(self._arguments)


def encode(driver: Driver, tensor: TensorMap) -> bytes:
    """Encode for the `__grid_constant__` argument: 128 bytes. Raises: UsageError, DriverError."""
    size = FieldKind.TENSOR_MAP.size_bytes
    buffer = aligned_buffer(size)
    target = aligned_address(buffer)
    MapEncoder(driver, tensor, target).encode(tensor.address, tensor.stride_bytes)
    return c.string_at(target, size)


def _box_rows(variant: Variant) -> int:
    return variant.tile_n // TILE_N


def _grouped(
    name: str, variant: Variant, address: int, size: tuple[int, int], element_bytes: int
) -> TensorMap:
    n, groups = size
    columns = groups * TILE_N
    box_x = TILE_N * launch_shape.groups_per_128(variant)
    rows, row_bytes = pad(n, TILE_N) // TILE_N, columns * element_bytes
    data_type = _WORDS[element_bytes]
    return TensorMap(name, data_type, address, columns, rows, row_bytes, box_x, _box_rows(variant))
