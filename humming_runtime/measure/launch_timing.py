"""Time of every launch that could serve a problem: what tables and the cost model are made from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from humming_runtime import selection
from humming_runtime.contract.tuning import TunedLaunch, tile_of
from humming_runtime.engine import Engine
from humming_runtime.measure.cold_timing import copies_for, graph_us
from humming_runtime.problem import Device, Problem
from humming_runtime.resolve import Accepted, Decision, shortlist
from humming_runtime.torch_layer.binding import plans_of, use_plans
from humming_runtime.torch_layer.functional import matmul
from humming_runtime.torch_layer.packed_weight import PackedWeight

REPLAYS = 7
_MOST_TILE_FACTOR = 16
_SMALL_TILE, _LARGE_ROWS, _LARGE_TILE = 64, 1024, 128
# A GPU that runs into its power limit slows down within 50 ms: long launches rest in between.
_REST_SECONDS, _REST_FROM = 0.04, 2e10


class FixedEngine(Engine):
    """Every call runs the launch that is set."""

    fixed: Accepted

    def set_launch(self, accepted: Accepted) -> None:
        self.fixed = accepted
        self.force = accepted.entry.name  # plans choose again

    def resolve(self, problem: Problem, device: Device, force: str | None = None) -> Decision:
        del device, force
        return Decision(problem, self.fixed, (), (), forced=True)


def launches(engine: Engine, problem: Problem, device: Device) -> Iterator[Accepted]:
    """Every launch of every kernel that could be the best; far too small tiles are left out."""
    for package, entry, variant in shortlist(problem, device, engine.installed.packages).kernels:
        if variant.schedule == "prefill" and not _plausible(variant.tile_m, problem.m):
            continue
        choices = selection.candidates(variant, entry.cost, problem, device)
        if isinstance(choices, str):
            continue
        for choice in choices:
            yield Accepted(package, entry, variant, choice.shape, choice.predicted_us)


def time_launches(
    engine: FixedEngine, layers: Sequence[PackedWeight], m: int
) -> Iterator[tuple[Accepted, float]]:
    """Each launch for m rows of copies of one layer, with its microseconds."""
    first = layers[0]
    form, dtype = first.form, first.form.activation_dtype
    x = torch.randn(m, first.k, device=first.device, dtype=dtype)
    out = torch.empty(m, first.n, device=first.device, dtype=dtype)
    problem = Problem(
        "dense", form.activation, form.weight, form.scale, form.layout, m, first.n, first.k
    )
    used = layers[: copies_for(first.size_bytes, m)]
    with use_plans(plans_of(engine)):
        for accepted in launches(engine, problem, engine.device(first.device.index or 0)):
            engine.set_launch(accepted)
            if m * first.n * first.k > _REST_FROM:
                time.sleep(_REST_SECONDS)
            calls = [lambda layer=layer: matmul(x, layer, out=out) for layer in used]
            yield accepted, graph_us(calls, REPLAYS)


def tuned(accepted: Accepted, m: int, us: float) -> TunedLaunch:
    """A row of a table."""
    shape = accepted.shape
    tile = tile_of(accepted.variant)
    return TunedLaunch(m, tile, shape.split_k, shape.ctas_per_sm, shape.stages, round(us, 2))


def _plausible(tile_m: int, m: int) -> bool:
    if m >= _LARGE_ROWS:
        return tile_m >= _LARGE_TILE
    return tile_m <= max(_SMALL_TILE, 2 * m) and m <= _MOST_TILE_FACTOR * tile_m
