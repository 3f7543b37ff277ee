"""Specs x archs -> the variants to build, and each other one with its reason. Pure and sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from build_tools import name_glob
from build_tools.enumerate_points import family_variants
from build_tools.errors import Fault, NothingToBuildError, UsageError, did_you_mean
from build_tools.limits import limit_reason
from build_tools.spec_values import Arch, Family, Profile, Specs
from humming_runtime.contract.manifest import Cost
from humming_runtime.contract.variant_name import Variant


@dataclass(frozen=True)
class Planned:
    """A variant to build. allowed_spill_bytes: None where any spill fails the build."""

    variant: Variant
    family: str
    allowed_spill_bytes: int | None
    cost: Cost | None

    @property
    def name(self) -> str:
        return str(self.variant)


@dataclass(frozen=True)
class Skipped:
    """A point of a family that is not built."""

    name: str
    reason: str


@dataclass(frozen=True)
class ArchPlan:
    """What one arch's wheel will hold, by name."""

    arch: Arch
    profile: str
    build: tuple[Planned, ...]
    skipped: tuple[Skipped, ...]


def make_plan(
    specs: Specs, archs: Sequence[Arch], profile: str, select: Sequence[str] = ()
) -> tuple[ArchPlan, ...]:
    """One plan per arch, by capability. Raises: UsageError for a profile or pattern at fault."""
    chosen = specs.profile(profile)
    if chosen is None:
        known = [p.name for p in specs.profiles]
        message = f"unknown profile {profile!r} (known: {', '.join(known)})"
        raise UsageError.of("--profile", message + did_you_mean(profile, known))
    for pattern in select:
        try:
            name_glob.expand(pattern)
        except ValueError as error:
            raise UsageError.of("--select", str(error)) from error
    ordered = sorted(set(archs), key=lambda arch: arch.capability)
    return tuple(_plan_arch(specs, arch, chosen, select) for arch in ordered)


def require_work(plans: Sequence[ArchPlan], select: Sequence[str]) -> None:
    """Raises: NothingToBuildError that names every arch and every pattern without a variant."""
    faults = []
    for plan in plans:
        if not plan.build:
            what = f"profile {plan.profile!r} has no variant"
            if select:
                what += f" that matches {' or '.join(repr(s) for s in select)}"
            hint = f"humming-build --arch {plan.arch.name} --profile {plan.profile} --list"
            faults.append(Fault(plan.arch.name, what, hint if select else None))
    names = [item.name for plan in plans for item in plan.build]
    faults += [
        Fault("--select", f"{pattern!r} matches none of the variants to build")
        for pattern in select
        if names and not any(name_glob.matches(pattern, name) for name in names)
    ]
    if faults:
        raise NothingToBuildError(faults)


def _plan_arch(specs: Specs, arch: Arch, profile: Profile, select: Sequence[str]) -> ArchPlan:
    build: list[Planned] = []
    skipped: list[Skipped] = []
    for family, variant in _points(specs, arch, profile):
        reason = _skip_reason(family, variant, arch, profile, select)
        if reason is None:
            build.append(_planned(specs, family, variant))
        else:
            skipped.append(Skipped(str(variant), reason))
    return ArchPlan(
        arch,
        profile.name,
        tuple(sorted(build, key=lambda p: p.name)),
        tuple(sorted(skipped, key=lambda s: s.name)),
    )


def _points(specs: Specs, arch: Arch, profile: Profile) -> Iterator[tuple[Family, Variant]]:
    """The arch's own tier, then the tiers that the profile proves there."""
    tiers = (arch.tier, *dict(profile.test_tiers).get(arch.name, ()))
    for tier in dict.fromkeys(tiers):
        for family in specs.families:
            for variant in family_variants(family, tier, arch.target):
                yield family, variant


def _skip_reason(
    family: Family, variant: Variant, arch: Arch, profile: Profile, select: Sequence[str]
) -> str | None:
    name = str(variant)
    for rule in family.exceptions:
        if name_glob.matches(rule.pattern, name):
            return f"{rule.why} ({rule.place})"
    reason = limit_reason(variant, arch)
    if reason is not None:
        return reason
    if not name_glob.matches_any((rule.pattern for rule in profile.select), name):
        return f"not in profile {profile.name!r}"
    for rule in profile.drop:
        if name_glob.matches(rule.pattern, name):
            return f"dropped from profile {profile.name!r} ({rule.place})"
    if select and not name_glob.matches_any(select, name):
        return "matches no --select"
    return None


def _planned(specs: Specs, family: Family, variant: Variant) -> Planned:
    name = str(variant)
    costs = (rule.cost for rule in specs.costs if name_glob.matches(rule.pattern, name))
    spills = (rule.max_bytes for rule in family.spills if name_glob.matches(rule.pattern, name))
    return Planned(variant, family.name, next(spills, None), next(costs, None))
