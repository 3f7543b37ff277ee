"""The short way of one set of packed tensors: what was learned from its calls that went the long
way, the operator's.
"""

from __future__ import annotations

import weakref

import torch

from humming_runtime.batch_invariance import RowBlocks
from humming_runtime.torch_layer import streams
from humming_runtime.torch_layer.gemm_call import plan_key
from humming_runtime.torch_layer.plan_cache import Entry, PlanCache
from humming_runtime.torch_layer.tensor_call import Parts, make_tensor_call, versions_of
from humming_runtime.torch_layer.weight_format import WeightFormat


class ShortCall:
    """Launches tensors like those it has learned from. Thread-safe. Does not keep `weight` alive.

    run: see TensorCall.run; the parts are those that it was made with.
    """

    def __init__(self, parts: Parts, config: str, n: int, k: int, plans: PlanCache) -> None:
        self.config, self.n, self.k, self.plans = config, n, k, plans
        weights = tuple(tensor for tensor in parts if tensor is not None)
        self._device = weights[0].device
        self._tracked = not any(tensor.is_inference() for tensor in weights)
        self._call = make_tensor_call(
            parts,
            WeightFormat.parse(config).activation_dtype,
            (n, k),
            streams.current_stream,
            tracked=self._tracked,
        )
        self.run = self._call.run
        self._others = parts[1:]

    def is_for(self, parts: Parts, config: str, n: int, k: int, plans: PlanCache) -> bool:
        """Is it about these very tensors, besides the first, in this format?"""
        same = all(one is other for one, other in zip(self._others, parts[1:], strict=True))
        return same and (self.config, self.n, self.k) == (config, n, k) and self.plans is plans

    def learn(self, x: torch.Tensor, parts: Parts) -> None:
        """A call with x has launched: the next one like it is short, if its stream is known."""
        m = x.numel() // self.k
        if m == 0 or type(x) is not torch.Tensor or x.device != self._device:
            return
        entry = self.entry(parts)
        ready = entry.plan.ready(m)
        if ready is None:
            return
        if not isinstance(ready.launch, RowBlocks):
            self._call.add(m, ready.launch, ready.choice)
        if self._tracked:
            weights = tuple(tensor for tensor in parts if tensor is not None)
            versions = versions_of(weights)
            stream = streams.current_stream(self._device)
            if entry.knows(weights, versions, stream):
                entry.tell(self)
                self._call.note(versions, stream)

    def entry(self, parts: Parts, kernel: str = "") -> Entry:
        """The plan of these tensors, and what is known of writes to them."""
        return self.plans.entry(plan_key(self.config, self.n, self.k, parts, kernel))

    def failure(self, parts: Parts, refused: tuple[str, int]) -> Exception:
        """The error for what run() answered."""
        return self.entry(parts).plan.failure(*refused)

    def forget(self) -> None:
        """The weights were written in a way that their versions do not show."""
        self._call.forget()


def empty_result(x: torch.Tensor, n: int) -> torch.Tensor | None:
    """Memory for x (..., k) times (k, n); None for what only the long way can judge.

    Sizes one by one: torch reads a tuple of them three times as slowly.
    """
    if type(x) is not torch.Tensor:
        return None
    shape = x.shape
    if len(shape) == 2:
        return x.new_empty(shape[0], n)
    return x.new_empty(*shape[:-1], n) if shape else None


class ShortCalls:
    """Short calls of whatever weights the operator has met, as long as these live."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[weakref.ref[torch.Tensor], ShortCall]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def find(self, weight: torch.Tensor) -> ShortCall | None:
        known = self._calls.get(id(weight))
        return known[1] if known is not None and known[0]() is weight else None

    def add(self, weight: torch.Tensor, call: ShortCall) -> None:
        """Takes the place of an older one."""
        key, calls = id(weight), self._calls

        def drop(reference: weakref.ref[torch.Tensor]) -> None:
            if calls.get(key, (None,))[0] is reference:
                del calls[key]

        calls[key] = weakref.ref(weight, drop), call
