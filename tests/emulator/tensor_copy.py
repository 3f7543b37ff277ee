"""Tensor maps and the box that cp.async.bulk.tensor brings to shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .memory import IN_FLIGHT, UNWRITTEN, VALID, DeviceError

SWIZZLE_BYTES = {0: 0, 1: 32, 2: 64, 3: 128}
"""CUtensorMapSwizzle -> width of the pattern."""
ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
"""CUtensorMapDataType -> bytes."""


@dataclass(frozen=True)
class DeviceTensor:
    """What cuTensorMapEncodeTiled was asked for; sizes in elements, x contiguous."""

    data_type: int
    address: int
    size_x: int
    size_y: int
    stride_bytes: int
    box_x: int
    box_y: int
    swizzle: int

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.data_type]


def swizzled(address: np.ndarray, width: int) -> np.ndarray:
    """16-byte chunks change places inside `width` bytes, by the 128-byte rows above them."""
    if width == 0:
        return address
    bits = {32: 1, 64: 3, 128: 7}[width]
    return address ^ ((address >> 7 & bits) << 4)


def copy_box(warp, tensor: DeviceTensor, target, to: int, corner: tuple[int, int], barrier) -> None:
    """Start a copy; elements outside of the tensor are zeros and count as bytes."""
    size = tensor.element_bytes
    row_bytes = tensor.box_x * size
    width = SWIZZLE_BYTES[tensor.swizzle]
    total = row_bytes * tensor.box_y
    if to % 128:
        raise DeviceError(f"tensor copy: target {to:#x} is no multiple of 128")
    if row_bytes % 16 or (width and row_bytes > width):
        raise DeviceError(f"tensor copy: a row of {row_bytes} bytes does not suit the swizzle")
    if to + total > target.size:
        raise DeviceError(
            f"tensor copy of {total} bytes to shared address {to:#x} is out of bounds"
        )
    rows = np.arange(tensor.box_y)[:, None]
    columns = np.arange(row_bytes)[None]
    places = swizzled(to + rows * row_bytes + columns, width)
    target.check(places, "tensor copy", (VALID, UNWRITTEN))
    x, y = corner
    inside_y = (y + rows >= 0) & (y + rows < tensor.size_y)
    at = x * size + columns
    inside = inside_y & (at >= 0) & (at < tensor.size_x * size)
    memory = warp.machine.memory
    offsets = tensor.address - memory.base + (y + rows) * tensor.stride_bytes + at
    offsets = np.where(inside, offsets, 0)
    if inside.any():
        memory.check(offsets[inside], "tensor copy", (VALID,))
    if target.accesses is not None:
        words = np.arange(to, to + total, 4) >> 2
        target.accesses.write(warp, words, barrier.slot, barrier.phase + 1)
    target.state[places] = IN_FLIGHT

    def land() -> None:
        target.data[places] = np.where(inside, memory.data[offsets], 0)
        target.state[places] = VALID
        barrier.complete_bytes(total)

    warp.machine.start_copy(land)
