"""One layer's weights, bound: the shortest way from Python to the driver.

A call that has nothing unusual goes from its tensors straight to cuLaunchKernelEx (TensorCall).
Everything else takes the operator and gives the same result: first calls, captures, copies of
strided inputs, torch.compile, modes that watch operators, and errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.compiler import is_compiling

from humming_runtime.torch_layer import binding, operator
from humming_runtime.torch_layer.gemm_call import GemmInputs
from humming_runtime.torch_layer.packed_weight import PackedWeight
from humming_runtime.torch_layer.short_call import ShortCall, empty_result


class LinearPlan:
    """x (..., k) times packed (k, n) plus bias (n), bound to the tensors of `packed`.

    Thread-safe. Keeps the weights alive. Tensors that are written in place are seen; for a layer
    whose tensors are replaced, make another plan (QuantLinear does so by itself).
    """

    def __init__(self, packed: PackedWeight) -> None:
        self.form, self.n, self.k, self.config = packed.form, packed.n, packed.k, packed.config
        self.parts = (
            packed.weight,
            packed.weight_scale,
            packed.weight_zero,
            packed.channel_scale,
        )
        self.plans = binding.plans()
        self._short = ShortCall(self.parts, self.config, self.n, self.k, self.plans)
        self._run = self._short.run

    def __reduce__(self) -> tuple[object, ...]:
        return LinearPlan, (PackedWeight(self.form, self.n, self.k, *self.parts),)

    def __call__(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        kernel: str = "",
    ) -> torch.Tensor:
        """Enqueue on torch's current stream of the weights' device; see functional.matmul."""
        if is_compiling() or kernel:
            return self._operator(x, bias, out, kernel)
        target = empty_result(x, self.n) if out is None else out
        if target is not None:
            done = self._run(x, target, bias, self.parts)
            if done is True:
                return target
            if done:
                raise self._short.failure(self.parts, done)
        result = self._operator(x, bias, out)
        self._short.learn(x, self.parts)
        return result

    def prepare(self, sizes: Iterable[int], kernel: str = "") -> None:
        """Choose and load kernels for these m now."""
        operator.require_cuda(self.parts[0].device)
        self._short.entry(self.parts, kernel).plan.prepare(sizes)

    def kernel(self, m: int) -> str:
        """Name of the variant that a call with m rows runs."""
        return str(self._short.entry(self.parts).plan.ready(m).accepted.entry.name)

    def explain(self, m: int) -> str:
        """Which kernel m rows get and why, with every other candidate; for people."""
        return self._short.entry(self.parts).plan.explain(m)

    def _operator(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor | None,
        kernel: str = "",
    ) -> torch.Tensor:
        return gemm(GemmInputs(x, *self.parts, bias, self.config, self.n, self.k, kernel), out)


def gemm(inputs: GemmInputs, out: torch.Tensor | None = None) -> torch.Tensor:
    """The operator with its arguments as they are; see functional.matmul."""
    if out is None:
        result: torch.Tensor = torch.ops.humming.gemm(*inputs)
        return result
    torch.ops.humming.gemm_out(out, *inputs)
    return out


def inputs_of(
    x: torch.Tensor, packed: Any, bias: torch.Tensor | None, kernel: str = ""
) -> GemmInputs:
    """packed: a PackedWeight, or a layer with attributes of the same names."""
    return GemmInputs(
        x,
        packed.weight,
        packed.weight_scale,
        packed.weight_zero,
        packed.channel_scale,
        bias,
        packed.config,
        packed.n,
        packed.k,
        kernel,
    )


def plan_of(packed: PackedWeight) -> LinearPlan:
    """The plan of these weights, made at first use and kept with them."""
    known: LinearPlan | None = packed.__dict__.get("_plan")
    if known is None or known.plans is not binding.plans():
        known = LinearPlan(packed)
        packed.__dict__["_plan"] = known
    return known
