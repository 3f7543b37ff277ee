"""A family -> its variants for one tier and target: the product, before any limit or selection."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from build_tools.spec_values import Family, Tile
from humming_runtime.contract.variant_name import ScaleScheme, Variant, ZeroPoint


def family_variants(family: Family, tier: str, target: str) -> Iterator[Variant]:
    """Every point of `family` that `tier` has tiles for."""
    tiles = [tile for tile in family.tiles if tile.tier == tier]
    points = itertools.product(
        family.activations, family.weights, family.scales, family.zero_points, tiles
    )
    for activation, weight, scale, zero_point, tile in points:
        full = with_zero_point(scale, zero_point, activation)
        yield point(family, activation, weight, full, tile, target)


def with_zero_point(scale: ScaleScheme, zero_point: ZeroPoint, activation: str) -> ScaleScheme:
    """The full scheme: group scales have the activation's dtype if they name none, channel scales
    none (fp32).
    """
    return ScaleScheme(
        granularity=scale.granularity,
        group_size=scale.group_size,
        zero_point=zero_point.value,
        dtype=scale.dtype or activation if scale.granularity == "g" else None,
    )


def point(
    family: Family, activation: str, weight: str, scale: ScaleScheme, tile: Tile, target: str
) -> Variant:
    """One variant. The output has the activation's dtype. Raises: VariantNameError."""
    base = _of_tile(family.op, family.layout, tile, target)
    return replace(base, activation=activation, weight=weight, output=activation, scale=scale)


@cache
def _of_tile(op: str, layout: str, tile: Tile, target: str) -> Variant:
    """A tile's text is read once; formats are set later, each from a checked list."""
    schedule = f"{tile.tier.replace('_', '')}-{tile.schedule}"
    head, tail = f"{op}_f16_u4_f16_ch_{layout}", target.replace("_", "")
    return Variant.parse(f"{head}_{schedule}_{tile.text}_{tail}")
