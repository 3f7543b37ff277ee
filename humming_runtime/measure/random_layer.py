"""Random quantized layers for benches: random codes, scales and activations, never zeros."""

from __future__ import annotations

import torch

from humming_runtime.torch_layer import PackedWeight, WeightFormat, unpack
from humming_runtime.torch_layer.packed_weight import part_layout

_SCALE_LOW, _SCALE_SPAN = 0.01, 0.02


def random_packed(
    form: WeightFormat, n: int, k: int, device: torch.device | str = "cuda"
) -> PackedWeight:
    """Every byte of the weights is random: all codes are valid codes."""
    tensors = {}
    for name, part in part_layout(form, n, k).items():
        if name == "weight":
            tensor = torch.randint(0, 256, part.shape, dtype=part.dtype, device=device)
        elif name == "weight_zero":
            tensor = torch.randint(0, 16, part.shape, dtype=part.dtype, device=device)
        else:
            tensor = (torch.rand(part.shape, device=device) * _SCALE_SPAN + _SCALE_LOW).to(
                part.dtype
            )
        tensors[name] = tensor
    return PackedWeight(form, n, k, **tensors)


def clones(packed: PackedWeight, count: int) -> list[PackedWeight]:
    """The layer itself and copies of it in memory of their own."""
    return [packed, *(packed.map(torch.clone) for _ in range(count - 1))]


def dequantized(packed: PackedWeight) -> torch.Tensor:
    """B (k, n) in fp32: (code - zero point) * scale."""
    plain = unpack(packed)
    group = packed.form.group_size or packed.k
    zero = 8.0 if plain.zero is None else _spread(plain.zero.float(), group, packed.k)
    return (plain.codes.float() - zero) * _spread(plain.scale.float(), group, packed.k)


def _spread(rows: torch.Tensor, group: int, k: int) -> torch.Tensor:
    return rows.repeat_interleave(group, 0)[:k]
