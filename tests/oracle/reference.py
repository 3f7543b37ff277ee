"""Dequantise and multiply in float64, with bounds derived from format, k and accumulator.

Knows nothing of packed layouts; tests check the tables of values against ml_dtypes. Bounds (u =
half an ulp, relative):

    weight        group scales of the activation dtype: a kernel rounds each weight to that dtype or
                  scales fp32 sums; the reference makes both and a result has to fit one of them as
                  a whole. Other group scales and channel scales are applied in fp32. Code - zero is
                  exact, but for float zero points: one more rounding
    accumulation  fp32, one error of at most 2^-22 of the running sum per matrix step of 16 k, and a
                  few for partial sums: (k / 16 + 32) 2^-22, of sum |x| |w|
    output        one rounding to the output dtype (u_o), subnormals: half their spacing
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from humming_runtime.contract.number_formats import (
    BYTE_SCALES,
    byte_scale_format,
    weight_format,
)

MMA_K = 16
PARTIAL_SUMS = 32
STEP_ERROR = 2.0**-22
HALF_ULP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SMALLEST_HALF_STEP = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}
CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Layer:
    """codes (k, n); scale (G, n) as numbers; zero (G, n), integers or numbers of the activation
    dtype, or None (the midpoint of integers); second (n) fp32 or None; group_size None: channels.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    group_size: int | None
    activation: torch.dtype
    weight: str = "u4"
    scale_dtype: str | None = None  # None: the activation's
    second: torch.Tensor | None = None

    @property
    def k(self) -> int:
        return self.codes.shape[0]

    @property
    def n(self) -> int:
        return self.codes.shape[1]

    @property
    def float_zero(self) -> bool:
        return self.zero is not None and self.zero.is_floating_point()

    def to(self, device: torch.device | str) -> Layer:
        names = ("codes", "scale", "zero", "second")
        moved = {name: getattr(self, name) for name in names}
        return replace(self, **{k: v if v is None else v.to(device) for k, v in moved.items()})


def random_layer(
    n: int,
    k: int,
    group_size: int | None,
    activation: torch.dtype,
    *,
    zero_point: bool,
    generator: torch.Generator,
    weight: str = "u4",
    scale_dtype: str | None = None,
    float_zero: bool = False,
) -> Layer:
    """Scales vary by more than their group's neighbours, so that a wrong scale shows."""
    groups = 1 if group_size is None else -(-k // group_size)
    device = generator.device
    number = weight_format(weight)
    limit = torch.finfo(activation).max
    allowed = [c for c, v in enumerate(number.values) if math.isfinite(v) and abs(v) <= limit]
    table = torch.tensor(allowed, dtype=torch.uint8, device=device)
    codes = table[torch.randint(0, len(allowed), (k, n), generator=generator, device=device)]
    if scale_dtype in BYTE_SCALES:
        scale = _random_byte_scale(scale_dtype, (groups, n), generator)
    else:
        scale = torch.rand((groups, n), generator=generator, device=device) * 0.03 + 0.002
        if activation == torch.float16:  # sums of the largest values stay finite
            scale *= min(1.0, _LARGEST_WEIGHT / number.largest)
        wide = group_size is None or scale_dtype == "f32"
        scale = scale if wide else scale.to(_SCALES.get(scale_dtype, activation))
        scale = scale.to(activation) if group_size is None else scale
    zero = None
    if zero_point and float_zero:
        zero = torch.rand((groups, n), generator=generator, device=device) * number.codes
        zero = zero.to(activation)
    elif zero_point:
        zero = torch.randint(0, number.codes, (groups, n), generator=generator, device=device)
        zero = zero.to(torch.uint8)
    second = None
    if scale_dtype in ("e4m3", "e5m2", "e5m3"):
        second = torch.rand(n, generator=generator, device=device) + 0.5
    return Layer(codes, scale, zero, group_size, activation, weight, scale_dtype, second)


_LARGEST_WEIGHT = 512.0
_SCALES = {"f16": torch.float16, "bf16": torch.bfloat16}


def _random_byte_scale(
    word: str, shape: tuple[int, int], generator: torch.Generator
) -> torch.Tensor:
    """Numbers of a scale format of one byte, around 2^-6."""
    number = byte_scale_format(word)
    near = [v for v in number.values if math.isfinite(v) and 2.0**-8 <= v <= 2.0**-3]
    table = torch.tensor(near, dtype=torch.float32, device=generator.device)
    return table[torch.randint(0, len(near), shape, generator=generator, device=generator.device)]


def dequantize(layer: Layer, *, rounded: bool = False, rounded_zero: bool = False) -> torch.Tensor:
    """(k, n) float64. rounded: value times group scale in the activation dtype, as kernels may do;
    rounded_zero: value minus a float zero point in the activation dtype.
    """
    number = weight_format(layer.weight)
    size = layer.k if layer.group_size is None else layer.group_size
    group = torch.arange(layer.k, device=layer.codes.device) // size
    values = torch.tensor(number.values, dtype=torch.float64, device=layer.codes.device)
    weight = values[layer.codes.long()]
    if layer.zero is not None:
        weight = weight - layer.zero.double()[group]
    elif not number.is_float:
        weight = weight - number.midpoint
    if rounded_zero:
        weight = weight.to(layer.activation).double()
    weight = weight * layer.scale.double()[group]
    if rounded:
        weight = weight.to(layer.activation).double()
    return weight if layer.second is None else weight * layer.second.double()


def possible_weights(layer: Layer) -> list[torch.Tensor]:
    """What kernels may multiply with."""
    scaled = [False]
    if layer.group_size is not None and layer.scale_dtype in (None, _word(layer.activation)):
        scaled.append(True)
    zeros = [False, True] if layer.float_zero else [False]
    return [dequantize(layer, rounded=s, rounded_zero=z) for z in zeros for s in scaled]


def _word(dtype: torch.dtype) -> str:
    return {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]


def worst_error(
    actual: torch.Tensor, x: torch.Tensor, layer: Layer, bias: torch.Tensor | None = None
) -> float:
    """Largest error as a ratio to its bound, over all elements; infinity where one is no number.

    Shapes: actual (m, n), x (m, k), bias (n); all in the activation dtype.
    """
    return min(_worst_error(actual, x, w, layer, bias) for w in possible_weights(layer))


def _worst_error(
    actual: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    layer: Layer,
    bias: torch.Tensor | None,
) -> float:
    size = weight.abs()
    offset = torch.zeros(layer.n, dtype=torch.float64, device=x.device)
    if bias is not None:
        offset = bias.double()
    worst = 0.0
    for start in range(0, x.shape[0], CHUNK_ROWS):
        rows = x[start : start + CHUNK_ROWS].double()
        wanted = rows @ weight + offset
        allowed = bound(wanted, rows.abs() @ size + offset.abs(), layer)
        found = actual[start : start + CHUNK_ROWS].double()
        ratio = (found - wanted).abs() / allowed
        worst = max(worst, ratio.nan_to_num(nan=torch.inf).max().item())
    return worst


def bound(wanted: torch.Tensor, magnitude: torch.Tensor, layer: Layer) -> torch.Tensor:
    """Largest error allowed of each element. magnitude: sum |x| |w|."""
    steps = layer.k / MMA_K + PARTIAL_SUMS
    accumulated = magnitude * (steps * STEP_ERROR)
    rounding = (wanted.abs() + accumulated) * HALF_ULP[layer.activation]
    return accumulated + rounding + SMALLEST_HALF_STEP[layer.activation]


def relative_error(
    actual: torch.Tensor, x: torch.Tensor, layer: Layer, bias: torch.Tensor | None = None
) -> float:
    """Root mean square of the error over that of the result, for errors too small for the bound."""
    offset = 0.0 if bias is None else bias.double()
    products = [x.double() @ weight + offset for weight in possible_weights(layer)]
    return min(((actual.double() - p).norm() / p.norm()).item() for p in products)


def relative_bound(layer: Layer) -> float:
    """Rounding of the output, and accumulation errors of all steps adding up on running sums."""
    return HALF_ULP[layer.activation] + (layer.k / MMA_K + PARTIAL_SUMS) * STEP_ERROR
