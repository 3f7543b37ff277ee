"""Scales and zero points <-> `rows16`: [n / 16][groups][16], rows g and g + 8 are neighbours."""

from __future__ import annotations

import torch

from humming_runtime.contract.layouts import TILE_N, pad


def pack_rows(values: torch.Tensor, groups: int) -> torch.Tensor:
    """Shapes: values (n, G) with G <= groups -> (n16, groups, 16); padding is 0."""
    n, given = values.shape
    tiles = pad(n, TILE_N) // TILE_N
    out = values.new_zeros((tiles, groups, TILE_N))
    rows = values.new_zeros((tiles * TILE_N, given))
    rows[:n] = values
    # (tile, high, g, group) -> (tile, group, g, high)
    out.view(tiles, groups, 8, 2)[:, :given] = rows.view(tiles, 2, 8, given).permute(0, 3, 2, 1)
    return out


def unpack_rows(packed: torch.Tensor, n: int, groups: int) -> torch.Tensor:
    """Inverse of pack_rows: (n, groups) without the padding."""
    tiles, stored = packed.shape[:2]
    rows = packed.view(tiles, stored, 8, 2).permute(0, 3, 2, 1).reshape(tiles * TILE_N, stored)
    return rows[:n, :groups].contiguous()
