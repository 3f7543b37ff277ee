"""From tensors to a launch, for the calls that have nothing unusual about them.

`run` answers True where it has launched and False where the call needs the long way: the operator,
which checks everything, says what is wrong, chooses kernels, and knows about captures. The
extension does the same in a tenth of the time (native/tensor_call.c).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

import torch

from humming_runtime.launcher import Launch, choices, extension

MOST_SIZES = 64
MOST_STREAMS = 32
_EXCHANGE = "__dlpack_c_exchange_api__"
_ALIGNMENT_BYTES = 16
# DLDeviceType and DLDataTypeCode of the DLPack specification
_DEVICES = {"cpu": 1, "cuda": 2}
_DTYPES = {torch.float16: (2, 16), torch.bfloat16: (4, 16)}

_PLAIN = (torch.Tensor, torch.nn.Parameter)

Failure = tuple[str, int]
Parts = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
"""weight, weight_scale, weight_zero, channel_scale."""
dispatch_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack  # noqa: SLF001  no public name


class TensorCall(Protocol):
    """Thread-safe. One set of packed tensors; all but the first are kept alive."""

    def run(
        self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None, parts: Parts, /
    ) -> bool | Failure:
        """True: launched. False: take the long way. A tuple: the driver's call that failed."""

    def add(self, m: int, launch: Launch, choice: int, /) -> None:
        """Calls with m rows take this launch, chosen when launcher.choices was at `choice`."""

    def note(self, versions: tuple[int, ...], stream: int, /) -> None:
        """Weights of these versions were launched on `stream`, nothing wrote them since."""

    def forget(self) -> None:
        """The next call of every stream takes the long way."""


def make_tensor_call(
    parts: Parts,
    dtype: torch.dtype,
    size: tuple[int, int],
    current_stream: Callable[[torch.device], int],
    *,
    tracked: bool,
) -> TensorCall:
    """size: (n, k). tracked: the weights have version counters."""
    if any(type(tensor) not in _PLAIN for tensor in parts if tensor is not None):
        return LongWay()
    native = extension()
    exchange = getattr(torch.Tensor, _EXCHANGE, None)  # torch >= 2.10
    device = parts[0].device
    if native is None or exchange is None or device.type not in _DEVICES:
        return PythonTensorCall(parts, dtype, size, current_stream, tracked=tracked)
    place = _DEVICES[device.type], device.index or 0
    call: TensorCall = native.TensorCall(
        exchange, torch.Tensor, dispatch_depth, parts, tracked, place, _DTYPES[dtype], size
    )
    return call


class LongWay:
    """Of tensors that are no plain memory, such as fake ones: every call takes the operator."""

    def run(
        self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None, parts: Parts, /
    ) -> bool | Failure:
        del x, out, bias, parts
        return False

    def add(self, m: int, launch: Launch, choice: int, /) -> None:
        """Nothing is kept."""

    def note(self, versions: tuple[int, ...], stream: int, /) -> None:
        """Nothing is kept."""

    def forget(self) -> None:
        """Nothing is kept."""


class PythonTensorCall:
    """The checks of the extension, one for one."""

    def __init__(
        self,
        parts: Parts,
        dtype: torch.dtype,
        size: tuple[int, int],
        current_stream: Callable[[torch.device], int],
        *,
        tracked: bool,
    ) -> None:
        self._weight = weakref.ref(parts[0])
        self._others = parts[1:]
        self._addresses = tuple(tensor.data_ptr() for tensor in parts if tensor is not None)
        self._tracked = tracked
        self._dtype = dtype
        self._device = parts[0].device
        self._n, self._k = size
        self._current_stream = current_stream
        self._versions: tuple[int, ...] | None = None
        self._streams: set[int] = set()
        self._choice = -1
        self._sizes: dict[int, Launch] = {}

    def run(
        self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None, parts: Parts, /
    ) -> bool | Failure:
        if not (self._is_plain(x) and self._is_plain(out)) or x.shape[:-1] != out.shape[:-1]:
            return False
        rows, target = row_stride(x, self._k), row_stride(out, self._n)
        if rows is None or target is None:
            return False
        if bias is not None and not (
            self._is_plain(bias) and bias.shape == (self._n,) and bias.is_contiguous()
        ):
            return False
        if dispatch_depth() or not self._unchanged(parts) or self._choice != choices.value:
            return False
        stream = self._current_stream(self._device)
        m, stride = rows
        known = self._sizes.get(m)
        if known is None or (self._tracked and stream not in self._streams):
            return False
        address = None if bias is None else bias.data_ptr()
        failed = known.launch(
            x.data_ptr(), stride, out.data_ptr(), target[1], address, stream, self._tracked
        )
        if failed is not None:
            return failed
        return True

    def add(self, m: int, launch: Launch, choice: int, /) -> None:
        if choice != choices.value:
            return  # chosen before the choice became void
        if self._choice != choice or len(self._sizes) >= MOST_SIZES:
            self._sizes = {}
        self._choice = choice
        self._sizes[m] = launch

    def note(self, versions: tuple[int, ...], stream: int, /) -> None:
        if versions != self._versions or len(self._streams) >= MOST_STREAMS:
            self._streams = set()
        self._versions = versions
        self._streams.add(stream)

    def forget(self) -> None:
        self._streams = set()

    def _is_plain(self, tensor: torch.Tensor) -> bool:
        return (
            type(tensor) is torch.Tensor
            and tensor.dtype is self._dtype
            and tensor.device == self._device
            and not tensor.requires_grad
        )

    def _unchanged(self, parts: Parts) -> bool:
        pairs = zip(parts[1:], self._others, strict=True)
        if self._weight() is not parts[0] or any(one is not other for one, other in pairs):
            return False
        weights = tuple(tensor for tensor in parts if tensor is not None)
        if any(
            tensor.data_ptr() != address
            for tensor, address in zip(weights, self._addresses, strict=True)
        ):
            return False
        return not self._tracked or versions_of(weights) == self._versions


def versions_of(weights: tuple[torch.Tensor, ...]) -> tuple[int, ...]:
    """Version counters; the tensors have them."""
    return tuple(tensor._version for tensor in weights)  # noqa: SLF001  no public name


def row_stride(tensor: torch.Tensor, width: int) -> tuple[int, int] | None:
    """(rows, elements from one to the next); None where kernels cannot go through them."""
    shape, strides = tensor.shape, tensor.stride()
    if not shape or shape[-1] != width or (strides[-1] != 1 and width != 1):
        return None
    count, stride, seen = 1, width, False
    for size, step in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if size == 1:
            continue
        if not seen:
            stride, seen = step, True
        elif step != stride * count:
            return None
        count *= size
    if count < 1 or stride < width:
        return None
    aligned = not (tensor.data_ptr() % _ALIGNMENT_BYTES or stride * 2 % _ALIGNMENT_BYTES)
    return (count, stride) if aligned else None
