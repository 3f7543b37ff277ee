r"""A sweep -> specs/tuning/NAME.json, the table that kernel wheels carry.

    python -m tests.bench.make_table SWEEP.json --name h200 --formats '*_u4_*' \
        -o specs/tuning/h200.json

formats: for which the measured order of launches is taken to hold, besides the measured one.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from humming_runtime.contract.tuning import (
    TunedLaunch,
    TunedShape,
    TuningTable,
    best_launches,
    table_to_json,
    tile_of,
)
from humming_runtime.contract.variant_name import Variant


def table_of_sweep(sweep: dict, name: str, formats: list[str]) -> TuningTable:
    timed: dict[tuple[int, int], list[TunedLaunch]] = defaultdict(list)
    for row in sweep["rows"]:
        tile = tile_of(Variant.parse(row["variant"]))
        where = row["split_k"], row["ctas_per_sm"], row["stages"]
        timed[row["n"], row["k"]].append(TunedLaunch(row["m"], tile, *where, round(row["us"], 2)))
    variant = Variant.parse(sweep["rows"][0]["variant"])
    globs = (variant.format, *formats)
    shapes = [TunedShape(variant.op, globs, *size, best_launches(timed[size])) for size in timed]
    major, minor = sweep["class"]["capability"]
    return TuningTable(
        name=name,
        capability=f"{major}.{minor}",
        sm_count=sweep["class"]["sm_count"],
        memory_gbps=sweep["class"]["memory_gbps"],
        measured_on=f"{sweep['device']}, driver {sweep['driver']}, {sweep['date']}",
        shapes=tuple(shapes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--formats", nargs="*", default=[])
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    sweep = json.loads(arguments.sweep.read_text(encoding="utf-8"))
    table = table_of_sweep(sweep, arguments.name, arguments.formats)
    arguments.o.parent.mkdir(exist_ok=True)
    arguments.o.write_text(table_to_json(table), encoding="utf-8")


if __name__ == "__main__":
    main()
