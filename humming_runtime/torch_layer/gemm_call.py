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
from humming_runtime.torch_layer.tensor_call import Parts
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
    kernel: str = ""  # name of the variant that must run

    @property
    def packed(self) -> Parts:
        """Packed tensors in the order of PART_NAMES."""
        return self[1:5]


def check_inputs(given: GemmInputs) -> None:
    """Do the tensors fit together? Takes fake tensors too. Raises: UsageError with every fault."""
    form, parts = _expected(given.config, given.n, given.k)
    if not _fit(given, form, parts):
        raise UsageError("gemm: " + "; ".join(_faults(given, form, parts)))


def _fit(given: GemmInputs, form: WeightFormat, parts: tuple[Part | None, ...]) -> bool:
    """The checks of _faults, for the calls that have none."""
    x, bias = given.x, given.bias
    dtype, device = form.activation_dtype, x.device
    if x.dtype != dtype or x.shape[-1:] != (given.k,):
        return False
    for tensor, part in zip(given.packed, parts, strict=True):
        if tensor is None or part is None:
            if tensor is not None or part is not None:
                return False
        elif (
            tensor.shape != part.shape
            or tensor.dtype != part.dtype
            or tensor.device != device
            or not tensor.is_contiguous()
        ):
            return False
    return bias is None or (
        bias.shape == (given.n,) and bias.dtype == dtype and bias.device == device
    )


def _faults(given: GemmInputs, form: WeightFormat, parts: tuple[Part | None, ...]) -> list[str]:
    x, dtype = given.x, form.activation_dtype
    faults = []
    if x.dtype != dtype:
        faults.append(f"x is {x.dtype}, these weights take {dtype}")
    if x.shape[-1:] != (given.k,):
        faults.append(f"x has shape {tuple(x.shape)}, its last dimension has to be k = {given.k}")
    expected = dict(zip(PART_NAMES, parts, strict=True))
    if given.bias is not None:
        expected["bias"] = Part((given.n,), dtype)
    for name, part in expected.items():
        tensor = getattr(given, name)
        if tensor is None or part is None:
            if tensor is not part:
                what = (
                    "missing, format {} has it" if tensor is None else "given, format {} has none"
                )
                faults.append(f"{name} is {what.format(given.config)}")
            continue
        if tensor.shape != part.shape or tensor.dtype != part.dtype:
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            faults.append(f"{name} is {found}, expected {part.dtype} {part.shape}")
        elif name != "bias" and not tensor.is_contiguous():
            faults.append(f"{name} is not contiguous")
        if tensor.device != x.device:
            faults.append(f"{name} is on {tensor.device}, x on {x.device}")
    return faults


def check_output(given: GemmInputs, out: torch.Tensor) -> None:
    """Raises: UsageError where `out` cannot take the result."""
    shape = output_shape(given)
    if out.shape != shape or out.dtype != given.x.dtype or out.device != given.x.device:
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
    rows = _activation_rows(given.x, m)
    target = _output_rows(out, m)
    bias = None if given.bias is None else given.bias.contiguous()
    call = Call(
        m,
        rows.address,
        rows.stride,
        target.address,
        target.stride,
        stream,
        0 if bias is None else bias.data_ptr(),
    )
    key = plan_key(given.config, given.n, given.k, given.packed, given.kernel)
    weights = tuple(tensor for tensor in given.packed if tensor is not None)
    plans.entry(key).launch(weights, call)


def plan_key(config: str, n: int, k: int, packed: Parts, kernel: str) -> PlanKey:
    """packed: in the order of PART_NAMES."""
    weight, scale, zero, channel = (0 if t is None else t.data_ptr() for t in packed)
    device = packed[0].device.index or 0
    return PlanKey(config, n, k, device, weight, scale, zero, channel, kernel)


class _Rows(NamedTuple):
    """A 2-D tensor, kept alive, as kernels take it. Units: stride in elements."""

    tensor: torch.Tensor
    address: int
    stride: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Rows | None:
        """None where kernels cannot go through it in 16-byte vectors, or where rows overlap."""
        count, width = tensor.shape
        stride, step = tensor.stride()
        if count == 1:
            stride = width  # the stride of a single row says nothing
        address = tensor.data_ptr()
        aligned = not (address % _VECTOR_BYTES or stride % _VECTOR_ELEMENTS)
        return cls(tensor, address, stride) if aligned and step == 1 and stride >= width else None


def _activation_rows(x: torch.Tensor, m: int) -> _Rows:
    """x as (m, k): a view where its strides allow one, else a copy."""
    rows = x if x.dim() == 2 else x.reshape(m, x.shape[-1])
    found = _Rows.of(rows)
    if found is None:
        # contiguous() alone would return a contiguous tensor whose address is not aligned
        found = _Rows.of(rows.clone(memory_format=torch.contiguous_format))
        assert found is not None
    return found


def _output_rows(out: torch.Tensor, m: int) -> _Rows:
    try:
        rows = out if out.dim() == 2 else out.view(m, out.shape[-1])
    except RuntimeError:
        found = None
    else:
        found = _Rows.of(rows)
    if found is None:
        raise UsageError(
            f"gemm: out has shape {tuple(out.shape)} and strides {out.stride()}; its rows need one "
            f"stride, a multiple of {_VECTOR_ELEMENTS}, and an address that is a multiple of "
            f"{_VECTOR_BYTES} bytes"
        )
    return found


@lru_cache(maxsize=4096)
def _expected(config: str, n: int, k: int) -> tuple[WeightFormat, tuple[Part | None, ...]]:
    """The format, and its tensors in the order of PART_NAMES."""
    form = WeightFormat.parse(config)
    parts = part_layout(form, n, k)
    return form, tuple(parts.get(name) for name in PART_NAMES)
