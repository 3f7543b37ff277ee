"""Codes <-> `frag16` bytes of whole 16-row tiles. The layout is drawn in contract/layouts.py.

Why bytes suffice: byte b of lane word j holds nibbles 2 b and 2 b + 1, that is rows g (low) and
g + 8 (high) of the same k, with b = high_k + 2 e and k = 64 tile_k + 16 j + 8 high_k + 2 t + e.
"""

from __future__ import annotations

import torch

from humming_runtime.contract.layouts import TILE_K, TILE_N

TILE_BYTES = TILE_N * TILE_K // 2
LANES, LANE_BYTES = 32, 16


def pack_tiles(codes: torch.Tensor, out: torch.Tensor) -> None:
    """Write the tiles of `codes` into `out`; codes are below 16.

    Shapes: codes (16 rows, 64 steps) uint8, out (rows, steps, 32, 16) uint8.
    Extra memory: one byte for two codes.
    """
    rows, k = codes.shape[0] // TILE_N, codes.shape[1]
    low, high = codes.view(rows, 2, 8, k).unbind(1)
    pairs = (high << 4).bitwise_or_(low)
    # (row, g, tile_k, j, high_k, t, e) -> (row, tile_k, g, t, j, e, high_k)
    split = pairs.view(rows, 8, k // TILE_K, 4, 2, 4, 2).permute(0, 2, 1, 5, 3, 6, 4)
    out.view(rows, k // TILE_K, 8, 4, 4, 2, 2).copy_(split)


def unpack_tiles(tiles: torch.Tensor, out: torch.Tensor) -> None:
    """Inverse of pack_tiles. Shapes: tiles (rows, steps, 32, 16), out (16 rows, 64 steps), uint8.

    Extra memory: one byte for two codes.
    """
    rows, steps = tiles.shape[:2]
    split = tiles.view(rows, steps, 8, 4, 4, 2, 2).permute(0, 2, 1, 4, 6, 3, 5)
    halves = out.view(rows, 2, 8, steps, 4, 2, 4, 2)
    torch.bitwise_and(split, 15, out=halves[:, 0])
    torch.bitwise_right_shift(split, 4, out=halves[:, 1])
