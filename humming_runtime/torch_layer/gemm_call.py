"""One GEMM from tensors to a launch: checks, rows of activations and output, plan.

Nothing here asks for CUDA: the operator decides which devices get this far.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch

from humming_runtime.errors import UsageError
from humming_runtime.torch_layer.packed_weight import PART_NAMES, Part, part_layout
from humming_runtime.torch_layer.plan_cache import Call, PlanCache, PlanKey
from humming_runtime.torch_layer.weight_format import WeightFormat

_VECTOR_BYTES, _VECTOR_ELEMENTS = 16, 8


class GemmInputs(NamedTuple):
    """Arguments of the operator, in its order."""

    x: torch.Tensor
    weight: torch.Tensor
    weight_scale: torch.Tensor | None
    weight_zero: torch.Tensor | None
    channel_scale: torch.Tensor | None
    bias: torch.Tensor | None
    config: str
    n: int
    k: int

    def parts(self) -> dict[str, torch.Tensor]:
        """Packed tensors that are there, by name."""
        found = zip(PART_NAMES, self[1:5], strict=True)
        return {name: t for name, t in found if isinstance(t, torch.Tensor)}


def check_inputs(given: GemmInputs) -> None:
    """Do the tensors fit together? Takes fake tensors too. Raises: UsageError with every fault."""
    form, expected = _expected(given.config, given.n, given.k)
    x, bias = given.x, given.bias
    faults = []
    if x.dtype != form.activation_dtype:
        faults.append(f"x is {x.dtype}, these weights take {form.activation_dtype}")
    if x.dim() < 1 or x.shape[-1] != given.k:
        faults.append(f"x has shape {tuple(x.shape)}, its last dimension has to be k = {given.k}")
    parts = given.parts()
    for name, part in expected.items():
        tensor = parts.get(name)
        if tensor is None:
            faults.append(f"{name} is missing, format {given.config} has it")
        elif tuple(tensor.shape) != part.shape or tensor.dtype != part.dtype:
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            faults.append(f"{name} is {found}, expected {part.dtype} {part.shape}")
        elif not tensor.is_contiguous():
            faults.append(f"{name} is not contiguous")
    faults += [f"{name} given, format {given.config} has none" for name in parts.keys() - expected]
    if bias is not None:
        parts["bias"] = bias
        if tuple(bias.shape) != (given.n,) or bias.dtype != form.activation_dtype:
            wanted = f"{form.activation_dtype} ({given.n},)"
            faults.append(f"bias is {bias.dtype} {tuple(bias.shape)}, expected {wanted}")
    faults += [
        f"{name} is on {tensor.device}, x on {x.device}"
        for name, tensor in parts.items()
        if tensor.device != x.device
    ]
    if faults:
        raise UsageError("gemm: " + "; ".join(faults))


def check_output(given: GemmInputs, out: torch.Tensor) -> None:
    """Raises: UsageError where `out` cannot take the result."""
    shape = output_shape(given)
    if tuple(out.shape) != shape or out.dtype != given.x.dtype or out.device != given.x.device:
        found = f"{out.dtype} {tuple(out.shape)} on {out.device}"
        wanted = f"{given.x.dtype} {shape} on {given.x.device}"
        raise UsageError(f"gemm: out is {found}, expected {wanted}")


def output_shape(given: GemmInputs) -> tuple[int, ...]:
    return (*given.x.shape[:-1], given.n)


def launch(given: GemmInputs, out: torch.Tensor, plans: PlanCache, stream: int) -> None:
    """Write x B + bias into `out` on `stream`; no rows, no launch.

    Raises: UsageError for an `out` whose rows are not 16-byte aligned with one stride.
    """
    m = math.prod(given.x.shape[:-1])
    if m == 0:
        return
    rows = activation_rows(given.x, m)
    target = _output_rows(out, m)
    bias = None if given.bias is None else given.bias.contiguous()
    parts = given.parts()
    weights = tuple(parts.values())
    call = Call(
        m,
        rows.data_ptr(),
        _row_stride(rows),
        target.data_ptr(),
        _row_stride(target),
        stream,
        0 if bias is None else bias.data_ptr(),
    )
    plans.entry(plan_key(given.config, given.n, given.k, parts)).launch(weights, call)


def plan_key(config: str, n: int, k: int, parts: dict[str, torch.Tensor]) -> PlanKey:
    addresses = (parts[name].data_ptr() if name in parts else 0 for name in PART_NAMES)
    return PlanKey(config, n, k, parts["weight"].device.index or 0, *addresses)


def activation_rows(x: torch.Tensor, m: int) -> torch.Tensor:
    """x as (m, k) with aligned rows: a view where its strides allow one, else a copy."""
    rows = x.reshape(m, x.shape[-1])
    if _rows_are_aligned(rows):
        return rows
    # contiguous() alone would return a contiguous tensor whose address is not aligned
    return rows.clone(memory_format=torch.contiguous_format)


def _output_rows(out: torch.Tensor, m: int) -> torch.Tensor:
    try:
        rows = out.view(m, out.shape[-1])
    except RuntimeError:
        rows = None
    if rows is None or not _rows_are_aligned(rows):
        raise UsageError(
            f"gemm: out has shape {tuple(out.shape)} and strides {out.stride()}; its rows need one "
            f"stride, a multiple of {_VECTOR_ELEMENTS}, and an address that is a multiple of "
            f"{_VECTOR_BYTES} bytes"
        )
    return rows


def _rows_are_aligned(rows: torch.Tensor) -> bool:
    """Can kernels read or write rows in 16-byte vectors? Rows may not overlap."""
    stride = _row_stride(rows)
    return (
        rows.stride(1) == 1
        and stride >= rows.shape[1]
        and stride % _VECTOR_ELEMENTS == 0
        and rows.data_ptr() % _VECTOR_BYTES == 0
    )


def _row_stride(rows: torch.Tensor) -> int:
    """Elements between rows; the stride of a single row says nothing."""
    return rows.shape[1] if rows.shape[0] == 1 else rows.stride(0)


@lru_cache(maxsize=4096)
def _expected(config: str, n: int, k: int) -> tuple[WeightFormat, dict[str, Part]]:
    form = WeightFormat.parse(config)
    return form, part_layout(form, n, k)
