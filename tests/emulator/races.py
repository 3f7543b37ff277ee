"""Races on shared memory: accesses of two warps, one of them a write, that nothing orders.

Vector clocks. Warps count their releases (arrivals at barriers); a wait that succeeds takes over
what the arrivals knew. Asynchronous copies have clocks of their own: bulk copies that of their
mbarrier (its phases), cp.async one for each warp. A warp counts as one thread; words are 4 bytes,
and writes of less than a word are not looked at.
"""

from __future__ import annotations

import numpy as np

from .memory import DeviceError

MOST_BARRIERS = 256
WORD = 4


class ClusterClocks:
    """Places in the clocks of a cluster: warps, their cp.async, mbarrier objects."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.size = 2 * warps + MOST_BARRIERS
        self._next = 2 * warps
        self.names = [f"warp {i}" for i in range(warps)] + [
            f"cp.async of warp {i}" for i in range(warps)
        ]

    def start(self, slot: int) -> np.ndarray:
        """The clock of a new warp."""
        clock = self.zeros()
        clock[slot] = 1
        return clock

    def zeros(self) -> np.ndarray:
        return np.zeros(self.size, np.int32)

    def barrier_slot(self, name: str) -> int:
        """For a new mbarrier object."""
        if self._next == self.size:
            raise DeviceError(f"more than {MOST_BARRIERS} mbarrier objects in a cluster")
        self.names.append(name)
        self._next += 1
        return self._next - 1


class SharedAccesses:
    """Last write and last reads of every word of one CTA's shared memory."""

    def __init__(self, clocks: ClusterClocks, size: int) -> None:
        self._clocks = clocks
        words = -(-size // WORD) + WORD
        self._write_slot = np.zeros(words, np.int16)
        self._write_clock = np.zeros(words, np.int32)
        self._read_clock = np.zeros((clocks.warps, words), np.int32)

    def read(self, warp, words: np.ndarray) -> None:
        self._after_writes(warp, words, "read")
        self._read_clock[warp.slot][words] = warp.clock[warp.slot]

    def write(self, warp, words: np.ndarray, slot: int, clock: int) -> None:
        """By the warp (its own slot and clock), or by a copy that it starts now."""
        self._after_writes(warp, words, "write")
        reads = self._read_clock[:, words.ravel()]
        late = reads > warp.clock[: len(reads), None]
        if late.any():
            reader, word = (int(i) for i in np.argwhere(late)[0])
            self._fault("write", words.ravel()[word], f"the read by {self._clocks.names[reader]}")
        self._write_slot[words] = slot
        self._write_clock[words] = clock

    def _after_writes(self, warp, words: np.ndarray, what: str) -> None:
        slots = self._write_slot[words]
        late = self._write_clock[words] > warp.clock[slots]
        if late.any():
            word = int(words[late].ravel()[0])
            self._fault(
                what, word, f"the write by {self._clocks.names[int(slots[late].ravel()[0])]}"
            )

    def _fault(self, what: str, word: int, other: str) -> None:
        raise DeviceError(
            f"race: {what} of shared address {int(word) * WORD:#x} is not ordered after {other}"
        )


def words_of(addresses: np.ndarray, size: int) -> np.ndarray:
    """Words of accesses of `size` bytes."""
    first = addresses.astype(np.int64) >> 2
    return first if size <= WORD else first[:, None] + np.arange(size // WORD)
