"""Float arithmetic of PTX on numpy vectors, each result rounded once.

16-bit floats travel as uint16 bits. numpy rounds float16 sums and products once (they go through
fp32, which has enough bits for that); bf16 and all fused operations are made here.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

F16_NAN = np.uint16(0x7FFF)
_ONE_BYTE = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
}
_TABLES: dict[str, np.ndarray] = {}


def decode_byte(kind: str, codes: np.ndarray) -> np.ndarray:
    """Bytes of an 8-bit (or smaller) float type -> float32."""
    table = _TABLES.get(kind)
    if table is None:
        bits = {"e2m1": 4, "e2m3": 6, "e3m2": 6}.get(kind, 8)
        every = (np.arange(256) % (1 << bits)).astype(np.uint8)
        table = _TABLES[kind] = every.view(_ONE_BYTE[kind]).astype(np.float32)
    return table[codes]


def encode_byte(kind: str, values: np.ndarray) -> np.ndarray:
    """float32 -> bytes of e4m3 or e5m2, nearest even, saturating; NaN stays NaN."""
    largest = 448.0 if kind == "e4m3" else 57344.0
    clipped = np.clip(values, -largest, largest)
    return clipped.astype(_ONE_BYTE[kind]).view(np.uint8)


def round_to_odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b of float64 rounded to odd: a later rounding to at most 51 bits is then the only one."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    moved = (error != 0) & even & np.isfinite(total)
    if not moved.any():
        return total
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(moved, np.nextafter(total, toward), total)


def fma_f32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Float32 a b + c; the product is exact in float64."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return round_to_odd_sum(product, c.astype(np.float64)).astype(np.float32)


def fma_f64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Float64 a b + c by way of exact fractions; slow and rare."""
    from fractions import Fraction

    out = a * b + c
    for i in np.nonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))[0]:
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact:
            out[i] = float(exact)
    return out


def f16_to_f64(bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float16).astype(np.float64)


def f16_to_f32(bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float16).astype(np.float32)


def f64_to_f16(values: np.ndarray) -> np.ndarray:
    """Nearest even, straight from float64."""
    bits = values.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(values), F16_NAN, bits)


f32_to_f16 = f64_to_f16


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def bf16_to_f64(bits: np.ndarray) -> np.ndarray:
    return bf16_to_f32(bits).astype(np.float64)


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """Nearest even on the bits; NaN becomes 0x7fff."""
    word = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    bias = np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))
    rounded = ((word + bias) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), F16_NAN, rounded)


def f64_to_bf16(values: np.ndarray) -> np.ndarray:
    """By way of fp32 rounded to odd, so that the last rounding is the only one."""
    narrow = values.astype(np.float32)
    error = values - narrow.astype(np.float64)
    even = (narrow.view(np.uint32) & np.uint32(1)) == 0
    finite = np.isfinite(values)
    toward = np.where(error > 0, np.float32(np.inf), np.float32(-np.inf))
    overflowed = finite & np.isinf(narrow)
    moved = finite & (error != 0) & even & ~overflowed
    return f32_to_bf16(np.where(moved, np.nextafter(narrow, toward), narrow))


def truncate_f32(values: np.ndarray, kept_bits: int) -> np.ndarray:
    """Float32 with the mantissa cut to `kept_bits`: rounding toward zero."""
    mask = np.uint32(0xFFFFFFFF << (23 - kept_bits) & 0xFFFFFFFF)
    return (values.view(np.uint32) & mask).view(np.float32)


class _Sixteen:
    """Operations of one 16-bit float type on bits."""

    def __init__(self, widen, narrow) -> None:
        self.widen, self.narrow = widen, narrow

    def add(self, a, b):
        return self.narrow(round_to_odd_sum(self.widen(a), self.widen(b)))

    def sub(self, a, b):
        return self.narrow(round_to_odd_sum(self.widen(a), -self.widen(b)))

    def mul(self, a, b):
        return self.narrow(self.widen(a) * self.widen(b))

    def fma(self, a, b, c):
        return self.narrow(round_to_odd_sum(self.widen(a) * self.widen(b), self.widen(c)))

    def relu_fma(self, a, b, c):
        return self.max(self.fma(a, b, c), np.zeros_like(a))

    def max(self, a, b):
        return self.narrow(np.fmax(self.widen(a), self.widen(b)))

    def min(self, a, b):
        return self.narrow(np.fmin(self.widen(a), self.widen(b)))

    def neg(self, a):
        return a ^ np.uint16(0x8000)

    def abs(self, a):
        return a & np.uint16(0x7FFF)


SIXTEEN = {
    "f16": _Sixteen(f16_to_f64, f64_to_f16),
    "bf16": _Sixteen(bf16_to_f64, f64_to_bf16),
}


def on_pairs(kind: str, name: str):
    """The same operation on both halves of 32-bit words."""
    function = getattr(SIXTEEN[kind], name)

    def paired(*words: np.ndarray) -> np.ndarray:
        halves = function(*(np.ascontiguousarray(w).view(np.uint16) for w in words))
        return halves.view(np.uint32)

    return paired
