"""GPTQ tensors: qweight (K / 8, N), qzeros (G, N / 8) in words of 8, scales (G, N), g_idx (K).

Version 1 (`gptq`) stores the zero point minus one, version 2 (`gptq_v2`) as it is. Symmetric
checkpoints have zero point 8 whatever qzeros hold: some writers follow the other version's rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from humming_runtime.torch_layer.checkpoints.faults import (
    CheckpointError,
    Config,
    Tensors,
    check_bits,
    check_names,
    check_order,
    check_tensor,
    config_value,
    group_size_of,
    groups_along,
)
from humming_runtime.torch_layer.checkpoints.words import (
    CODES_PER_WORD,
    Raised,
    WordsAlongRows,
    WordsDownColumns,
)
from humming_runtime.torch_layer.packing import Matrix, RowSource, WeightSource

_ZERO_OFFSETS = {"gptq": 1, "gptq_v2": 0}


@dataclass(frozen=True)
class GptqScheme:
    """group_size None: one scale a channel. zero_offset: true zero point minus the stored one."""

    group_size: int | None
    symmetric: bool
    zero_offset: int = 1
    required: ClassVar[tuple[str, ...]] = ("qweight", "scales")
    optional: ClassVar[tuple[str, ...]] = ("g_idx", "qzeros", "bias")

    def source(self, tensors: Tensors, place: str) -> WeightSource:
        """Raises: CheckpointError for tensors that do not fit together, and for act-order."""
        needed = self.required if self.symmetric else (*self.required, "qzeros")
        check_names(tensors, needed, self.optional, place)
        words = tensors["qweight"]
        if words.dim() != 2:
            raise CheckpointError(f"{place}: qweight has {words.dim()} dimensions, expected 2")
        n, k = words.shape[1], words.shape[0] * CODES_PER_WORD
        words = check_tensor(tensors, "qweight", (k // CODES_PER_WORD, n), place, words=True)
        groups = groups_along(k, self.group_size)
        scales = check_tensor(tensors, "scales", (groups, n), place)
        check_order(tensors, "g_idx", k, self.group_size, place)
        zero: RowSource | None = None
        if not self.symmetric:
            shape = groups, n // CODES_PER_WORD
            stored = check_tensor(tensors, "qzeros", shape, place, words=True)
            zero = Raised(WordsAlongRows(stored), self.zero_offset)
        codes = WordsDownColumns(words)
        return WeightSource(n, k, self.group_size, codes, Matrix(scales.t()), zero)


def gptq_scheme(config: Config, prefix: str, place: str) -> GptqScheme:
    """The scheme of module `prefix`, its entry of `dynamic` included. Raises: CheckpointError."""
    merged = {**config, **_override(config, prefix, place)}
    check_bits(config_value(merged, "bits", int, place), place)
    form = merged.get("checkpoint_format") or merged.get("format") or "gptq"
    if form not in _ZERO_OFFSETS:
        known = ", ".join(_ZERO_OFFSETS)
        raise CheckpointError(f"{place}: GPTQ checkpoint_format {form!r} (known: {known})")
    return GptqScheme(
        group_size_of(config_value(merged, "group_size", int, place), place),
        config_value(merged, "sym", bool, place, default=True),
        _ZERO_OFFSETS[form],
    )


def _override(config: Config, prefix: str, place: str) -> Config:
    """`dynamic` maps patterns to overrides; a pattern that begins with `-:` excludes modules."""
    for pattern, values in (config.get("dynamic") or {}).items():
        excluded = pattern.startswith("-:")
        if not re.match(pattern.removeprefix("-:").removeprefix("+:"), prefix):
            continue
        if excluded:
            raise CheckpointError(f"{place}: not quantized (dynamic {pattern!r})")
        overrides: Config = values or {}
        return overrides
    return {}
