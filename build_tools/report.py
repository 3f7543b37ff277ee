"""What a build says while it works and when it ends. Notes go to stderr; data goes to stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from build_tools.facts import BuiltKernel
from build_tools.ninja_run import Compiled
from build_tools.plan import ArchPlan
from build_tools.wheel import WheelResult

_SECONDS_BETWEEN_LINES = 10.0


class Notes:
    """Lines for people, by how much they want to know (-1 quiet, 0, 1 verbose)."""

    def __init__(self, verbosity: int, stream: TextIO | None = None) -> None:
        self.verbosity = verbosity
        self.stream = sys.stderr if stream is None else stream

    def say(self, text: str) -> None:
        if self.verbosity >= 0:
            print(text, file=self.stream, flush=True)

    def detail(self, text: str) -> None:
        if self.verbosity >= 1:
            print(text, file=self.stream, flush=True)


class CompileProgress:
    """A bar with rate and time left on a terminal; a plain line now and then elsewhere."""

    def __init__(self, label: str, notes: Notes) -> None:
        self._label = label
        self._notes = notes
        self._bar: tqdm[Any] | None = None
        self._last_line = time.monotonic()
        self._started = self._last_line

    def __call__(self, finished: int, total: int) -> None:
        if self._notes.verbosity < 0:
            return
        if self._notes.stream.isatty():
            bar = self._bar
            if bar is None:
                bar = self._bar = tqdm(
                    total=total, desc=self._label, unit="kernel", file=self._notes.stream
                )
            bar.update(finished - bar.n)
            return
        now = time.monotonic()
        if now - self._last_line >= _SECONDS_BETWEEN_LINES or finished == total:
            self._last_line = now
            rate = finished / max(now - self._started, 1e-3)
            left = (total - finished) / rate if rate else 0.0
            line = f"{self._label}: {finished}/{total} kernels, {rate:.1f}/s, {left:.0f} s left"
            self._notes.say(line)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def summary(
    plan: ArchPlan,
    compiled: Compiled,
    kernels: Sequence[BuiltKernel],
    wheel: WheelResult | None,
    page: Path,
    seconds: float,
) -> str:
    """The last lines of one arch."""
    built, reused, skipped = len(compiled.built), len(compiled.reused), len(plan.skipped)
    from_store = f"{len(compiled.fetched)} from the store, " if compiled.fetched else ""
    busy = built or compiled.fetched or (wheel and wheel.written)
    lines = [
        f"{plan.arch.name}: {built} built, {from_store}{reused} reused, {skipped} skipped "
        f"in {seconds:.1f} s" + ("" if busy else "; nothing to do")
    ]
    just_built = set(compiled.built)
    fresh = [kernel for kernel in kernels if kernel.planned.name in just_built]
    slowest = sorted(fresh, key=lambda k: (-k.milliseconds, k.planned.name))[:3]
    lines += [f"  slowest: {k.milliseconds / 1e3:.1f} s  {k.planned.name}" for k in slowest]
    if wheel is not None:
        lines.append(f"  wheel: {wheel.path} ({wheel.size_bytes / 1e6:.2f} MB)")
        lines.append(f"  sha256: {wheel.sha256}")
    lines.append(f"  report: {page}")
    return "\n".join(lines)
