"""TMA tensor maps of one GEMM: what is 2-D, which box a kernel asks for, how it is encoded."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass

from humming_runtime.contract import launch_shape
from humming_runtime.contract.arguments import FieldKind
from humming_runtime.contract.layouts import TILE_K, TILE_N, pad
from humming_runtime.contract.variant_name import Variant
from humming_runtime.driver import Driver, aligned_address, aligned_buffer
from humming_runtime.errors import UsageError

ADDRESS_ALIGNMENT_BYTES = 16
_U8, _U16, _U32, _F16, _BF16 = 0, 1, 2, 6, 9  # CUtensorMapDataType
_SWIZZLE_128, _PROMOTE_L2_256 = 3, 3


@dataclass(frozen=True)
class TensorMap:
    """A 2-D tensor and the box of one copy; x is the contiguous dimension, sizes in elements."""

    data_type: int
    address: int
    size_x: int
    size_y: int
    stride_bytes: int
    box_x: int
    box_y: int
    swizzle: int = 0


def uses_tensor_maps(variant: Variant) -> bool:
    """Decode and multistage kernels take pointers."""
    return variant.schedule == "prefill"


def activation_map(variant: Variant, address: int, stride: int, m: int, k: int) -> TensorMap:
    """Activations (m, k), `stride` elements between rows. Raises: UsageError for an alignment."""
    stride_bytes = stride * 2
    for what, value in (("address", address), ("row stride in bytes", stride_bytes)):
        if value % ADDRESS_ALIGNMENT_BYTES:
            limit = ADDRESS_ALIGNMENT_BYTES
            raise UsageError(f"activations: {what} is no multiple of {limit} ({value})")
    rows = launch_shape.activation_box_rows(variant, m)
    data_type = _F16 if variant.activation == "f16" else _BF16
    return TensorMap(data_type, address, k, m, stride_bytes, 64, rows, _SWIZZLE_128)


def weight_map(variant: Variant, address: int, n: int, k: int) -> TensorMap:
    """Packed weights as (n / 16, words of a row of tiles); a box is 128 k of a tile."""
    words = pad(k, TILE_K) // TILE_K * 128
    return TensorMap(_U32, address, words, pad(n, TILE_N) // TILE_N, words * 4, 256, _rows(variant))


def scale_map(variant: Variant, address: int, n: int, groups: int) -> TensorMap:
    """Group scales as (n / 16, groups * 16), 16 bits each."""
    return _grouped(variant, address, n, groups, _U16, 2)


def zero_map(variant: Variant, address: int, n: int, groups: int) -> TensorMap:
    """Zero points as (n / 16, groups * 16), one byte each."""
    return _grouped(variant, address, n, groups, _U8, 1)


def encode(driver: Driver, tensor: TensorMap) -> bytes:
    """Encode for the `__grid_constant__` argument: 128 bytes."""
    size = FieldKind.TENSOR_MAP.size_bytes
    buffer = aligned_buffer(size)
    address = aligned_address(buffer)
    driver.encode_tensor_map(
        address,
        (
            c.c_int(tensor.data_type),
            c.c_uint32(2),
            c.c_void_p(tensor.address),
            (c.c_uint64 * 2)(tensor.size_x, tensor.size_y),
            (c.c_uint64 * 1)(tensor.stride_bytes),
            (c.c_uint32 * 2)(tensor.box_x, tensor.box_y),
            (c.c_uint32 * 2)(1, 1),
            c.c_int(0),
            c.c_int(tensor.swizzle),
            c.c_int(_PROMOTE_L2_256),
            c.c_int(0),
        ),
    )
    return c.string_at(address, size)


def _rows(variant: Variant) -> int:
    return variant.tile_n // TILE_N


def _grouped(
    variant: Variant, address: int, n: int, groups: int, data_type: int, item_bytes: int
) -> TensorMap:
    size_x = groups * TILE_N
    box_x = TILE_N * launch_shape.groups_per_128(variant)
    rows = pad(n, TILE_N) // TILE_N
    return TensorMap(data_type, address, size_x, rows, size_x * item_bytes, box_x, _rows(variant))
