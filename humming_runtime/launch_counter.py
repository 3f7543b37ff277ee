"""How often a kernel was launched, by both ways of launching."""

from __future__ import annotations

import ctypes
import itertools
import threading


class LaunchCounter:
    """Counts without a lock: a tick is one atomic step of the interpreter, also without the GIL.

    address: of the 64-bit number that the extension counts up while it holds the GIL.
    """

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.add = self._ticks.__next__
        self._cell = ctypes.c_int64()
        self.address = ctypes.addressof(self._cell)
        self._lock = threading.Lock()
        self._reads = 0

    @property
    def value(self) -> int:
        """Every reading is a tick itself and is taken off again."""
        with self._lock:
            count = next(self._ticks) - self._reads
            self._reads += 1
            return count + self._cell.value
