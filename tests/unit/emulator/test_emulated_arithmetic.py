"""Arithmetic that is easy to get wrong, against exact fractions, ml_dtypes and plain loops."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from emulator import floats, instructions_arithmetic, matrix  # noqa: E402
from emulator.instructions_matrix import descriptor_places  # noqa: E402
from emulator.tensor_copy import swizzled  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NUMPY_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def bits_of(rng, count: int):
    """Finite 16-bit patterns, ends and subnormals among them."""
    bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    bits[:6] = [0x0000, 0x8000, 0x0001, 0x8001, 0x3C00, 0x3F80]
    return bits


def exact_rounding(value: Fraction, kind: str) -> int:
    """Nearest even by search among neighbours of a first guess."""
    dtype = NUMPY_TYPES[kind]
    guess = np.array(float(value)).astype(dtype).view(np.uint16).item()
    best = None
    for step in (-1, 0, 1):
        code = guess & 0x7FFF
        if not 0 <= code + step <= 0x7F7F + (0x47F if kind == "f16" else 0):
            continue
        near = np.uint16((guess & 0x8000) | (code + step))
        number = float(near.reshape(1).view(dtype)[0])
        if not np.isfinite(number):
            continue
        key = abs(Fraction(number) - value), near & 1
        if best is None or key < best[0]:
            best = key, int(near)
    assert best is not None
    return best[1]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_fma_rounds_once(kind):
    rng = np.random.default_rng(1)
    a, b, c = (bits_of(rng, 3000) for _ in range(3))
    # sums where the product decides a tie of the addend
    c[1000:2000] = rng.integers(0x3F80, 0x3FFF, 1000, dtype=np.uint16)
    a[1000:2000] = rng.integers(0x0C00, 0x3C00, 1000, dtype=np.uint16)
    got = floats.SIXTEEN[kind].fma(a, b, c)
    wide = [x.view(NUMPY_TYPES[kind]).astype(np.float64) for x in (a, b, c)]
    checked = 0
    for x, y, z, bits in zip(*wide, got, strict=True):
        if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        limit = 65504 if kind == "f16" else 3.38e38
        if exact == 0 or abs(exact) > limit:
            continue
        assert int(bits) == exact_rounding(exact, kind)
        checked += 1
    assert checked > 1000


def test_a_sum_that_two_roundings_get_wrong():
    """1 + 2^-8 + 2^-60 is just above a tie of bf16; float32 in between would lose that."""
    a = np.uint16([0x3F80])  # 1
    tiny = np.array([2.0**-60]).astype(ml_dtypes.bfloat16).view(np.uint16)
    tie = np.array([2.0**-8]).astype(ml_dtypes.bfloat16).view(np.uint16)
    sums = floats.f64_to_bf16(
        floats.round_to_odd_sum(np.array([1 + 2.0**-8]), np.array([2.0**-60]))
    )
    assert sums[0] == 0x3F81
    assert floats.SIXTEEN["bf16"].fma(tie, a, a)[0] == 0x3F80
    assert floats.SIXTEEN["bf16"].add(a, tiny)[0] == 0x3F80


def test_fp32_fma_rounds_once():
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(4000).astype(np.float32) for _ in range(2))
    c = (-a.astype(np.float64) * b).astype(np.float32) + np.float32(1e-9)
    got = floats.fma_f32(a, b, c)
    for x, y, z, d in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        neighbours = [np.nextafter(d, np.float32(s) * np.float32(np.inf)) for s in (-1, 1)]
        error = abs(Fraction(float(d)) - exact)
        assert all(error <= abs(Fraction(float(other)) - exact) for other in neighbours)


def test_conversions_to_bf16_and_f16_are_nearest_even():
    rng = np.random.default_rng(3)
    values = rng.integers(0, 1 << 32, 50_000, dtype=np.uint32).view(np.float32)
    values[:3] = [np.inf, -np.inf, 3.4e38]
    with np.errstate(all="ignore"):
        finite = ~np.isnan(values)
        wanted = values.astype(ml_dtypes.bfloat16).view(np.uint16)
        assert (floats.f32_to_bf16(values)[finite] == wanted[finite]).all()
        assert (floats.f64_to_bf16(values.astype(np.float64))[finite] == wanted[finite]).all()
        wanted = values.astype(np.float16).view(np.uint16)
        assert (floats.f32_to_f16(values)[finite] == wanted[finite]).all()
    assert (floats.f32_to_bf16(values[~finite]) == 0x7FFF).all()


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_eight_bit_floats(kind):
    codes = np.arange(256, dtype=np.uint8)
    values = floats.decode_byte(kind, codes)
    numbers = np.isfinite(values)
    assert (floats.encode_byte(kind, values[numbers]) == codes[numbers]).all()
    assert floats.decode_byte(kind, floats.encode_byte(kind, np.float32([1e9])))[0] in (448, 57344)


def test_scales_of_eight_exponent_bits():
    assert (floats.decode_byte("ue8m0", np.uint8([0, 127, 254])) == [2.0**-127, 1, 2.0**127]).all()


def test_byte_permutation():
    a, b = np.uint32([0x83828180]), np.uint32([0x07060504])
    for selector, wanted in (
        (0x3210, 0x83828180),
        (0x7654, 0x07060504),
        (0x1010, 0x81808180),
        (0x9C48, 0xFF0004FF),
    ):
        got = instructions_arithmetic.byte_permute(a, b, np.uint32([selector]))
        assert got[0] == wanted, hex(selector)


@pytest.mark.parametrize(
    "table", [0xEA, 0xC0, 0x96, 0x3C, 0x00, 0xFF, 0xE4, 0xD8, 0xCA, 0xB8, 0x6A, 0x78, 0xF8, 0x1B]
)
def test_logic_of_three_inputs(table):
    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(0, 1 << 32, 64, dtype=np.uint32) for _ in range(3))
    expression = instructions_arithmetic.logic_expression(table).format("a", "b", "c")
    got = eval(expression, {"a": a, "b": b, "c": c})
    wanted = np.zeros_like(a)
    for bit in range(32):
        index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
        wanted |= (np.uint32(table) >> index & 1) << np.uint32(bit)
    assert (got == wanted).all()


def test_bit_fields():
    value = np.uint32([0xABCD1234])
    dtype = np.dtype(np.uint32)
    extract = instructions_arithmetic.extract_bits
    assert extract(value, np.uint32([8]), np.uint32([8]), dtype)[0] == 0x12
    assert extract(value, np.uint32([28]), np.uint32([8]), dtype)[0] == 0xA
    assert extract(value, np.uint32([0]), np.uint32([32]), dtype)[0] == 0xABCD1234
    assert extract(value, np.uint32([0]), np.uint32([0]), dtype)[0] == 0
    signed = extract(value.view(np.int32), np.uint32([12]), np.uint32([8]), np.dtype(np.int32))
    assert signed[0] == -47  # 0xd1
    insert = instructions_arithmetic.insert_bits
    assert insert(np.uint32([0xFF]), value, np.uint32([4]), np.uint32([4]))[0] == 0xABCD12F4
    assert insert(np.uint32([7]), value, np.uint32([31]), np.uint32([4]))[0] == 0xABCD1234 | 1 << 31


def test_integer_division_truncates():
    a, b = np.int32([-7, 7, -7, 7]), np.int32([2, 2, -2, -2])
    assert (instructions_arithmetic.divide(a, b) == [-3, 3, 3, -3]).all()
    assert (instructions_arithmetic.remainder(a, b) == [-1, 1, -1, 1]).all()


def test_shifts_of_more_than_the_width():
    a = np.int32([-8, 8])
    assert (instructions_arithmetic.shift_right(a, np.uint32([40, 40])) == [-1, 0]).all()
    assert (instructions_arithmetic.shift_left(a.view(np.uint32), np.uint32([32, 99])) == 0).all()


def test_integers_from_floats_saturate():
    values = np.float32([1e20, -1e20, np.nan, 2.5, -3.0])
    got = instructions_arithmetic.to_integer(np.rint(values), np.dtype(np.int32))
    assert (got == [2**31 - 1, -(2**31), 0, 2, -3]).all()


def test_a_swizzle_is_a_bijection_that_keeps_chunks():
    addresses = np.arange(2048)
    for width in (32, 64, 128):
        moved = swizzled(addresses, width)
        assert sorted(moved) == list(addresses)
        assert (moved % 16 == addresses % 16).all()
        assert (moved // width == addresses // width).all()
    assert swizzled(np.array([128 * 3 + 16 * 5]), 128)[0] == 128 * 3 + 16 * (5 ^ 3)


def test_operands_of_wgmma_lie_where_a_swizzled_copy_puts_them():
    descriptor = 0x1000 >> 4 | 1 << 16 | (1024 >> 4) << 32 | 1 << 62
    places = descriptor_places(descriptor + 2, 16, 32)  # the second k16 step
    plain = 0x1000 + np.arange(16)[:, None] * 128 + 32 + np.arange(32)[None]
    assert (places == swizzled(plain, 128)).all()


@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "s8"])
def test_matrix_fragments(kind):
    """Fragments built by the rule of the PTX manual, one element at a time."""
    bits, widen = matrix.WIDEN[kind]
    per = 32 // bits
    k = 8 * per
    rng = np.random.default_rng(5)
    high = 0x40 if bits == 8 else 0x4000
    a = rng.integers(0, high, (16, k)).astype(f"u{bits // 8}")
    b = rng.integers(0, high, (k, 8)).astype(f"u{bits // 8}")
    a_words = np.zeros((4, 32, per), a.dtype)
    b_words = np.zeros((2, 32, per), a.dtype)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for r in range(4):
            for e in range(per):
                a_words[r, lane, e] = a[g + 8 * (r % 2), t * per + e + (k // 2) * (r // 2)]
        for r in range(2):
            for e in range(per):
                b_words[r, lane, e] = b[t * per + e + (k // 2) * r, g]
    registers = [list(w.reshape(w.shape[0], -1).view(np.uint32)) for w in (a_words, b_words)]
    zeros = [np.zeros(32, np.uint32)] * 4
    run = matrix.mma_integers if kind == "s8" else matrix.mma
    got = run(kind, kind, *registers, zeros)
    wanted = widen(a.ravel()).reshape(16, k) @ widen(b.ravel()).reshape(k, 8)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for r in range(4):
            value = got[r][lane : lane + 1].view(np.int32 if kind == "s8" else np.float32)[0]
            assert value == np.float32(wanted[g + 8 * (r // 2), 2 * t + r % 2])
