"""torch operators `humming::gemm` and `humming::gemm_out`.

Graph constants are a text and two sizes, the same in every process: layers of one format and size
share a compiled graph.
"""

from __future__ import annotations

from typing import Any

import torch

from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import binding
from humming_runtime.torch_layer.gemm_call import (
    GemmInputs,
    check_inputs,
    check_output,
    launch,
    output_shape,
)

_INPUTS = (
    "Tensor x, Tensor weight, Tensor? weight_scale, Tensor? weight_zero, Tensor? channel_scale, "
    "Tensor? bias, str config, int n, int k, str kernel=''"
)
# A fragment, because other packages may define operators of this namespace.
_torch_library: Any = torch.library  # parts of it are not typed
_library = _torch_library.Library("humming", "FRAGMENT")
_library.define(f"gemm({_INPUTS}) -> Tensor")
_library.define(f"gemm_out({_INPUTS}, *, Tensor(a!) out) -> ()")

Argument = torch.Tensor | str | int | None


class GradientError(UsageError):
    """A backward pass would be needed."""


def _cuda_gemm(*arguments: Argument) -> torch.Tensor:
    given = _inputs(arguments)
    check_inputs(given)
    out = torch.empty(output_shape(given), dtype=given.x.dtype, device=given.x.device)
    launch(given, out, binding.plans(), current_stream(given.x.device))
    return out


def _cuda_gemm_out(*arguments: Argument, out: torch.Tensor) -> None:
    given = _inputs(arguments)
    check_inputs(given)
    check_output(given, out)
    launch(given, out, binding.plans(), current_stream(given.x.device))


def _fake_gemm(*arguments: Argument) -> torch.Tensor:
    given = _inputs(arguments)
    check_inputs(given)
    return given.x.new_empty(output_shape(given))


def _fake_gemm_out(*arguments: Argument, out: torch.Tensor) -> None:
    given = _inputs(arguments)
    check_inputs(given)
    check_output(given, out)


def _refuse_cpu(*arguments: Argument, out: torch.Tensor | None = None) -> None:
    del out
    require_cuda(_inputs(arguments).x.device)


def _below_autograd_gemm(*arguments: Argument) -> torch.Tensor:
    _refuse_gradients(arguments)
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001  no public name
        result: torch.Tensor = torch.ops.humming.gemm(*arguments)
    return result


def _below_autograd_gemm_out(*arguments: Argument, out: torch.Tensor) -> None:
    _refuse_gradients((*arguments, out))
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001  no public name
        torch.ops.humming.gemm_out(*arguments, out=out)


def _refuse_gradients(arguments: tuple[Argument, ...]) -> None:
    """A result without history would drop gradients in silence."""
    if not torch.is_grad_enabled():
        return
    if any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments):
        raise GradientError(
            "gemm: an input requires a gradient, quantized weights have no backward pass; "
            "call under torch.no_grad() or detach the input"
        )


def require_cuda(device: torch.device) -> None:
    """Raises: UsageError for a device that no kernel runs on."""
    if device.type != "cuda":
        raise UsageError(f"gemm: tensors are on {device}, kernels run on CUDA devices; move them")


def current_stream(device: torch.device) -> int:
    """Handle of torch's current stream of that device."""
    index = torch.cuda.current_device() if device.index is None else device.index
    stream: int = torch._C._cuda_getCurrentRawStream(index)  # noqa: SLF001  no object is made
    return stream


def _inputs(arguments: tuple[Argument, ...]) -> GemmInputs:
    arguments_and_defaults: Any = arguments  # torch leaves out what equals its default
    return GemmInputs(*arguments_and_defaults)


_library.impl("gemm", _cuda_gemm, "CUDA")
_library.impl("gemm_out", _cuda_gemm_out, "CUDA")
_library.impl("gemm", _refuse_cpu, "CPU")
_library.impl("gemm_out", _refuse_cpu, "CPU")
_library.impl("gemm", _below_autograd_gemm, "Autograd")
_library.impl("gemm_out", _below_autograd_gemm_out, "Autograd")
_torch_library.register_fake("humming::gemm", _fake_gemm, lib=_library)
_torch_library.register_fake("humming::gemm_out", _fake_gemm_out, lib=_library)
