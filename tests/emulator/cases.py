"""Random layers, one run of a variant, and the verdict of the float64 reference."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from humming_runtime.contract.variant_name import Variant
from humming_runtime.torch_layer import pack_codes

from .gemm import Outcome, run_gemm
from .machine import EmulationError
from .ptx_text import PtxError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))

from reference import Layer, random_layer, relative_bound, relative_error, worst_error

FAULTS = (EmulationError, PtxError, AssertionError)
"""What run() raises for a kernel that is wrong."""
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """One GEMM. tensor_scale and bias: given or absent; the rest as in run_gemm."""

    variant: str
    m: int
    n: int
    k: int
    split_k: int = 1
    whole_tiles: int = 0
    ctas: int = 4
    stages: int | None = None
    bias: bool = False
    tensor_scale: float | None = None
    seed: int | None = 0

    def __str__(self) -> str:
        more = f"_split{self.split_k}" if self.split_k > 1 else ""
        return f"{self.variant}-{self.m}x{self.n}x{self.k}{more}"


def packed_of(layer: Layer):
    return pack_codes(
        layer.codes,
        layer.scale,
        layer.zero,
        group_size=layer.group_size,
        activation=layer.activation,
        weight=layer.weight,
        scale_dtype=layer.scale_dtype,
        second_scale=layer.second,
    )


def layer_of(variant: Variant, n: int, k: int, generator: torch.Generator) -> Layer:
    scale = variant.scale
    return random_layer(
        n, k, scale.group_size, DTYPES[variant.activation],
        zero_point=bool(scale.zero_point), generator=generator,
        weight=variant.weight, scale_dtype=scale.dtype, float_zero=scale.zero_point == "f",
    )  # fmt: skip


def run(case: Case, ptx: str | None = None, *, strict_shared: bool | None = None) -> str | None:
    """Returns: what is wrong with the result, None if nothing is. Raises: one of FAULTS."""
    variant = Variant.parse(case.variant)
    if strict_shared is None:  # decode and prefill read rows that no copy fills, and drop the sums
        strict_shared = variant.schedule == "multistage"
    generator = torch.Generator().manual_seed(case.m * 1_000_003 + case.n * 1_009 + case.k)
    activation = DTYPES[variant.activation]
    layer = layer_of(variant, case.n, case.k, generator)
    x = torch.randn(case.m, case.k, generator=generator).to(activation)
    bias = torch.randn(case.n, generator=generator).to(activation) if case.bias else None
    outcome = run_gemm(
        variant, x, packed_of(layer), bias=bias, tensor_scale=case.tensor_scale,
        split_k=case.split_k, ctas=case.ctas, stages=case.stages, whole_tiles=case.whole_tiles,
        seed=case.seed, ptx=ptx, strict_shared=strict_shared,
    )  # fmt: skip
    return fault_of(outcome, x, _scaled(layer, case.tensor_scale), bias)


def fault_of(outcome: Outcome, x, layer: Layer, bias) -> str | None:
    ratio = worst_error(outcome.output, x, layer, bias)
    if ratio > 1:
        return f"error is {ratio:.3g} times its bound"
    relative = relative_error(outcome.output, x, layer, bias)
    if relative > relative_bound(layer):
        return f"relative error {relative:.3g}, bound {relative_bound(layer):.3g}"
    return None


def _scaled(layer: Layer, tensor_scale: float | None) -> Layer:
    """A power of two moves no rounding of the reference's weights."""
    if tensor_scale is None:
        return layer
    return replace(layer, scale=(layer.scale.double() * tensor_scale).to(layer.scale.dtype))
