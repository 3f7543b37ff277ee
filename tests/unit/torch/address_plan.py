"""A plan that stands in for the GPU: reads operands at their addresses, by the contract."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np
import torch

from humming_runtime.contract import layouts
from humming_runtime.torch_layer.binding import operands_of

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
    """(k, n) float64: (code - zero) * scale, grouped weights in the activation dtype."""
    n, k, groups = given.n, given.k, given.groups
    raw = read(given.weight, layouts.packed_weight_bytes(n, k), torch.uint8).numpy()
    words = raw.view("<u4").astype(np.int64)
    word, nibble = nibble_places(n, k)
    codes = torch.from_numpy((words[word] >> (4 * nibble)) & 15).double()
    place = row_places(n, k, given.scale.group_size, groups)
    count = layouts.pad(n, layouts.TILE_N) * groups
    zero = torch.tensor(8.0)
    if given.weight_zero:
        zero = read(given.weight_zero, count, torch.uint8).double()[place]
    if not given.weight_scale:
        return (codes - zero) * read(given.channel_scale, n, torch.float32).double()
    dtype = _DTYPES[given.activation]
    scale = read(given.weight_scale, count, dtype).double()[place]
    return ((codes - zero) * scale).to(dtype).double()


@lru_cache
def nibble_places(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(k, n) word and nibble of each weight."""
    padded = layouts.pad(k, layouts.TILE_K)
    places = [[layouts.frag16_nibble(col, row, padded) for col in range(n)] for row in range(k)]
    both = np.array(places)
    return both[..., 0], both[..., 1]


@lru_cache
def row_places(n: int, k: int, group_size: int | None, groups: int) -> torch.Tensor:
    """(k, n) element of the scale and zero point of each weight."""
    size = group_size or layouts.pad(k, layouts.SCALE_STEP_K)
    per_group = [
        [layouts.rows16_place(col, group, groups) for col in range(n)] for group in range(groups)
    ]
    return torch.tensor(per_group)[torch.arange(k) // size]
