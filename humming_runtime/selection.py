"""Which launch a kernel would use for a problem, and how long it would take (docs/selection.md).

Pure: device facts and the manifest's measured costs go in, a time in microseconds comes out. The
absolute time matters less than the order of the candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from humming_runtime.contract import launch_shape
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.contract.manifest import Cost
from humming_runtime.contract.number_formats import weight_format
from humming_runtime.contract.variant_name import Variant
from humming_runtime.problem import Device, Problem

MAX_GRID = 2**31 - 1
STATIC_SHARED_BYTES = 1024
"""Upper bound of static shared memory (barriers) of every kernel."""
RESERVED_SHARED_BYTES = 1024
"""What the driver keeps of an SM's shared memory for each resident CTA."""
SPLITS = (1, 2, 4)
_RESIDENCIES = ((1, 2), (1, 1), (2, 2))
"""Decode: CTAs an SM, and how many find room there. One that leaves room for another lets the next
kernel move in while it ends; worth a shallower ring where each CTA makes one tile."""


@dataclass(frozen=True)
class Choice:
    """One way to launch one kernel."""

    shape: LaunchShape
    predicted_us: float


def candidates(
    variant: Variant, cost: Cost | None, problem: Problem, device: Device
) -> tuple[Choice, ...] | str:
    """Every launch of `variant` that fits, cheapest first; or the reason why there is none."""
    if problem.m < 1:
        return f"m is {problem.m}, a launch needs at least 1"
    if variant.schedule == "decode":
        shapes = _decode_shapes(variant, problem, device)
        if isinstance(shapes, str):
            return shapes
    else:
        shapes = _tiled_shapes(variant, problem, device)
    room = device.shared_limit_bytes - STATIC_SHARED_BYTES
    fitting = [s for s in shapes if s.shared_bytes <= room]
    if not fitting:
        least = min(s.shared_bytes for s in shapes)
        return f"shared memory: needs {least} bytes a CTA, device allows {room}"
    launchable = [s for s in fitting if s.grid <= MAX_GRID]
    if not launchable:
        return f"grid of {fitting[0].grid} CTAs, limit {MAX_GRID}"
    choices = [Choice(s, predict_us(variant, cost, s, problem, device)) for s in launchable]
    return tuple(
        sorted(choices, key=lambda c: (c.predicted_us, c.shape.cluster, c.shape.ctas_per_sm))
    )


def _decode_shapes(variant: Variant, problem: Problem, device: Device) -> list[LaunchShape] | str:
    if problem.m > variant.tile_m:
        return f"m is {problem.m}, the decode schedule holds at most {variant.tile_m} rows"
    size = (problem.m, problem.n, problem.k)
    shapes = []
    for split in SPLITS:
        if split > 1 and launch_shape.decode_k_share(problem.k, split) * (split - 1) >= problem.k:
            continue
        for per_sm, room in _RESIDENCIES:
            share = device.shared_per_sm_bytes // room - RESERVED_SHARED_BYTES
            budget = min(device.shared_limit_bytes, share) - STATIC_SHARED_BYTES
            ctas = resident_ctas(device.sm_count, split) * per_sm
            shape = launch_shape.decode_shape(variant, size, split, ctas, budget, per_sm)
            if shape is None or shape in shapes or (room > per_sm and shape.early_successor):
                continue
            shapes.append(shape)
    if not shapes:
        return f"shared memory: {problem.m} x {problem.k} activations leave no room for the weights"
    return shapes


def _tiled_shapes(variant: Variant, problem: Problem, device: Device) -> list[LaunchShape]:
    """One CTA a tile; or k of the tiles of the last wave is split, where their CTAs fit into it."""
    whole = launch_shape.tiled_shape(variant, problem.m, problem.n, 1)
    if variant.schedule != "prefill" or not launch_shape.prefill_can_split(variant):
        return [whole]
    m, n = problem.m, problem.n
    steps = -(-problem.k // variant.tile_k)
    shapes = [whole]
    for split in SPLITS[1:]:
        resident = resident_ctas(device.sm_count, split)
        last_wave = whole.grid % resident
        if split <= steps and 0 < last_wave * split <= resident:
            shapes.append(launch_shape.tiled_shape(variant, m, n, split, whole.grid - last_wave))
    return shapes


def resident_ctas(sm_count: int, cluster: int) -> int:
    """CTAs that run at once, one an SM.

    Clusters above 2 leave SMs of odd-sized GPCs empty (measured: 120 of 132).
    """
    usable = sm_count if cluster <= 2 else sm_count * 10 // 11
    return usable // cluster * cluster


def predict_us(
    variant: Variant, cost: Cost | None, shape: LaunchShape, problem: Problem, device: Device
) -> float:
    """Sum of the fixed part and the overlap of the memory stream and the busiest SM's work."""
    known = cost or estimated_cost(variant)
    split = shape.split_k
    steps = -(-problem.k // variant.tile_k)
    split_steps = -(-problem.k // (split * variant.tile_k))
    if variant.schedule == "decode":
        tiles = -(-problem.n // variant.tile_n)
        tiles_of_sm = -(-tiles * split // shape.grid) * shape.ctas_per_sm
        steps_of_sm = tiles_of_sm * split_steps
        share_mb = problem.m * launch_shape.decode_k_share(problem.k, split) * 2e-6
        copied_mb = share_mb * shape.ctas_per_sm
    else:
        resident = resident_ctas(device.sm_count, shape.cluster)
        waves = -(-shape.whole_tiles // resident)
        last_waves = -(-(shape.grid - shape.whole_tiles) // resident)
        tiles_of_sm = waves + last_waves
        steps_of_sm = waves * steps + last_waves * split_steps
        copied_mb = 0.0
    step_us = known.step_us * (known.shared_step if tiles_of_sm > 1 else 1.0)
    work_us = tiles_of_sm * known.tile_us + steps_of_sm * step_us
    stream_us = traffic_mb(variant, problem) / known.memory_mb_per_us
    exchange_us = known.split_us if split > 1 else 0.0
    copy_us = copied_mb * known.activation_us_per_mb
    overlapped_us = math.hypot(stream_us, work_us)  # near each other they add a little
    return known.fixed_us + overlapped_us + copy_us + exchange_us


def traffic_mb(variant: Variant, problem: Problem) -> float:
    """Least traffic of device memory in 10^6 bytes: weights with scales, activations, output."""
    group_bytes = launch_shape.scale_bytes(variant) + launch_shape.zero_point_bytes(variant.scale)
    scale_bytes = launch_shape.groups_per_128(variant) * group_bytes / 128
    weights = problem.n * problem.k * (weight_format(variant.weight).bits / 8 + scale_bytes)
    return (weights + 2.0 * problem.m * (problem.n + problem.k)) * 1e-6


def estimated_cost(variant: Variant) -> Cost:
    """Cost of a kernel that nobody measured: rates of a mid-sized GPU, for an order of tiles."""
    multiply_us = 2e-6 * variant.tile_m * variant.tile_n * variant.tile_k / _MFLOP_PER_US
    unpack_us = 1e-3 * variant.tile_n * variant.tile_k / _KWEIGHTS_PER_US
    step_us = max(multiply_us, unpack_us) + _STEP_OVERHEAD_US
    return Cost(
        fixed_us=4.0,
        tile_us=1.0,
        step_us=step_us,
        split_us=2.0,
        shared_step=0.8,
        activation_us_per_mb=5.0,
        memory_mb_per_us=1.0,
    )


_MFLOP_PER_US = 1.5  # of one SM, 16-bit mma.sync with operands from shared memory
_KWEIGHTS_PER_US = 20.0  # thousands of 4-bit weights that one SM dequantises
_STEP_OVERHEAD_US = 0.1  # barriers and addresses of a ring stage
