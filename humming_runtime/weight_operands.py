"""What a layer brings once: format, size and device addresses of its constant operands."""

from __future__ import annotations

from dataclasses import dataclass

from humming_runtime.contract.layouts import stored_groups
from humming_runtime.contract.variant_name import ScaleScheme
from humming_runtime.errors import UsageError
from humming_runtime.problem import Problem

SIZE_MULTIPLE = 8
"""n and k: 16-byte vectors of 16-bit elements."""
MOST_SIZE = 2**31 - 1
_ALIGNMENT_BYTES = {
    "weight": 16,
    "weight_scale": 16,
    "weight_zero": 16,
    "channel_scale": 4,
    "tensor_scale": 4,
    "bias": 2,
}


@dataclass(frozen=True)
class WeightOperands:
    """Addresses on the plan's device, 0 where absent; shapes as in docs/contracts.md.

    groups: scale groups along k as stored (layouts.stored_groups).
    """

    op: str
    activation: str
    weight_dtype: str
    scale: ScaleScheme
    layout: str
    n: int
    k: int
    groups: int
    weight: int
    weight_scale: int = 0
    weight_zero: int = 0
    channel_scale: int = 0
    tensor_scale: int = 0
    bias: int = 0

    def problem(self, m: int) -> Problem:
        return Problem(
            self.op, self.activation, self.weight_dtype, self.scale, self.layout, m, self.n, self.k
        )

    def check(self) -> None:
        """Do sizes and addresses fit the format? Raises: UsageError that names the operand."""
        for name, size in (("n", self.n), ("k", self.k)):
            if not 0 < size <= MOST_SIZE or size % SIZE_MULTIPLE:
                raise UsageError(f"{name}: no positive multiple of {SIZE_MULTIPLE} ({size})")
        wanted = stored_groups(self.k, self.scale.group_size)
        if self.groups != wanted:
            what = f"k {self.k} and scale {self.scale} store {wanted}"
            raise UsageError(f"groups: {self.groups}, but {what}")
        shown = self.problem(1).format
        for name in self._needed():
            if not getattr(self, name):
                raise UsageError(f"{name}: missing, format {shown} needs it")
        for name, alignment in _ALIGNMENT_BYTES.items():
            address = getattr(self, name)
            if address % alignment:
                raise UsageError(f"{name}: address is no multiple of {alignment} ({address:#x})")

    def _needed(self) -> tuple[str, ...]:
        scale = "channel_scale" if self.scale.group_size is None else "weight_scale"
        zero = ("weight_zero",) if self.scale.zero_point else ()
        return ("weight", scale, *zero)
