"""What a caller asks for, and the device it is for: plain values without torch."""

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
    memory_gbps: int = 0  # peak of device memory, 10^9 bytes a second; 0 = unknown
    driver_cuda: tuple[int, int] | None = None  # newest CUDA of its driver; None = not known
