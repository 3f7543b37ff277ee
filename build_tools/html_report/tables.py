"""The page's tables: a name and numbers in each row, and those marked that need a look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from build_tools.facts import BuiltKernel
from build_tools.html_report.coverage import coverage

_SLOWEST = 20


@dataclass(frozen=True)
class Cell:
    """is_alarm: it is not as one wants it."""

    text: str
    is_alarm: bool = False


@dataclass(frozen=True)
class Table:
    """key: its id in the page. sorts: by a click on a heading."""

    key: str
    title: str
    note: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    sorts: bool = False


def coverage_table(kernels: Sequence[BuiltKernel]) -> Table:
    found = coverage(k.planned.variant for k in kernels)
    return Table(
        "coverage",
        "Coverage",
        "Kernels of each format (activation, weight, scale), by op, schedule and architecture.",
        ("Format", *(" ".join(column) for column in found.columns)),
        tuple(
            (name, tuple(Cell(str(count or "none"), is_alarm=not count) for count in counts))
            for name, counts in found.rows
        ),
    )


def slowest_table(kernels: Sequence[BuiltKernel]) -> Table:
    """Longest compilation first."""
    total = sum(k.milliseconds for k in kernels) or 1
    first = sorted(kernels, key=lambda k: (-k.milliseconds, k.planned.name))[:_SLOWEST]
    return Table(
        "slowest",
        "Slowest to compile",
        f"Their part of {total / 1e3:.1f} s that the compilations of all kernels took.",
        ("Kernel", "Seconds", "Part"),
        tuple(
            (
                k.planned.name,
                (Cell(f"{k.milliseconds / 1e3:.2f}"), Cell(f"{k.milliseconds / total:.1%}")),
            )
            for k in first
        ),
    )


def registers_table(kernels: Sequence[BuiltKernel]) -> Table:
    """By name."""
    most = max((k.facts.registers for k in kernels), default=0)
    return Table(
        "kernels",
        "Registers and spills",
        f"{most} registers at most, {spilling_text(kernels)}. A click on a heading sorts.",
        ("Kernel", "Registers", "Spilled bytes", "Shared bytes", "Cubin bytes", "Compile ms"),
        tuple(
            (
                k.planned.name,
                (
                    Cell(str(k.facts.registers)),
                    Cell(str(k.spill_bytes), is_alarm=k.spill_bytes > 0),
                    Cell(str(k.facts.static_shared_bytes)),
                    Cell(str(k.facts.size_bytes)),
                    Cell(str(k.milliseconds)),
                ),
            )
            for k in sorted(kernels, key=lambda k: k.planned.name)
        ),
        sorts=True,
    )


def spilling_text(kernels: Sequence[BuiltKernel]) -> str:
    """`no kernel spills`, `2 kernels spill`."""
    count = sum(k.spill_bytes > 0 for k in kernels)
    return f"{count} kernels spill" if count > 1 else f"{count or 'no'} kernel spills"
