"""A plan that stands in for the GPU: reads operands at their addresses, by the contract."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np
import torch

from humming_runtime.contract import layouts
from humming_runtime.contract.number_formats import (
    BYTE_SCALES,
    byte_scale_format,
    weight_format,
)
from humming_runtime.torch_layer.binding import operands_of
from humming_runtime.torch_layer.weight_format import SCALE_STORAGE

_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


class AddressPlan:
    """Launches compute at once, on host memory. `launches` holds (m, stream, overlap)."""

    def __init__(self, key) -> None:
        self.key = key
        self.operands = operands_of(key)
        self.operands.check()
        self.launches: list[tuple[int, int, bool]] = []
        self.prepared: list[int] = []
        self.fault: Exception | None = None

    def prepare(self, sizes) -> None:
        self.prepared += sizes

    def is_capturing(self, _stream) -> bool:
        return False

    def ready(self, _m) -> None:
        """Nothing to launch without the operator."""

    def launch(self, m, x, x_stride, out, out_stride, stream, *, overlap, bias) -> None:
        if self.fault is not None:
            raise self.fault
        self.launches.append((m, stream, overlap))
        given = self.operands
        dtype = _DTYPES[given.activation]
        offset = read(bias, given.n, dtype).double() if bias else 0.0
        weight = read_weight(given)
        for row in range(m):
            value = read(x + 2 * row * x_stride, given.k, dtype).double() @ weight + offset
            write(out + 2 * row * out_stride, value.to(dtype))


def read(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    data = ctypes.string_at(address, count * dtype.itemsize)
    return torch.frombuffer(bytearray(data), dtype=dtype)


def write(address: int, values: torch.Tensor) -> None:
    data = values.view(torch.uint8).numpy().tobytes()
    ctypes.memmove(address, data, len(data))


def read_weight(given) -> torch.Tensor:
    """(k, n) float64: (value - zero) * scale; grouped in the activation dtype where kernels may."""
    n, k, groups = given.n, given.k, given.groups
    number = weight_format(given.weight_dtype)
    codes = read_codes(given.weight, n, k, number.bits)
    values = torch.tensor(number.values, dtype=torch.float64)[codes]
    place = row_places(n, k, given.scale.group_size, groups)
    count = layouts.pad(n, layouts.TILE_N) * groups
    dtype = _DTYPES[given.activation]
    if given.weight_zero:
        stored = torch.uint8 if given.scale.zero_point == "z" else dtype
        values -= read(given.weight_zero, count, stored).double()[place]
    elif not number.is_float:
        values -= number.midpoint
    second = read(given.channel_scale, n, torch.float32).double() if given.channel_scale else 1.0
    if not given.weight_scale:
        return values * second
    word = given.scale.dtype
    stored = read(given.weight_scale, count, SCALE_STORAGE[word])
    if word in BYTE_SCALES:
        stored = torch.tensor(byte_scale_format(word).values, dtype=torch.float64)[stored.long()]
    product = values * stored.double()[place]
    return (product.to(dtype).double() if word == given.activation else product) * second


def read_codes(address: int, n: int, k: int, bits: int) -> torch.Tensor:
    """(k, n) codes of packed weights, read plane by plane."""
    raw = read(address, layouts.packed_weight_bytes(n, k, bits), torch.uint8).numpy()
    words = raw.view("<u4").astype(np.int64)
    codes, shift = np.zeros((k, n), np.int64), 0
    for (word, bit), width in zip(plane_places(n, k, bits), layouts.planes(bits), strict=True):
        codes |= ((words[word] >> bit) & ((1 << width) - 1)) << shift
        shift += width
    return torch.from_numpy(codes)


@lru_cache
def plane_places(n: int, k: int, bits: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(k, n) word and bit of each weight, for each plane."""
    padded = layouts.pad(k, layouts.TILE_K)
    every = [[layouts.frag16_places(c, r, padded, bits) for c in range(n)] for r in range(k)]
    both = np.array([[[(p.word, p.bit) for p in places] for places in row] for row in every])
    return [(both[:, :, plane, 0], both[:, :, plane, 1]) for plane in range(both.shape[2])]


@lru_cache
def row_places(n: int, k: int, group_size: int | None, groups: int) -> torch.Tensor:
    """(k, n) element of the scale and zero point of each weight."""
    size = group_size or layouts.pad(k, layouts.SCALE_STEP_K)
    per_group = [
        [layouts.rows16_place(col, group, groups) for col in range(n)] for group in range(groups)
    ]
    return torch.tensor(per_group)[torch.arange(k) // size]
