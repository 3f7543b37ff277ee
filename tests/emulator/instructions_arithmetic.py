"""Integer, logic, float and conversion instructions: one line each where an expression says it.

To add one: formula(opcode, expression, type of the result, types of the sources).
"""

from __future__ import annotations

import itertools

import numpy as np

from . import floats
from .ptx_text import SINK, Immediate, Instruction, Pair, PtxError, Register, Vector
from .translate import Emitter, formula, handler, named, number_type

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_SIGNED = ("s16", "s32", "s64")


@named
def divide(a, b):
    """Truncates toward zero."""
    return (a - np.fmod(a, b)) // b


@named
def remainder(a, b):
    return np.fmod(a, b)


@named
def shift_left(a, amount):
    return np.left_shift(a, np.minimum(amount, 64).astype(a.dtype))


@named
def shift_right(a, amount):
    """Arithmetic for signed types; a large amount leaves the sign."""
    most = a.dtype.itemsize * 8 - (1 if a.dtype.kind == "i" else 0)
    if a.dtype.kind == "i":
        return np.right_shift(a, np.minimum(amount, most).astype(a.dtype))
    return np.right_shift(a, np.minimum(amount, 64).astype(a.dtype))


@named
def multiply_high(a, b):
    if a.dtype.itemsize == 4:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(32)).astype(a.dtype)
    products = [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    return np.array(products, a.dtype)


@named
def byte_permute(a, b, selector):
    """prmt without a mode: nibble i of the selector picks byte i, bit 3 spreads its sign."""
    pool = np.stack([a, b], 1).view(np.uint8)  # (lanes, 8)
    picks = (selector[:, None] >> np.array([0, 4, 8, 12], np.uint32)) & np.uint32(15)
    chosen = np.take_along_axis(pool, (picks & np.uint32(7)).astype(np.int64), 1)
    sign = np.where(chosen & 0x80, np.uint8(0xFF), np.uint8(0))
    chosen = np.where(picks & np.uint32(8), sign, chosen).astype(np.uint8)
    return np.ascontiguousarray(chosen).view(np.uint32)[:, 0]


_LOGIC = {
    0xEA: "({0} & {1}) | {2}",
    0xF8: "{0} | ({1} & {2})",
    0xFE: "{0} | {1} | {2}",
    0x80: "{0} & {1} & {2}",
    0x96: "{0} ^ {1} ^ {2}",
    0xCA: "({0} & {1}) | (~{0} & {2})",
    0xE4: "({2} & {0}) | (~{2} & {1})",
    0xD8: "({2} & {1}) | (~{2} & {0})",
    0xB8: "({1} & {2}) | (~{1} & {0})",
    0x6A: "({0} & {1}) ^ {2}",
    0x78: "{0} ^ ({1} & {2})",
}


def logic_expression(table: int) -> str:
    """lop3's look-up table as an expression: bit 4 a + 2 b + c of the table is the result."""
    known = _LOGIC.get(table)
    if known is not None:
        return known
    terms = []
    for index in range(8):
        if table >> index & 1:
            signs = [index >> 2 & 1, index >> 1 & 1, index & 1]
            words = [f"{{{i}}}" if s else f"~{{{i}}}" for i, s in enumerate(signs)]
            terms.append(f"({' & '.join(words)})")
    return " | ".join(terms) if terms else "{0} & ~{0}"


@handler("lop3.b32")
def _lop3(e: Emitter, i: Instruction) -> None:
    *sources, table = i.operands[1:]
    if not isinstance(table, Immediate):
        raise PtxError("the table has to be a number")
    values = [e.temporary(e.read(s, "b32")) for s in sources]
    e.write(i.operands[0], logic_expression(table.value).format(*values), "b32")


@named
def extract_bits(a, position, length, dtype):
    bits = dtype.itemsize * 8
    start = (position & np.uint32(255)).astype(np.int64)
    count = (length & np.uint32(255)).astype(np.int64)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    shifted = np.where(
        start >= bits, 0, a.view(unsigned) >> np.minimum(start, bits - 1).astype(unsigned)
    )
    kept = np.where(
        count >= bits,
        ~unsigned.type(0),
        (np.uint64(1) << np.minimum(count, 63).astype(np.uint64)) - np.uint64(1),
    )
    value = shifted.astype(unsigned) & kept.astype(unsigned)
    if dtype.kind == "i":
        top = np.minimum(start + count - 1, bits - 1)
        sign = (a.view(unsigned) >> np.maximum(top, 0).astype(unsigned)) & unsigned.type(1)
        value = np.where((count > 0) & (sign == 1), value | ~kept.astype(unsigned), value)
    return value.astype(unsigned).view(dtype)


@named
def insert_bits(a, b, position, length):
    unsigned = b.dtype
    bits = unsigned.itemsize * 8
    start = (position & np.uint32(255)).astype(np.uint64)
    count = np.minimum(length & np.uint32(255), bits).astype(np.uint64)
    ones = np.where(
        count >= 64,
        ~np.uint64(0),
        (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1),
    )
    mask = np.where(start >= bits, np.uint64(0), ones << np.minimum(start, np.uint64(63)))
    moved = np.where(
        start >= bits, np.uint64(0), a.astype(np.uint64) << np.minimum(start, np.uint64(63))
    )
    return ((b.astype(np.uint64) & ~mask) | (moved & mask)).astype(unsigned)


@named
def count_bits(a):
    return np.bitwise_count(a).astype(np.uint32)


@named
def leading_zeros(a):
    bits = a.dtype.itemsize * 8
    return np.array([bits - int(v).bit_length() for v in a], np.uint32)


@named
def reverse_bits(a):
    bits = a.dtype.itemsize * 8
    return np.array([int(f"{int(v):0{bits}b}"[::-1], 2) for v in a], a.dtype)


@named
def highest_bit(a):
    """bfind: of a negative number, the highest 0."""
    plain = np.where(a < 0, ~a, a)
    return np.array([(int(v).bit_length() - 1) & 0xFFFFFFFF for v in plain], np.uint32)


@named
def funnel_left(low, high, amount, wrap):
    shift = (amount & np.uint32(31) if wrap else np.minimum(amount, 32)).astype(np.uint64)
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    return ((both << shift) >> np.uint64(32)).astype(np.uint32)


@named
def funnel_right(low, high, amount, wrap):
    shift = (amount & np.uint32(31) if wrap else np.minimum(amount, 32)).astype(np.uint64)
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    return (both >> shift).astype(np.uint32)


@named
def dot_bytes(a, b, c, a_type, b_type):
    left = a.view(a_type).reshape(-1, 4).astype(np.int64)
    right = b.view(b_type).reshape(-1, 4).astype(np.int64)
    return ((left * right).sum(1) + c.astype(np.int64)).astype(np.int32)


def _add_integers() -> None:
    for t in INTEGERS:
        for name, sign in (("add", "+"), ("sub", "-")):
            formula(f"{name}.{t}", f"{{0}} {sign} {{1}}", t, t, t)
        formula(f"mul.lo.{t}", "{0} * {1}", t, t, t)
        formula(f"mad.lo.{t}", "{0} * {1} + {2}", t, t, t, t)
        formula(f"mul.hi.{t}", "multiply_high({0}, {1})", t, t, t)
        formula(f"mad.hi.{t}", "multiply_high({0}, {1}) + {2}", t, t, t, t)
        formula(f"div.{t}", "divide({0}, {1})" if t in _SIGNED else "{0} // {1}", t, t, t)
        formula(f"rem.{t}", "remainder({0}, {1})", t, t, t)
        formula(f"min.{t}", "np.minimum({0}, {1})", t, t, t)
        formula(f"max.{t}", "np.maximum({0}, {1})", t, t, t)
        formula(f"shr.{t}", "shift_right({0}, {1})", t, t, "u32")
        wide = _WIDER.get(t)
        if wide:
            cast = np.dtype(number_type(wide)[0]).name
            product = f"({{0}}).astype(np.{cast}) * ({{1}}).astype(np.{cast})"
            formula(f"mul.wide.{t}", product, wide, t, t)
            formula(f"mad.wide.{t}", product + " + {2}", wide, t, t, wide)


def _add_logic() -> None:
    for t in _SIGNED:
        formula(f"neg.{t}", "-({0})", t, t)
        formula(f"abs.{t}", "np.abs({0})", t, t)
    for bits in (16, 32, 64):
        t = f"b{bits}"
        formula(f"not.{t}", "~({0})", t, t)
        formula(f"cnot.{t}", f"({{0}} == 0).astype(np.uint{bits})", t, t)
        formula(f"shl.{t}", "shift_left({0}, {1})", t, t, "u32")
        formula(f"shr.{t}", "shift_right({0}, {1})", t, t, "u32")
        for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
            formula(f"{name}.{t}", f"{{0}} {sign} {{1}}", t, t, t)
    for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
        formula(f"{name}.pred", f"({{0}}) {sign} ({{1}})", "pred", "pred", "pred")
    formula("not.pred", "~({0})", "pred", "pred")
    formula("mov.pred", "{0}", "pred", "pred")


def _add_bit_fields() -> None:
    for bits in (32, 64):
        formula(f"popc.b{bits}", "count_bits({0})", "u32", f"b{bits}")
        formula(f"clz.b{bits}", "leading_zeros({0})", "u32", f"b{bits}")
        formula(f"brev.b{bits}", "reverse_bits({0})", f"b{bits}", f"b{bits}")
        formula(
            f"bfi.b{bits}",
            "insert_bits({0}, {1}, {2}, {3})",
            f"b{bits}",
            f"b{bits}",
            f"b{bits}",
            "u32",
            "u32",
        )
        for kind in "us":
            t = f"{kind}{bits}"
            dtype = f"np.dtype(np.{number_type(t)[0].name})"
            formula(f"bfe.{t}", f"extract_bits({{0}}, {{1}}, {{2}}, {dtype})", t, t, "u32", "u32")
            formula(f"bfind.{t}", "highest_bit({0})", "u32", t)
    formula("prmt.b32", "byte_permute({0}, {1}, {2})", "b32", "b32", "b32", "b32")
    for mode in ("wrap", "clamp"):
        for name, call in (("l", "left"), ("r", "right")):
            text = f"funnel_{call}({{0}}, {{1}}, {{2}}, {mode == 'wrap'})"
            formula(f"shf.{name}.{mode}.b32", text, "b32", "b32", "b32", "u32")
    for a, b in itertools.product("us", "us"):
        types = [("np.uint8" if kind == "u" else "np.int8") for kind in (a, b)]
        text = f"dot_bytes({{0}}, {{1}}, {{2}}, {types[0]}, {types[1]})"
        formula(f"dp4a.{a}32.{b}32", text, "s32", "b32", "b32", "s32")


def _add_floats() -> None:
    for t in ("f32", "f64"):
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
            for rounding in ("", ".rn"):
                formula(f"{name}{rounding}.{t}", f"{{0}} {sign} {{1}}", t, t, t)
        formula(f"fma.rn.{t}", f"fma_{t}({{0}}, {{1}}, {{2}})", t, t, t, t)
        for rounding in ("rn", "approx", "full"):
            formula(f"div.{rounding}.{t}", "{0} / {1}", t, t, t)
        for rounding in ("rn", "approx"):
            formula(f"sqrt.{rounding}.{t}", "np.sqrt({0})", t, t)
            formula(f"rcp.{rounding}.{t}", f"np.{number_type(t)[0].name}(1) / {{0}}", t, t)
        formula(f"neg.{t}", "-({0})", t, t)
        formula(f"abs.{t}", "np.abs({0})", t, t)
        formula(f"min.{t}", "np.fmin({0}, {1})", t, t, t)
        formula(f"max.{t}", "np.fmax({0}, {1})", t, t, t)
    formula("ex2.approx.f32", "np.exp2({0})", "f32", "f32")
    formula("ex2.approx.ftz.f32", "np.exp2({0})", "f32", "f32")
    formula("lg2.approx.f32", "np.log2({0})", "f32", "f32")
    formula("rsqrt.approx.f32", "np.float32(1) / np.sqrt({0})", "f32", "f32")
    for kind in ("f16", "bf16"):
        for name, count in (
            ("add", 2),
            ("sub", 2),
            ("mul", 2),
            ("fma", 3),
            ("min", 2),
            ("max", 2),
            ("neg", 1),
            ("abs", 1),
        ):
            values = ", ".join(f"{{{n}}}" for n in range(count))
            named_as(f"{name}_{kind}", getattr(floats.SIXTEEN[kind], name))
            named_as(f"{name}_{kind}x2", floats.on_pairs(kind, name))
            for rounding in ("", ".rn"):
                for t, bits in ((kind, "b16"), (f"{kind}x2", "b32")):
                    formula(f"{name}{rounding}.{t}", f"{name}_{t}({values})", bits, *[bits] * count)
        named_as(f"relu_fma_{kind}x2", floats.on_pairs(kind, "relu_fma"))
        formula(
            f"fma.rn.relu.{kind}x2",
            f"relu_fma_{kind}x2({{0}}, {{1}}, {{2}})",
            "b32",
            "b32",
            "b32",
            "b32",
        )


def named_as(name: str, function) -> None:
    from .translate import NAMES

    NAMES[name] = function


for _function in (floats.fma_f32, floats.fma_f64):
    named(_function)
_add_integers()
_add_logic()
_add_bit_fields()
_add_floats()


# --- comparisons and choices -------------------------------------------------------------------

_ORDERED = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARE = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in _ORDERED.items()},
    "ne": "{0} != {1}",
    "lo": "{0} < {1}",
    "ls": "{0} <= {1}",
    "hi": "{0} > {1}",
    "hs": "{0} >= {1}",
}
_COMPARE_FLOAT = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in _ORDERED.items()},
    "ne": "({0} < {1}) | ({0} > {1})",
    "equ": "~(({0} < {1}) | ({0} > {1}))",
    "neu": "{0} != {1}",
    "ltu": "~({0} >= {1})",
    "leu": "~({0} > {1})",
    "gtu": "~({0} <= {1})",
    "geu": "~({0} < {1})",
    "num": "~(np.isnan({0}) | np.isnan({1}))",
    "nan": "np.isnan({0}) | np.isnan({1})",
}
for _name in ("f16_to_f32", "bf16_to_f32"):
    named(getattr(floats, _name))


def _as_float(e: Emitter, operand: object, type_name: str) -> str:
    value = e.read(operand, type_name)
    return f"{type_name}_to_f32({value})" if type_name in ("f16", "bf16") else value


@handler("setp")
def _setp(e: Emitter, i: Instruction) -> None:
    words = [w for w in i.parts[1:] if w != "ftz"]
    compare, t = words[0], words[-1]
    combine = words[1] if len(words) == 3 else None
    table = _COMPARE_FLOAT if t in ("f16", "bf16", "f32", "f64") else _COMPARE
    if compare not in table:
        raise PtxError(f"unknown comparison .{compare}")
    a, b = (e.temporary(_as_float(e, operand, t)) for operand in i.operands[1:3])
    result = e.temporary(table[compare].format(a, b))
    destination = i.operands[0]
    first, second = (
        (destination.first, destination.second)
        if isinstance(destination, Pair)
        else (destination, SINK)
    )
    values = [result, f"~{result}"]
    if combine is not None:
        sign = {"and": "&", "or": "|", "xor": "^"}[combine]
        other = e.temporary(e.read(i.operands[3], "pred"))
        values = [f"({v}) {sign} {other}" for v in values]
    e.write(first, values[0], "pred")
    if second is not SINK:
        e.write(second, values[1], "pred")


@handler("selp")
def _selp(e: Emitter, i: Instruction) -> None:
    t = i.parts[1]
    d, a, b, p = i.operands
    e.write(d, f"where({e.read(p, 'pred')}, {e.read(a, t)}, {e.read(b, t)})", t)


# --- moves -------------------------------------------------------------------------------------


@handler("mov")
def _mov(e: Emitter, i: Instruction) -> None:
    t = i.parts[1]
    destination, source = i.operands
    bits = number_type(t)[1]
    if isinstance(source, Vector):
        part = bits // len(source.items)
        values = ", ".join(e.read(item, f"b{part}") for item in source.items)
        e.write(destination, f"np.stack(({values}), 1).view(np.uint{bits})[:, 0]", f"b{bits}")
    elif isinstance(destination, Vector):
        part = bits // len(destination.items)
        value, count = e.read(source, f"b{bits}"), len(destination.items)
        pieces = e.temporary(f"({value}).view(np.uint{part}).reshape(-1, {count})")
        for place, item in enumerate(destination.items):
            if item is not SINK:
                e.write(item, f"np.ascontiguousarray({pieces}[:, {place}])", f"b{part}")
    else:
        e.write(destination, e.read(source, t), t)


# --- conversions -------------------------------------------------------------------------------

_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}
_NARROW = {"f16": "f32_to_f16", "bf16": "f32_to_bf16"}
for _function in (floats.f32_to_f16, floats.f32_to_bf16, floats.f64_to_f16, floats.f64_to_bf16):
    named(_function)
named_as("f32_to_f16", floats.f64_to_f16)
_ROUND_INTEGER = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}


@named
def to_integer(values, dtype):
    """Saturates; NaN is 0."""
    limits = np.iinfo(dtype)
    wide = values.astype(np.float64)
    inside = np.clip(np.nan_to_num(wide, nan=0.0), float(limits.min), float(limits.max))
    out = np.where(inside >= float(limits.max), limits.max, 0).astype(dtype)
    small = inside < float(limits.max)
    out[small] = inside[small].astype(dtype)
    return out


@named
def saturate_integer(values, dtype):
    limits = np.iinfo(dtype)
    low = max(limits.min, np.iinfo(values.dtype).min)
    high = min(limits.max, np.iinfo(values.dtype).max)
    return np.clip(values, low, high).astype(dtype)


@named
def pack_halves(low, high):
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


@named
def relu_floor(values):
    return np.where(np.isnan(values), values, np.maximum(values, np.float32(0)))


@named
def keep_finite(values, largest):
    return np.where(
        np.isnan(values), values, np.clip(values, np.float32(-largest), np.float32(largest))
    )


@named
def toward_zero_f16(values):
    """float32 -> f16 bits, toward zero."""
    near = values.astype(np.float16)
    too_far = np.abs(near.astype(np.float64)) > np.abs(values.astype(np.float64))
    return np.where(too_far, np.nextafter(near, np.float16(0)), near).view(np.uint16)


@named
def toward_zero_bf16(values):
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def _byte_pair(kind: str, target: str):
    """Two small floats in 16 bits -> a pair of 16-bit floats."""
    narrow = floats.f64_to_f16 if target == "f16" else floats.f32_to_bf16

    def convert(codes):
        raw = codes.astype(np.uint16)
        low = narrow(floats.decode_byte(kind, (raw & 0xFF).astype(np.uint8)))
        high = narrow(floats.decode_byte(kind, (raw >> 8).astype(np.uint8)))
        return pack_halves(low, high)

    return convert


def _to_byte_pair(kind: str):
    def convert(high, low):
        pair = [floats.encode_byte(kind, v).astype(np.uint16) for v in (low, high)]
        return pair[0] | (pair[1] << np.uint16(8))

    return convert


def _halves_to_byte_pair(kind: str):
    def convert(pair):
        halves = floats.f16_to_f32(np.ascontiguousarray(pair).view(np.uint16))
        return floats.encode_byte(kind, halves).view(np.uint16)

    return convert


def _add_small_floats() -> None:
    for kind in ("e4m3", "e5m2"):
        named_as(f"{kind}x2_to_f16x2", _byte_pair(kind, "f16"))
        named_as(f"f32_to_{kind}x2", _to_byte_pair(kind))
        formula(f"cvt.rn.f16x2.{kind}x2", f"{kind}x2_to_f16x2({{0}})", "b32", "b16")
        formula(
            f"cvt.rn.satfinite.{kind}x2.f32", f"f32_to_{kind}x2({{0}}, {{1}})", "b16", "f32", "f32"
        )
        named_as(f"f16x2_to_{kind}x2", _halves_to_byte_pair(kind))
        text = f"f16x2_to_{kind}x2({{0}})"
        formula(f"cvt.rn.satfinite.{kind}x2.f16x2", text, "b16", "b32")
    named_as("ue8m0x2_to_bf16x2", _byte_pair("ue8m0", "bf16"))
    formula("cvt.rn.bf16x2.ue8m0x2", "ue8m0x2_to_bf16x2({0})", "b32", "b16")


_add_small_floats()


@handler("cvt")
def _cvt(e: Emitter, i: Instruction) -> None:
    *modifiers, to, source_type = i.parts[1:]
    modifiers = [m for m in modifiers if m != "ftz"]
    if to in ("f16x2", "bf16x2") and source_type == "f32":
        high, low = (_narrowed(e.read(s, "f32"), to[:-2], modifiers) for s in i.operands[1:])
        e.write(i.operands[0], f"pack_halves({low}, {high})", "b32")
        return
    number_type(to)
    number_type(source_type)
    if not isinstance(i.operands[0], Register) or len(i.operands) != 2:
        raise PtxError("unknown form of cvt")
    value = e.read(i.operands[1], source_type)
    if source_type in _HALVES:
        value = f"{source_type}_to_f32({value})"
    if to in _HALVES:
        value = _to_half(value, to, source_type, modifiers)
    elif to in ("f32", "f64"):
        value = _to_float(value, to, modifiers)
    else:
        value = _to_integer(value, to, source_type, modifiers)
    e.write(i.operands[0], value, to)


_HALVES = ("f16", "bf16")
_FLOATS = (*_HALVES, "f32", "f64")


def _to_half(value: str, to: str, source_type: str, modifiers: list[str]) -> str:
    if source_type == "f64" and modifiers == ["rn"]:
        return f"f64_to_{to}({value})"
    if source_type in _FLOATS:
        return _narrowed(value, to, modifiers)
    return f"f64_to_{to}(({value}).astype(np.float64))"


def _to_float(value: str, to: str, modifiers: list[str]) -> str:
    unknown = set(modifiers) - {"rn", "sat"}
    if unknown:
        raise PtxError(f"unknown modifier .{unknown.pop()}")
    target = number_type(to)[0].name
    value = f"({value}).astype(np.{target})"
    if "sat" in modifiers:
        return f"np.clip(np.nan_to_num({value}), 0, 1).astype(np.{target})"
    return value


def _to_integer(value: str, to: str, source_type: str, modifiers: list[str]) -> str:
    target = number_type(to)[0].name
    if source_type in _FLOATS:
        rounding = [m for m in modifiers if m in _ROUND_INTEGER]
        if len(rounding) != 1:
            raise PtxError("no rounding to an integer given")
        return f"to_integer({_ROUND_INTEGER[rounding[0]]}({value}), np.dtype(np.{target}))"
    if "sat" in modifiers:
        return f"saturate_integer({value}, np.dtype(np.{target}))"
    return f"({value}).astype(np.{target})"


def _narrowed(value: str, kind: str, modifiers: list[str]) -> str:
    """Float32 expression -> bits of a 16-bit float."""
    known = {"rn", "rz", "relu", "satfinite"}
    unknown = set(modifiers) - known
    if unknown:
        raise PtxError(f"unknown modifier .{unknown.pop()}")
    if "satfinite" in modifiers:
        largest = _LARGEST[kind]
        value = f"keep_finite({value}, {largest})"
    if "relu" in modifiers:
        value = f"relu_floor({value})"
    if "rz" in modifiers:
        return f"toward_zero_{kind}({value})"
    return f"{_NARROW[kind]}({value})"
