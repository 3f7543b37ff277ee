"""torch operators `humming::gemm` and `humming::gemm_out`.

Graph constants are a text and two sizes, the same in every process: layers of one format and size
share a compiled graph.
"""

from __future__ import annotations

from typing import Any

import torch

from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import binding, streams
from humming_runtime.torch_layer.gemm_call import (
    GemmInputs,
    check_inputs,
    check_output,
    launch,
    output_shape,
)
from humming_runtime.torch_layer.short_call import ShortCall, ShortCalls, empty_result

_INPUTS = (
    "Tensor x, Tensor weight, Tensor? weight_scale, Tensor? weight_zero, Tensor? channel_scale, "
    "Tensor? bias, str config, int n, int k, str kernel=''"
)
# A fragment, because other packages may define operators of this namespace.
_torch_library: Any = torch.library  # parts of it are not typed
_library = _torch_library.Library("humming", "FRAGMENT")
_library.define(f"gemm({_INPUTS}) -> Tensor")
# `out` comes first, by place: dynamo before torch 2.6 stops at a keyword of that name.
_library.define(f"gemm_out(Tensor(a!) out, {_INPUTS}) -> ()")

Argument = torch.Tensor | str | int | None


class GradientError(UsageError):
    """A backward pass would be needed."""


_SHORT_ARGUMENTS = 9  # without `kernel`, which torch leaves out where it is the default
_short_calls = ShortCalls()


def _launch_shortly(arguments: tuple[Any, ...], out: torch.Tensor | None) -> torch.Tensor | None:
    """The result, if an earlier call has shown the way for tensors like these."""
    call = _short_calls.find(arguments[1])
    if call is None or len(arguments) != _SHORT_ARGUMENTS:
        return None
    x, parts, bias, shape = arguments[0], arguments[1:5], arguments[5], arguments[6:]
    if shape != (call.config, call.n, call.k) or call.plans is not binding.plans():
        return None
    if out is None:
        out = empty_result(x, call.n)
        if out is None:
            return None
    done = call.run(x, out, bias, parts)
    if done is True:
        return out
    if done:
        raise call.failure(parts, done)
    return None


def _launch(given: GemmInputs, out: torch.Tensor) -> None:
    """The long way; the next call may be short."""
    plans = binding.plans()
    launch(given, out, plans, streams.current_stream(given.x.device))
    if given.kernel:
        return
    call = _short_calls.find(given.weight)
    if call is None or not call.is_for(given.packed, given.config, given.n, given.k, plans):
        call = ShortCall(given.packed, given.config, given.n, given.k, plans)
        _short_calls.add(given.weight, call)
    call.learn(given.x, given.packed)


def _cuda_gemm(*arguments: Argument) -> torch.Tensor:
    done = _launch_shortly(arguments, None)
    if done is not None:
        return done
    given = _inputs(arguments)
    check_inputs(given)
    out = torch.empty(output_shape(given), dtype=given.x.dtype, device=given.x.device)
    _launch(given, out)
    return out


def _cuda_gemm_out(out: torch.Tensor, *arguments: Argument) -> None:
    if _launch_shortly(arguments, out) is not None:
        return
    given = _inputs(arguments)
    check_inputs(given)
    check_output(given, out)
    _launch(given, out)


def _fake_gemm(*arguments: Argument) -> torch.Tensor:
    given = _inputs(arguments)
    check_inputs(given)
    return given.x.new_empty(output_shape(given))


def _fake_gemm_out(out: torch.Tensor, *arguments: Argument) -> None:
    given = _inputs(arguments)
    check_inputs(given)
    check_output(given, out)


def _refuse_cpu(*arguments: Argument) -> None:
    require_cuda(_inputs(arguments).x.device)


def _refuse_cpu_out(out: torch.Tensor, *arguments: Argument) -> None:
    del out
    require_cuda(_inputs(arguments).x.device)


def _below_autograd_gemm(*arguments: Argument) -> torch.Tensor:
    done = _launch_shortly(arguments, None)
    if done is not None:
        return done
    _refuse_gradients(arguments)
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001  no public name
        result: torch.Tensor = torch.ops.humming.gemm(*arguments)
    return result


def _below_autograd_gemm_out(out: torch.Tensor, *arguments: Argument) -> None:
    if _launch_shortly(arguments, out) is not None:
        return
    _refuse_gradients((*arguments, out))
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001  no public name
        torch.ops.humming.gemm_out(out, *arguments)


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


def _inputs(arguments: tuple[Argument, ...]) -> GemmInputs:
    arguments_and_defaults: Any = arguments  # torch leaves out what equals its default
    return GemmInputs(*arguments_and_defaults)


_library.impl("gemm", _cuda_gemm, "CUDA")
_library.impl("gemm_out", _cuda_gemm_out, "CUDA")
_library.impl("gemm", _refuse_cpu, "CPU")
_library.impl("gemm_out", _refuse_cpu_out, "CPU")
_library.impl("gemm", _below_autograd_gemm, "Autograd")
_library.impl("gemm_out", _below_autograd_gemm_out, "Autograd")
_torch_library.register_fake("humming::gemm", _fake_gemm, lib=_library)
_torch_library.register_fake("humming::gemm_out", _fake_gemm_out, lib=_library)
