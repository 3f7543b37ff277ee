"""Codes <-> `frag16` bytes of whole 16-row tiles. The layout is drawn in contract/layouts.py.

A weight of a tile has the coordinates (hr, g) of its row and (jh, jl, hk, t, e) of its k:

    n = 16 row + 8 hr + g        k = 64 step + 32 jh + 16 jl + 8 hk + 2 t + e

and its pair is 8 jh + 4 jl + 2 hk + hr. A byte of a plane of p bits holds 8 / p pairs that follow
each other, that is all values of the last coordinates of the pair: those are folded into bytes
first, and what is left is a permutation of bytes.
"""

from __future__ import annotations

import math

import torch

from humming_runtime.contract.layouts import TILE_K, TILE_N, planes, tile_bytes

_COORDINATES = (2, 8, 2, 2, 2, 4, 2)  # hr, g, jh, jl, hk, t, e; steps come between g and jh
_FOLDED_DIMENSIONS = (1, 5, 4)
"""Where hr, then hk, then jl stand in (row, hr, g, step, jh, jl, hk, t, e) when they are folded."""


def pack_tiles(codes: torch.Tensor, out: torch.Tensor, bits: int) -> None:
    """Write the tiles of `codes` into `out`; codes are below 2^bits.

    Shapes: codes (16 rows, 64 steps) uint8, out (rows, steps, 128 bits) uint8.
    Extra memory: at most two bytes a code.
    """
    offset = shift = 0
    for width in planes(bits):
        plane = codes if width == bits else (codes >> shift).bitwise_and_((1 << width) - 1)
        target = out[:, :, offset : offset + tile_bytes(width)]
        _in_memory_order(target, width).copy_(_folded(_by_coordinates(plane), width))
        offset += tile_bytes(width)
        shift += width


def unpack_tiles(tiles: torch.Tensor, out: torch.Tensor, bits: int) -> None:
    """Inverse of pack_tiles. Shapes: tiles (rows, steps, 128 bits), out (16 rows, 64 steps), uint8.

    Extra memory: at most two bytes a code.
    """
    offset = shift = 0
    for width in planes(bits):
        part = tiles[:, :, offset : offset + tile_bytes(width)]
        plane = _unfolded(_in_memory_order(part, width), width)
        target = _by_coordinates(out)
        if shift == 0:
            target.copy_(plane)
        else:
            target.bitwise_or_(plane << shift)
        offset += tile_bytes(width)
        shift += width


def _by_coordinates(codes: torch.Tensor) -> torch.Tensor:
    """(16 rows, 64 steps) -> (row, hr, g, step, jh, jl, hk, t, e)."""
    rows, k = codes.shape[0] // TILE_N, codes.shape[1]
    high_row, row, *inside = _COORDINATES
    return codes.view(rows, high_row, row, k // TILE_K, *inside)


def _folds(width: int) -> int:
    """How many coordinates a byte of the plane holds all values of."""
    return {8: 0, 4: 1, 2: 2, 1: 3}[width]


def _folded(plane: torch.Tensor, width: int) -> torch.Tensor:
    """Codes of `width` bits by coordinates -> bytes by the coordinates that are left."""
    shift = width
    for dimension in _FOLDED_DIMENSIONS[: _folds(width)]:
        low, high = plane.unbind(dimension)
        plane = (high << shift).bitwise_or_(low)
        shift *= 2
    return plane


def _unfolded(data: torch.Tensor, width: int) -> torch.Tensor:
    """Inverse of _folded."""
    folds = _FOLDED_DIMENSIONS[: _folds(width)]
    shift = 8
    for dimension in reversed(folds):
        shift //= 2
        mask = (1 << shift) - 1
        data = torch.stack((data & mask, data >> shift), dimension)
    return data


def _in_memory_order(plane: torch.Tensor, width: int) -> torch.Tensor:
    """Bytes of a plane (rows, steps, 128 width), as a view by coordinates that are left.

    In memory: 8 bits (jh)(g, t)(jl, hk, e, hr), 4 bits (g, t)(jh, jl, e, hk), 2 bits
    (g, t)(jh, e, jl), 1 bit (g, t)(e, jh).
    """
    rows, steps, row_stride = plane.shape[0], plane.shape[1], plane.stride()
    sizes = _MEMORY_SHAPES[width]
    strides = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    inside = plane.as_strided((rows, steps, *sizes), (*row_stride[:2], *strides))
    return inside.permute(_MEMORY_TO_COORDINATES[width])


_MEMORY_SHAPES = {
    8: (2, 8, 4, 2, 2, 2, 2),  # jh g t jl hk e hr
    4: (8, 4, 2, 2, 2, 2),  # g t jh jl e hk
    2: (8, 4, 2, 2, 2),  # g t jh e jl
    1: (8, 4, 2, 2),  # g t e jh
}
# Place in memory of: row, [hr], g, step, jh, [jl], [hk], t, e.
_MEMORY_TO_COORDINATES = {
    8: (0, 8, 3, 1, 2, 5, 6, 4, 7),
    4: (0, 2, 1, 4, 5, 7, 3, 6),
    2: (0, 2, 1, 4, 6, 3, 5),
    1: (0, 2, 1, 5, 3, 4),
}
