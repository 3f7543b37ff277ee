"""Barriers: named barriers of a CTA, the cluster's barrier, mbarrier objects."""

from __future__ import annotations

import numpy as np

from .memory import DeviceError

WARP = 32


def release(warp, joined: np.ndarray) -> None:
    """Whoever takes `joined` over comes after all that the warp did so far."""
    np.maximum(joined, warp.clock, out=joined)
    warp.clock[warp.slot] += 1


def acquire(warp, known: np.ndarray) -> None:
    np.maximum(warp.clock, known, out=warp.clock)


class CtaBarriers:
    """bar.sync and bar.arrive: 16 barriers that count threads, whole warps at a time."""

    def __init__(self, machine, threads: int, clocks) -> None:
        self._machine = machine
        self._joined = [clocks.zeros() for _ in range(16)]
        self._done = [clocks.zeros() for _ in range(16)]
        self._live = -(-threads // WARP) * WARP
        self._arrived = [0] * 16
        self._expected: list[int | None] = [None] * 16
        self.generation = [0] * 16

    def arrive(self, warp, barrier: int, threads: int | None) -> int:
        """One warp. threads: None for the whole CTA. Returns: the generation to be waited for."""
        if not 0 <= barrier < 16:
            raise DeviceError(f"barrier {barrier} does not exist (0..15)")
        if threads is not None and (threads % WARP or not threads):
            raise DeviceError(f"barrier {barrier}: {threads} threads are no whole warps")
        if self._arrived[barrier] and self._expected[barrier] != threads:
            expected = self._expected[barrier]
            raise DeviceError(
                f"barrier {barrier}: warps disagree on threads ({expected}, {threads})"
            )
        token = self.generation[barrier]
        self._expected[barrier] = threads
        self._arrived[barrier] += WARP
        release(warp, self._joined[barrier])
        self._check(barrier)
        return token

    def passed(self, warp, barrier: int, token: int) -> bool:
        if self.generation[barrier] == token:
            return False
        acquire(warp, self._done[barrier])
        return True

    def warp_ended(self) -> None:
        """Barriers of the whole CTA count threads that have not exited."""
        self._live -= WARP
        for barrier in range(16):
            if self._arrived[barrier] and self._expected[barrier] is None:
                self._check(barrier)

    def describe(self, barrier: int) -> str:
        expected = self._expected[barrier] or self._live
        return f"barrier {barrier} ({self._arrived[barrier]} of {expected} threads are there)"

    def _check(self, barrier: int) -> None:
        expected = self._expected[barrier] or self._live
        if self._arrived[barrier] >= expected:
            if self._arrived[barrier] > expected:
                raise DeviceError(f"barrier {barrier}: more threads than the {expected} expected")
            self._arrived[barrier] = 0
            self._done[barrier] = self._joined[barrier].copy()
            self.generation[barrier] += 1
            self._machine.changed()


class ClusterBarrier:
    """barrier.cluster: all warps of the cluster that have not exited."""

    def __init__(self, machine, warps: int, clocks) -> None:
        self._joined, self._done = clocks.zeros(), clocks.zeros()
        self._machine = machine
        self._live = warps
        self._arrived = 0
        self.generation = 0

    def arrive(self, warp) -> int:
        token = self.generation
        self._arrived += 1
        release(warp, self._joined)
        self._check()
        return token

    def passed(self, warp, token: int) -> bool:
        if self.generation == token:
            return False
        acquire(warp, self._done)
        return True

    def warp_ended(self) -> None:
        self._live -= 1
        if self._arrived:
            self._check()

    def describe(self) -> str:
        return f"the cluster barrier ({self._arrived} of {self._live} warps are there)"

    def _check(self) -> None:
        if self._arrived >= self._live:
            self._arrived = 0
            self._done = self._joined.copy()
            self.generation += 1
            self._machine.changed()


class MemoryBarrier:
    """An mbarrier object: a phase ends when all arrivals and all bytes have come."""

    def __init__(self, machine, arrivals: int, clocks, slot: int) -> None:
        if not 0 < arrivals < 1 << 20:
            raise DeviceError(f"mbarrier.init with {arrivals} arrivals (1..2^20 - 1)")
        self._machine = machine
        self.expected = arrivals
        self.pending = arrivals
        self.bytes_due = 0
        self.phase = 0
        self.slot = slot
        self.joined, self._done = clocks.zeros(), clocks.zeros()

    def expect_bytes(self, count: int) -> None:
        self.bytes_due += count
        if abs(self.bytes_due) >= 1 << 20:
            raise DeviceError(f"mbarrier: {self.bytes_due} bytes due, limit 2^20 - 1")

    def complete_bytes(self, count: int) -> None:
        self.bytes_due -= count
        if self.bytes_due <= -(1 << 20):
            raise DeviceError("mbarrier: more bytes have come than a barrier can count")
        self._check()

    def arrive(self, count: int, warp=None) -> None:
        """warp: who releases what it did before; None for the arrival of a copy."""
        if warp is not None:
            release(warp, self.joined)
        if count > self.pending:
            raise DeviceError(f"mbarrier: {count} arrivals, but only {self.pending} are pending")
        self.pending -= count
        self._check()

    def completed(self, parity: int) -> bool:
        """Has the phase of that parity completed? A fresh barrier: parity 1 has."""
        return (self.phase & 1) != parity

    def acquire(self, warp) -> None:
        """After completed()."""
        acquire(warp, self._done)

    def describe(self, address: int, parity: int) -> str:
        return (
            f"mbarrier at shared address {address:#x}, parity {parity} (phase {self.phase}, "
            f"{self.pending} of {self.expected} arrivals and {self.bytes_due} bytes are missing)"
        )

    def _check(self) -> None:
        if self.pending == 0 and self.bytes_due == 0:
            self.pending = self.expected
            self.phase += 1
            self.joined[self.slot] = self.phase
            self._done = self.joined.copy()
            self._machine.changed()
