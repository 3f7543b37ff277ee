"""Weights as the kernels read them, with the description that makes them readable later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from humming_runtime.contract import layouts
from humming_runtime.errors import UsageError
from humming_runtime.torch_layer.weight_format import WeightFormat, check_size

PART_NAMES = ("weight", "weight_scale", "weight_zero", "channel_scale")


@dataclass(frozen=True)
class Part:
    """Shape and dtype of one packed tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def part_layout(form: WeightFormat, n: int, k: int) -> dict[str, Part]:
    """The tensors of packed weights of shape (k, n); a part that the format has not is missing.

    Shapes: weight (n16, k64, 128 * bits) uint8; weight_scale and weight_zero (n16, groups, 16) in
    the format's scale_storage and zero_storage; channel_scale (n) fp32.
    """
    check_size(n, k)
    tiles_n = layouts.pad(n, layouts.TILE_N) // layouts.TILE_N
    tiles_k = layouts.pad(k, layouts.TILE_K) // layouts.TILE_K
    rows = tiles_n, layouts.stored_groups(k, form.group_size), layouts.TILE_N
    tile = layouts.tile_bytes(form.number.bits)
    parts = {"weight": Part((tiles_n, tiles_k, tile), torch.uint8)}
    if form.group_size is not None:
        parts["weight_scale"] = Part(rows, form.scale_storage)
    if form.zero_storage is not None:
        parts["weight_zero"] = Part(rows, form.zero_storage)
    if form.has_channel_scale:
        parts["channel_scale"] = Part((n,), torch.float32)
    return parts


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """B (k, n) of one layer. Equal only to itself; unpickling checks the layout again.

    Raises: UsageError where a tensor does not fit the format, LayoutError for another layout.
    """

    form: WeightFormat
    n: int
    k: int
    weight: torch.Tensor
    weight_scale: torch.Tensor | None = None
    weight_zero: torch.Tensor | None = None
    channel_scale: torch.Tensor | None = None
    config: str = field(init=False)  # the format as text

    def __post_init__(self) -> None:
        self.form.check_layouts()
        object.__setattr__(self, "config", str(self.form))
        expected = part_layout(self.form, self.n, self.k)
        faults = []
        for name in PART_NAMES:
            faults += _part_faults(name, getattr(self, name), expected.get(name))
        devices = sorted({str(t.device) for t in self.parts().values()})
        if len(devices) > 1:
            faults.append(f"tensors are on different devices ({', '.join(devices)})")
        if faults:
            place = f"packed weight {self.form} n={self.n} k={self.k}"
            raise UsageError(f"{place}: {'; '.join(faults)}")

    def __reduce__(self) -> tuple[object, ...]:
        parts = tuple(getattr(self, name) for name in PART_NAMES)
        return PackedWeight, (self.form, self.n, self.k, *parts)

    @property
    def device(self) -> torch.device:
        return self.weight.device

    @property
    def groups(self) -> int:
        """Scale groups along k that hold weights, without the padding."""
        size = self.form.group_size
        return 1 if size is None else -(-self.k // size)

    @property
    def size_bytes(self) -> int:
        return sum(t.nbytes for t in self.parts().values())

    def parts(self) -> dict[str, torch.Tensor]:
        """The tensors that the format has, by name."""
        every = {name: getattr(self, name) for name in PART_NAMES}
        return {name: tensor for name, tensor in every.items() if tensor is not None}

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> PackedWeight:
        """The same weights with every tensor replaced."""
        tensors = {name: function(tensor) for name, tensor in self.parts().items()}
        return PackedWeight(self.form, self.n, self.k, **tensors)

    def to(self, device: torch.device | str) -> PackedWeight:
        return self.map(lambda tensor: tensor.to(device))


def _part_faults(name: str, tensor: torch.Tensor | None, part: Part | None) -> list[str]:
    if tensor is None or part is None:
        if tensor is None and part is None:
            return []
        return [f"{name} is {'missing' if tensor is None else 'not a part of this format'}"]
    faults = []
    if tuple(tensor.shape) != part.shape:
        faults.append(f"{name} has shape {tuple(tensor.shape)}, expected {part.shape}")
    if tensor.dtype != part.dtype:
        faults.append(f"{name} is {tensor.dtype}, expected {part.dtype}")
    if not tensor.is_contiguous():
        faults.append(f"{name} is not contiguous")
    return faults


def empty_packed(form: WeightFormat, n: int, k: int, device: torch.device | str) -> PackedWeight:
    """Uninitialised tensors of the right shapes."""
    tensors = {
        name: torch.empty(part.shape, dtype=part.dtype, device=device)
        for name, part in part_layout(form, n, k).items()
    }
    return PackedWeight(form, n, k, **tensors)
