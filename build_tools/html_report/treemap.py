"""Squarified treemap: areas in proportion to sizes, tiles as square as they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rectangle:
    """Left, top, width and height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        return self.width * self.height


def squarify(sizes: Sequence[float], frame: Rectangle) -> tuple[Rectangle, ...]:
    """One tile per size, in their order; largest first gives the best shapes. sizes: positive."""
    total = sum(sizes)
    areas = [size / total * frame.area for size in sizes]
    tiles: list[Rectangle] = []
    free = frame
    at = 0
    while at < len(areas):
        side = min(free.width, free.height)
        end = at + 1
        while end < len(areas) and _worst(areas[at : end + 1], side) <= _worst(areas[at:end], side):
            end += 1
        row = areas[at:end]
        placed, free = _lay(row, free, is_last=end == len(areas))
        tiles += placed
        at = end
    return tuple(tiles)


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of sides in a row laid along a side."""
    thickness = sum(row) / side if side else 0.0
    if not thickness:
        return float("inf")
    return max(max(thickness * thickness / a, a / (thickness * thickness)) for a in row)


def _lay(
    row: Sequence[float], free: Rectangle, *, is_last: bool
) -> tuple[list[Rectangle], Rectangle]:
    """Tiles of a row along the shorter side, and what is free after it."""
    upright = free.width >= free.height
    side, depth = (free.height, free.width) if upright else (free.width, free.height)
    total = sum(row)
    thickness = depth if is_last or not side else min(total / side, depth)
    tiles = []
    offset = 0.0
    for area in row:
        length = min(side * area / total, side - offset)
        if upright:
            tiles.append(Rectangle(free.x, free.y + offset, thickness, length))
        else:
            tiles.append(Rectangle(free.x + offset, free.y, length, thickness))
        offset += length
    if upright:
        rest = Rectangle(free.x + thickness, free.y, depth - thickness, side)
    else:
        rest = Rectangle(free.x, free.y + thickness, side, depth - thickness)
    return tiles, rest
