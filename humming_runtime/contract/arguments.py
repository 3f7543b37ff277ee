"""The kernel argument: one struct by value, described once.

`GEMM_FIELDS` generates the CUDA header (build side), the packer (runtime) and a part of the contract hash.
Order inside the struct: pointers, 64-bit strides, 32-bit values, then tensor maps (64-byte aligned). Only kernels
that use maps have them: the driver copies every byte of a launch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class FieldKind(Enum):
    """Storage of a field; `size_bytes` is also its alignment except for tensor maps (64)."""

    POINTER = "pointer"
    INT64 = "int64"
    INT32 = "int32"
    TENSOR_MAP = "tensor_map"

    @property
    def size_bytes(self) -> int:
        return _SIZE_BYTES[self]


_SIZE_BYTES = {
    FieldKind.TENSOR_MAP: 128,
    FieldKind.POINTER: 8,
    FieldKind.INT64: 8,
    FieldKind.INT32: 4,
}
STRUCT_ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class Field:
    """One member of the argument struct; a null pointer means that the input is absent."""

    name: str
    kind: FieldKind
    meaning: str


_T, _P, _L, _I = FieldKind.TENSOR_MAP, FieldKind.POINTER, FieldKind.INT64, FieldKind.INT32

GEMM_FIELDS: tuple[Field, ...] = (
    Field("activation", _P, "activations (m, k), row stride activation_stride"),
    Field("activation_scale", _P, "fp32 per token (m) or per token and group; null for 16-bit"),
    Field("activation_permutation", _P, "int32 (k): act-order gather of k; null = identity"),
    Field("weight", _P, "packed weights in the variant's layout"),
    Field("weight_scale", _P, "group scales [n/16][groups][16]; null for channel granularity"),
    Field("weight_zero", _P, "zero points [n/16][groups][16], uint8; null = midpoint"),
    Field("channel_scale", _P, "fp32 (n): channel scale or second scale, epilogue; null = 1"),
    Field("tensor_scale", _P, "fp32 scalar, epilogue; null = 1"),
    Field("bias", _P, "(n) in the output dtype; null = absent"),
    Field("output", _P, "(m, n), row stride output_stride"),
    Field("routing_weight", _P, "moe: fp32 per routed row; null = 1"),
    Field("sorted_rows", _P, "moe: int32 row ids sorted by expert"),
    Field("tile_experts", _P, "moe: int32 expert id of each m tile, -1 = skip"),
    Field("valid_rows", _P, "moe: int32 scalar, number of padded rows in use"),
    Field("activation_stride", _L, "elements between rows of activations"),
    Field("output_stride", _L, "elements between rows of output"),
    Field("weight_expert_stride", _L, "bytes between experts of packed weights"),
    Field("scale_expert_stride", _L, "bytes between experts of group scales"),
    Field("zero_expert_stride", _L, "bytes between experts of zero points"),
    Field("m", _I, "rows of activations and output"),
    Field("n", _I, "columns of output"),
    Field("k", _I, "columns of activations"),
    Field("groups", _I, "scale groups along k as stored"),
    Field("group_size", _I, "elements of k that share a scale; 0 for channel granularity"),
    Field("experts", _I, "moe: number of experts; 0 for dense"),
    Field("top_k", _I, "moe: routed rows per token; 0 for dense"),
    Field("split_k", _I, "CTAs of one cluster that share k (1 = none)"),
    Field(
        "whole_tiles",
        _I,
        "prefill: tiles that one CTA makes alone, a multiple of split_k; the others are shared",
    ),
    Field(
        "early_successor",
        _I,
        "decode: 1 = the next kernel may start at once, 0 = after the last request of weights",
    ),
    Field("stages", _I, "depth of the shared-memory ring where it is chosen at launch"),
    Field("activation_map", _T, "activations (m, k), 128-byte swizzle; used by TMA schedules"),
    Field("weight_map", _T, "packed weights as (n/16, bytes of a row of tiles)"),
    Field("scale_map", _T, "group scales as (n/16, groups * 16)"),
    Field("zero_map", _T, "zero points as (n/16, groups * 16)"),
)


def offsets() -> dict[str, int]:
    """Byte offset of every field, by name."""
    out: dict[str, int] = {}
    at = 0
    for field in GEMM_FIELDS:
        size = field.kind.size_bytes
        align = STRUCT_ALIGNMENT_BYTES if field.kind is FieldKind.TENSOR_MAP else size
        at = -(-at // align) * align
        out[field.name] = at
        at += size
    return out


def struct_size_bytes(*, maps: bool) -> int:
    """Size of the struct with or without tensor maps: a multiple of its alignment."""
    fields = [f for f in GEMM_FIELDS if maps or f.kind is not FieldKind.TENSOR_MAP]
    end = offsets()[fields[-1].name] + fields[-1].kind.size_bytes
    return -(-end // STRUCT_ALIGNMENT_BYTES) * STRUCT_ALIGNMENT_BYTES


_OFFSETS = offsets()
_CODES = {FieldKind.POINTER: "<Q", FieldKind.INT64: "<q", FieldKind.INT32: "<i"}
_PACKERS = {
    f.name: struct.Struct(_CODES[f.kind]) for f in GEMM_FIELDS if f.kind is not FieldKind.TENSOR_MAP
}


def pack_into(buffer: bytearray, values: Mapping[str, int | bytes]) -> None:
    """Write `values` into `buffer` (struct_size_bytes long, either way); fields not named keep their bytes.

    Raises: KeyError for a name that is no field, struct.error for a value out of range,
    ValueError for a tensor map that is not 128 bytes.
    """
    for name, value in values.items():
        at = _OFFSETS[name]
        if isinstance(value, bytes):
            size = FieldKind.TENSOR_MAP.size_bytes
            if len(value) != size or name in _PACKERS:
                raise ValueError(f"{name}: not a tensor map of {size} bytes (got {len(value)})")
            buffer[at : at + size] = value
        else:
            _PACKERS[name].pack_into(buffer, at, value)
