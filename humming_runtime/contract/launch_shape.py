"""Threads, shared memory and grid of each schedule; the C++ side follows the same formulas.

hopper-decode      tile n = 16 * rows, tile k = 128 * warps; one more producer warp; activations stay in shared
                   memory, so its size depends on m and k; the ring's depth is chosen at launch, at most `stages`.
hopper-prefill     tile n = 16 * warps / k groups, tile k = 128; k groups of warps take turns at the stages; one more
                   producer warp (tile m > 128: warpgroup); TMA ring of `stages`. The first whole_tiles tiles
                   have a CTA each, the others the split_k CTAs of a cluster.
*-multistage       tile n = 16 * rows * warps_n, warps = warps_n * warps_k, tile k = 64 * warps_k * steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from humming_runtime.contract.arguments import struct_size_bytes
from humming_runtime.contract.number_formats import SCALE_BYTES, weight_format
from humming_runtime.contract.variant_name import ScaleScheme, Variant

SCHEDULE_VERSIONS = {"decode": 1, "prefill": 1, "multistage": 1}
"""One more where a formula below, or what kernels expect of a launch, changes: part of the contract hash."""
MIN_DECODE_STAGES = 2
ROW_PAD_BYTES = 16
TMA_ALIGNMENT_BYTES = 1024
"""Ring stages of the prefill schedule start at this alignment (128-byte swizzle repeats after 1,024)."""
TMA_COPY_ALIGNMENT_BYTES = 128
MOST_SCALED_SUMS_TILE_M = 128
"""Prefill: a second set of accumulators fits into the registers up to this tile m."""


def uses_tensor_maps(variant: Variant) -> bool:
    """Decode and multistage kernels take pointers; their argument struct has no maps."""
    return variant.schedule == "prefill"


def argument_bytes(variant: Variant) -> int:
    """Size of the kernel's argument struct."""
    return struct_size_bytes(maps=uses_tensor_maps(variant))


def groups_per_128(variant: Variant) -> int:
    """Scale groups in 128 elements of k (0: no scale in the loop)."""
    group = variant.scale.group_size
    return 0 if group is None else max(1, 128 // group)


def threads(variant: Variant) -> int:
    """Threads of one CTA."""
    if variant.schedule == "decode":
        return (variant.warps + 1) * 32
    if variant.schedule == "prefill":
        return variant.warps * 32 + (128 if moves_registers(variant) else 32)
    return variant.warps * 32


def scale_bytes(variant: Variant) -> int:
    """Of one group scale."""
    return SCALE_BYTES[variant.scale.dtype or variant.activation]


def zero_point_bytes(scale: ScaleScheme) -> int:
    """Of one zero point: integers are bytes, floats have the 16 bits of the activation dtype."""
    return {"": 0, "z": 1, "f": 2}[scale.zero_point]


def scales_sums(variant: Variant) -> bool:
    """Prefill and multistage: group scales multiply fp32 sums of a group, not each weight.

    They do unless they are of the activation dtype. Decode kernels always scale sums.
    """
    return variant.scale.granularity == "g" and variant.scale.dtype != variant.activation


def moves_registers(variant: Variant) -> bool:
    """Prefill: a whole producer warpgroup gives registers to consumers whose fp32 sums need them."""
    if variant.schedule != "prefill":
        return False
    return variant.tile_m >= 64 if scales_sums(variant) else variant.tile_m > 128


def stage_bytes(variant: Variant) -> int:
    """Shared memory of one ring stage."""
    per_128 = groups_per_128(variant)
    zero_bytes = zero_point_bytes(variant.scale)
    weights = variant.tile_n * variant.tile_k * weight_format(variant.weight).bits // 8
    if variant.schedule == "decode":
        columns = variant.tile_n * variant.tile_k // 128 * per_128
        return weights + columns * (scale_bytes(variant) + zero_bytes)
    activations = variant.tile_m * variant.tile_k * 2
    if variant.schedule == "prefill":
        scales = _pad(variant.tile_n * per_128 * scale_bytes(variant), TMA_COPY_ALIGNMENT_BYTES)
        zeros = variant.tile_n * per_128 * zero_bytes
        return _pad(activations + weights + scales + zeros, TMA_ALIGNMENT_BYTES)
    group = variant.scale.group_size
    groups = 0 if group is None else max(1, variant.tile_k // group)
    columns = variant.tile_n * groups
    return activations + weights + columns * (scale_bytes(variant) + zero_bytes)


def decode_k_share(k: int, split_k: int) -> int:
    """Decode: elements of k that one CTA of a cluster owns, a multiple of 128."""
    return _ceil(_ceil(k, 128), split_k) * 128


def decode_fixed_bytes(variant: Variant, m: int, k: int, split_k: int, tiles_of_cta: int) -> int:
    """Decode: shared memory besides the ring: partial sums, activations, sums of a split."""
    partial = variant.warps * variant.tile_m * (variant.tile_n + 4) * 4
    activations = m * (decode_k_share(k, split_k) * 2 + ROW_PAD_BYTES)
    results = tiles_of_cta * m * variant.tile_n * 4 if split_k > 1 else 0
    return partial + activations + results


def prefill_k_groups(variant: Variant) -> int:
    """Prefill: groups of warps that take turns at the stages of one tile."""
    return variant.warps * 16 // variant.tile_n


def multistage_warps_k(variant: Variant) -> int:
    """Multistage: warps that share k, one k64 tile each in turn."""
    return variant.warps // (variant.tile_n // (16 * (variant.rows or 1)))


def activation_box_rows(variant: Variant, m: int) -> int:
    """Prefill: rows of one TMA box of activations."""
    return min(variant.tile_m, _pad(m, 8))


def prefill_can_split(variant: Variant) -> bool:
    """Prefill: the fp32 tile of a split fits into the ring."""
    return variant.stages * stage_bytes(variant) >= variant.tile_m * (variant.tile_n + 4) * 4


@dataclass(frozen=True)
class LaunchShape:
    """What the driver needs besides the argument struct."""

    grid: int
    threads: int
    cluster: int  # CTAs, consecutive in the grid
    split_k: int  # CTAs of the cluster that share k; the argument of that name
    shared_bytes: int  # dynamic
    stages: int
    whole_tiles: int = 0  # prefill: the argument of that name
    ctas_per_sm: int = 1
    early_successor: bool = False  # decode: the argument of that name


def tiled_shape(
    variant: Variant, m: int, n: int, split_k: int, whole_tiles: int = 0
) -> LaunchShape:
    """Prefill and multistage: one CTA for each of `whole_tiles`, then `split_k` for each other tile.

    Raises: ValueError where clusters of `split_k` CTAs would cut whole tiles in two.
    """
    if whole_tiles % split_k:
        raise ValueError(f"{whole_tiles} whole tiles are no multiple of split_k {split_k}")
    tiles = _ceil(m, variant.tile_m) * _ceil(n, variant.tile_n)
    alignment = TMA_ALIGNMENT_BYTES if variant.schedule == "prefill" else 0
    return LaunchShape(
        grid=whole_tiles + (tiles - whole_tiles) * split_k,
        threads=threads(variant),
        cluster=split_k,
        split_k=split_k,
        shared_bytes=variant.stages * stage_bytes(variant) + alignment,
        stages=variant.stages,
        whole_tiles=whole_tiles,
    )


def decode_shape(
    variant: Variant,
    size: tuple[int, int, int],
    split_k: int,
    ctas: int,
    budget_bytes: int,
    ctas_per_sm: int = 1,
) -> LaunchShape | None:
    """Decode: persistent CTAs, at most `ctas`, with the deepest ring that `budget_bytes` allows.

    size: (m, n, k). ctas: of all SMs together, `ctas_per_sm` on each. A kernel of one short pass
    does not let its successor start early: both would wait for the same memory.
    Returns None where fewer than `MIN_DECODE_STAGES` stages fit.
    """
    m, n, k = size
    tiles = _ceil(n, variant.tile_n)
    clusters = max(1, min(tiles, ctas // split_k))
    tiles_of_cta = _ceil(tiles, clusters)
    fixed = decode_fixed_bytes(variant, m, k, split_k, tiles_of_cta)
    wanted = max(
        MIN_DECODE_STAGES, tiles_of_cta * _ceil(decode_k_share(k, split_k), variant.tile_k)
    )
    stages = min(variant.stages, wanted, (budget_bytes - fixed) // stage_bytes(variant))
    if stages < MIN_DECODE_STAGES:
        return None
    return LaunchShape(
        grid=clusters * split_k,
        threads=threads(variant),
        cluster=split_k,
        split_k=split_k,
        shared_bytes=fixed + stages * stage_bytes(variant),
        stages=stages,
        ctas_per_sm=ctas_per_sm,
        early_successor=ctas_per_sm > 1 or tiles_of_cta > 1,
    )


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _pad(value: int, multiple: int) -> int:
    return _ceil(value, multiple) * multiple
