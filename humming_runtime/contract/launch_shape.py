"""Threads, shared memory and grid of each schedule; the C++ side follows the same formulas.

hopper-decode      tile n = 16 * rows, tile k = 128 * warps; one more producer warp; activations stay in shared
                   memory, so its size depends on m and k; ring depth is chosen at launch, at most `stages`.
hopper-prefill     tile n = 16 * warps, tile k = 128; one more producer warpgroup; TMA, ring of `stages`.
*-multistage       tile n = 16 * rows * warps_n, warps = warps_n * warps_k, tile k = 64 * warps_k * steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from humming_runtime.contract.variant_name import Variant

MAX_DECODE_STAGES = 16
ROW_PAD_BYTES = 16
TMA_ALIGNMENT_BYTES = 1024
"""Ring stages of the prefill schedule start at this alignment (128-byte swizzle repeats after 1,024)."""


def groups_per_128(variant: Variant) -> int:
    """Scale groups in 128 elements of k (0: no scale in the loop)."""
    group = variant.scale.group_size
    return 0 if group is None else max(1, 128 // group)


def threads(variant: Variant) -> int:
    """Threads of one CTA."""
    if variant.schedule == "decode":
        return (variant.warps + 1) * 32
    if variant.schedule == "prefill":
        return variant.warps * 32 + 128
    return variant.warps * 32


def stage_bytes(variant: Variant) -> int:
    """Shared memory of one ring stage."""
    per_128 = groups_per_128(variant)
    zero_bytes = 1 if variant.scale.zero_point else 0
    weights = variant.tile_n * variant.tile_k // 2
    if variant.schedule == "decode":
        return weights + (variant.tile_n * variant.tile_k // 128) * per_128 * (2 + zero_bytes)
    activations = variant.tile_m * variant.tile_k * 2
    if variant.schedule == "prefill":
        scales = variant.tile_n * per_128 * (2 + zero_bytes)
        return _pad(activations + weights + scales, TMA_ALIGNMENT_BYTES)
    group = variant.scale.group_size
    groups = 0 if group is None else max(1, variant.tile_k // group)
    return activations + weights + variant.tile_n * groups * (2 + zero_bytes)


def decode_fixed_bytes(variant: Variant, m: int, k: int, split_k: int) -> int:
    """Decode: shared memory besides the ring: partial sums, activations, a zero vector, barriers."""
    partial = variant.warps * variant.tile_m * (variant.tile_n + 4) * 4
    k_share = decode_k_share(variant, k, split_k)
    rows = min(m, variant.tile_m)
    return partial + rows * (k_share * 2 + ROW_PAD_BYTES) + 128


def decode_k_share(variant: Variant, k: int, split_k: int) -> int:
    """Decode: elements of k that one CTA of a cluster owns, a multiple of 128."""
    steps = -(-k // 128)
    return -(-steps // split_k) * 128


@dataclass(frozen=True)
class LaunchShape:
    """What the driver needs besides the argument struct."""

    grid: int
    threads: int
    cluster: int
    shared_bytes: int
    stages: int


def _pad(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
