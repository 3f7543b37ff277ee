"""Number formats of weights and scales: names, codes and the values they stand for.

Weights: `u1`..`u8` (codes as stored; a signed integer v of b bits is code v + 2^(b-1)) and signed
floats `e<E>m<M>` of 3 to 8 bits, sign first. Scales: `e4m3`, `e5m2`, and without a sign `e5m3` and
`e8m0`. Exponents are biased by 2^(E-1) - 1, subnormals included; E = 0 is sign and magnitude. Every
code is a finite number except: e4m3 0x7f and 0xff (NaN, the `fn` kind), e5m2 with all exponent bits
set (infinities, NaN; IEEE), e8m0 0xff (NaN). Source: OCP OFP8 1.0 and OCP MX 1.0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

_INTEGER = re.compile(r"u([1-8])")
_FLOAT = re.compile(r"e(\d)m(\d)")
LEAST_FLOAT_BITS, MOST_BITS = 3, 8
UNSIGNED_SCALES = ("e5m3", "e8m0")
BYTE_SCALES = ("e4m3", "e5m2", *UNSIGNED_SCALES)
"""Scale dtypes of one byte each."""
SCALE_BYTES = {"f16": 2, "bf16": 2, "f32": 4, **dict.fromkeys(BYTE_SCALES, 1)}
_BIAS_E8M0 = 127
ACTIVATION_EXPONENT_BITS = {"f16": 5, "bf16": 8}


class NumberFormatError(ValueError):
    """A text that names no number format."""


@dataclass(frozen=True)
class NumberFormat:
    """exponent_bits None: an unsigned integer. `str()` and `parse` are inverse."""

    name: str
    bits: int
    exponent_bits: int | None = None
    mantissa_bits: int = 0
    signed: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.exponent_bits is not None

    @property
    def bias(self) -> int:
        """Of the exponent; 0 for integers and for sign and magnitude."""
        if self.name == "e8m0":
            return _BIAS_E8M0
        return (1 << (self.exponent_bits - 1)) - 1 if self.exponent_bits else 0

    @property
    def midpoint(self) -> int:
        """Code of zero where no zero point is stored; floats have none, their zero is code 0."""
        return 0 if self.is_float else 1 << (self.bits - 1)

    @property
    def codes(self) -> int:
        return 1 << self.bits

    @cached_property
    def values(self) -> tuple[float, ...]:
        """Value of each code; NaN and infinities where the format has them."""
        return tuple(self._value(code) for code in range(self.codes))

    @cached_property
    def special_codes(self) -> tuple[int, ...]:
        """Codes that stand for no finite number."""
        return tuple(code for code, value in enumerate(self.values) if not math.isfinite(value))

    @cached_property
    def largest(self) -> float:
        return max(value for value in self.values if math.isfinite(value))

    def nearest(self, value: float) -> int:
        """Code of the nearest value: ties to the even code, beyond the ends the end's code.

        Raises: ValueError for NaN.
        """
        if math.isnan(value):
            raise ValueError(f"{self.name}: NaN is near no code")
        finite = [code for code, known in enumerate(self.values) if math.isfinite(known)]
        sign = math.copysign(1.0, value)

        def distance(code: int) -> tuple[float, int, bool]:
            known = self.values[code]
            away = abs(known - max(-self.largest, min(value, self.largest)))
            return away, code & 1, math.copysign(1.0, known) != sign

        return min(finite, key=distance)

    def _value(self, code: int) -> float:
        exponent_bits = self.exponent_bits
        if exponent_bits is None:
            return float(code)
        magnitude = code & ((1 << (self.bits - 1)) - 1) if self.signed else code
        sign = -1.0 if magnitude != code else 1.0
        exponent, mantissa = divmod(magnitude, 1 << self.mantissa_bits)
        if self.name == "e8m0":
            return math.nan if code == self.codes - 1 else math.ldexp(1.0, code - _BIAS_E8M0)
        if self.name == "e4m3" and magnitude == 0x7F:
            return math.nan
        if self.name == "e5m2" and exponent == 0x1F:
            return math.nan if mantissa else sign * math.inf
        if exponent_bits == 0:
            return sign * mantissa
        if exponent == 0:
            return sign * math.ldexp(mantissa, 1 - self.bias - self.mantissa_bits)
        whole = mantissa + (1 << self.mantissa_bits)
        return sign * math.ldexp(whole, exponent - self.bias - self.mantissa_bits)


@lru_cache(maxsize=128)
def weight_format(name: str) -> NumberFormat:
    """Format of weights. Raises: NumberFormatError."""
    integer = _INTEGER.fullmatch(name)
    if integer is not None:
        return NumberFormat(name, int(integer[1]))
    found = _FLOAT.fullmatch(name)
    if found is not None:
        exponent, mantissa = int(found[1]), int(found[2])
        bits = 1 + exponent + mantissa
        if LEAST_FLOAT_BITS <= bits <= MOST_BITS:
            return NumberFormat(name, bits, exponent, mantissa, signed=True)
        limits = f"{LEAST_FLOAT_BITS} to {MOST_BITS}"
        raise NumberFormatError(f"{name!r} has {bits} bits with its sign, weights have {limits}")
    raise NumberFormatError(f"{name!r} is no weight format (examples: u4, u8, e2m1, e4m3)")


@lru_cache(maxsize=16)
def byte_scale_format(name: str) -> NumberFormat:
    """Format of scales of one byte. Raises: NumberFormatError."""
    if name not in BYTE_SCALES:
        known = ", ".join(BYTE_SCALES)
        raise NumberFormatError(f"{name!r} is no scale format of one byte (known: {known})")
    exponent, mantissa = int(name[1]), int(name[3])
    return NumberFormat(name, 8, exponent, mantissa, signed=name not in UNSIGNED_SCALES)


def weight_fault(weight: str, activation: str) -> str | None:
    """Why no kernel multiplies these weights with activations of that dtype; None if one can."""
    found = weight_format(weight)
    limit = ACTIVATION_EXPONENT_BITS.get(activation)
    if limit is None:
        return f"activations {activation} are not known (known: f16, bf16)"
    if found.exponent_bits is not None and found.exponent_bits > limit:
        return f"{weight} has {found.exponent_bits} exponent bits, {activation} holds {limit}"
    return None


def every_weight_format() -> tuple[NumberFormat, ...]:
    """Integers by width, then floats by width and exponent."""
    names = [f"u{bits}" for bits in range(1, MOST_BITS + 1)]
    for bits in range(LEAST_FLOAT_BITS, MOST_BITS + 1):
        names += [f"e{exponent}m{bits - 1 - exponent}" for exponent in range(bits)]
    return tuple(weight_format(name) for name in names)
