"""How many kernels there are of each format, by op, schedule and architecture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from humming_runtime.contract.variant_name import Variant


@dataclass(frozen=True)
class Coverage:
    """columns: op, schedule and target. rows: a format and its kernels per column."""

    columns: tuple[tuple[str, str, str], ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]


def coverage(variants: Iterable[Variant]) -> Coverage:
    """Sorted by names."""
    counts = Counter((v.format, (v.op, v.schedule, v.target)) for v in variants)
    columns = tuple(sorted({column for _, column in counts}))
    formats = sorted({name for name, _ in counts})
    rows = tuple((name, tuple(counts[name, column] for column in columns)) for name in formats)
    return Coverage(columns, rows)
