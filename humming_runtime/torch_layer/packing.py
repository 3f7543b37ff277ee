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
from humming_runtime.contract.number_formats import BYTE_SCALES, byte_scale_format
from humming_runtime.contract.variant_name import ZeroPoint
from humming_runtime.errors import UsageError
from humming_runtime.torch_layer.dtypes import ExactnessError, exact_cast
from humming_runtime.torch_layer.frag16 import pack_tiles, unpack_tiles
from humming_runtime.torch_layer.number_tensors import as_codes, encode_exact, weight_fault_codes
from humming_runtime.torch_layer.packed_weight import PackedWeight, empty_packed
from humming_runtime.torch_layer.rows16 import pack_rows, unpack_rows
from humming_runtime.torch_layer.weight_format import WeightFormat, check_size, format_of

CHUNK_BYTES = 1 << 25
PEAK_CODES_PER_CHUNK = 3
_MOST_ZERO_POINT = 255


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
    """Weights of a layer before packing: w = (value - zero) * scale * second_scale.

    Shapes: codes (n, k), scale (n, G), zero (n, G); G = ceil(k / group_size), 1 for channel scales
    (group_size None); second_scale (n) or (1) fp32. zero None: the midpoint of integers.

    weight: format of the codes (`u4`, `e2m1`, ...). scale_dtype: word of group scales as stored,
    the activation's if None; those of one byte may be given as codes (uint8) or as numbers.
    float_zero: zero points are numbers of the activation dtype, not integers.
    """

    n: int
    k: int
    group_size: int | None
    codes: RowSource
    scale: RowSource
    zero: RowSource | None = None
    weight: str = "u4"
    scale_dtype: str | None = None
    float_zero: bool = False
    second_scale: torch.Tensor | None = None

    @property
    def zero_point(self) -> ZeroPoint:
        if self.zero is None:
            return ZeroPoint.NONE
        return ZeroPoint.FLOAT if self.float_zero else ZeroPoint.INTEGER


def pack(source: WeightSource, activation: torch.dtype, device: torch.device | str) -> PackedWeight:
    """Pack on `device`.

    Raises: UsageError for a format, a size or a code out of range, ExactnessError for a scale, a
    zero point or a code that the format cannot hold.
    """
    check_size(source.n, source.k)
    form = format_of(
        activation,
        source.weight,
        source.group_size,
        scale=source.scale_dtype,
        zero=source.zero_point,
    )
    packed = empty_packed(form, source.n, source.k, device)
    for start, stop in _chunks(source.n, source.k):
        _pack_codes(source, packed, start, stop)
        _pack_scales(source, packed, start, stop)
    _set_second_scale(source, packed)
    return packed


def pack_codes(
    codes: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor | None,
    *,
    group_size: int | None,
    activation: torch.dtype,
    device: torch.device | str | None = None,
    weight: str = "u4",
    scale_dtype: str | None = None,
    second_scale: torch.Tensor | None = None,
) -> PackedWeight:
    """Pack tensors in memory; see WeightSource.

    Shapes: codes (k, n) integers; scale and zero (G, n), or (n) for channel scales. A zero of a
    16-bit float dtype is a float zero point.
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
            weight=weight,
            scale_dtype=scale_dtype,
            float_zero=zero is not None and zero.dtype in (torch.float16, torch.bfloat16),
            second_scale=second_scale,
        ),
        activation,
        codes.device if device is None else device,
    )


@dataclass(frozen=True)
class Unpacked:
    """Shapes: codes (k, n) uint8; scale (G, n), of one byte as codes; zero (G, n) or None (the
    midpoint); second_scale (n) fp32 or None.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    second_scale: torch.Tensor | None = None


def unpack(packed: PackedWeight) -> Unpacked:
    """Inverse of pack_codes; a channel scale comes back as (1, n), scales of groups larger than
    128 as those of groups of 128. Memory bound as for packing.
    """
    n, groups = packed.n, packed.groups
    second = None
    if packed.weight_scale is None:
        assert packed.channel_scale is not None
        scale = packed.channel_scale.clone()[None]
    else:
        scale = unpack_rows(packed.weight_scale, n, groups).t().contiguous()
        second = None if packed.channel_scale is None else packed.channel_scale.clone()
    zero = packed.weight_zero
    return Unpacked(
        _unpack_codes(packed),
        scale,
        None if zero is None else unpack_rows(zero, n, groups).t().contiguous(),
        second,
    )


def _unpack_codes(packed: PackedWeight) -> torch.Tensor:
    codes = torch.empty((packed.k, packed.n), dtype=torch.uint8, device=packed.device)
    for start, stop in _chunks(packed.n, packed.k):
        first, last = start // layouts.TILE_N, -(-stop // layouts.TILE_N)
        tiles = packed.weight[first:last]
        shape = tiles.shape[0] * layouts.TILE_N, tiles.shape[1] * layouts.TILE_K
        rows = torch.empty(shape, dtype=torch.uint8, device=packed.device)
        unpack_tiles(tiles, rows, packed.form.number.bits)
        codes[:, start:stop] = rows[: stop - start, : packed.k].t()
    return codes


def _chunks(n: int, k: int) -> Iterator[tuple[int, int]]:
    """Ranges of n: whole tiles of at most CHUNK_BYTES codes, at least one tile."""
    tile_row = layouts.TILE_N * layouts.pad(k, layouts.TILE_K)
    step = max(1, CHUNK_BYTES // tile_row) * layouts.TILE_N
    for start in range(0, n, step):
        yield start, min(start + step, n)


def _pack_codes(source: WeightSource, packed: PackedWeight, start: int, stop: int) -> None:
    number = packed.form.number
    given = as_codes(source.codes.rows(start, stop, packed.device))
    _check_rows("codes", given, stop - start, source.k)
    _check_range("code", given, start, number.codes - 1)
    fault = weight_fault_codes(given, number, packed.form.activation)
    if fault is not None:
        raise ExactnessError(f"codes in rows from {start}: {fault}")
    tiles = packed.weight[start // layouts.TILE_N : -(-stop // layouts.TILE_N)]
    shape = tiles.shape[0] * layouts.TILE_N, tiles.shape[1] * layouts.TILE_K
    if given.dtype == torch.uint8 and tuple(given.shape) == shape and given.is_contiguous():
        codes = given
    else:
        codes = given.new_full(shape, number.midpoint, dtype=torch.uint8)
        codes[: stop - start, : source.k] = given
    pack_tiles(codes, tiles, number.bits)


def _pack_scales(source: WeightSource, packed: PackedWeight, start: int, stop: int) -> None:
    device, form = packed.device, packed.form
    columns = 1 if source.group_size is None else -(-source.k // source.group_size)
    repeat = 1 if source.group_size is None else source.group_size // (form.group_size or 1)
    tiles = slice(start // layouts.TILE_N, -(-stop // layouts.TILE_N))
    scale = source.scale.rows(start, stop, device)
    _check_rows("scale", scale, stop - start, columns)
    zero = None
    if source.zero is not None and packed.weight_zero is not None:
        zero = source.zero.rows(start, stop, device)
        _check_rows("zero point", zero, stop - start, columns)
        stored = _stored_zero(zero, form, start)
        packed.weight_zero[tiles] = _rows16(stored, repeat, packed.weight_zero)
    place = f"scale of rows {start}..{stop - 1}, at "
    if packed.weight_scale is None:
        assert packed.channel_scale is not None
        packed.channel_scale[start:stop] = exact_cast(scale, torch.float32, place)[:, 0]
        return
    word = form.scale.dtype or form.activation
    if word in BYTE_SCALES:
        cast = encode_exact(scale, byte_scale_format(word), place)
    else:
        cast = exact_cast(scale, form.scale_storage, place)
    if form.multiplies_weights:
        _check_products(cast, zero, form, start)
    packed.weight_scale[tiles] = _rows16(cast, repeat, packed.weight_scale)


def _rows16(values: torch.Tensor, repeat: int, target: torch.Tensor) -> torch.Tensor:
    """Values (n, G) as the target's rows; each group `repeat` times."""
    spread = values if repeat == 1 else values.repeat_interleave(repeat, 1)[:, : target.shape[1]]
    return pack_rows(spread, target.shape[1])


def _stored_zero(zero: torch.Tensor, form: WeightFormat, start: int) -> torch.Tensor:
    if form.scale.zero_point == ZeroPoint.FLOAT.value:
        return exact_cast(zero, form.activation_dtype, f"zero point of rows from {start}, at ")
    # one above the codes: GPTQ v1 stores the zero point minus one
    _check_range("zero point", zero, start, min(form.number.codes, _MOST_ZERO_POINT))
    return zero.to(torch.uint8)


def _set_second_scale(source: WeightSource, packed: PackedWeight) -> None:
    second = source.second_scale
    if packed.weight_scale is not None and packed.channel_scale is not None:
        packed.channel_scale.fill_(1.0)
        if second is not None:
            if second.numel() not in (1, source.n):
                shape = tuple(second.shape)
                raise UsageError(f"second scale: shape {shape}, expected (1,) or ({source.n},)")
            cast = exact_cast(second.reshape(-1), torch.float32, "second scale at ")
            packed.channel_scale.copy_(cast.expand(source.n))
    elif second is not None:
        raise UsageError(f"second scale: format {packed.form} has none")


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


def _check_products(
    scale: torch.Tensor, zero: torch.Tensor | None, form: WeightFormat, start: int
) -> None:
    """The kernel multiplies in the activation dtype: the largest weight has to stay finite."""
    number = form.number
    if zero is None:
        reach: torch.Tensor | float = number.largest if number.is_float else number.midpoint
    else:
        reach = torch.maximum(zero.float(), number.codes - 1 - zero.float())
    largest = (scale.float().abs() * reach).max().item()
    limit = torch.finfo(scale.dtype).max
    if largest > limit:
        raise ExactnessError(
            f"scale in rows from {start}: (code - zero point) * scale reaches {largest:g}, "
            f"{scale.dtype} ends at {limit:g}"
        )
