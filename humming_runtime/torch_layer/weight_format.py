"""What packed weights are: everything a kernel needs to know about them except their size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import torch

from humming_runtime.contract import layouts
from humming_runtime.contract.variant_name import ScaleScheme, VariantNameError
from humming_runtime.errors import ContractError, UsageError
from humming_runtime.torch_layer.dtypes import ACTIVATION_DTYPES, activation_word

MIDPOINT_U4 = 8
_SCALE_LAYOUT = "rows16"
_CONFIG = re.compile(
    r"(?P<activation>f16|bf16)_(?P<weight>u4)_(?P<scale>[a-z0-9]+)"
    r"_(?P<layout>[a-z]+\d+)v(?P<version>\d+)_(?P<scale_layout>[a-z]+\d+)v(?P<scale_version>\d+)"
)


class LayoutError(ContractError):
    """Weights were packed in a layout, or a version of one, that this runtime does not read."""


@dataclass(frozen=True)
class WeightFormat:
    """Dtype words as in variant names; layouts with their versions, as stored with the weights.

    `str()` and `parse` are inverse. The text is the same in every process, so that it can be a
    constant of a compiled graph.
    """

    activation: str
    scale: ScaleScheme
    weight: str = "u4"
    layout: str = layouts.FRAG16
    layout_version: int = layouts.LAYOUT_VERSIONS[layouts.FRAG16]
    scale_layout: str = _SCALE_LAYOUT
    scale_layout_version: int = layouts.LAYOUT_VERSIONS[_SCALE_LAYOUT]

    def __str__(self) -> str:
        return (
            f"{self.activation}_{self.weight}_{self.scale}_{self.layout}v{self.layout_version}"
            f"_{self.scale_layout}v{self.scale_layout_version}"
        )

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> WeightFormat:
        """Raises: UsageError for a text that is none, LayoutError for another layout version."""
        match = _CONFIG.fullmatch(text)
        if match is None:
            example = "f16_u4_g128zf16_frag16v1_rows16v1"
            raise UsageError(f"{text!r} is no weight format (example: {example})")
        try:
            scale = ScaleScheme.parse(match["scale"])
        except VariantNameError as error:
            raise UsageError(f"weight format {text!r}: {error}") from error
        found = WeightFormat(
            match["activation"],
            scale,
            match["weight"],
            match["layout"],
            int(match["version"]),
            match["scale_layout"],
            int(match["scale_version"]),
        )
        found.check_layouts()
        return found

    @property
    def activation_dtype(self) -> torch.dtype:
        return ACTIVATION_DTYPES[self.activation]

    @property
    def group_size(self) -> int | None:
        """Elements of k that share a scale; None: the whole channel."""
        return self.scale.group_size

    @property
    def has_zero_point(self) -> bool:
        return bool(self.scale.zero_point)

    def check_layouts(self) -> None:
        """Raises: LayoutError that names the layout, both versions and what to do."""
        stored = {
            self.layout: self.layout_version,
            self.scale_layout: self.scale_layout_version,
        }
        for layout, version in stored.items():
            known = layouts.LAYOUT_VERSIONS.get(layout)
            if known != version:
                reads = "none of that name" if known is None else f"version {known}"
                raise LayoutError(
                    f"packed in layout {layout} version {version}, this runtime reads {reads}; "
                    "pack again from the checkpoint"
                )


def u4_format(activation: torch.dtype, group_size: int | None, *, zero_point: bool) -> WeightFormat:
    """4-bit weights with group scales in the activation dtype, or fp32 channel scales (None)."""
    word = activation_word(activation)
    zero = "z" if zero_point else ""
    if group_size is None:
        return WeightFormat(word, ScaleScheme("ch", zero_point=zero))
    step = layouts.SCALE_STEP_K
    if group_size < 1 or (step % group_size and group_size % step):
        raise UsageError(f"group_size is {group_size}, neither a divisor nor a multiple of {step}")
    return WeightFormat(word, ScaleScheme("g", group_size, zero_point=zero, dtype=word))


def check_size(n: int, k: int) -> None:
    """Raises: UsageError where n or k is no positive multiple of 8, all faults at once."""
    faults = [
        f"{name} is {value}, no positive multiple of 8"
        for name, value in (("n", n), ("k", k))
        if value < 1 or value % 8
    ]
    if faults:
        raise UsageError("weights: " + "; ".join(faults))
