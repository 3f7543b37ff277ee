"""Does an arch take a variant? Faults come here, at plan time, and not from ptxas or the driver."""

from __future__ import annotations

from build_tools.spec_values import Arch
from humming_runtime.contract import launch_shape
from humming_runtime.contract.number_formats import weight_fault
from humming_runtime.contract.variant_name import Variant

STATIC_SHARED_BYTES = 1024
"""Most static shared memory of a kernel (barriers); the cubin's facts are checked against it."""

_SCHEDULE_FEATURES = {"decode": ("tma",), "prefill": ("tma", "wgmma"), "multistage": ()}
_A_TARGET_FEATURES = ("wgmma",)


def limit_reason(variant: Variant, arch: Arch) -> str | None:
    """Why `arch` cannot run `variant`; None if it can."""
    for feature in needed_features(variant):
        if feature not in arch.features:
            return f"needs {feature}, which {arch.name} lacks"
        if feature in _A_TARGET_FEATURES and not variant.target.endswith("a"):
            return f"needs {feature}, which target {variant.target} lacks"
    fault = weight_fault(variant.weight, variant.activation)
    if fault is not None:
        return fault
    needed = least_shared_bytes(variant) + STATIC_SHARED_BYTES
    if needed > arch.shared_bytes:
        return (
            f"needs {needed} bytes of shared memory a CTA, {arch.name} allows {arch.shared_bytes}"
        )
    return None


def needed_features(variant: Variant) -> tuple[str, ...]:
    """What the instructions of a variant need of its arch."""
    needed = list(_SCHEDULE_FEATURES[variant.schedule])
    if variant.schedule == "multistage" and variant.tier != "turing":
        needed.append("cp_async")
    if variant.activation == "bf16":
        needed.append("bf16")
    return tuple(needed)


def least_shared_bytes(variant: Variant) -> int:
    """Dynamic shared memory of the smallest launch of a variant."""
    if variant.schedule == "decode":
        fixed = launch_shape.decode_fixed_bytes(variant, variant.tile_m, variant.tile_k, 1, 1)
        return fixed + launch_shape.MIN_DECODE_STAGES * launch_shape.stage_bytes(variant)
    return launch_shape.tiled_shape(variant, 1, 1, 1).shared_bytes
