"""Is a tile one that its schedule can be made of? The kernels' static assertions, at spec time."""

from __future__ import annotations

from humming_runtime.contract import launch_shape
from humming_runtime.contract.variant_name import Variant

MAX_THREADS = 1024
_DECODE_WARPS = (4, 8, 16)
_SLAB_TOKENS = 16  # the multistage epilogue adds up this many tokens at a time
_OUTPUT_PAD_BYTES = 16  # after a token of the 16-bit output tile
_PITCH_PAD = 4  # elements after a row of partial sums


def shape_fault(variant: Variant) -> str | None:
    """Why no arch could compile this tile; None if one could."""
    if (
        variant.schedule == "prefill"
        and launch_shape.scales_sums(variant)
        and variant.tile_m > launch_shape.MOST_SCALED_SUMS_TILE_M
    ):
        limit = launch_shape.MOST_SCALED_SUMS_TILE_M
        return f"tile m is {variant.tile_m}; with {variant.scale} scales at most {limit}"
    if variant.stages < launch_shape.MIN_DECODE_STAGES:
        return (
            f"a ring needs at least {launch_shape.MIN_DECODE_STAGES} stages, not {variant.stages}"
        )
    if variant.warps < 1:
        return "at least one warp is needed"
    if variant.cluster is not None:
        return f"clusters are chosen at launch (found c{variant.cluster})"
    by_schedule = {"decode": _decode, "prefill": _prefill, "multistage": _multistage}
    reason = by_schedule[variant.schedule](variant)
    if reason is not None:
        return reason
    threads = launch_shape.threads(variant)
    return None if threads <= MAX_THREADS else f"{threads} threads a CTA, limit {MAX_THREADS}"


def _decode(v: Variant) -> str | None:
    if v.rows is None:
        return "the decode schedule needs rows (example: w8r2)"
    if v.warps not in _DECODE_WARPS:
        return f"the decode schedule takes {_shown(_DECODE_WARPS)} warps, not {v.warps}"
    if v.tile_n != 16 * v.rows:
        return f"tile n is {v.tile_n}, 16 * rows is {16 * v.rows}"
    if v.tile_k != 128 * v.warps:
        return f"tile k is {v.tile_k}, 128 * warps is {128 * v.warps}"
    return _multiple("m", v.tile_m, 8)


def _prefill(v: Variant) -> str | None:
    if v.rows is not None:
        return f"the prefill schedule has no rows (found r{v.rows})"
    if v.tile_k != 128:
        return f"tile k is {v.tile_k}, the prefill schedule takes 128"
    if v.tile_m > 256:
        return f"tile m is {v.tile_m}, wgmma takes at most 256"
    reason = _multiple("m", v.tile_m, 8) or _multiple("n", v.tile_n, 64)
    if reason is not None:
        return reason
    if v.warps % (v.tile_n // 16):
        return f"{v.warps} warps are no multiple of tile n / 16 = {v.tile_n // 16}"
    k_groups = launch_shape.prefill_k_groups(v)
    if v.stages % k_groups:
        return f"{v.stages} stages are no multiple of {k_groups} groups of warps along k"
    sums = (k_groups - 1) * v.tile_n * v.tile_m * 4
    output = v.tile_m * (v.tile_n * 2 + _OUTPUT_PAD_BYTES)
    return _ring_holds(v, sums, "the sums of other groups") or _ring_holds(
        v, output, "the output tile"
    )


def _multistage(v: Variant) -> str | None:
    if v.rows is None:
        return "the multistage schedule needs rows (example: w4r2)"
    reason = _multiple("m", v.tile_m, 16) or _multiple("n", v.tile_n, 16 * v.rows)
    if reason is not None:
        return reason
    warps_n = v.tile_n // (16 * v.rows)
    if v.warps % warps_n:
        return f"{v.warps} warps are no multiple of tile n / (16 * rows) = {warps_n}"
    warps_k = launch_shape.multistage_warps_k(v)
    if v.tile_k < 64 or v.tile_k % (64 * warps_k):
        return f"tile k is {v.tile_k}, no multiple of 64 * warps along k = {64 * warps_k}"
    partial = warps_k * _SLAB_TOKENS * (v.tile_n + _PITCH_PAD) * 4
    return _ring_holds(v, partial, "the partial sums")


def _multiple(name: str, value: int, unit: int) -> str | None:
    if value > 0 and value % unit == 0:
        return None
    return f"tile {name} is {value}, no multiple of {unit}"


def _shown(numbers: tuple[int, ...]) -> str:
    *most, last = numbers
    return f"{', '.join(str(number) for number in most)} or {last}"


def _ring_holds(v: Variant, needed: int, what: str) -> str | None:
    """The epilogue reuses the ring's memory."""
    ring = v.stages * launch_shape.stage_bytes(v)
    return None if ring >= needed else f"{what} needs {needed} bytes, the ring has {ring}"
