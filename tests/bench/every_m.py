"""Time of every m from 1 to 600, and where one more row costs a jump.

python -m tests.bench.every_m [-o FILE.json]        (kernels: HUMMING_CUBIN_PATH)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from humming_runtime.measure.cold_timing import copies_for, graph_us
from humming_runtime.measure.random_layer import clones, random_packed
from humming_runtime.measure.tune import parse_format
from humming_runtime.torch_layer import LinearPlan
from tests.bench.machine import machine_facts

SHAPES = ((4096, 4096), (8192, 8192), (2880, 2880))
MOST_ROWS, REPLAYS = 600, 5
LIMIT = 1.3  # of a row more, as a ratio


def measure(n: int, k: int) -> list[float]:
    """Microseconds of m = 1, 2, ..., cold weights."""
    packed = random_packed(parse_format("f16_u4_g128f16"), n, k)
    copies = clones(packed, copies_for(packed.size_bytes, 1))
    plans = [LinearPlan(copy) for copy in copies]
    x = torch.randn(MOST_ROWS, k, device="cuda", dtype=torch.float16)
    out = torch.empty(MOST_ROWS, n, device="cuda", dtype=torch.float16)
    times = []
    for m in range(1, MOST_ROWS + 1):
        calls = [lambda plan=plan, m=m: plan(x[:m], None, out[:m]) for plan in plans]
        times.append(round(graph_us(calls, REPLAYS), 2))
    return times


def jumps(times: list[float]) -> list[tuple[int, float]]:
    """(m, time of m over the one of m - 1), the highest first."""
    found = [(i + 1, times[i] / times[i - 1]) for i in range(1, len(times))]
    return sorted(((m, round(ratio, 3)) for m, ratio in found), key=lambda item: -item[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path)
    arguments = parser.parse_args()
    result: dict[str, object] = {**machine_facts()}
    for n, k in SHAPES:
        times = measure(n, k)
        highest = jumps(times)[:8]
        print(f"{n} x {k}: {highest}", "over the limit" if highest[0][1] > LIMIT else "")
        result[f"{n}x{k}"] = {"highest": highest, "us": times}
    if arguments.o:
        arguments.o.write_text(json.dumps(result) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
