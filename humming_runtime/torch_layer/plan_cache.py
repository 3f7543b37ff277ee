"""Plans of packed weights by their addresses, and whether a launch may overlap its predecessor.

A plan depends on addresses, sizes and format alone, never on the data, and all of these are its
key: an address that was freed and used again for the same shape gets the same, right plan.

Overlap (programmatic dependent launch) lets a kernel read weights before its predecessor in the
stream has ended. That is wrong where the predecessor wrote them, so the first launch of a stream
after a write goes without. Inside a graph capture only a write of the same capture could come
before, so there it is enough that any stream has launched these weights as they are: warm up, then
capture on another stream, as usual.

Writes are seen by the tensors' identity and version counter. Tensors
without a version counter (made in inference mode) never overlap; after a write that the counter
does not see (`.data`, another library) call `weights_written`.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch

MOST_PLANS = 2048
"""More than a model has dense layers, at most 128 KB each; the longest unused goes first."""
MOST_STREAMS = 32
"""Streams of one plan that are known to have seen the last write."""

_UNKNOWN_VERSION = -1


class Plan(Protocol):
    """What the launch side of the runtime offers (gemm_plan.GemmPlan)."""

    def launch(
        self,
        m: int,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        stream: int,
        *,
        overlap: bool,
        bias: int | None,
    ) -> None: ...

    def prepare(self, sizes: Iterable[int]) -> None: ...

    def is_capturing(self, stream: int) -> bool: ...

    def ready(self, m: int) -> Any: ...

    def explain(self, m: int) -> str: ...

    def failure(self, name: str, code: int) -> Exception: ...


class Follower(Protocol):
    """Whoever keeps a copy of what an entry knows of streams."""

    def forget(self) -> None: ...


class Call(NamedTuple):
    """What changes from call to call: addresses (bias 0 = absent), strides in elements."""

    m: int
    activation: int
    activation_stride: int
    output: int
    output_stride: int
    stream: int
    bias: int


class PlanKey(NamedTuple):
    """Everything that a plan depends on; addresses are 0 where the tensor is absent."""

    config: str
    n: int
    k: int
    device: int
    weight: int
    weight_scale: int
    weight_zero: int
    channel_scale: int
    kernel: str = ""  # name of the variant that must run; empty for the free choice


class Entry:
    """A plan, and which streams have launched it since its weights were last written."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._lock = threading.Lock()
        self._written: tuple[tuple[weakref.ref[torch.Tensor], int], ...] = ()
        self._streams: set[int] = set()
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()

    def launch(self, weights: tuple[torch.Tensor, ...], call: Call) -> None:
        """Launch; overlapped where no write of these weights can be the launch's predecessor.

        A launch that fails leaves no trace.
        """
        versions = [_version(tensor) for tensor in weights]
        with self._lock:
            if not self._same(weights, versions):
                pairs = zip(weights, versions, strict=True)
                self._written = tuple((weakref.ref(t), version) for t, version in pairs)
                self._streams.clear()
            known = call.stream in self._streams
            capturing = not known and self.plan.is_capturing(call.stream)
            overlap = known or (capturing and bool(self._streams))
            *place, bias = call
            self.plan.launch(*place, overlap=overlap, bias=bias)
            if not (known or capturing) and _UNKNOWN_VERSION not in versions:
                if len(self._streams) >= MOST_STREAMS:
                    self._streams.clear()
                self._streams.add(call.stream)

    def knows(
        self, weights: tuple[torch.Tensor, ...], versions: tuple[int, ...], stream: int
    ) -> bool:
        """Has `stream` launched these weights since they got these versions?"""
        with self._lock:
            return stream in self._streams and self._same(weights, list(versions))

    def tell(self, follower: Follower) -> None:
        """It hears of writes that versions do not show, as long as it lives."""
        with self._lock:
            self._followers.add(follower)

    def forget_writes(self) -> None:
        """The next launch of every stream goes without overlap."""
        with self._lock:
            self._streams.clear()
            for follower in self._followers:
                follower.forget()

    def _same(self, weights: tuple[torch.Tensor, ...], versions: list[int]) -> bool:
        return len(self._written) == len(weights) and all(
            reference() is tensor and seen == version
            for (reference, seen), tensor, version in zip(
                self._written, weights, versions, strict=True
            )
        )


class PlanCache:
    """At most `most` plans; thread-safe."""

    def __init__(self, make: Callable[[PlanKey], Plan], most: int = MOST_PLANS) -> None:
        self._make = make
        self._most = most
        self._lock = threading.Lock()
        self._entries: OrderedDict[PlanKey, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, key: PlanKey) -> Entry:
        """The entry of a key, made at first use; two threads may make one plan, one is kept."""
        with self._lock:
            known = self._entries.get(key)
            if known is not None:
                self._entries.move_to_end(key)
                return known
        made = Entry(self._make(key))
        with self._lock:
            entry = self._entries.setdefault(key, made)
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        return entry

    def forget_writes(self, weight_address: int) -> None:
        """See Entry.forget_writes, for every plan of these weights."""
        with self._lock:
            entries = [e for key, e in self._entries.items() if key.weight == weight_address]
        for entry in entries:
            entry.forget_writes()


def _version(tensor: torch.Tensor) -> int:
    return _UNKNOWN_VERSION if tensor.is_inference() else tensor._version  # noqa: SLF001  no public name
