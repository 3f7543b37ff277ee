"""Measured choices in the specs: `specs/tuning/*.json`, written by tests/bench/make_table.py.

The form is contract/tuning.py's. A manifest gets the tables of its arch with the launches whose
tile is in the build.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from build_tools.errors import Fault, SpecError, did_you_mean
from build_tools.spec_values import Arch
from humming_runtime.contract.tuning import (
    TuningError,
    TuningTable,
    table_from_json,
    tile_of,
)
from humming_runtime.contract.variant_name import Variant

FOLDER = "tuning"


def read_tuning(specs: Path, variants: Iterable[Variant]) -> tuple[TuningTable, ...]:
    """Every table, by file name. variants: all that the specs name.

    Raises: SpecError with every fault: no table, or a tile that no spec has.
    """
    tiles = sorted({tile_of(variant) for variant in variants})
    faults: list[Fault] = []
    tables: list[TuningTable] = []
    for path in sorted((specs / FOLDER).glob("*.json")):
        place = f"{specs.name}/{FOLDER}/{path.name}"
        try:
            table = table_from_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TuningError) as error:
            faults.append(Fault(place, str(error)))
            continue
        used = {launch.tile for shape in table.shapes for launch in shape.launches}
        faults += [
            Fault(place, f"tile {tile!r} is in no spec{did_you_mean(tile, tiles)}")
            for tile in sorted(used - set(tiles))
        ]
        tables.append(table)
    if faults:
        raise SpecError(faults)
    return tuple(tables)


def tables_of_build(
    tables: Sequence[TuningTable], arch: Arch, variants: Iterable[Variant]
) -> tuple[TuningTable, ...]:
    """What a wheel of `arch` with these variants can use."""
    tiles = {tile_of(variant) for variant in variants}
    found = []
    for table in tables:
        if f"sm_{table.capability.replace('.', '')}" != arch.name:
            continue
        shapes = [
            replace(s, launches=tuple(launch for launch in s.launches if launch.tile in tiles))
            for s in table.shapes
        ]
        kept = tuple(shape for shape in shapes if shape.launches)
        if kept:
            found.append(replace(table, shapes=kept))
    return tuple(found)
