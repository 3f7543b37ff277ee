"""Which measured launch a problem takes, from the tables of packages and of HUMMING_TUNING. Pure.

A table can only put one of the launches first that selection offers anyway: it changes speed, and
bits within the format's bound, never correctness.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from humming_runtime.contract.tuning import (
    TunedLaunch,
    TunedShape,
    TuningError,
    TuningTable,
    table_from_json,
)
from humming_runtime.errors import UsageError
from humming_runtime.problem import Device, Problem
from humming_runtime.selection import Choice

TUNING_VARIABLE = "HUMMING_TUNING"


@dataclass(frozen=True)
class Measured:
    """Where a choice comes from: the time of `m` rows in the table `table`."""

    table: str
    m: int
    us: float


def read_override() -> TuningTable | None:
    """The table that HUMMING_TUNING names. Raises: UsageError for a file that is none."""
    named = os.environ.get(TUNING_VARIABLE)
    if not named:
        return None
    try:
        return table_from_json(Path(named).read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    except (TuningError, UnicodeDecodeError) as error:
        reason = str(error)
    raise UsageError(f"{TUNING_VARIABLE}: {named}: {reason}", "humming tune -o FILE --shape N,K")


def tables_for(
    device: Device, shipped: Iterable[TuningTable], override: TuningTable | None = None
) -> tuple[TuningTable, ...]:
    """Tables of the device's class, the override first.

    Raises: UsageError for an override of another class: it was named, so it is not passed over.
    """
    facts = device.capability, device.sm_count, device.memory_gbps
    own = tuple(table for table in shipped if table.fits(*facts))
    if override is None:
        return own
    if not override.fits(*facts):
        major, minor = device.capability
        raise UsageError(
            f"{TUNING_VARIABLE}: table {override.name} is for capability {override.capability}, "
            f"{override.sm_count} SMs, {override.memory_gbps} GB/s; {device.name} has "
            f"{major}.{minor}, {device.sm_count} SMs, {device.memory_gbps} GB/s",
            "humming tune -o FILE --shape N,K",
        )
    return override, *own


def measured_rows(
    problem: Problem, tables: Sequence[TuningTable]
) -> Iterator[tuple[TunedLaunch, Measured]]:
    """Rows that speak for the problem, best first: the next larger m, then larger ones, then the
    largest of all.
    """
    for table in tables:
        shape = _shape_of(problem, table.shapes)
        if shape is None:
            continue
        later = [row for row in shape.launches if row.m >= problem.m]
        for row in later or shape.launches[-1:]:
            yield row, Measured(table.name, row.m, row.us)


def same_launch(row: TunedLaunch, choices: Sequence[Choice]) -> Choice:
    """The choice that the row means among those of its tile (best predicted first)."""

    def difference(choice: Choice) -> tuple[bool, bool, bool]:
        shape = choice.shape
        return (
            shape.split_k != row.split_k,
            shape.ctas_per_sm != row.ctas_per_sm,
            shape.stages != row.stages,
        )

    return min(choices, key=difference)


def _shape_of(problem: Problem, shapes: Sequence[TunedShape]) -> TunedShape | None:
    """Of the problem's own format if there is one, else of the first glob that takes it."""
    same = [s for s in shapes if (s.op, s.n, s.k) == (problem.op, problem.n, problem.k)]
    for shape in same:
        if problem.format in shape.formats:
            return shape
    for shape in same:
        if any(fnmatchcase(problem.format, pattern) for pattern in shape.formats):
            return shape
    return None
