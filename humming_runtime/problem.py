"""What a caller asks for, and the addresses it brings: plain values without torch."""

from __future__ import annotations

from dataclasses import dataclass

from humming_runtime.contract.targets import Capability
from humming_runtime.contract.variant_name import ScaleScheme


@dataclass(frozen=True)
class Problem:
    """C[m, n] = A[m, k] B[k, n] with B quantized; dtype words as in variant names."""

    op: str
    activation: str
    weight: str
    scale: ScaleScheme
    layout: str
    m: int
    n: int
    k: int

    @property
    def format(self) -> str:
        """The part that kernels are keyed by: activation, weight and scale scheme."""
        return f"{self.activation}_{self.weight}_{self.scale}"


@dataclass(frozen=True)
class Device:
    """Facts of one device as the driver reports them (never by its name)."""

    ordinal: int
    name: str
    capability: Capability
    sm_count: int
    shared_limit_bytes: int  # opt-in shared memory a CTA
    shared_per_sm_bytes: int


@dataclass(frozen=True)
class GemmOperands:
    """Device addresses (0 = absent) and strides of one dense GEMM.

    activation_stride, output_stride: elements between rows. Sizes are the problem's.
    """

    activation: int
    activation_stride: int
    weight: int
    output: int
    output_stride: int
    weight_scale: int = 0
    weight_zero: int = 0
    channel_scale: int = 0
    tensor_scale: int = 0
    bias: int = 0
