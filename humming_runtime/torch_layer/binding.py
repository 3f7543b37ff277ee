"""The engine that torch calls go to, and the plans made with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from humming_runtime.contract.layouts import stored_groups
from humming_runtime.engine import Engine, process_engine
from humming_runtime.gemm_plan import GemmPlan, WeightOperands
from humming_runtime.torch_layer.plan_cache import PlanCache, PlanKey
from humming_runtime.torch_layer.weight_format import WeightFormat

_OP = "dense"


def operands_of(key: PlanKey) -> WeightOperands:
    """What a plan is made from; the plan checks it."""
    form = WeightFormat.parse(key.config)
    return WeightOperands(
        op=_OP,
        activation=form.activation,
        weight_dtype=form.weight,
        scale=form.scale,
        layout=form.layout,
        n=key.n,
        k=key.k,
        groups=stored_groups(key.k, form.group_size),
        weight=key.weight,
        weight_scale=key.weight_scale,
        weight_zero=key.weight_zero,
        channel_scale=key.channel_scale,
    )


def plans_of(engine: Engine) -> PlanCache:
    """An empty cache whose plans launch through `engine`."""
    return PlanCache(lambda key: GemmPlan(operands_of(key), key.device, engine, key.kernel or None))


_lock = threading.Lock()
_plans: PlanCache | None = None


def plans() -> PlanCache:
    """The plans of this process; the first use makes the engine."""
    global _plans  # noqa: PLW0603  one per process by its meaning
    if _plans is None:
        with _lock:
            _plans = _plans or plans_of(process_engine())
    return _plans


@contextmanager
def use_plans(cache: PlanCache) -> Iterator[PlanCache]:
    """Every torch call inside goes to `cache`, in all threads: for tests and measurements."""
    global _plans  # noqa: PLW0603  one per process by its meaning
    before, _plans = _plans, cache
    try:
        yield cache
    finally:
        _plans = before
