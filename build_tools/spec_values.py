"""The specs as frozen values: what `specs/*.yaml` say, after every check."""

from __future__ import annotations

from dataclasses import dataclass

from humming_runtime.contract.manifest import Cost
from humming_runtime.contract.targets import Capability, target_capability
from humming_runtime.contract.variant_name import ScaleScheme, ZeroPoint

FEATURES = ("bf16", "cp_async", "tma", "wgmma")
"""What a schedule or a dtype can need of an arch."""


@dataclass(frozen=True)
class Arch:
    """One row of the arch table.

    Units: `shared_bytes` is the most a CTA may use (opt-in), static and dynamic together.
    """

    name: str  # what the user asks: `sm_90`
    target: str  # what nvcc gets: `sm_90a`
    forms: tuple[str, ...]  # every target that exists for it: `sm_90`, `sm_90a`
    tier: str
    shared_bytes: int
    features: tuple[str, ...]
    min_cuda: tuple[int, int]

    @property
    def capability(self) -> Capability:
        return target_capability(self.name)


@dataclass(frozen=True)
class Tile:
    """One tile of a tier: `t8x16x1024_w8r1_s16` and the schedule it is for."""

    tier: str
    schedule: str
    text: str
    place: str


@dataclass(frozen=True)
class NameRule:
    """Variants whose name matches `pattern`, and why they are named."""

    pattern: str
    why: str
    place: str


@dataclass(frozen=True)
class SpillRule:
    """Variants that may spill at most `max_bytes` (stores and loads together), and why."""

    pattern: str
    max_bytes: int
    why: str
    place: str


@dataclass(frozen=True)
class Family:
    """The product activations x weights x scales x zero points x tiles, less the exceptions."""

    name: str
    op: str
    activations: tuple[str, ...]
    weights: tuple[str, ...]
    layout: str
    scales: tuple[ScaleScheme, ...]  # without zero points; dtype None: the activation's
    zero_points: tuple[ZeroPoint, ...]
    tiles: tuple[Tile, ...]
    exceptions: tuple[NameRule, ...]
    spills: tuple[SpillRule, ...]
    place: str


@dataclass(frozen=True)
class Profile:
    """A named subset of variants.

    test_tiers: arch -> tiers whose variants are built for that arch's target too, as a proof.
    """

    name: str
    why: str
    select: tuple[NameRule, ...]
    drop: tuple[NameRule, ...]
    test_tiers: tuple[tuple[str, tuple[str, ...]], ...]
    place: str


@dataclass(frozen=True)
class CostRule:
    """Measured cost of the variants that match; the first match wins."""

    pattern: str
    cost: Cost
    place: str


@dataclass(frozen=True)
class Specs:
    """All files under specs/."""

    archs: tuple[Arch, ...]
    families: tuple[Family, ...]
    profiles: tuple[Profile, ...]
    costs: tuple[CostRule, ...]

    def profile(self, name: str) -> Profile | None:
        """The profile of that name."""
        return next((p for p in self.profiles if p.name == name), None)
