"""Which launch a kernel would use for a problem, and how long it would take (docs/selection.md).

Pure: device facts and the manifest's measured costs go in, a time in microseconds comes out. The absolute time matters
less than the order of the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from humming_runtime.contract import launch_shape
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.contract.manifest import Cost
from humming_runtime.contract.variant_name import Variant
from humming_runtime.problem import Device, Problem

MAX_GRID = 2**31 - 1
STATIC_SHARED_BYTES = 1024
"""Upper bound of static shared memory (barriers) of every kernel."""
RESERVED_SHARED_BYTES = 1024
"""What the driver keeps of an SM's shared memory for each resident CTA."""
SPLITS = (1, 2, 4)


@dataclass(frozen=True)
class Choice:
    """One way to launch one kernel."""

    shape: LaunchShape
    predicted_us: float


def candidates(variant: Variant, cost: Cost | None, problem: Problem, device: Device) -> tuple[Choice, ...] | str:
    """Every launch of `variant` that fits, cheapest first; or the reason why there is none."""
    if problem.m < 1:
        return f"m is {problem.m}, a launch needs at least 1"
    if variant.schedule == "decode":
        shapes = _decode_shapes(variant, problem, device)
        if isinstance(shapes, str):
            return shapes
    else:
        shapes = _tiled_shapes(variant, problem)
    room = device.shared_limit_bytes - STATIC_SHARED_BYTES
    fitting = [s for s in shapes if s.shared_bytes <= room]
    if not fitting:
        least = min(s.shared_bytes for s in shapes)
        return f"shared memory: needs {least} bytes a CTA, device allows {room}"
    launchable = [s for s in fitting if s.grid <= MAX_GRID]
    if not launchable:
        return f"grid of {fitting[0].grid} CTAs, limit {MAX_GRID}"
    choices = [Choice(s, predict_us(variant, cost, s, problem, device)) for s in launchable]
    return tuple(sorted(choices, key=lambda c: (c.predicted_us, c.shape.cluster, c.shape.ctas_per_sm)))


def _decode_shapes(variant: Variant, problem: Problem, device: Device) -> list[LaunchShape] | str:
    if problem.m > variant.tile_m:
        return f"m is {problem.m}, the decode schedule holds at most {variant.tile_m} rows"
    size = (problem.m, problem.n, problem.k)
    shapes = []
    for split in SPLITS:
        if split > 1 and launch_shape.decode_k_share(problem.k, split) * (split - 1) >= problem.k:
            continue
        for per_sm in (1, 2):
            share = device.shared_per_sm_bytes // per_sm - RESERVED_SHARED_BYTES
            budget = min(device.shared_limit_bytes, share) - STATIC_SHARED_BYTES
            ctas = resident_ctas(device.sm_count, split) * per_sm
            shape = launch_shape.decode_shape(variant, size, split, ctas, budget)
            if shape is not None:
                shapes.append(replace(shape, ctas_per_sm=per_sm))
    if not shapes:
        return f"shared memory: activations of {problem.m} x {problem.k} leave no room for the weight ring"
    return shapes


def _tiled_shapes(variant: Variant, problem: Problem) -> list[LaunchShape]:
    splits: tuple[int, ...] = (1,)
    if variant.schedule == "prefill" and launch_shape.prefill_can_split(variant):
        steps = -(-problem.k // variant.tile_k)
        splits = tuple(s for s in SPLITS if s <= steps)
    return [launch_shape.tiled_shape(variant, problem.m, problem.n, s) for s in splits]


def resident_ctas(sm_count: int, cluster: int) -> int:
    """CTAs that run at once, one an SM. Clusters above 2 leave SMs of odd-sized GPCs empty (measured: 120 of 132)."""
    usable = sm_count if cluster <= 2 else sm_count * 10 // 11
    return usable // cluster * cluster


def predict_us(variant: Variant, cost: Cost | None, shape: LaunchShape, problem: Problem, device: Device) -> float:
    """Time of one launch: fixed part, then the longer of the memory stream and the busiest CTA's steps."""
    known = cost or DEFAULT_COST
    slots = resident_ctas(device.sm_count, shape.cluster) * shape.ctas_per_sm
    k_share = -(-problem.k // shape.cluster)
    steps = -(-k_share // variant.tile_k)
    if variant.schedule == "decode":
        tiles = -(-problem.n // variant.tile_n)
        rounds = -(-tiles // (shape.grid // shape.cluster))
    else:
        rounds = -(-shape.grid // slots)
    return known.fixed_us + rounds * steps * known.step_us * shape.ctas_per_sm


DEFAULT_COST = Cost(5.0, 0.5, 0.5, 2.0, 1.0, 1.0, 4.0)
