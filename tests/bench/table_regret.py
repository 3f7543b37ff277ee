"""How far what selection takes is above the best measured launch of a sweep.

    python -m tests.bench.table_regret SWEEP.json specs/tuning/h200.json

The decision is resolve()'s own, for the kernels and costs of the default profile: by the model
alone, with the table, with a table that lacks the row of the very m (as every m between two rows),
and with every second row alone.
A launch that the sweep does not have counts as `not timed`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from build_tools.plan import Planned, make_plan
from build_tools.spec_load import load_specs
from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.contract.manifest import KernelEntry, Manifest
from humming_runtime.contract.tuning import TunedLaunch, TuningTable, table_from_json
from humming_runtime.discover import Package
from humming_runtime.problem import Device, Problem
from humming_runtime.resolve import resolve

SPECS = Path(__file__).resolve().parents[2] / "specs"
_SHOWN = 5
Launch = tuple[str, LaunchShape]
Rows = Callable[[TunedLaunch, int, int], bool]
"""Is a row, the index-th of its shape, there for a problem of m rows?"""


@dataclass(frozen=True)
class Regret:
    """One problem: time of what was taken over the best, None where the sweep does not have it."""

    problem: Problem
    taken: str
    ratio: float | None


@dataclass(frozen=True)
class Sweep:
    """Microseconds of every launch of every problem, on one device."""

    device: Device
    times: dict[Problem, dict[Launch, float]]


def read_sweep(path: Path) -> Sweep:
    """A file of tests/bench/sweep.py."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    device = Device(**{**raw["class"], "capability": tuple(raw["class"]["capability"])})
    times: dict[Problem, dict[Launch, float]] = {}
    for row in raw["rows"]:
        variant = _entry(row["variant"]).variant
        form = variant.op, variant.activation, variant.weight, variant.scale, variant.layout
        problem = Problem(*form, row["m"], row["n"], row["k"])
        shape = LaunchShape(**{name: row[name] for name in LaunchShape.__dataclass_fields__})
        times.setdefault(problem, {})[row["variant"], shape] = row["us"]
    return Sweep(device, times)


def package_of(planned: Iterable[Planned]) -> Package:
    """What selection needs of a wheel: names and costs."""
    entries = tuple(_entry(item.name, item) for item in planned)
    manifest = Manifest(
        contract_hash(), "default", "0", "sm_90", "13.0", "", "nvcc", "default", entries
    )
    return Package(manifest, Path("nowhere"))


def default_package(device: Device) -> Package:
    """Kernels that the default profile has for the arch of a device."""
    specs = load_specs(SPECS)
    archs = [arch for arch in specs.archs if arch.capability == device.capability]
    (plan,) = make_plan(specs, archs, "default", ())
    return package_of(plan.build)


def regrets(
    sweep: Sweep, package: Package, table: TuningTable | None, rows: Rows = lambda *_: True
) -> list[Regret]:
    """Of every problem of a sweep, with the rows of the table that `rows` leaves."""
    found = []
    for problem, timed in sweep.times.items():
        tables = [] if table is None else [_with_rows(table, problem.m, rows)]
        chosen = resolve(problem, sweep.device, [package], None, tables).chosen
        us = timed.get((chosen.entry.name, chosen.shape))
        ratio = None if us is None else us / min(timed.values())
        found.append(Regret(problem, f"{chosen.entry.name} split {chosen.shape.split_k}", ratio))
    return found


def summary(title: str, found: Sequence[Regret]) -> str:
    """Mean and worst, with the worst problems."""
    timed = [(one.ratio, one) for one in found if one.ratio is not None]
    timed.sort(key=lambda item: -item[0])
    ratios = [ratio for ratio, _ in timed]
    lost = f", {len(found) - len(timed)} not timed" if len(timed) < len(found) else ""
    mean = statistics.mean(ratios) - 1
    lines = [f"{title}: {len(found)} problems, mean {mean:.2%}, worst {ratios[0] - 1:.1%}{lost}"]
    for ratio, one in timed[:_SHOWN]:
        size = f"n {one.problem.n} k {one.problem.k} m {one.problem.m}"
        lines.append(f"  {ratio:.3f} {size}: {one.taken}")
    return "\n".join(lines)


def report(sweep: Sweep, table: TuningTable) -> str:
    """The four ways to choose."""
    package = default_package(sweep.device)
    ways: tuple[tuple[str, TuningTable | None, Rows], ...] = (
        ("model alone", None, lambda *_: True),
        ("table", table, lambda *_: True),
        ("without the row of m", table, lambda row, _, m: row.m != m),
        ("every second row", table, lambda _, index, __: index % 2 == 1),
    )
    return "\n".join(summary(name, regrets(sweep, package, t, rows)) for name, t, rows in ways)


def _with_rows(table: TuningTable, m: int, rows: Rows) -> TuningTable:
    shapes = []
    for shape in table.shapes:
        kept = tuple(row for index, row in enumerate(shape.launches) if rows(row, index, m))
        if kept:
            shapes.append(replace(shape, launches=kept))
    return replace(table, shapes=tuple(shapes))


def _entry(name: str, planned: Planned | None = None) -> KernelEntry:
    cost = None if planned is None else planned.cost
    return KernelEntry(name, f"cubins/{name}.cubin", "", 0, 0, 0, 0, 0, "", cost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("table", type=Path)
    arguments = parser.parse_args()
    table = table_from_json(arguments.table.read_text(encoding="utf-8"))
    print(report(read_sweep(arguments.sweep), table))


if __name__ == "__main__":
    main()
