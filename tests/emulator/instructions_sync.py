"""Barriers, mbarrier objects, asynchronous copies, cluster and warp-wide instructions."""

from __future__ import annotations

import numpy as np

from .instructions_memory import shared_cta, shared_offset
from .memory import BARRIER, IN_FLIGHT, PARAM_WINDOW, UNWRITTEN, VALID, DeviceError
from .ptx_text import (
    SINK,
    Address,
    Immediate,
    Instruction,
    Pair,
    PtxError,
    Register,
    Special,
    Symbol,
)
from .races import words_of
from .synchronisation import MemoryBarrier
from .tensor_copy import copy_box
from .translate import LANES, Emitter, Layout, blocking, handler, named

_SPURIOUS_CHANCE = 0.05
_EARLY_CHANCE = 0.5


def reader(layout: Layout, operand: object):
    """f(warp) -> vector of an operand's bits, for instructions that are no generated code."""
    if isinstance(operand, Register):
        return lambda w: w.registers[operand.index]
    if isinstance(operand, Address):
        base = reader(layout, operand.base)
        return lambda w: base(w).astype(np.uint64) + np.uint64(operand.offset & (2**64 - 1))
    if isinstance(operand, (Immediate, Symbol)):
        value = operand.value if isinstance(operand, Immediate) else layout.address(operand)
        vector = np.full(LANES, value & (2**64 - 1), np.uint64)
        return lambda _: vector
    if isinstance(operand, Special):
        return lambda w: w.special[operand.name]
    raise PtxError(f"{operand!r} is no operand here")


def _uniform(vector: np.ndarray, mask: np.ndarray, what: str) -> int:
    values = vector[mask]
    if (values != values[0]).any():
        raise DeviceError(f"{what} differs among the lanes of a warp")
    return int(values[0])


# --- barriers of a CTA -------------------------------------------------------------------------


def _barrier_operands(layout: Layout, i: Instruction):
    words = [reader(layout, o) for o in i.operands]
    which = words[0] if words else (lambda _: np.zeros(LANES, np.uint32))
    count = words[1] if len(words) > 1 else None

    def read(w, f) -> tuple[int, int | None]:
        barrier = _uniform(which(w), f.mask, "the barrier's number")
        return barrier, None if count is None else _uniform(count(w), f.mask, "the thread count")

    return read


@blocking("bar.sync", "barrier.sync", "bar.cta.sync", "barrier.cta.sync")
def _bar_sync(layout: Layout, i: Instruction):
    read = _barrier_operands(layout, i)

    def wait(w, f):
        barriers = w.cta.barriers
        if f.token is None:
            barrier, count = read(w, f)
            f.token = barrier, barriers.arrive(w, barrier, count)
        barrier, generation = f.token
        return None if barriers.passed(w, barrier, generation) else barriers.describe(barrier)

    return wait


@blocking("bar.arrive", "barrier.arrive", "barrier.cta.arrive")
def _bar_arrive(layout: Layout, i: Instruction):
    read = _barrier_operands(layout, i)

    def arrive(w, f):
        w.cta.barriers.arrive(w, *read(w, f))

    return arrive


@handler("bar.warp.sync")
def _bar_warp(e: Emitter, i: Instruction) -> None:
    e.emit("pass")  # the segment starts when all lanes are there


@blocking("barrier.cluster.arrive")
def _cluster_arrive(layout: Layout, i: Instruction):
    def arrive(w, f):
        if w.cluster_token is not None:
            raise DeviceError("barrier.cluster.arrive again before barrier.cluster.wait")
        w.cluster_token = w.cta.cluster.barrier.arrive(w)

    return arrive


@blocking("barrier.cluster.wait")
def _cluster_wait(layout: Layout, i: Instruction):
    def wait(w, f):
        if w.cluster_token is None:
            raise DeviceError("barrier.cluster.wait without barrier.cluster.arrive")
        barrier = w.cta.cluster.barrier
        if not barrier.passed(w, w.cluster_token):
            return barrier.describe()
        w.cluster_token = None
        return None

    return wait


@blocking("griddepcontrol.wait")
def _dependency(layout: Layout, i: Instruction):
    def wait(w, f):
        return None if w.machine.predecessor_ended else "the preceding kernel"

    return wait


@handler("griddepcontrol.launch_dependents", "fence", "membar", "setmaxnreg", "nanosleep")
def _nothing(e: Emitter, i: Instruction) -> None:
    e.emit("pass")


# --- mbarrier ----------------------------------------------------------------------------------


def _barrier_at(w, address: int) -> tuple[MemoryBarrier, object, int]:
    cta, offset = shared_cta(w, address), shared_offset(address)
    found = cta.memory_barriers.get(offset)
    if found is None:
        raise DeviceError(f"shared address {address:#x} holds no initialised mbarrier")
    return found, cta, offset


def _lanes(mask) -> np.ndarray:
    return np.arange(LANES) if mask is None else np.nonzero(mask)[0]


def _grouped(values: np.ndarray, lanes: np.ndarray) -> list[tuple[int, int]]:
    """(value, lanes that have it)."""
    if len(lanes) == 0:
        return []
    found, counts = np.unique(values[lanes], return_counts=True)
    return [(int(v), int(c)) for v, c in zip(found, counts, strict=True)]


@named
def barrier_init(w, address, count, mask):
    for lane in _lanes(mask):
        at = int(address[lane])
        cta, offset = shared_cta(w, at), shared_offset(at)
        if offset % 8:
            raise DeviceError(f"mbarrier at shared address {at:#x} is misaligned", int(lane))
        place = cta.shared.span(offset, 8, "mbarrier.init", (VALID, UNWRITTEN))
        cta.shared.state[place] = BARRIER
        clocks = cta.cluster.clocks
        known = cta.memory_barriers.get(offset)
        slot = clocks.barrier_slot(f"copies of mbarrier {at:#x}") if known is None else known.slot
        cta.memory_barriers[offset] = MemoryBarrier(w.machine, int(count[lane]), clocks, slot)


@named
def barrier_invalidate(w, address, mask):
    for lane in _lanes(mask):
        _, cta, offset = _barrier_at(w, int(address[lane]))
        del cta.memory_barriers[offset]
        cta.shared.state[offset : offset + 8] = UNWRITTEN


@named
def barrier_arrive(w, address, count, bytes_due, mask):
    """Returns: the phase before, as the state."""
    state = np.zeros(LANES, np.uint64)
    for lane in _lanes(mask):
        barrier, _, _ = _barrier_at(w, int(address[lane]))
        state[lane] = barrier.phase
        if bytes_due is not None:
            barrier.expect_bytes(int(bytes_due[lane]))
        if count is not None:
            barrier.arrive(int(count[lane]), w)
        elif bytes_due is None:
            barrier.arrive(1, w)
    return state


@named
def barrier_complete(w, address, count, mask):
    for lane in _lanes(mask):
        _barrier_at(w, int(address[lane]))[0].complete_bytes(int(count[lane]))


@named
def barrier_test(w, address, parity, mask):
    out = np.zeros(LANES, bool)
    for lane in _lanes(mask):
        out[lane] = _barrier_at(w, int(address[lane]))[0].completed(int(parity[lane]) & 1)
    return out


def _shared_address(e: Emitter, operand: object) -> str:
    return e.address(operand)[0]


@handler("mbarrier.init")
def _init(e: Emitter, i: Instruction) -> None:
    address, count = _shared_address(e, i.operands[0]), e.read(i.operands[1], "u32")
    e.emit(f"barrier_init(w, {address}, {count}, {e.mask})")


@handler("mbarrier.inval")
def _inval(e: Emitter, i: Instruction) -> None:
    e.emit(f"barrier_invalidate(w, {_shared_address(e, i.operands[0])}, {e.mask})")


@handler("mbarrier.arrive")
def _arrive(e: Emitter, i: Instruction) -> None:
    if "noComplete" in i.parts:
        raise PtxError("not supported")
    destination, address, *more = i.operands
    count, due = "None", "None"
    if "expect_tx" in i.parts:
        due, count = e.read(more[0], "u32"), e.read(Immediate(1), "u32")
    elif more:
        count = e.read(more[0], "u32")
    text = f"barrier_arrive(w, {_shared_address(e, address)}, {count}, {due}, {e.mask})"
    e.write(destination, text, "b64")


@handler("mbarrier.expect_tx")
def _expect(e: Emitter, i: Instruction) -> None:
    address, due = i.operands
    e.emit(
        f"barrier_arrive(w, {_shared_address(e, address)}, None, {e.read(due, 'u32')}, {e.mask})"
    )


@handler("mbarrier.complete_tx")
def _complete(e: Emitter, i: Instruction) -> None:
    address, due = i.operands
    e.emit(f"barrier_complete(w, {_shared_address(e, address)}, {e.read(due, 'u32')}, {e.mask})")


@blocking("mbarrier.try_wait", "mbarrier.test_wait")
def _wait_barrier(layout: Layout, i: Instruction):
    """Both forms: a state is the phase that arrive saw, so its parity is what is asked for."""
    destination = i.operands[0]
    if not isinstance(destination, Register):
        raise PtxError("the result has to be a predicate")
    return BarrierWait(
        destination.index,
        reader(layout, i.operands[1]),
        reader(layout, i.operands[2]),
        i.line,
        tests=i.parts[1] == "test_wait",
    )


class BarrierWait:
    """try_wait waits for a change; at times it says no too early, as it may. test_wait does so at
    its second turn, so that others run meanwhile.
    """

    def __init__(self, destination: int, address, phase, line: int, *, tests: bool) -> None:
        self._destination, self._line, self._tests = destination, line, tests
        self._address, self._phase = address, phase

    def __call__(self, w, f) -> str | None:
        ready = w.registers[self._destination].copy()
        any_ready = False
        for where, parity, lanes in self._groups(w, f):
            barrier = _barrier_at(w, where)[0]
            done = barrier.completed(parity)
            any_ready |= done
            if done and not self._tests and w.machine.seed is not None:
                done = w.generator.random() >= _SPURIOUS_CHANCE
            if done:
                barrier.acquire(w)
            ready[lanes] = done
        if any_ready:
            w.gave_up.discard(self._line)
        elif not self._gives_up(w, f):
            return barrier.describe(where, parity)
        w.registers[self._destination] = ready
        return None

    def _groups(self, w, f) -> list[tuple[int, int, object]]:
        """(address, parity, lanes)."""
        at, wanted = self._address(w), self._phase(w)
        lanes = np.nonzero(f.mask)[0]
        first, phase = int(at[lanes[0]]), int(wanted[lanes[0]])
        if (at[lanes] == first).all() and (wanted[lanes] == phase).all():
            return [(first, phase & 1, lanes)]
        return [(int(at[lane]), int(wanted[lane]) & 1, [lane]) for lane in lanes]

    def _gives_up(self, w, f) -> bool:
        if self._tests:
            asked, f.token = f.token, "asked once"
            return asked is not None
        if self._line in w.gave_up or w.machine.seed is None:
            return False
        if w.generator.random() < _EARLY_CHANCE:
            w.gave_up.add(self._line)
            return True
        return False


# --- cp.async ----------------------------------------------------------------------------------


@named
def copy_async(w, shared, source, size, used, mask):
    """size bytes a lane, the first `used` from global memory and zeros for the rest."""
    lanes = _lanes(mask)
    if len(lanes) == 0:
        return
    memory, target = w.machine.memory, w.cta.shared
    to, start = shared[lanes].astype(np.int64), source[lanes].astype(np.int64)
    count = np.full(len(lanes), size) if used is None else used[lanes].astype(np.int64)
    for what, place in (("target", to), ("source", start)):
        if (place % size).any():
            lane = int(lanes[np.argmax(place % size != 0)])
            at = int(place[np.argmax(place % size != 0)])
            raise DeviceError(f"cp.async: {what} {at:#x} is misaligned", lane)
    if (to < 0).any() or (to + size > target.size).any():
        raise DeviceError("cp.async: target is outside of shared memory", int(lanes[0]))
    steps = np.arange(size)
    places = to[:, None] + steps
    target.check(places, "cp.async", (VALID, UNWRITTEN))
    wanted = steps < count[:, None]
    offsets = start[:, None] + steps - memory.base
    bad = wanted & ((offsets < 0) | (offsets >= memory.size))
    if bad.any():
        lane = int(np.argmax(bad.any(1)))
        raise DeviceError(
            f"cp.async: source {int(start[lane]):#x} is out of bounds", int(lanes[lane])
        )
    inside = np.where(wanted, offsets, 0)
    states = memory.state[inside]
    bad = wanted & (states != VALID)
    if bad.any():
        row = int(np.argmax(bad.any(1)))
        try:
            memory.check(inside[row][wanted[row]], "cp.async", (VALID,))
        except DeviceError as error:
            error.lane = int(lanes[row])
            raise
    w.copies_started += 1
    if target.accesses is not None:
        target.accesses.write(w, words_of(to, size), w.copy_slot, w.copies_started)
    target.state[places] = IN_FLIGHT

    def land() -> None:
        target.data[places] = np.where(wanted, memory.data[inside], 0)
        target.state[places] = VALID

    copy = w.machine.start_copy(land)
    copy.number = w.copies_started
    w.copies.append(copy)


@handler("cp.async.ca", "cp.async.cg")
def _cp_async(e: Emitter, i: Instruction) -> None:
    shared, source, size, *more = i.operands
    if not isinstance(size, Immediate):
        raise PtxError("the size has to be a number")
    if len(more) > 1 or "cache_hint" in i.opcode or "ignore-src" in i.opcode:
        raise PtxError("unknown form of cp.async")
    used = e.read(more[0], "u32") if more else "None"
    to, start = _shared_address(e, shared), e.address(source)[0]
    e.emit(f"copy_async(w, {to}, {start}, {size.value}, {used}, {e.mask})")


@named
def commit_copies(w, mask):
    if mask is not None and not (mask == w.live).all():
        raise DeviceError("cp.async.commit_group by a part of a warp is not supported")
    w.groups.append(w.copies)
    w.copies = []


@handler("cp.async.commit_group")
def _commit(e: Emitter, i: Instruction) -> None:
    e.emit(f"commit_copies(w, {e.mask})")


@blocking("cp.async.wait_group", "cp.async.wait_all")
def _wait_copies(layout: Layout, i: Instruction):
    every = i.parts[2] == "wait_all"
    kept = 0 if every else i.operands[0].value

    def wait(w, f):
        groups = w.groups[: len(w.groups) - kept] if kept else w.groups
        copies = [c for group in groups for c in group] + (w.copies if every else [])
        if all(copy.done for copy in copies):
            w.groups = w.groups[len(w.groups) - kept :] if kept else []
            landed = max((copy.number for copy in copies), default=0)
            w.clock[w.copy_slot] = max(w.clock[w.copy_slot], landed)
            return None
        return f"{sum(not c.done for c in copies)} cp.async copies"

    return wait


@named
def arrive_after_copies(w, address, counted, mask):
    """An arrival of each lane when its earlier copies have landed."""
    copies = [c for group in w.groups for c in group if not c.done] + [
        c for c in w.copies if not c.done
    ]
    w.copies = [c for c in w.copies if not c.done]
    for at, lanes in _grouped(address, _lanes(mask)):
        barrier, _, _ = _barrier_at(w, at)
        if not counted:
            barrier.pending += lanes
        left = [len(copies)]

        def landed(barrier=barrier, lanes=lanes, left=left, number=w.copies_started) -> None:
            left[0] -= 1
            if left[0] <= 0:
                barrier.joined[w.copy_slot] = max(barrier.joined[w.copy_slot], number)
                barrier.arrive(lanes)

        if not copies:
            landed()
        for copy in copies:
            copy.then.append(landed)


@handler("cp.async.mbarrier.arrive")
def _arrive_after(e: Emitter, i: Instruction) -> None:
    counted = "noinc" in i.parts
    e.emit(f"arrive_after_copies(w, {_shared_address(e, i.operands[0])}, {counted}, {e.mask})")


# --- bulk copies -------------------------------------------------------------------------------


@named
def bulk_copy(w, shared, source, size, barrier_address, mask):
    memory = w.machine.memory
    for lane in _lanes(mask):
        to, start, count = int(shared[lane]), int(source[lane]), int(size[lane])
        for what, value in (("target", to), ("source", start), ("size", count)):
            if value % 16:
                raise DeviceError(
                    f"cp.async.bulk: {what} {value:#x} is no multiple of 16", int(lane)
                )
        cta = shared_cta(w, to)
        barrier, _, _ = _barrier_at(w, int(barrier_address[lane]))
        if count == 0:
            raise DeviceError("cp.async.bulk of 0 bytes", int(lane))
        target = cta.shared.span(shared_offset(to), count, "cp.async.bulk", (VALID, UNWRITTEN))
        place = memory.span(start, count, "cp.async.bulk", (VALID,))
        if cta.shared.accesses is not None:
            words = np.arange(target.start, target.stop, 4) >> 2
            cta.shared.accesses.write(w, words, barrier.slot, barrier.phase + 1)
        cta.shared.state[target] = IN_FLIGHT

        def land(cta=cta, target=target, place=place, barrier=barrier, count=count) -> None:
            cta.shared.data[target] = memory.data[place]
            cta.shared.state[target] = VALID
            barrier.complete_bytes(count)

        w.machine.start_copy(land)


@handler("cp.async.bulk.shared::cluster.global", "cp.async.bulk.shared::cta.global")
def _bulk(e: Emitter, i: Instruction) -> None:
    if "multicast::cluster" in i.parts:
        raise PtxError("multicast is not supported")
    shared, source, size, barrier = i.operands[:4]
    e.emit(
        f"bulk_copy(w, {_shared_address(e, shared)}, {e.address(source)[0]}, "
        f"{e.read(size, 'u32')}, {_shared_address(e, barrier)}, {e.mask})"
    )


@named
def tensor_copy(w, shared, map_address, x, y, barrier_address, mask):
    for lane in _lanes(mask):
        at = int(map_address[lane])
        source = w.machine.parameters if at >= PARAM_WINDOW else w.machine.memory
        if at % 64:
            raise DeviceError(f"tensor map at {at:#x} is not 64-byte aligned", int(lane))
        base = PARAM_WINDOW if source is w.machine.parameters else 0
        place = source.span(at - base, 128, "read of a tensor map", (VALID,))
        tensor = w.machine.launch.tensor_maps.get(source.data[place].tobytes())
        if tensor is None:
            raise DeviceError(f"no tensor map at {at:#x}", int(lane))
        to = int(shared[lane])
        barrier, _, _ = _barrier_at(w, int(barrier_address[lane]))
        target = shared_cta(w, to).shared
        copy_box(w, tensor, target, shared_offset(to), (int(x[lane]), int(y[lane])), barrier)


@handler(
    "cp.async.bulk.tensor.2d.shared::cluster.global", "cp.async.bulk.tensor.2d.shared::cta.global"
)
def _tensor(e: Emitter, i: Instruction) -> None:
    if "multicast::cluster" in i.parts or "im2col" in i.parts or "gather4" in i.opcode:
        raise PtxError("unknown form of cp.async.bulk.tensor")
    shared, source, barrier = i.operands[:3]
    x, y = (e.read(c, "s32") for c in source.coordinates)
    address = e.address(Address(source.base, source.offset))[0]
    e.emit(
        f"tensor_copy(w, {_shared_address(e, shared)}, {address}, {x}, {y}, "
        f"{_shared_address(e, barrier)}, {e.mask})"
    )


# --- warp-wide ---------------------------------------------------------------------------------


@named
def shuffle(w, mode, values, offset, clamp, mask):
    lane = np.arange(LANES)
    segment = (clamp >> np.uint32(8)).astype(np.int64) & 31
    most = clamp.astype(np.int64) & 31
    low = lane & segment
    top = low | (most & ~segment)
    b = offset.astype(np.int64) & 31
    if mode == "up":
        source = lane - b
        inside = source >= top
    elif mode == "down":
        source = lane + b
        inside = source <= top
    elif mode == "bfly":
        source = lane ^ b
        inside = source <= top
    else:
        source = low | (b & ~segment)
        inside = source <= top
    source = np.where(inside, source, lane)
    if mask is not None and (mask & ~mask[source]).any():
        raise DeviceError("shfl.sync reads a lane that does not take part")
    return values[source], inside


@handler("shfl.sync")
def _shuffle(e: Emitter, i: Instruction) -> None:
    d, a, b, c, _members = i.operands
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, SINK)
    values = ", ".join((e.read(a, "b32"), e.read(b, "u32"), e.read(c, "u32")))
    found = e.temporary(f"shuffle(w, {i.parts[2]!r}, {values}, {e.mask})")
    e.write(first, f"{found}[0]", "b32")
    if second is not SINK:
        e.write(second, f"{found}[1]", "pred")


@named
def vote(w, mode, predicate, mask):
    given = predicate if mask is None else predicate[mask]
    if mode == "ballot":
        bits = np.nonzero(predicate if mask is None else predicate & mask)[0]
        return np.full(LANES, sum(1 << int(b) for b in bits), np.uint32)
    answer = {"all": given.all(), "any": given.any(), "uni": given.all() or not given.any()}[mode]
    return np.full(LANES, answer)


@handler("vote.sync")
def _vote(e: Emitter, i: Instruction) -> None:
    mode = i.parts[2]
    t = "b32" if mode == "ballot" else "pred"
    e.write(i.operands[0], f"vote(w, {mode!r}, {e.read(i.operands[1], 'pred')}, {e.mask})", t)


@handler("activemask")
def _activemask(e: Emitter, i: Instruction) -> None:
    everyone = e.constant(1, np.dtype(bool))
    e.write(i.operands[0], f"vote(w, 'ballot', {everyone}, {e.mask})", "b32")


@named
def elected(w, members, mask):
    """(lane, who it is): the lowest lane that takes part."""
    lanes = _lanes(mask)
    out = np.zeros(LANES, bool)
    out[lanes[0]] = True
    return np.full(LANES, lanes[0], np.uint32), out


@handler("elect.sync")
def _elect(e: Emitter, i: Instruction) -> None:
    d = i.operands[0]
    found = e.temporary(f"elected(w, {e.read(i.operands[1], 'b32')}, {e.mask})")
    if d.first is not SINK:
        e.write(d.first, f"{found}[0]", "b32")
    e.write(d.second, f"{found}[1]", "pred")


@named
def reduce_lanes(w, operation, values, mask):
    chosen = values if mask is None else values[mask]
    function = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    return np.full(LANES, function[operation].reduce(chosen, dtype=values.dtype), values.dtype)


@handler("redux.sync")
def _redux(e: Emitter, i: Instruction) -> None:
    t = i.parts[-1]
    e.write(
        i.operands[0], f"reduce_lanes(w, {i.parts[2]!r}, {e.read(i.operands[1], t)}, {e.mask})", t
    )
