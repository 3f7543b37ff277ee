"""Random quantized layers for benches: random codes, scales and activations, never zeros."""

from __future__ import annotations

import torch

from humming_runtime.contract.number_formats import BYTE_SCALES, byte_scale_format
from humming_runtime.torch_layer import PackedWeight, WeightFormat, unpack
from humming_runtime.torch_layer.frag16 import pack_tiles
from humming_runtime.torch_layer.number_tensors import value_table
from humming_runtime.torch_layer.packed_weight import Part, part_layout

_SCALE_LOW, _SCALE_SPAN = 0.01, 0.02
_SCALE_EXPONENTS = (-6, -5)
"""Scales of one byte are powers of two: every such format has them."""


def random_packed(
    form: WeightFormat, n: int, k: int, device: torch.device | str = "cuda"
) -> PackedWeight:
    """Every code that stands for a number may occur."""
    tensors = {}
    for name, part in part_layout(form, n, k).items():
        if name == "weight":
            tensor = _random_weight(form, part, device)
        elif name == "weight_zero" and part.dtype == torch.uint8:
            tensor = torch.randint(0, form.number.codes, part.shape, device=device).to(part.dtype)
        elif name == "weight_scale" and form.scale.dtype in BYTE_SCALES:
            tensor = _random_byte_scales(form.scale.dtype, part, device)
        else:
            tensor = (torch.rand(part.shape, device=device) * _SCALE_SPAN + _SCALE_LOW).to(
                part.dtype
            )
        tensors[name] = tensor
    return PackedWeight(form, n, k, **tensors)


def _random_weight(form: WeightFormat, part: Part, device: torch.device | str) -> torch.Tensor:
    number = form.number
    if not number.special_codes:
        return torch.randint(0, 256, part.shape, dtype=part.dtype, device=device)
    allowed = [code for code in range(number.codes) if code not in number.special_codes]
    table = torch.tensor(allowed, dtype=torch.uint8, device=device)
    rows, steps, _ = part.shape
    weight = torch.empty(part.shape, dtype=part.dtype, device=device)
    for row in range(rows):
        codes = table[torch.randint(0, len(allowed), (16, steps * 64), device=device)]
        pack_tiles(codes, weight[row : row + 1], number.bits)
    return weight


def _random_byte_scales(word: str, part: Part, device: torch.device | str) -> torch.Tensor:
    number = byte_scale_format(word)
    codes = [number.nearest(2.0**exponent) for exponent in _SCALE_EXPONENTS]
    table = torch.tensor(codes, dtype=torch.uint8, device=device)
    return table[torch.randint(0, len(codes), part.shape, device=device)]


def clones(packed: PackedWeight, count: int) -> list[PackedWeight]:
    """The layer itself and copies of it in memory of their own."""
    return [packed, *(packed.map(torch.clone) for _ in range(count - 1))]


def dequantized(packed: PackedWeight) -> torch.Tensor:
    """B (k, n) in fp32: (value - zero point) * scale * second scale."""
    plain, form = unpack(packed), packed.form
    group, number = form.group_size or packed.k, form.number
    values = value_table(number, packed.device).float()[plain.codes.long()]
    if plain.zero is not None:
        values -= _spread(plain.zero.float(), group, packed.k)
    elif not number.is_float:
        values -= number.midpoint
    scale = plain.scale
    if form.scale.dtype in BYTE_SCALES:
        scale = value_table(byte_scale_format(form.scale.dtype), packed.device)[scale.long()]
    values *= _spread(scale.float(), group, packed.k)
    return values if plain.second_scale is None else values * plain.second_scale


def _spread(rows: torch.Tensor, group: int, k: int) -> torch.Tensor:
    return rows.repeat_interleave(group, 0)[:k]
