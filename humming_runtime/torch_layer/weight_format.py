"""What packed weights are: everything a kernel needs to know about them except their size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import torch

from humming_runtime.contract import layouts
from humming_runtime.contract.number_formats import (
    BYTE_SCALES,
    NumberFormat,
    NumberFormatError,
    weight_fault,
    weight_format,
)
from humming_runtime.contract.variant_name import ScaleScheme, VariantNameError, ZeroPoint
from humming_runtime.errors import ContractError, UsageError
from humming_runtime.torch_layer.dtypes import ACTIVATION_DTYPES, activation_word

LEAST_GROUP = 16
"""Elements of k of one matrix step."""
SCALE_STORAGE = {
    **ACTIVATION_DTYPES,
    "f32": torch.float32,
    **dict.fromkeys(BYTE_SCALES, torch.uint8),
}
_TWO_LEVEL_SCALES = ("e4m3", "e5m2", "e5m3")
_SCALE_LAYOUT = "rows16"
_CONFIG = re.compile(
    r"(?P<activation>f16|bf16)_(?P<weight>u\d|e\dm\d)_(?P<scale>[a-z0-9]+)"
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
            fault = weight_fault(match["weight"], match["activation"])
        except (VariantNameError, NumberFormatError) as error:
            raise UsageError(f"weight format {text!r}: {error}") from error
        if fault is not None:
            raise UsageError(f"weight format {text!r}: {fault}")
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
    def number(self) -> NumberFormat:
        """What the codes stand for."""
        return weight_format(self.weight)

    @property
    def scale_storage(self) -> torch.dtype:
        """Of group scales; formats of one byte are stored as their codes, in uint8."""
        return SCALE_STORAGE[self.scale.dtype or self.activation]

    @property
    def zero_storage(self) -> torch.dtype | None:
        """Of zero points; None where the format has none."""
        return {
            ZeroPoint.NONE.value: None,
            ZeroPoint.INTEGER.value: torch.uint8,
            ZeroPoint.FLOAT.value: self.activation_dtype,
        }[self.scale.zero_point]

    @property
    def has_channel_scale(self) -> bool:
        """An fp32 scale a channel: the only one, or the second beside small floats (NVFP4)."""
        return self.group_size is None or self.scale.dtype in _TWO_LEVEL_SCALES

    @property
    def multiplies_weights(self) -> bool:
        """May kernels multiply each weight with its group's scale, in the activation dtype?"""
        return self.scale.dtype == self.activation

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


def format_of(
    activation: torch.dtype,
    weight: str,
    group_size: int | None,
    *,
    scale: str | None = None,
    zero: ZeroPoint = ZeroPoint.NONE,
) -> WeightFormat:
    """The format as it is stored. group_size None: fp32 channel scales.

    weight: `u4`, `e2m1`, ... scale: dtype word of group scales, the activation's if None. Groups
    of a multiple of 128 become groups of 128 that repeat their scale. Raises: UsageError.
    """
    word = activation_word(activation)
    try:
        fault = weight_fault(weight, word)
        is_float = weight_format(weight).is_float
    except NumberFormatError as error:
        raise UsageError(str(error)) from error
    if fault is not None:
        raise UsageError(fault)
    if is_float and zero is not ZeroPoint.NONE:
        raise UsageError(f"{weight} is a float: it has no zero point")
    if group_size is None:
        if scale is not None:
            raise UsageError(f"channel scales are fp32 (found {scale})")
        return WeightFormat(word, ScaleScheme("ch", zero_point=zero.value), weight)
    step = layouts.SCALE_STEP_K
    if group_size < LEAST_GROUP or (step % group_size and group_size % step):
        sizes = f"{LEAST_GROUP}, 32, 64 or a multiple of {step}"
        raise UsageError(f"group_size is {group_size}, expected {sizes}")
    if scale is not None and scale not in SCALE_STORAGE:
        raise UsageError(f"group scales in {scale!r} (known: {', '.join(SCALE_STORAGE)})")
    size = layouts.stored_group_size(group_size)
    return WeightFormat(word, ScaleScheme("g", size, None, zero.value, scale or word), weight)


def check_size(n: int, k: int) -> None:
    """Raises: UsageError where n or k is no positive multiple of 8, all faults at once."""
    faults = [
        f"{name} is {value}, no positive multiple of 8"
        for name, value in (("n", n), ("k", k))
        if value < 1 or value % 8
    ]
    if faults:
        raise UsageError("weights: " + "; ".join(faults))
