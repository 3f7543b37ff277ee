"""x B + bias with packed weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.compiler import is_compiling

from humming_runtime.torch_layer import binding
from humming_runtime.torch_layer.linear_plan import gemm, inputs_of, plan_of
from humming_runtime.torch_layer.packed_weight import PackedWeight


def matmul(
    x: torch.Tensor,
    packed: PackedWeight,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    kernel: str = "",
) -> torch.Tensor:
    """x (..., k) times packed (k, n) plus bias (n), on the device of x and torch's current stream.

    Rows of x need one stride, a multiple of 8, and a 16-byte aligned address; else x is copied.
    out: takes the result and is returned. Its rows need the same; nothing is copied for it.
    kernel: name of the variant that must run (`humming list --names`), for this call alone.
    Raises: UsageError for tensors that do not fit, GradientError where a backward pass is needed,
    NoKernelError, CaptureError where a kernel is first used inside a graph capture (see prepare).
    """
    if is_compiling():
        return gemm(inputs_of(x, packed, bias, kernel), out)
    return plan_of(packed)(x, bias, out, kernel)


def prepare(packed: PackedWeight, sizes: Iterable[int], kernel: str = "") -> None:
    """Choose and load kernels for these m now: before a graph is captured, or to fail early.

    kernel: as for the calls that follow.
    """
    plan_of(packed).prepare(sizes, kernel)


def weights_written(packed: PackedWeight) -> None:
    """Tell that the weights were written in a way that torch's version counters do not see."""
    binding.plans().forget_writes(packed.weight.data_ptr())
