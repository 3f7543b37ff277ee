"""Loads, stores, atomics and address conversions in every state space."""

from __future__ import annotations

import numpy as np

from .memory import (
    GLOBAL_BASE,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    VALID,
    WINDOW_BYTES,
    DeviceError,
)
from .ptx_text import SINK, Instruction, PtxError, Vector
from .races import words_of
from .translate import LANES, Emitter, handler, named, number_type

CLUSTER_SHIFT = 24
"""A shared::cluster address is (rank + 1) << 24 | offset; below that it is the own CTA's."""
_SPACES = ("global", "shared", "local", "param", "const")
_IGNORED = {
    "volatile", "relaxed", "acquire", "release", "weak", "gpu", "cta", "sys", "cluster", "ca", "cg",
    "cs", "lu", "cv", "wb", "wt", "nc", "unified", "mmio",
}  # fmt: skip
_HINTS = ("L1::", "L2::", "level::")
_LANE_BYTES = np.arange(LANES, dtype=np.int64)


@named
def load(w, space, address, size, count, mask):
    """Words (count, lanes); lanes outside of the mask get zeros."""
    if mask is None:
        return _load(w, space, address, size, count)
    out = np.zeros((count, LANES), f"u{size}")
    if mask.any():
        lanes = np.nonzero(mask)[0]
        try:
            out[:, lanes] = _load(w, space, address[lanes], size, count, lanes)
        except DeviceError as error:
            raise _of_lane(error, lanes) from None
    return out


@named
def store(w, space, address, size, values, mask):
    lanes = None
    if mask is not None:
        if not mask.any():
            return
        lanes = np.nonzero(mask)[0]
        address, values = address[lanes], values[:, lanes]
    try:
        for memory, place, chosen in _places(w, space, address, lanes):
            memory.store(place, size, values if chosen is None else values[:, chosen])
            if memory.accesses is not None and size >= 4 and not w.in_atomic:
                words = words_of(place, size * len(values))
                memory.accesses.write(w, words, w.slot, w.clock[w.slot])
    except DeviceError as error:
        raise _of_lane(error, lanes) from None


def _of_lane(error: DeviceError, lanes) -> DeviceError:
    if lanes is not None and error.lane is not None:
        error.lane = int(lanes[error.lane])
    return error


def _load(w, space, address, size, count, lanes=None):
    pieces = list(_places(w, space, address, lanes))
    if len(pieces) == 1 and pieces[0][2] is None:
        return _checked_load(w, *pieces[0][:2], size, count)
    out = np.zeros((count, len(address)), f"u{size}")
    for memory, place, chosen in pieces:
        out[:, chosen] = _checked_load(w, memory, place, size, count)
    return out


def _checked_load(w, memory, place, size, count):
    values = memory.load(place, size, count)
    if memory.accesses is not None and not w.in_atomic:
        memory.accesses.read(w, words_of(place, size * count))
    return values


def _places(w, space, address, lanes):
    """(memory, addresses in it, lanes of them or None for all)."""
    if space == "global":
        module = w.machine.module
        if module is not None and module.base <= int(address[0]) < GLOBAL_BASE:
            yield module, address, None
        else:
            yield w.machine.memory, address, None
    elif space == "shared":
        yield from _shared_places(w, address)
    elif space == "param":
        yield w.machine.parameters, address, None
    elif space == "local":
        owner = _LANE_BYTES if lanes is None else lanes
        size = w.machine.program.layout.local_bytes
        yield w.local, address.astype(np.int64) + owner * size, None
    else:
        yield from _generic_places(w, address, lanes)


def _generic_places(w, address, lanes):
    """Of addresses in any window, lane by lane."""
    windows = ((SHARED_WINDOW, "shared"), (LOCAL_WINDOW, "local"), (PARAM_WINDOW, "param"))
    left = np.ones(len(address), bool)
    for base, name in windows:
        inside = (address >= base) & (address < base + WINDOW_BYTES)
        if inside.any():
            left &= ~inside
            chosen = np.nonzero(inside)[0]
            owners = chosen if lanes is None else lanes[chosen]
            for memory, place, of in _places(w, name, address[chosen] - np.uint64(base), owners):
                yield memory, place, chosen if of is None else chosen[of]
    if left.all():
        yield from _places(w, "global", address, lanes)
    elif left.any():
        chosen = np.nonzero(left)[0]
        for memory, place, _ in _places(w, "global", address[chosen], None):
            yield memory, place, chosen


def _shared_places(w, address):
    top = int(address.max()) >> CLUSTER_SHIFT
    if top == 0:
        yield w.cta.shared, address, None
        return
    ranks = (address >> np.array(CLUSTER_SHIFT, address.dtype)).astype(np.int64)
    for rank in np.unique(ranks):
        chosen = np.nonzero(ranks == rank)[0]
        cta = shared_cta(w, int(rank) << CLUSTER_SHIFT)
        inside = address[chosen].astype(np.int64) & ((1 << CLUSTER_SHIFT) - 1)
        yield cta.shared, inside, None if len(chosen) == len(address) else chosen


def shared_cta(w, address: int):
    """The CTA that a shared::cluster address belongs to."""
    rank = (address >> CLUSTER_SHIFT) - 1
    if rank < 0:
        return w.cta
    if rank >= len(w.cta.cluster.ctas):
        raise DeviceError(f"shared address {address:#x}: the cluster has no CTA {rank}")
    cta = w.cta.cluster.ctas[rank]
    if cta.ended:
        raise DeviceError(f"shared address {address:#x}: CTA {rank} of the cluster has exited")
    return cta


def shared_offset(address: int) -> int:
    return address & ((1 << CLUSTER_SHIFT) - 1)


def _space_of(i: Instruction) -> tuple[str, int, str]:
    """(space, words, type) of ld or st."""
    space, count = "generic", 1
    for word in i.parts[1:-1]:
        head = word.split("::")[0]
        if head in _SPACES:
            space = "global" if head == "const" else head
        elif word in ("v2", "v4", "v8"):
            count = int(word[1:])
        elif word not in _IGNORED and not word.startswith(_HINTS):
            raise PtxError(f"unknown modifier .{word}")
    return space, count, i.parts[-1]


def _checked_space(space: str, symbol_space: str | None) -> str:
    symbol_space = "global" if symbol_space == "const" else symbol_space
    if symbol_space is None or space == symbol_space:
        return space
    if space == "generic":
        raise PtxError("generic access to a symbol")
    raise PtxError(f".{space} access to a symbol in .{symbol_space}")


@handler("ld", "ldu")
def _ld(e: Emitter, i: Instruction) -> None:
    space, count, t = _space_of(i)
    dtype, bits = number_type(t)
    address, of, value = e.address(i.operands[1])
    space = _checked_space(space, of)
    targets = i.operands[0].items if isinstance(i.operands[0], Vector) else (i.operands[0],)
    if len(targets) != count:
        raise PtxError(f"{len(targets)} registers for {count} words")
    if space == "param" and value is not None and of is not None:
        words = e.temporary(f"parameters(w, {value}, {bits // 8}, {count})")
    else:
        words = e.temporary(f"load(w, {space!r}, {address}, {bits // 8}, {count}, {e.mask})")
    for place, target in enumerate(targets):
        if target is not SINK:
            text = f"{words}[{place}]"
            e.write(target, text if dtype.kind == "u" else f"{text}.view(np.{dtype.name})", t)


@named
def parameters(w, offset, size, count):
    """Words of the argument struct, the same in every lane."""
    words = w.machine.parameters
    place = words.span(offset, size * count, "read of parameters", (VALID,))
    values = words.data[place].view(f"u{size}")
    return np.repeat(values[:, None], LANES, 1)


@handler("st")
def _st(e: Emitter, i: Instruction) -> None:
    space, count, t = _space_of(i)
    dtype, bits = number_type(t)
    address, of, _ = e.address(i.operands[0])
    space = _checked_space(space, of)
    sources = i.operands[1].items if isinstance(i.operands[1], Vector) else (i.operands[1],)
    if len(sources) != count:
        raise PtxError(f"{len(sources)} registers for {count} words")
    kind = f"b{bits}" if dtype.kind == "u" else t
    values = [e.read(s, kind) for s in sources]
    if dtype.kind != "u":
        values = [f"({v}).view(np.uint{bits})" for v in values]
    e.emit(
        f"store(w, {space!r}, {address}, {bits // 8}, np.stack(({', '.join(values)},)), {e.mask})"
    )


_WINDOWS = {
    "shared": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "param": PARAM_WINDOW,
    "global": 0,
    "const": 0,
}


@handler("cvta")
def _cvta(e: Emitter, i: Instruction) -> None:
    words = i.parts[1:]
    back = words[0] == "to"
    space = words[-2].split("::")[0]
    if space not in _WINDOWS:
        raise PtxError(f"unknown state space .{words[-2]}")
    t = words[-1]
    value = e.read(i.operands[1], t)
    if _WINDOWS[space]:
        base = e.constant(_WINDOWS[space], number_type("u64")[0])
        value = f"({value}).astype(np.uint64) {'-' if back else '+'} {base}"
        e.write(i.operands[0], f"({value}).astype(np.{number_type(t)[0].name})", t)
    else:
        e.write(i.operands[0], value, t)


@named
def map_to_rank(address, rank):
    offset = address & np.array((1 << CLUSTER_SHIFT) - 1, address.dtype)
    return offset | (
        (rank.astype(address.dtype) + address.dtype.type(1)) << address.dtype.type(CLUSTER_SHIFT)
    )


@handler("mapa.shared::cluster")
def _mapa(e: Emitter, i: Instruction) -> None:
    t = i.parts[-1]
    d, a, rank = i.operands
    e.write(d, f"map_to_rank({e.read(a, t)}, {e.read(rank, 'u32')})", t)


@handler("getctarank.shared::cluster")
def _getctarank(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    own = "w.special['cluster_ctarank']"
    rank = f"(({e.read(a, i.parts[-1])}) >> {CLUSTER_SHIFT}).astype(np.uint32)"
    e.write(d, f"where({rank} == 0, {own}, {rank} - np.uint32(1))", "u32")


_ATOMIC = {
    "add": lambda old, new: old + new,
    "min": min,
    "max": max,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "exch": lambda _old, new: new,
}


@named
def atomic(w, space, operation, type_name, address, values, mask):
    """Lane after lane. Returns: the old values."""
    dtype, bits = number_type(type_name)
    out = np.zeros(LANES, f"u{bits // 8}")
    w.in_atomic = True
    for lane in range(LANES):
        if mask is None or mask[lane]:
            one = np.full(LANES, False)
            one[lane] = True
            old = load(w, space, address, bits // 8, 1, one)[0]
            out[lane] = old[lane]
            new = _ATOMIC[operation](old.view(dtype)[lane], values.view(dtype)[lane])
            raw = np.zeros((1, LANES), dtype)
            raw[0, lane] = new
            store(w, space, address, bits // 8, raw.view(f"u{bits // 8}"), one)
    w.in_atomic = False
    return out


@handler("atom", "red")
def _atom(e: Emitter, i: Instruction) -> None:
    words = [w.split("::")[0] for w in i.parts[1:] if w not in _IGNORED]
    space = next((w for w in words if w in _SPACES), "generic")
    operation, t = words[-2], words[-1]
    if operation not in _ATOMIC or number_type(t)[1] < 32:
        raise PtxError(f"unknown atomic .{operation}.{t}")
    destination, source = (
        (i.operands[0], i.operands[1:]) if i.parts[0] == "atom" else (SINK, i.operands)
    )
    address, of, _ = e.address(source[0])
    space = _checked_space(space, of)
    bits = number_type(t)[1]
    value = e.read(source[1], f"b{bits}")
    e.write(
        destination,
        f"atomic(w, {space!r}, {operation!r}, {t!r}, {address}, {value}, {e.mask})",
        f"b{bits}",
    )


@handler("prefetch", "prefetchu", "discard", "applypriority", "createpolicy", "isspacep")
def _prefetch(e: Emitter, i: Instruction) -> None:
    if i.parts[0] == "createpolicy":
        e.write(i.operands[0], e.read(i.operands[0], "b64"), "b64")
    elif i.parts[0] == "isspacep":
        raise PtxError("not supported")
    else:
        e.emit("pass")
