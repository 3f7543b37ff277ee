"""Measured launches -> specs/costs.yaml, and how far selection is from the best measured launch.

    python -m tests.bench.fit_costs SWEEP.json [--write specs/costs.yaml]

The model is humming_runtime.selection.predict_us; each tile is fitted alone, with most weight on
launches near the best of their problem: only there does the order matter.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.contract.manifest import Cost
from humming_runtime.contract.variant_name import Variant
from humming_runtime.problem import Device, Problem
from humming_runtime.selection import predict_us

H200 = Device(0, "NVIDIA H200", (9, 0), 132, 232448, 233472)
MEMORY_MB_PER_US = 4.4
# Order of the fields of Cost, without the last.
_LOWEST = (0.5, 0.0, 0.01, 0.0, 0.3, 0.0)
_HIGHEST = (10.0, 10.0, 5.0, 10.0, 1.3, 60.0)
_STARTS = (
    (3.0, 1.0, 0.5, 1.0, 0.9, 10.0),
    (1.0, 0.5, 0.2, 1.0, 1.0, 20.0),
    (2.0, 0.2, 1.0, 1.0, 0.6, 5.0),
)
_NEAR = 1.3
_FAR_WEIGHT = 0.3


@dataclass(frozen=True)
class Sample:
    """One measured launch. ratio: its time over the best of the problem."""

    variant: Variant
    problem: Problem
    shape: LaunchShape
    us: float
    ratio: float


def read_samples(path: Path) -> list[Sample]:
    """Every row of a sweep (tests/bench/sweep.py)."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    best: dict[tuple[object, ...], float] = {}
    for row in rows:
        key = _key(row)
        best[key] = min(best.get(key, row["us"]), row["us"])
    samples = []
    for row in rows:
        variant = Variant.parse(row["variant"])
        fields = {name: row[name] for name in LaunchShape.__dataclass_fields__}
        problem = Problem(
            variant.op,
            variant.activation,
            variant.weight,
            variant.scale,
            variant.layout,
            row["m"],
            row["n"],
            row["k"],
        )
        ratio = row["us"] / best[_key(row)]
        samples.append(Sample(variant, problem, LaunchShape(**fields), row["us"], ratio))
    return samples


def _key(row: dict[str, object]) -> tuple[object, ...]:
    scale = str(row["variant"]).split("_")[4]
    return scale, row["m"], row["n"], row["k"]


def fit(samples: list[Sample]) -> Cost:
    """Least squares on relative errors."""
    weights = np.array([1.0 if s.ratio < _NEAR else _FAR_WEIGHT for s in samples])

    def residuals(values: np.ndarray) -> np.ndarray:
        cost = Cost(*values, MEMORY_MB_PER_US)
        predicted = [predict_us(s.variant, cost, s.shape, s.problem, H200) for s in samples]
        measured = np.array([s.us for s in samples])
        return np.log(np.array(predicted) / measured) * weights

    bounds = _LOWEST, _HIGHEST
    results = [
        least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.05)
        for start in _STARTS
    ]
    best = min(results, key=lambda result: result.cost)
    return Cost(*(round(float(value), 3) for value in best.x), MEMORY_MB_PER_US)


def tile_pattern(variant: Variant) -> str:
    """The same tile in every format: `*_hopper-decode_t8x32x1024_w8r2_s6_*`."""
    parts = str(variant).split("_")
    return f"*_{'_'.join(parts[6:10])}_*"


def regrets(samples: list[Sample], costs: dict[str, Cost]) -> list[tuple[float, Problem, Sample]]:
    """Per problem: time of the launch that selection takes over the best one."""
    problems: dict[Problem, list[Sample]] = defaultdict(list)
    for sample in samples:
        problems[sample.problem].append(sample)
    found = []
    for problem, group in problems.items():
        taken = min(
            group,
            key=lambda s: predict_us(
                s.variant, costs[tile_pattern(s.variant)], s.shape, s.problem, H200
            ),
        )
        found.append((taken.ratio, problem, taken))
    return sorted(found, key=lambda item: -item[0])


def to_yaml(costs: dict[str, Cost]) -> str:
    """specs/costs.yaml: one line a tile."""
    lines = [
        "# Measured cost of kernels on their own hardware (docs/selection.md); first match wins.",
        "# Keys and units: Cost in humming_runtime/contract/manifest.py.",
        "# Written by tests/bench/fit_costs.py.",
        "costs:",
    ]
    for pattern, cost in sorted(costs.items()):
        lines.append(f'  - match: "{pattern}"')
        lines += [f"    {name}: {value}" for name, value in asdict(cost).items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--fit-scale", default="g128f16", help="scale scheme that is fitted")
    arguments = parser.parse_args()
    samples = read_samples(arguments.sweep)
    by_tile: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if str(sample.variant.scale) == arguments.fit_scale:
            by_tile[tile_pattern(sample.variant)].append(sample)
    costs = {pattern: fit(group) for pattern, group in sorted(by_tile.items())}
    for scale in sorted({str(s.variant.scale) for s in samples}):
        found = regrets([s for s in samples if str(s.variant.scale) == scale], costs)
        ratios = [ratio for ratio, _, _ in found]
        print(f"{scale}: {len(ratios)} problems, mean regret {statistics.mean(ratios) - 1:.1%}")
        for ratio, problem, taken in found[:12]:
            size = f"n {problem.n} k {problem.k} m {problem.m}"
            tile = tile_pattern(taken.variant)
            print(
                f"  {ratio:.2f} {size}: took {tile} split {taken.shape.split_k} {taken.us:.1f} us"
            )
    for pattern, cost in costs.items():
        print(pattern, cost)
    if arguments.write is not None:
        arguments.write.write_text(to_yaml(costs), encoding="utf-8")


if __name__ == "__main__":
    main()
