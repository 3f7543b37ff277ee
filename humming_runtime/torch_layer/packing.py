"""Codes, scales and zero points -> PackedWeight and back: exact, and bounded in memory.

Work goes over n in chunks of whole 16-row tiles. Beside input and output, packing holds at most
PEAK_CODES_PER_CHUNK * CHUNK_BYTES bytes (one byte a code), whatever the size of the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from humming_runtime.contract import layouts
from humming_runtime.errors import UsageError
from humming_runtime.torch_layer.dtypes import ExactnessError, exact_cast
from humming_runtime.torch_layer.frag16 import pack_tiles, unpack_tiles
from humming_runtime.torch_layer.packed_weight import PackedWeight, empty_packed
from humming_runtime.torch_layer.rows16 import pack_rows, unpack_rows
from humming_runtime.torch_layer.weight_format import MIDPOINT_U4, check_size, u4_format

CHUNK_BYTES = 1 << 25
PEAK_CODES_PER_CHUNK = 3
LARGEST_CODE = 15
LARGEST_ZERO_POINT = 16
"""One above the codes: GPTQ v1 stores the zero point minus one in 4 bits."""


class RowSource(Protocol):
    """Something that yields rows of an (n, columns) matrix on demand, on the device of packing."""

    def rows(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        """Rows start..stop of n: (stop - start, columns)."""


@dataclass(frozen=True)
class Matrix:
    """A tensor (n, columns) as a RowSource; give `tensor.t()` for one that is (columns, n)."""

    tensor: torch.Tensor

    def rows(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        return self.tensor[start:stop].to(device)


@dataclass(frozen=True)
class WeightSource:
    """Weights of a layer before packing: w = (code - zero) * scale.

    Shapes: codes (n, k), scale (n, G), zero (n, G); G = ceil(k / group_size), 1 for channel scales
    (group_size None). zero None: the midpoint 8.
    """

    n: int
    k: int
    group_size: int | None
    codes: RowSource
    scale: RowSource
    zero: RowSource | None = None


def pack(source: WeightSource, activation: torch.dtype, device: torch.device | str) -> PackedWeight:
    """Pack on `device`. Group scales are stored in the activation dtype, channel scales in fp32.

    Raises: UsageError for a size or a code out of range, ExactnessError for a scale or zero point
    that the format cannot hold.
    """
    check_size(source.n, source.k)
    form = u4_format(activation, source.group_size, zero_point=source.zero is not None)
    packed = empty_packed(form, source.n, source.k, device)
    for start, stop in _chunks(source.n, source.k):
        _pack_codes(source, packed, start, stop)
        _pack_scales(source, packed, start, stop)
    return packed


def pack_codes(
    codes: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor | None,
    *,
    group_size: int | None,
    activation: torch.dtype,
    device: torch.device | str | None = None,
) -> PackedWeight:
    """Pack tensors in memory.

    Shapes: codes (k, n) integers 0..15; scale and zero (G, n), or (n) for channel scales.
    device: where to pack; the codes' own by default.
    """
    k, n = codes.shape
    return pack(
        WeightSource(
            n=n,
            k=k,
            group_size=group_size,
            codes=Matrix(codes.t()),
            scale=Matrix(scale.reshape(-1, n).t()),
            zero=None if zero is None else Matrix(zero.reshape(-1, n).t()),
        ),
        activation,
        codes.device if device is None else device,
    )


@dataclass(frozen=True)
class Unpacked:
    """Shapes: codes (k, n) uint8; scale (G, n); zero (G, n) uint8 or None (the midpoint)."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None


def unpack(packed: PackedWeight) -> Unpacked:
    """Inverse of pack_codes; a channel scale comes back as (1, n). Memory bound as for packing."""
    n, groups = packed.n, packed.groups
    if packed.channel_scale is not None:
        scale = packed.channel_scale.clone()[None]
    else:
        assert packed.weight_scale is not None
        scale = unpack_rows(packed.weight_scale, n, groups).t().contiguous()
    zero = packed.weight_zero
    return Unpacked(
        _unpack_codes(packed),
        scale,
        None if zero is None else unpack_rows(zero, n, groups).t().contiguous(),
    )


def _unpack_codes(packed: PackedWeight) -> torch.Tensor:
    codes = torch.empty((packed.k, packed.n), dtype=torch.uint8, device=packed.device)
    for start, stop in _chunks(packed.n, packed.k):
        first, last = start // layouts.TILE_N, -(-stop // layouts.TILE_N)
        tiles = packed.weight[first:last]
        shape = tiles.shape[0] * layouts.TILE_N, tiles.shape[1] * layouts.TILE_K
        rows = torch.empty(shape, dtype=torch.uint8, device=packed.device)
        unpack_tiles(tiles, rows)
        codes[:, start:stop] = rows[: stop - start, : packed.k].t()
    return codes


def _chunks(n: int, k: int) -> Iterator[tuple[int, int]]:
    """Ranges of n: whole tiles of at most CHUNK_BYTES codes, at least one tile."""
    tile_bytes = layouts.TILE_N * layouts.pad(k, layouts.TILE_K)
    step = max(1, CHUNK_BYTES // tile_bytes) * layouts.TILE_N
    for start in range(0, n, step):
        yield start, min(start + step, n)


def _pack_codes(source: WeightSource, packed: PackedWeight, start: int, stop: int) -> None:
    given = source.codes.rows(start, stop, packed.device)
    _check_rows("codes", given, stop - start, source.k)
    _check_range("code", given, start, LARGEST_CODE)
    tiles = packed.weight[start // layouts.TILE_N : -(-stop // layouts.TILE_N)]
    shape = tiles.shape[0] * layouts.TILE_N, tiles.shape[1] * layouts.TILE_K
    if given.dtype == torch.uint8 and tuple(given.shape) == shape and given.is_contiguous():
        codes = given
    else:
        codes = given.new_full(shape, MIDPOINT_U4, dtype=torch.uint8)
        codes[: stop - start, : source.k] = given
    pack_tiles(codes, tiles)


def _pack_scales(source: WeightSource, packed: PackedWeight, start: int, stop: int) -> None:
    columns, device = packed.groups, packed.device
    scale = source.scale.rows(start, stop, device)
    _check_rows("scale", scale, stop - start, columns)
    tiles = slice(start // layouts.TILE_N, -(-stop // layouts.TILE_N))
    zero = None
    if source.zero is not None and packed.weight_zero is not None:
        zero = source.zero.rows(start, stop, device)
        _check_rows("zero point", zero, stop - start, columns)
        _check_range("zero point", zero, start, LARGEST_ZERO_POINT)
        rows = pack_rows(zero.to(torch.uint8), packed.weight_zero.shape[1])
        packed.weight_zero[tiles] = rows
    place = f"scale of rows {start}..{stop - 1}, at "
    if packed.channel_scale is not None:
        packed.channel_scale[start:stop] = exact_cast(scale, torch.float32, place)[:, 0]
    elif packed.weight_scale is not None:
        cast = exact_cast(scale, packed.weight_scale.dtype, place)
        _check_products(cast, zero, start)
        packed.weight_scale[tiles] = pack_rows(cast, packed.weight_scale.shape[1])


def _check_rows(what: str, values: torch.Tensor, rows: int, columns: int) -> None:
    if tuple(values.shape) != (rows, columns):
        raise UsageError(f"{what}: shape by n is {tuple(values.shape)}, expected {(rows, columns)}")


def _check_range(what: str, values: torch.Tensor, start: int, largest: int) -> None:
    """Integers 0..largest? An integral float (zero points of some checkpoints) passes."""
    low, high = values.aminmax()
    if low < 0 or high > largest:
        raise UsageError(
            f"{what}: values {low.item()}..{high.item()} in rows from {start}, limits 0..{largest}"
        )
    if values.is_floating_point() and not torch.equal(values, values.round()):
        raise ExactnessError(f"{what}: not an integer in rows from {start}")


def _check_products(scale: torch.Tensor, zero: torch.Tensor | None, start: int) -> None:
    """The kernel multiplies in the activation dtype: the largest weight has to stay finite."""
    if zero is None:
        reach: torch.Tensor | int = MIDPOINT_U4
    else:
        reach = torch.maximum(zero.float(), LARGEST_CODE - zero.float())
    largest = (scale.float().abs() * reach).max().item()
    limit = torch.finfo(scale.dtype).max
    if largest > limit:
        raise ExactnessError(
            f"scale in rows from {start}: (code - zero point) * scale reaches {largest:g}, "
            f"{scale.dtype} ends at {limit:g}"
        )
