"""ldmatrix, stmatrix, mma.sync and wgmma."""

from __future__ import annotations

import re

import numpy as np

from . import matrix
from .memory import BARRIER, IN_FLIGHT, OUTSIDE, DeviceError
from .ptx_text import Immediate, Instruction, PtxError, Register, Vector
from .races import words_of
from .tensor_copy import swizzled
from .translate import LANES, Emitter, handler, named

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_LANE = np.arange(LANES)


def _whole_warp(w, mask, what: str) -> None:
    if mask is not None and not mask.all():
        raise DeviceError(f"{what} by {int(mask.sum())} lanes of a warp")


@named
def load_matrices(w, address, count, transposed, mask):
    """Words [register][lane]; lane l gives the address of row l % 8 of tile l / 8."""
    _whole_warp(w, mask, "ldmatrix")
    shared = w.cta.shared
    words = shared.load(address[: 8 * count], 4, 4)  # (4, rows): 16 bytes a row
    if shared.accesses is not None:
        shared.accesses.read(w, words_of(address[: 8 * count], 16))
    rows = np.ascontiguousarray(words.T).reshape(count, 8, 4)
    if transposed:
        halves = rows.view(np.uint16).transpose(0, 2, 1)
        rows = np.ascontiguousarray(halves).view(np.uint32)
    return rows.reshape(count, LANES)


@named
def store_matrices(w, address, values, transposed, mask):
    _whole_warp(w, mask, "stmatrix")
    count = len(values)
    rows = np.stack(values).reshape(count, 8, 4)
    if transposed:
        halves = rows.view(np.uint16).transpose(0, 2, 1)
        rows = np.ascontiguousarray(halves).view(np.uint32)
    shared = w.cta.shared
    shared.store(address[: 8 * count], 4, np.ascontiguousarray(rows.reshape(-1, 4).T))
    if shared.accesses is not None:
        words = words_of(address[: 8 * count], 16)
        shared.accesses.write(w, words, w.slot, w.clock[w.slot])


def _matrix_form(i: Instruction) -> tuple[int, bool]:
    if "m8n8" not in i.parts or i.parts[-1] != "b16":
        raise PtxError("unknown shape")
    count = next(int(word[1:]) for word in i.parts if word in ("x1", "x2", "x4"))
    return count, "trans" in i.parts


def _items(operand: object) -> tuple[object, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@handler("ldmatrix.sync")
def _ldmatrix(e: Emitter, i: Instruction) -> None:
    count, transposed = _matrix_form(i)
    address = e.address(i.operands[1])[0]
    words = e.temporary(f"load_matrices(w, {address}, {count}, {transposed}, {e.mask})")
    for place, target in enumerate(_items(i.operands[0])):
        e.write(target, f"{words}[{place}]", "b32")


@handler("stmatrix.sync")
def _stmatrix(e: Emitter, i: Instruction) -> None:
    _count, transposed = _matrix_form(i)
    address = e.address(i.operands[0])[0]
    values = ", ".join(e.read(item, "b32") for item in _items(i.operands[1]))
    e.emit(f"store_matrices(w, {address}, ({values},), {transposed}, {e.mask})")


@named
def multiply(w, kinds, a, b, c, integers, mask):
    _whole_warp(w, mask, "mma")
    return (matrix.mma_integers if integers else matrix.mma)(*kinds, a, b, c)


@handler("mma.sync.aligned")
def _mma(e: Emitter, i: Instruction) -> None:
    words = [w for w in i.parts[3:] if w not in ("row", "col", "satfinite")]
    found = _SHAPE.match(words[0])
    if found is None or found[1] != "16" or found[2] != "8" or "row.col" not in i.opcode:
        raise PtxError("unknown shape of mma")
    if len(words) != 5 or words[1] not in ("f32", "s32") or "satfinite" in i.parts:
        raise PtxError("unknown form of mma")
    d_type, kind_a, kind_b, _ = words[1:]
    if kind_a not in matrix.WIDEN or kind_b not in matrix.WIDEN:
        raise PtxError(f"unknown matrix type .{kind_a} or .{kind_b}")
    d, *sources = i.operands
    per = 32 // matrix.WIDEN[kind_a][0]
    a, b, c = (_items(s) for s in sources)
    if len(b) * per * 4 != int(found[3]):
        raise PtxError("registers of B do not suit the shape")
    lists = ["(" + ", ".join(e.read(x, "b32") for x in items) + ",)" for items in (a, b, c)]
    kinds = (kind_a, kind_b)
    text = f"multiply(w, {kinds!r}, {', '.join(lists)}, {d_type == 's32'}, {e.mask})"
    sums = e.temporary(text)
    for place, target in enumerate(_items(d)):
        e.write(target, f"{sums}[{place}]", "b32")


# --- wgmma -------------------------------------------------------------------------------------
# A warp makes its own 16 rows when the instruction is issued. What it read is compared with shared
# memory once more when the wait says that the group is complete.

_MODES = {0: 0, 1: 128, 2: 64, 3: 32}


def descriptor_places(descriptor: int, rows: int, row_bytes: int) -> np.ndarray:
    """Offsets in shared memory of a K-major operand. Shape: (rows, row_bytes)."""
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    width = _MODES.get(descriptor >> 62)
    if descriptor >> 49 & 7:
        raise DeviceError("wgmma: a base offset in the descriptor is not supported")
    row, byte = np.arange(rows)[:, None], np.arange(row_bytes)[None]
    if width == 0:
        return start + row // 8 * stride + row % 8 * 16 + byte // 16 * leading + byte % 16
    plain = start + row // 8 * stride + row % 8 * width + byte
    return swizzled(plain, width)


def _read_operand(w, descriptor: np.ndarray, rows: int, kind: str, reads: list) -> np.ndarray:
    value = int(descriptor[0])
    if (descriptor != descriptor[0]).any():
        raise DeviceError("wgmma: the descriptor differs among the lanes of a warp")
    places = _cached_places(value, rows)
    shared = w.cta.shared
    if int(places.max()) >= shared.size:
        raise DeviceError(f"wgmma: operand at {int(places.min()):#x} ends outside of shared memory")
    _check_read(w, shared, places)
    raw = shared.data[places]
    reads.append((places, raw))
    bits, widen = matrix.WIDEN[kind]
    return widen(raw.view(f"u{bits // 8}"))


_PLACES: dict[tuple[int, int], np.ndarray] = {}


def _cached_places(descriptor: int, rows: int) -> np.ndarray:
    key = descriptor, rows
    if key not in _PLACES:
        if len(_PLACES) > 4096:
            _PLACES.clear()
        _PLACES[key] = descriptor_places(descriptor, rows, 32)
    return _PLACES[key]


def _check_read(w, shared, places: np.ndarray) -> None:
    """Rows beyond the activations may never have been written: their sums are not used."""
    if shared.accesses is not None:
        shared.accesses.read(w, places[:, ::4] >> 2)
    states = shared.state[places]
    for state, why in (
        (IN_FLIGHT, "in flight"),
        (BARRIER, "a barrier object"),
        (OUTSIDE, "reserved"),
    ):
        if (states == state).any():
            at = int(places[states == state][0])
            raise DeviceError(f"wgmma reads shared byte {at:#x} that is {why}")


@named
def warpgroup_multiply(w, kinds, n, a, a_descriptor, b_descriptor, scale, signs, sums, mask):
    _whole_warp(w, mask, "wgmma")
    reads: list = []
    kind_a, kind_b, number = kinds
    b = _read_operand(w, b_descriptor, n, kind_b, reads)
    c = np.stack(sums).view(number)
    if not scale.all():
        c = np.where(scale, c, c.dtype.type(0))
    if a_descriptor is not None:
        rows = w.index % 4 * 16
        left = _read_operand(w, a_descriptor, 64, kind_a, reads)[rows : rows + 16]
    else:
        left = matrix.rows_of(kind_a, a)
    out = matrix.add_product(left, b * signs, c)
    w.matrix_reads.append((w.matrix_group, reads))
    return out.view(np.uint32)


@handler("wgmma.mma_async.sync.aligned")
def _wgmma(e: Emitter, i: Instruction) -> None:
    shape, d_type, kind_a, kind_b = i.parts[4:8]
    found = _SHAPE.match(shape)
    number = {"f32": "f4", "s32": "i4"}.get(d_type)
    if found is None or found[1] != "64" or number is None or len(i.parts) != 8:
        raise PtxError("unknown form of wgmma")
    for kind in (kind_a, kind_b):
        if kind not in matrix.WIDEN or int(found[3]) * matrix.WIDEN[kind][0] != 256:
            raise PtxError(f"unknown matrix type .{kind}")
    n = int(found[2])
    d, a, b, scale, *numbers = i.operands
    values = [x.value for x in numbers if isinstance(x, Immediate)]
    from_registers = isinstance(a, Vector)
    transposes = values[2:]
    if len(values) != len(numbers) or any(transposes) or any(v not in (1, -1) for v in values[:2]):
        raise PtxError("only K-major operands, factors 1 and -1")
    if len(_items(d)) != n // 2 or not isinstance(b, Register):
        raise PtxError("registers do not suit the shape")
    registers = "None"
    descriptor = "None"
    if from_registers:
        registers = "(" + ", ".join(e.read(x, "b32") for x in a.items) + ",)"
    else:
        descriptor = e.read(a, "b64")
    sums = "(" + ", ".join(e.read(x, "b32") for x in _items(d)) + ",)"
    signs = values[0] * values[1] if len(values) > 1 else 1
    kinds = (kind_a, kind_b, number)
    operands = ", ".join((registers, descriptor, e.read(b, "b64"), e.read(scale, "pred")))
    out = e.temporary(
        f"warpgroup_multiply(w, {kinds!r}, {n}, {operands}, {signs}, {sums}, {e.mask})"
    )
    for place, target in enumerate(_items(d)):
        e.write(target, f"{out}[{place}]", "b32")


@handler("wgmma.fence")
def _fence(e: Emitter, i: Instruction) -> None:
    e.emit("pass")


@named
def commit_matrix_group(w):
    w.matrix_group += 1


@handler("wgmma.commit_group")
def _commit(e: Emitter, i: Instruction) -> None:
    e.emit("commit_matrix_group(w)")


@named
def finish_matrix_groups(w, kept):
    """What finished groups read is still there?"""
    shared = w.cta.shared
    left = []
    for group, reads in w.matrix_reads:
        if group >= w.matrix_group - kept:
            left.append((group, reads))
            continue
        for places, raw in reads:
            _check_read(w, shared, places)
            if (shared.data[places] != raw).any():
                at = int(places[shared.data[places] != raw][0])
                raise DeviceError(
                    f"shared byte {at:#x} changed before the wgmma that reads it ended"
                )
    w.matrix_reads = left


@handler("wgmma.wait_group")
def _wait(e: Emitter, i: Instruction) -> None:
    e.emit(f"finish_matrix_groups(w, {i.operands[0].value})")
