"""Matrix instructions on fragments: which lane holds which element, and the products.

Products are exact in float64, and so is nearly every sum of them; one rounding to fp32 an
instruction. Hardware truncates while it adds: results differ in the last bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from . import floats

LANES = 32
_G, _T = np.arange(LANES) // 4, np.arange(LANES) % 4
WIDEN = {
    "f16": (16, floats.f16_to_f64),
    "bf16": (16, floats.bf16_to_f64),
    "e4m3": (8, lambda bits: floats.decode_byte("e4m3", bits).astype(np.float64)),
    "e5m2": (8, lambda bits: floats.decode_byte("e5m2", bits).astype(np.float64)),
    "s8": (8, lambda bits: bits.view(np.int8).astype(np.float64)),
    "u8": (8, lambda bits: bits.astype(np.float64)),
    "tf32": (32, lambda bits: floats.truncate_f32(bits.view(np.float32), 10).astype(np.float64)),
}


@lru_cache
def a_index(registers: int, bits: int) -> np.ndarray:
    """Place in [register][lane][element] of each element of A (16, k)."""
    per = 32 // bits
    k = per * 4 * max(1, registers // 2)
    out = np.zeros((16, k), np.int64)
    for r in range(registers):
        for e in range(per):
            rows, columns = _G + 8 * (r & 1), _T * per + e + 4 * per * (r >> 1)
            out[rows, columns] = (r * LANES + np.arange(LANES)) * per + e
    return out


@lru_cache
def b_index(registers: int, bits: int) -> np.ndarray:
    """Place in [register][lane][element] of each element of B (k, 8)."""
    per = 32 // bits
    out = np.zeros((per * 4 * registers, 8), np.int64)
    for r in range(registers):
        for e in range(per):
            out[_T * per + e + 4 * per * r, _G] = (r * LANES + np.arange(LANES)) * per + e
    return out


@lru_cache
def sum_index(n: int) -> np.ndarray:
    """Place in (16, n) of each [register][lane] of the sums: n / 2 registers."""
    out = np.zeros((n // 2, LANES), np.int64)
    for r in range(n // 2):
        rows, columns = _G + 8 * (r >> 1 & 1), 8 * (r >> 2) + 2 * _T + (r & 1)
        out[r] = rows * n + columns
    return out


def _elements(registers, bits: int) -> np.ndarray:
    words = np.concatenate(registers)
    return words if bits == 32 else words.view(f"u{bits // 8}")


def mma(kind_a: str, kind_b: str, a, b, c) -> list[np.ndarray]:
    """D (16, 8) = A B + C with fp32 sums. a, b, c: registers as uint32 vectors."""
    (bits, widen_a), (_, widen_b) = WIDEN[kind_a], WIDEN[kind_b]
    left = widen_a(_elements(a, bits))[a_index(len(a), bits)]
    right = widen_b(_elements(b, bits))[b_index(len(b), bits)]
    product = left @ right
    index = sum_index(8)
    sums = product.ravel()[index] + np.stack(c).view(np.float32)
    return list(sums.astype(np.float32).view(np.uint32))


def mma_integers(kind_a: str, kind_b: str, a, b, c) -> list[np.ndarray]:
    """D (16, 8) = A B + C in int32, wrapping."""
    (bits, widen_a), (_, widen_b) = WIDEN[kind_a], WIDEN[kind_b]
    left = widen_a(_elements(a, bits))[a_index(len(a), bits)]
    right = widen_b(_elements(b, bits))[b_index(len(b), bits)]
    product = (left @ right).astype(np.int64).ravel()[sum_index(8)]
    return list((product + np.stack(c).view(np.int32)).astype(np.int32).view(np.uint32))


def rows_of(kind: str, registers) -> np.ndarray:
    """A warp's 16 rows of A as float64."""
    bits, widen = WIDEN[kind]
    return widen(_elements(registers, bits))[a_index(len(registers), bits)]


def add_product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """16 rows of D (64, n): a warp's. Shapes: a (16, k), b (n, k), c (n / 2, 32) fp32 or int32."""
    product = (a @ b.T).ravel()[sum_index(len(b))]
    if c.dtype.kind == "i":
        return (product.astype(np.int64) + c).astype(np.int32)
    return (product + c).astype(np.float32)
