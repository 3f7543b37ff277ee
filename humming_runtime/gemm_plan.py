"""One layer's constant operands bound on one device; a call adds activations, output, stream.

Nothing is shared between launches: arguments go by value, reductions stay inside a cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from humming_runtime.batch_invariance import RowBlocks
from humming_runtime.contract.arguments import pack_into
from humming_runtime.contract.launch_shape import argument_bytes, uses_tensor_maps
from humming_runtime.contract.variant_name import Variant
from humming_runtime.engine import Engine
from humming_runtime.errors import DriverError, UsageError
from humming_runtime.explanation import as_text
from humming_runtime.launcher import Launch, choices, make_launch
from humming_runtime.resolve import Accepted
from humming_runtime.tensor_map import (
    TensorMap,
    activation_map,
    encode,
    scale_map,
    weight_map,
    zero_map,
)
from humming_runtime.weight_operands import MOST_SIZE, WeightOperands

__all__ = ["MOST_SIZES", "GemmPlan", "WeightOperands"]

MOST_SIZES = 64
"""Values of m that a plan keeps ready, about 2 KB each; the oldest goes first."""
_OVERLAP_FROM = (9, 0)
_ALIGNMENT_BYTES = 16
_WAITING_SCHEDULES = ("decode", "prefill")
"""Schedules whose kernels wait for their predecessor; others must not overlap with it."""


@dataclass(frozen=True)
class Ready:
    """How one m is launched. choice: see launcher.choices; generation: of the engine."""

    accepted: Accepted
    generation: int
    choice: int
    launch: Launch


class GemmPlan:
    """Launches one layer on one device. Thread-safe. force: name of the variant that must run.

    The owner keeps the operands' memory alive and in place. Raises: UsageError at once for operands
    that no kernel takes; NoKernelError, IntegrityError, DriverError at the first call of an m;
    CaptureError where that call is inside a stream capture.
    """

    def __init__(
        self, operands: WeightOperands, ordinal: int, engine: Engine, force: str | None = None
    ) -> None:
        operands.check()
        self.operands = operands
        self.device = engine.device(ordinal)
        self._engine = engine
        self._force = force
        self._lock = threading.Lock()
        self._ready: dict[int, Ready] = {}
        self._maps: dict[int, dict[str, bytes]] = {}
        self._can_overlap = self.device.capability >= _OVERLAP_FROM

    def launch(
        self,
        m: int,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        stream: int,
        *,
        overlap: bool = True,
        bias: int | None = None,
    ) -> None:
        """Enqueue C = A B on `stream`; m = 0 does nothing.

        Units: addresses; strides in elements. bias: address in place of the layer's own.
        overlap: see Driver.launch; the weights must be older than the preceding kernel.
        """
        if m == 0:
            return
        if m == 1:  # a stride that means nothing may be anything
            activation_stride, output_stride = self.operands.k, self.operands.n
        if (
            (activation | output | activation_stride * 2 | output_stride * 2) % _ALIGNMENT_BYTES
            or activation_stride < self.operands.k
            or output_stride < self.operands.n
        ):
            self._refuse(activation, activation_stride, output, output_stride)
        ready = self._ready.get(m)
        if ready is None or ready.generation != self._engine.generation:
            ready = self._add(m, stream)
        failed = ready.launch.launch(
            activation, activation_stride, output, output_stride, bias, stream, overlap
        )
        if failed is not None:
            raise self.failure(*failed)

    def prepare(self, sizes: Iterable[int]) -> None:
        """Choose and load the kernels for these m now, so that no later call has to.

        More than MOST_SIZES are loaded as well; a call then lays its arguments out again.
        """
        for m in sizes:
            if m != 0:
                self.ready(m)

    def is_capturing(self, stream: int) -> bool:
        """Does work on `stream` become a part of a CUDA graph?"""
        return self._engine.driver.is_capturing(stream, self.device.ordinal)

    def failure(self, name: str, code: int) -> DriverError:
        """The error for a launch of Ready.launch that the driver refused."""
        return self._engine.driver.failure(name, code)

    def explain(self, m: int) -> str:
        """Which kernel `m` rows get and why, with every other candidate; for people."""
        problem = self.operands.problem(m)
        return as_text(problem, self.device, self._engine.explain(problem, self.device))

    def kernel(self, m: int) -> str:
        """Name of the variant that a call with `m` runs."""
        return self.ready(m).accepted.entry.name

    def ready(self, m: int) -> Ready:
        """Choose and load the kernel for `m` if that was not done yet."""
        ready = self._ready.get(m)
        if ready is None or ready.generation != self._engine.generation:
            return self._add(m, None)
        return ready

    def _add(self, m: int, stream: int | None) -> Ready:
        if not 0 < m <= MOST_SIZE:
            raise UsageError(f"m: out of range ({m}, limit {MOST_SIZE})")
        engine, device = self._engine, self.device
        generation, choice = engine.generation, choices.value
        decision = engine.resolve(self.operands.problem(m), device, self._force)
        accepted = decision.chosen
        if decision.rows_at_once is not None and m > decision.rows_at_once:
            launch: Launch = self._in_blocks(m, decision.rows_at_once)
            return self._keep(m, Ready(accepted, generation, choice, launch))
        function = engine.loader.load(accepted, device, stream)
        variant, shape, template = accepted.variant, accepted.shape, self._template(accepted, m)
        tensor = None
        if uses_tensor_maps(variant):
            k = self.operands.k
            tensor = activation_map(variant, 0, k, m, k)

        can_overlap = self._can_overlap and variant.schedule in _WAITING_SCHEDULES
        counter = engine.counter(accepted.entry.name)
        launch = make_launch(
            engine.driver, function, shape, template, tensor, counter, can_overlap=can_overlap
        )
        return self._keep(m, Ready(accepted, generation, choice, launch))

    def _in_blocks(self, m: int, rows: int) -> RowBlocks:
        """m rows as launches of `rows` and one of the rest."""
        rest = self.ready(m % rows).launch if m % rows else None
        return RowBlocks(self.ready(rows).launch, rows, m // rows, rest)

    def _keep(self, m: int, ready: Ready) -> Ready:
        with self._lock:
            self._ready.pop(m, None)
            self._ready[m] = ready
            while len(self._ready) > MOST_SIZES:
                self._ready.pop(next(iter(self._ready)))
        return ready

    def _template(self, accepted: Accepted, m: int) -> bytes:
        given, shape = self.operands, accepted.shape
        buffer = bytearray(argument_bytes(accepted.variant))
        values: dict[str, int | bytes] = {
            "weight": given.weight,
            "weight_scale": given.weight_scale,
            "weight_zero": given.weight_zero,
            "channel_scale": given.channel_scale,
            "tensor_scale": given.tensor_scale,
            "bias": given.bias,
            "m": m,
            "n": given.n,
            "k": given.k,
            "groups": given.groups,
            "group_size": given.scale.group_size or 0,
            "split_k": shape.split_k,
            "whole_tiles": shape.whole_tiles,
            "early_successor": int(shape.early_successor),
            "stages": shape.stages,
        }
        if uses_tensor_maps(accepted.variant):
            values |= self._weight_maps(accepted.variant)
        pack_into(buffer, values)
        return bytes(buffer)

    def _weight_maps(self, variant: Variant) -> dict[str, bytes]:
        """Encoded maps of weights, scales and zero points; their boxes depend on tile n alone."""
        known = self._maps.get(variant.tile_n)
        if known is None:
            given = self.operands
            maps: dict[str, TensorMap] = {
                "weight_map": weight_map(variant, given.weight, given.n, given.k)
            }
            if given.scale.group_size is not None:
                maps["scale_map"] = scale_map(variant, given.weight_scale, given.n, given.groups)
                if given.scale.zero_point:
                    maps["zero_map"] = zero_map(variant, given.weight_zero, given.n, given.groups)
            known = {name: encode(self._engine.driver, tensor) for name, tensor in maps.items()}
            self._maps[variant.tile_n] = known
        return known

    def _refuse(
        self, activation: int, activation_stride: int, output: int, output_stride: int
    ) -> None:
        checks = (
            ("activation", activation, activation_stride, "k", self.operands.k),
            ("output", output, output_stride, "n", self.operands.n),
        )
        limit = _ALIGNMENT_BYTES
        for name, address, stride, size_name, size in checks:
            if address % limit:
                raise UsageError(f"{name}: address is no multiple of {limit} ({address:#x})")
            if stride * 2 % limit:
                raise UsageError(f"{name}: row stride is no multiple of {limit // 2} ({stride})")
            if stride < size:
                raise UsageError(f"{name}: row stride {stride} is less than {size_name} ({size})")
