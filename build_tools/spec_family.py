"""One family file -> `Family`: which numbers, scales and tiles are multiplied out."""

from __future__ import annotations

import itertools

from yaml.nodes import Node

from build_tools.enumerate_points import point, with_zero_point
from build_tools.errors import Fault
from build_tools.spec_values import Family, NameRule, SpillRule, Tile
from build_tools.tile_shape import shape_fault
from build_tools.yaml_nodes import NodeReader
from humming_runtime.contract.layouts import LAYOUT_VERSIONS
from humming_runtime.contract.number_formats import every_weight_format, weight_format
from humming_runtime.contract.variant_name import (
    ACTIVATIONS,
    OPS,
    SCHEDULES,
    TIERS,
    ScaleScheme,
    VariantNameError,
    ZeroPoint,
)

_REQUIRED = ("family", "op", "activations", "weights", "layout", "scales", "zero_points", "tiles")
_OPTIONAL = ("exceptions", "spills")
_ZERO_POINTS = {
    "none": ZeroPoint.NONE,
    "integer": ZeroPoint.INTEGER,
    "float": ZeroPoint.FLOAT,
}
_WEIGHTS = tuple(str(weight) for weight in every_weight_format())
_SCALE_EXAMPLES = "g32, g128, g32e8m0, ch"
_GROUP_SIZES = (16, 32, 64, 128)
"""Larger groups are stored as groups of 128."""
_MOST_SPILL_BYTES = 4096


def read_family(reader: NodeReader, root: Node) -> Family | None:
    """Read one file; faults go to `reader`. Returns None where a required key is missing."""
    fields = reader.fields(root, _REQUIRED, _OPTIONAL)
    if any(key not in fields for key in _REQUIRED):
        return None
    zero_points = reader.words(fields["zero_points"], tuple(_ZERO_POINTS), "zero point")
    before = len(reader.faults)
    family = Family(
        name=reader.text(fields["family"]),
        op=reader.word(fields["op"], OPS, "op"),
        activations=reader.words(fields["activations"], ACTIVATIONS, "activation"),
        weights=reader.words(fields["weights"], _WEIGHTS, "weight"),
        layout=reader.word(fields["layout"], tuple(LAYOUT_VERSIONS), "layout"),
        scales=_read_scales(reader, fields["scales"]),
        zero_points=tuple(_ZERO_POINTS[word] for word in zero_points if word in _ZERO_POINTS),
        tiles=_read_tiles(reader, fields["tiles"]),
        exceptions=_read_exceptions(reader, fields.get("exceptions")),
        spills=_read_spills(reader, fields.get("spills")),
        place=reader.place(root),
    )
    if len(reader.faults) == before:
        _check_zero_points(reader, fields["zero_points"], family)
    return family if len(reader.faults) == before and _check_tiles(reader, family) else None


def _read_scales(reader: NodeReader, node: Node) -> tuple[ScaleScheme, ...]:
    scales: list[ScaleScheme] = []
    for item in reader.items(node):
        text = reader.text(item)
        try:
            scale = ScaleScheme.parse(text)
        except VariantNameError:
            reader.fault(item, f"{text!r} is no granularity (examples: {_SCALE_EXAMPLES})")
            continue
        fault = _scale_fault(scale)
        if fault is not None:
            reader.fault(item, f"{text!r}: {fault} (examples: {_SCALE_EXAMPLES})")
        elif scale in scales:
            reader.fault(item, f"scale {text!r} is listed twice")
        else:
            scales.append(scale)
    return tuple(scales)


def _scale_fault(scale: ScaleScheme) -> str | None:
    """What no kernel is made for; zero points have a list of their own."""
    if scale.granularity not in ("g", "ch"):
        return "granularities are g<size> and ch"
    if scale.zero_point:
        return "zero points are listed under zero_points"
    if scale.granularity == "ch":
        return "channel scales are fp32" if scale.dtype else None
    if scale.group_size not in _GROUP_SIZES:
        return f"group sizes are {', '.join(map(str, _GROUP_SIZES))}"
    return None


def _check_zero_points(reader: NodeReader, node: Node, family: Family) -> None:
    floats = [weight for weight in family.weights if weight_format(weight).is_float]
    stored = [zero for zero in family.zero_points if zero is not ZeroPoint.NONE]
    if floats and stored:
        reader.fault(node, f"floats have no zero point ({', '.join(floats)})")


def _read_tiles(reader: NodeReader, node: Node) -> tuple[Tile, ...]:
    tiles: list[Tile] = []
    for tier, tier_key, schedules in reader.entries(node):
        reader.word(tier_key, TIERS, "tier")
        for schedule, schedule_key, values in reader.entries(schedules):
            reader.word(schedule_key, SCHEDULES, "schedule")
            for item in reader.items(values):
                text = reader.text(item)
                if any((t.tier, t.schedule, t.text) == (tier, schedule, text) for t in tiles):
                    reader.fault(item, f"tile {text!r} is listed twice")
                tiles.append(Tile(tier, schedule, text, reader.place(item)))
    return tuple(tiles)


def _check_tiles(reader: NodeReader, family: Family) -> bool:
    """Faults of tiles that no arch could compile; one a tile."""
    before = len(reader.faults)
    for tile in family.tiles:
        reason = _tile_fault(family, tile)
        if reason is not None:
            reader.faults.append(Fault(tile.place, f"tile {tile.text!r}: {reason}"))
    return len(reader.faults) == before


def _tile_fault(family: Family, tile: Tile) -> str | None:
    activation = family.activations[0]
    for weight, scale in itertools.product(family.weights, family.scales):
        full = with_zero_point(scale, family.zero_points[0], activation)
        try:
            variant = point(family, activation, weight, full, tile, "sm_90")
        except VariantNameError as error:
            return f"{str(error).partition(': ')[2]}; example: t16x64x128_w4_s12"
        reason = shape_fault(variant)
        if reason is not None:
            return f"{weight}, {full}: {reason}" if len(family.weights) > 1 else reason
    return None


def _read_exceptions(reader: NodeReader, node: Node | None) -> tuple[NameRule, ...]:
    rules: list[NameRule] = []
    for item in [] if node is None else reader.items(node):
        fields = reader.fields(item, ["match", "why"])
        if len(fields) == 2:
            pattern = reader.pattern(fields["match"])
            rules.append(NameRule(pattern, reader.text(fields["why"]), reader.place(item)))
    return tuple(rules)


def _read_spills(reader: NodeReader, node: Node | None) -> tuple[SpillRule, ...]:
    rules: list[SpillRule] = []
    for item in [] if node is None else reader.items(node):
        fields = reader.fields(item, ["match", "max_bytes", "why"])
        if len(fields) == 3:
            rules.append(
                SpillRule(
                    pattern=reader.pattern(fields["match"]),
                    max_bytes=reader.integer(fields["max_bytes"], 1, _MOST_SPILL_BYTES),
                    why=reader.text(fields["why"]),
                    place=reader.place(item),
                )
            )
    return tuple(rules)
