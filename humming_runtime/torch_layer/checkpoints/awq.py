"""AWQ tensors (version gemm): qweight (K, N / 8), qzeros (G, N / 8), scales (G, N).

Nibbles 0..7 of a word hold columns 0, 2, 4, 6, 1, 3, 5, 7; zero points are stored as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from humming_runtime.torch_layer.checkpoints.faults import (
    CheckpointError,
    Config,
    Tensors,
    check_bits,
    check_names,
    check_tensor,
    config_value,
    group_size_of,
    groups_along,
)
from humming_runtime.torch_layer.checkpoints.words import AWQ_ORDER, CODES_PER_WORD, WordsAlongRows
from humming_runtime.torch_layer.packing import Matrix, RowSource, WeightSource

_OLD_KEYS = {"w_bit": "bits", "q_group_size": "group_size"}


@dataclass(frozen=True)
class AwqScheme:
    """group_size None: one scale a channel. symmetric: zero point 8 whatever qzeros hold."""

    group_size: int | None
    symmetric: bool = False
    required: ClassVar[tuple[str, ...]] = ("qweight", "scales")
    optional: ClassVar[tuple[str, ...]] = ("qzeros", "bias")

    def source(self, tensors: Tensors, place: str) -> WeightSource:
        """Raises: CheckpointError for tensors that do not fit together."""
        needed = self.required if self.symmetric else (*self.required, "qzeros")
        check_names(tensors, needed, self.optional, place)
        words = tensors["qweight"]
        if words.dim() != 2:
            raise CheckpointError(f"{place}: qweight has {words.dim()} dimensions, expected 2")
        k, octets = words.shape
        n = octets * CODES_PER_WORD
        words = check_tensor(tensors, "qweight", (k, octets), place, words=True)
        groups = groups_along(k, self.group_size)
        scales = check_tensor(tensors, "scales", (groups, n), place)
        zero: RowSource | None = None
        if not self.symmetric:
            stored = check_tensor(tensors, "qzeros", (groups, octets), place, words=True)
            zero = WordsAlongRows(stored, AWQ_ORDER)
        return WeightSource(
            n,
            k,
            self.group_size,
            WordsAlongRows(words, AWQ_ORDER),
            Matrix(scales.t()),
            zero,
        )


def awq_scheme(config: Config, prefix: str, place: str) -> AwqScheme:
    """The scheme of module `prefix`. Raises: CheckpointError."""
    named = {_OLD_KEYS.get(key, key): value for key, value in config.items()}
    skipped = [name for name in named.get("modules_to_not_convert") or () if name in prefix]
    if skipped:
        raise CheckpointError(f"{place}: not quantized (modules_to_not_convert {skipped[0]!r})")
    check_bits(config_value(named, "bits", int, place), place)
    version = str(named.get("version") or named.get("checkpoint_format") or "gemm").lower()
    if version != "gemm":
        raise CheckpointError(f"{place}: AWQ version {version!r} (known: 'gemm')")
    return AwqScheme(
        group_size_of(config_value(named, "group_size", int, place), place),
        symmetric=not config_value(named, "zero_point", bool, place, default=True),
    )
