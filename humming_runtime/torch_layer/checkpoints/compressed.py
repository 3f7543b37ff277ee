"""compressed-tensors `pack-quantized`: weight_packed (N, K / 8) along K, codes offset by 8.

weight_scale (N, G) or (N, 1); weight_zero_point (N / 8, G), packed along N with the same offset;
weight_shape holds (N, K); weight_g_idx (K) where act-order kept its groups.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

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
    WordsAlongColumns,
    WordsAlongRows,
)
from humming_runtime.torch_layer.packing import Matrix, RowSource, WeightSource
from humming_runtime.torch_layer.weight_format import check_size

_FORMAT = "pack-quantized"
_MODULE_CLASS = "Linear"


@dataclass(frozen=True)
class CompressedScheme:
    """group_size None: one scale a channel."""

    group_size: int | None
    symmetric: bool
    required: ClassVar[tuple[str, ...]] = ("weight_packed", "weight_scale", "weight_shape")
    optional: ClassVar[tuple[str, ...]] = ("weight_zero_point", "weight_g_idx", "bias")

    def source(self, tensors: Tensors, place: str) -> WeightSource:
        """Raises: CheckpointError for tensors that do not fit together, and for act-order."""
        extra = () if self.symmetric else ("weight_zero_point",)
        optional = [n for n in self.optional if not (self.symmetric and n == "weight_zero_point")]
        check_names(tensors, (*self.required, *extra), optional, place)
        n, k = (int(v) for v in check_tensor(tensors, "weight_shape", (2,), place))
        check_size(n, k)
        shape = n, k // CODES_PER_WORD
        words = check_tensor(tensors, "weight_packed", shape, place, words=True)
        groups = groups_along(k, self.group_size)
        scales = check_tensor(tensors, "weight_scale", (n, groups), place)
        check_order(tensors, "weight_g_idx", k, self.group_size, place)
        zero: RowSource | None = None
        if not self.symmetric:
            shape = n // CODES_PER_WORD, groups
            stored = check_tensor(tensors, "weight_zero_point", shape, place, words=True)
            zero = WordsAlongRows(stored, leading=True)
        return WeightSource(n, k, self.group_size, WordsAlongColumns(words), Matrix(scales), zero)


def compressed_scheme(config: Config, prefix: str, place: str) -> CompressedScheme:
    """The scheme of module `prefix`. Raises: CheckpointError."""
    ignored = next((t for t in config.get("ignore") or () if _matches(t, prefix)), None)
    if ignored is not None:
        raise CheckpointError(f"{place}: not quantized (ignore {ignored!r})")
    group = _group_of(config, prefix, place)
    form = group.get("format") or config.get("format")
    if form != _FORMAT:
        raise CheckpointError(f"{place}: compressed-tensors format {form!r} (known: {_FORMAT!r})")
    for key in ("input_activations", "output_activations"):
        if group.get(key) is not None:
            raise CheckpointError(f"{place}: {key} are quantized; this version reads weights only")
    return _scheme_of(config_value(group, "weights", dict, place), place)


def _scheme_of(weights: Config, place: str) -> CompressedScheme:
    check_bits(config_value(weights, "num_bits", int, place), place)
    kind = config_value(weights, "type", str, place, default="int")
    strategy = config_value(weights, "strategy", str, place)
    if kind != "int" or strategy not in ("group", "channel"):
        raise CheckpointError(
            f"{place}: {kind} weights with strategy {strategy!r} (known: int with group, channel)"
        )
    size = None
    if strategy == "group":
        size = group_size_of(config_value(weights, "group_size", int, place), place)
    return CompressedScheme(size, config_value(weights, "symmetric", bool, place, default=True))


def _group_of(config: Config, prefix: str, place: str) -> Config:
    """The group whose target is the module's name, a pattern that matches it, or its class."""
    groups = config_value(config, "config_groups", dict, place)
    ranked: list[tuple[int, Any]] = []
    for group in groups.values():
        for target in group.get("targets") or ():
            if target == _MODULE_CLASS:
                ranked.append((1, group))
            elif _matches(target, prefix):
                ranked.append((0, group))
    if not ranked:
        raise CheckpointError(f"{place}: no group of quantization_config targets it")
    found: Config = min(ranked, key=lambda entry: entry[0])[1]
    return found


def _matches(target: str, prefix: str) -> bool:
    if target.startswith("re:"):
        return re.match(target.removeprefix("re:"), prefix) is not None
    return target == prefix
