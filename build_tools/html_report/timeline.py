"""When each kernel was compiled: spans in lanes, so that none covers another."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from build_tools.facts import BuiltKernel

_SECONDS_BETWEEN_RUNS = 60.0


@dataclass(frozen=True)
class Span:
    """One compilation, in unix time."""

    name: str
    started: float
    ended: float


@dataclass(frozen=True)
class Placed:
    """A span and its lane, from 0."""

    span: Span
    lane: int


def spans_of(kernels: Sequence[BuiltKernel]) -> tuple[Span, ...]:
    """Of the kernels that were compiled here."""
    return tuple(
        Span(kernel.planned.name, kernel.started, kernel.started + kernel.milliseconds / 1e3)
        for kernel in kernels
        if kernel.started is not None
    )


def last_run(spans: Iterable[Span]) -> tuple[Span, ...]:
    """By start: the latest spans without a pause of a minute between them."""
    run: list[Span] = []
    end = float("-inf")
    for span in sorted(spans, key=lambda s: (s.started, s.name)):
        if span.started > end + _SECONDS_BETWEEN_RUNS:
            run = []
        run.append(span)
        end = max(end, span.ended)
    return tuple(run)


def lanes(spans: Iterable[Span]) -> tuple[Placed, ...]:
    """Each span in the lowest lane that is free when it starts."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    placed: list[Placed] = []
    count = 0
    for span in sorted(spans, key=lambda s: (s.started, s.ended, s.name)):
        while busy and busy[0][0] <= span.started:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        placed.append(Placed(span, lane))
        heapq.heappush(busy, (span.ended, lane))
    return tuple(placed)
