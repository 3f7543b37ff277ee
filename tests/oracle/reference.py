"""Dequantise and multiply in float64, with bounds derived from format, k and accumulator.

Knows nothing of packed layouts. Bounds (u = half an ulp, relative):

    weight        group scales: a kernel rounds each weight to the activation dtype or scales fp32
                  sums; the reference makes both and a result has to fit one of them as a whole;
                  channel scales: code - zero is exact, the scale is applied in fp32
    accumulation  fp32, one error of at most 2^-22 of the running sum per matrix step of 16 k, and a
                  few for partial sums: (k / 16 + 32) 2^-22, of sum |x| |w|
    output        one rounding to the output dtype (u_o), subnormals: half their spacing
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

MMA_K = 16
PARTIAL_SUMS = 32
STEP_ERROR = 2.0**-22
HALF_ULP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SMALLEST_HALF_STEP = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}
CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Layer:
    """codes (k, n); scale (G, n); zero (G, n) or None (8); group_size None: channel scales."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    group_size: int | None
    activation: torch.dtype

    @property
    def k(self) -> int:
        return self.codes.shape[0]

    @property
    def n(self) -> int:
        return self.codes.shape[1]

    def to(self, device: torch.device | str) -> Layer:
        zero = None if self.zero is None else self.zero.to(device)
        codes, scale = self.codes.to(device), self.scale.to(device)
        return Layer(codes, scale, zero, self.group_size, self.activation)


def random_layer(
    n: int,
    k: int,
    group_size: int | None,
    activation: torch.dtype,
    *,
    zero_point: bool,
    generator: torch.Generator,
) -> Layer:
    """Scales vary by more than their group's neighbours, so that a wrong scale shows."""
    groups = 1 if group_size is None else -(-k // group_size)
    device = generator.device
    scale = torch.rand((groups, n), generator=generator, device=device) * 0.03 + 0.002
    zero = torch.randint(0, 16, (groups, n), generator=generator, device=device, dtype=torch.uint8)
    codes = torch.randint(0, 16, (k, n), generator=generator, device=device, dtype=torch.uint8)
    return Layer(codes, scale.to(activation), zero if zero_point else None, group_size, activation)


def dequantize(layer: Layer, *, rounded: bool = False) -> torch.Tensor:
    """(k, n) float64. rounded: to the activation dtype, as kernels may do with group scales."""
    size = layer.k if layer.group_size is None else layer.group_size
    group = torch.arange(layer.k, device=layer.codes.device) // size
    zero = 8.0 if layer.zero is None else layer.zero.double()[group]
    weight = (layer.codes.double() - zero) * layer.scale.double()[group]
    return weight.to(layer.activation).double() if rounded else weight


def possible_weights(layer: Layer) -> list[torch.Tensor]:
    """What kernels may multiply with."""
    exact = dequantize(layer)
    return [exact] if layer.group_size is None else [exact, dequantize(layer, rounded=True)]


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
