"""Words of variant names <-> torch dtypes, and casts that never round."""

from __future__ import annotations

import torch

from humming_runtime.errors import UsageError

ACTIVATION_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
_WORDS = {dtype: word for word, dtype in ACTIVATION_DTYPES.items()}


class ExactnessError(UsageError):
    """A value that the kernel's format cannot hold as it is."""


def activation_word(dtype: torch.dtype) -> str:
    """`f16` or `bf16`. Raises: UsageError."""
    word = _WORDS.get(dtype)
    if word is None:
        known = ", ".join(str(d) for d in _WORDS)
        raise UsageError(f"activation dtype {dtype}: no kernel computes in it (known: {known})")
    return word


def exact_cast(values: torch.Tensor, dtype: torch.dtype, place: str) -> torch.Tensor:
    """`values` in `dtype`, bit for bit the same numbers.

    Raises: ExactnessError with the first value that `dtype` would round, and for NaN and infinity.
    """
    cast = values.to(dtype)
    kept = cast.to(values.dtype) == values
    if values.is_floating_point():
        kept &= values.isfinite()
    if not bool(kept.all()):
        at = tuple(int(i) for i in (~kept).nonzero()[0])
        value = values[at].item()
        raise ExactnessError(
            f"{place}{list(at)}: {value!r} ({values.dtype}) is not exact in {dtype} "
            f"({int((~kept).sum())} of {values.numel()} values); load with another activation dtype"
        )
    return cast
