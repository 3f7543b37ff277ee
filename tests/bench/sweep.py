"""Time every launch (kernel x split of k x CTAs an SM) of one format: input of fit_costs.py and
make_table.py.

python -m tests.bench.sweep --format f16_u4_g128f16 -o sweep.json      (kernels: HUMMING_CUBIN_PATH)
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from humming_runtime.driver import Driver
from humming_runtime.measure.cold_timing import copies_for
from humming_runtime.measure.launch_timing import FixedEngine, time_launches
from humming_runtime.measure.random_layer import clones, random_packed
from humming_runtime.measure.tune import ROWS, parse_format
from tests.bench.machine import machine_facts
from tests.bench.shapes import SHAPES

MORE_SHAPES = ((5120, 2048), (1024, 8192), (16384, 2048), (2880, 2880))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", default="f16_u4_g128f16")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="values of m")
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    engine = FixedEngine()
    rows: list[dict[str, object]] = []
    for n, k in (*SHAPES, *MORE_SHAPES):
        packed = random_packed(parse_format(arguments.format), n, k)
        layers = clones(packed, copies_for(packed.size_bytes, 1))
        for m in arguments.rows:
            size = {"m": m, "n": n, "k": k}
            for accepted, us in time_launches(engine, layers, m):
                row = {"variant": accepted.entry.name, "us": us, **size, **asdict(accepted.shape)}
                rows.append(row)
        print(f"{n} x {k}: {len(rows)} launches", flush=True)
    facts = {**machine_facts(), "class": asdict(Driver().device(0))}
    arguments.o.write_text(json.dumps({**facts, "rows": rows}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
