"""Number formats as tensors: codes of torch's small floats, exact encoding, tables of values."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from humming_runtime.contract.number_formats import NumberFormat
from humming_runtime.torch_layer.dtypes import ACTIVATION_DTYPES, ExactnessError

_SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
_BYTE_DTYPES = tuple(getattr(torch, name) for name in _SMALL_FLOATS if hasattr(torch, name))


def as_codes(values: torch.Tensor) -> torch.Tensor:
    """The bytes of torch's 8-bit floats, anything else as it is."""
    return values.view(torch.uint8) if values.dtype in _BYTE_DTYPES else values


def value_table(number: NumberFormat, device: torch.device | str = "cpu") -> torch.Tensor:
    """(codes) float64: the value of each code."""
    return torch.tensor(number.values, dtype=torch.float64, device=device)


def encode_exact(values: torch.Tensor, number: NumberFormat, place: str) -> torch.Tensor:
    """Codes (uint8) of numbers that the format has; codes and torch's 8-bit floats pass.

    Raises: ExactnessError with the first number that would be rounded, and for NaN and infinity;
    the code of e8m0's NaN passes: kernels make NaN of it.
    """
    codes = as_codes(values)
    if codes.dtype == torch.uint8:
        if number.name == "e8m0":
            return codes
        bad = torch.isin(codes, torch.tensor(number.special_codes, device=codes.device))
        if bool(bad.any()):
            at = [int(i) for i in bad.nonzero()[0]]
            raise ExactnessError(f"{place}{at}: code {codes[tuple(at)].item()} is no {number}")
        return codes
    table, order = _sorted_table(number)
    table, order = table.to(values.device), order.to(values.device)
    wanted = values.double().contiguous()
    found = torch.searchsorted(table, wanted).clamp_(max=len(table) - 1)
    kept = table[found] == wanted
    if not bool(kept.all()):
        at = [int(i) for i in (~kept).nonzero()[0]]
        value = values[tuple(at)].item()
        raise ExactnessError(
            f"{place}{at}: {value!r} ({values.dtype}) is not exact in {number} "
            f"({int((~kept).sum())} of {values.numel()} values)"
        )
    return order[found]


def weight_fault_codes(codes: torch.Tensor, number: NumberFormat, activation: str) -> str | None:
    """Why a kernel could not hold one of these codes as it is; None if it can hold all."""
    forbidden = _forbidden(number, activation)
    if not forbidden:
        return None
    bad = torch.isin(codes, torch.tensor(forbidden, dtype=codes.dtype, device=codes.device))
    if not bool(bad.any()):
        return None
    code = int(codes[bad][0])
    value = number.values[code]
    return f"code {code} of {number} is {value}, which {activation} kernels cannot hold"


@lru_cache
def _forbidden(number: NumberFormat, activation: str) -> tuple[int, ...]:
    if not number.is_float:
        return ()
    limit = torch.finfo(ACTIVATION_DTYPES[activation]).max
    return tuple(
        code
        for code, value in enumerate(number.values)
        if not math.isfinite(value) or abs(value) > limit
    )


@lru_cache
def _sorted_table(number: NumberFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """Finite values in order and their codes; of the two zeros the positive one."""
    by_value: dict[float, int] = {}
    for code, value in enumerate(number.values):
        if math.isfinite(value):
            by_value.setdefault(value, code)
    values = sorted(by_value)
    codes = torch.tensor([by_value[value] for value in values], dtype=torch.uint8)
    return torch.tensor(values, dtype=torch.float64), codes
