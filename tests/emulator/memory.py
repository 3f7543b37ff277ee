"""Byte memories with a state for every byte, and what goes wrong with an access.

An access has to lie inside, aligned, on bytes that hold data. Never-written and poisoned bytes,
barrier objects and targets of copies in flight are errors of their own.
"""

from __future__ import annotations

import numpy as np

OUTSIDE, VALID, UNWRITTEN, BARRIER, IN_FLIGHT = range(5)
UNWRITTEN_BYTE = 0xFF  # of any float, a NaN
_STATES = {
    OUTSIDE: "is outside of every buffer",
    UNWRITTEN: "was never written",
    BARRIER: "holds a barrier object",
    IN_FLIGHT: "is the target of an asynchronous copy in flight",
}
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.dtype((np.void, 16))}
_VALID_WORDS = {size: np.array([VALID] * size, np.uint8).view(_WORDS[size])[0] for size in _WORDS}
GLOBAL_BASE = 0x7F2000000000
SHARED_WINDOW = 0x7D0000000000
MODULE_BASE = 0x7E0000000000
"""Variables of the module in .global and .const; every other global address is a buffer's."""
LOCAL_WINDOW = 0x7C0000000000
PARAM_WINDOW = 0x7B0000000000
WINDOW_BYTES = 1 << 32
_GUARD_BYTES = 512
_ROW_ALIGNMENT = 256


class DeviceError(Exception):
    """An access that a real device, or compute-sanitizer, would refuse. lane: first at fault."""

    def __init__(self, message: str, lane: int | None = None) -> None:
        super().__init__(message)
        self.lane = lane


class Memory:
    """`size` bytes that start at address `base`."""

    def __init__(self, space: str, size: int, base: int = 0, state: int = UNWRITTEN) -> None:
        padded = -(-size // 16) * 16
        self.space, self.base, self.size = space, base, size
        self.data = np.zeros(padded, np.uint8)
        self.state = np.zeros(padded, np.uint8)  # OUTSIDE
        if state != OUTSIDE:
            self.state[:size] = state
            self.data[:size] = UNWRITTEN_BYTE
        self._data_of = {n: self.data.view(t) for n, t in _WORDS.items()}
        self._state_of = {n: self.state.view(t) for n, t in _WORDS.items()}
        self.readable = (VALID,)  # with UNWRITTEN: such reads are notes, not errors
        self.unwritten_reads = 0
        self.accesses = None  # races.SharedAccesses of shared memory
        self._rows: dict[tuple[int, int], np.ndarray] = {}

    def load(self, addresses: np.ndarray, size: int, count: int) -> np.ndarray:
        """`count` words of `size` bytes each. Shapes: addresses (lanes) -> (count, lanes)."""
        index = self._indices(addresses, size * count, "read")
        if not self._all_valid(index, size * count):
            self._fault(addresses, size * count, "read", self.readable)
            self.unwritten_reads += 1
        if count == 1:
            return self._data_of[size][index][None]
        return np.ascontiguousarray(self._view(size, count)[index].T)

    def store(self, addresses: np.ndarray, size: int, values: np.ndarray) -> None:
        """Shapes: addresses (lanes), values (count, lanes) of `size` bytes each."""
        count = len(values)
        index = self._indices(addresses, size * count, "write")
        states = self.state_rows(index, size * count)
        if (states != VALID).any():
            if ((states != VALID) & (states != UNWRITTEN)).any():
                self._fault(addresses, size * count, "write", (VALID, UNWRITTEN))
            self._state_of[size * count][index] = _VALID_WORDS[size * count]
        if count == 1:
            self._data_of[size][index] = values[0]
        else:
            self._view(size, count)[index] = np.ascontiguousarray(values.T)

    def state_rows(self, index: np.ndarray, size: int) -> np.ndarray:
        return self.state.reshape(-1, size)[index]

    def span(self, address: int, size: int, what: str, allowed: tuple[int, ...]) -> slice:
        """Place of `size` bytes from `address`, all of them in an allowed state."""
        start = address - self.base
        if start < 0 or start + size > self.size:
            raise DeviceError(f"{what} of {size} bytes at {self.space} {address:#x} is outside")
        self.check(slice(start, start + size), what, allowed)
        return slice(start, start + size)

    def check(self, place: slice | np.ndarray, what: str, allowed: tuple[int, ...]) -> None:
        states = self.state[place]
        bad = ~np.isin(states, allowed)
        if bad.any():
            first = int(np.argmax(bad.ravel()))
            at = place.start + first if isinstance(place, slice) else int(place.ravel()[first])
            state = _STATES[int(states.ravel()[first])] if states.ravel()[first] != VALID else "?"
            raise DeviceError(
                f"{what}: {self.space} byte {self.base + at:#x} {state}{self.where(self.base + at)}"
            )

    def where(self, _address: int) -> str:
        """For messages: more about a place."""
        return ""

    def _view(self, size: int, count: int) -> np.ndarray:
        key = size, count
        known = self._rows.get(key)
        if known is None:
            known = self._rows[key] = self._data_of[size].reshape(-1, count)
        return known

    def _all_valid(self, index: np.ndarray, size: int) -> bool:
        if size == 16:
            states = self._state_of[8].reshape(-1, 2)[index]
            return bool((states == _VALID_WORDS[8]).all())
        return bool((self._state_of[size][index] == _VALID_WORDS[size]).all())

    def _indices(self, addresses: np.ndarray, size: int, what: str) -> np.ndarray:
        offset = addresses.astype(np.int64) - self.base
        if int(offset.min()) < 0 or int(offset.max()) + size > self.size:
            lane = int(np.argmax((offset < 0) | (offset + size > self.size)))
            at = int(addresses[lane])
            place = f"{self.space} address {at:#x} is out of bounds{self.where(at)}"
            raise DeviceError(f"{what} of {size} bytes at {place}", lane)
        if size > 1 and (offset & (size - 1)).any():
            lane = int(np.argmax((offset & (size - 1)) != 0))
            at = int(addresses[lane])
            raise DeviceError(
                f"{what} of {size} bytes at {self.space} address {at:#x} is misaligned", lane
            )
        return offset >> (size.bit_length() - 1)

    def _fault(self, addresses: np.ndarray, size: int, what: str, allowed: tuple[int, ...]) -> None:
        """Raises: DeviceError where a byte is in no allowed state."""
        offset = addresses.astype(np.int64) - self.base
        states = self.state[offset[:, None] + np.arange(size)]
        bad = ~np.isin(states, allowed)
        if not bad.any():
            return
        lane = int(np.argmax(bad.any(1)))
        state = int(states[lane][np.argmax(bad[lane])])
        raise DeviceError(
            f"{what} of {size} bytes at {self.space} address {int(addresses[lane]):#x}: "
            f"the place {_STATES[state]}{self.where(int(addresses[lane]))}",
            lane,
        )


class GlobalMemory(Memory):
    """Buffers with guard bytes between them."""

    def __init__(self, size: int = 1 << 22) -> None:
        super().__init__("global", size, GLOBAL_BASE, OUTSIDE)
        self._end = _GUARD_BYTES
        self.names: list[tuple[int, int, str]] = []

    def allocate(self, name: str, size: int, state: int = UNWRITTEN) -> int:
        """Address of a new buffer, 256-byte aligned."""
        start = -(-self._end // _ROW_ALIGNMENT) * _ROW_ALIGNMENT
        self._end = start + size + _GUARD_BYTES
        if self._end > self.size:
            raise MemoryError(f"{name}: {size} bytes do not fit into the emulator's memory")
        self.state[start : start + size] = state
        self.data[start : start + size] = UNWRITTEN_BYTE
        self.names.append((self.base + start, size, name))
        return self.base + start

    def upload(self, name: str, values: np.ndarray) -> int:
        """A buffer with these bytes."""
        raw = np.ascontiguousarray(values).view(np.uint8).ravel()
        address = self.allocate(name, raw.size, VALID)
        self.data[address - self.base : address - self.base + raw.size] = raw
        return address

    def bytes_at(self, address: int, size: int) -> np.ndarray:
        """A view of the bytes."""
        return self.data[address - self.base : address - self.base + size]

    def mark(self, address: int, size: int, state: int) -> None:
        self.state[address - self.base : address - self.base + size] = state

    def where(self, address: int) -> str:
        """Which buffer an address belongs to, or comes after."""
        before = [entry for entry in self.names if entry[0] <= address]
        if not before:
            return " (before every buffer)"
        start, size, name = max(before)
        return f" ({address - start} bytes from the start of {name}, which has {size})"
