"""How long kernels take to compile: `specs/compile_times.json`, by tile, in milliseconds.

Written from the records of a finished build, on the machine that built it:

    python -m build_tools.scale.compile_times build -o specs/compile_times.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import click

from build_tools.errors import Fault, SpecError
from build_tools.file_writes import write_if_changed
from humming_runtime.contract.tuning import tile_of
from humming_runtime.contract.variant_name import Variant

FILE = "compile_times.json"
_UNKNOWN_MS = 1000.0


@dataclass(frozen=True)
class CompileTimes:
    """Mean milliseconds by tile; a tile that was never built counts as its schedule's mean."""

    by_tile: Mapping[str, float]

    def estimate_ms(self, variant: Variant) -> float:
        tile = tile_of(variant)
        if tile in self.by_tile:
            return self.by_tile[tile]
        schedule = tile.split("_")[0]
        same = [ms for key, ms in self.by_tile.items() if key.split("_")[0] == schedule]
        return mean(same or self.by_tile.values()) if self.by_tile else _UNKNOWN_MS


def read_compile_times(specs: Path) -> CompileTimes:
    """A missing file is an empty table. Raises: SpecError."""
    path = specs / FILE
    place = f"{specs.name}/{FILE}"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return CompileTimes({})
    except (OSError, ValueError) as error:
        raise SpecError([Fault(place, f"not JSON ({error})")]) from error
    table = raw.get("milliseconds") if isinstance(raw, dict) else None
    if not isinstance(table, dict):
        raise SpecError([Fault(place, "key 'milliseconds' is missing or no object")])
    wrong = [k for k, ms in table.items() if not isinstance(ms, int | float) or not ms > 0]
    if wrong:
        raise SpecError([Fault(place, f"{key!r} has no positive number") for key in wrong])
    return CompileTimes(table)


def measured_times(records: Sequence[Path]) -> dict[str, int]:
    """Mean milliseconds by tile of records named `<variant>.json`."""
    found: dict[str, list[int]] = {}
    for path in records:
        milliseconds = json.loads(path.read_text(encoding="utf-8"))["milliseconds"]
        found.setdefault(tile_of(Variant.parse(path.stem)), []).append(milliseconds)
    return {tile: round(mean(found[tile])) for tile in sorted(found)}


@click.command()
@click.argument("work", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("-o", "output", type=click.Path(path_type=Path, dir_okay=False), required=True)
def _write(work: Path, output: Path) -> None:
    """Write the table from every record below WORK."""
    table = measured_times(sorted(work.glob("*/records/*.json")))
    if not table:
        raise click.UsageError(f"{work} has no records; build first")
    write_if_changed(output, json.dumps({"milliseconds": table}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(_write())
