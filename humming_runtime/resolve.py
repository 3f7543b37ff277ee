"""(problem, device, packages) -> the kernel to launch, or why each candidate is not it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from humming_runtime import selection
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.contract.manifest import KernelEntry
from humming_runtime.contract.targets import incompatibility, is_test_target, specificity
from humming_runtime.contract.variant_name import Variant
from humming_runtime.discover import Package
from humming_runtime.errors import NoKernelError
from humming_runtime.problem import Device, Problem

_SHOWN_REJECTIONS = 6


@dataclass(frozen=True)
class Accepted:
    """One kernel, how to launch it, and the time that selection expects."""

    package: Package
    entry: KernelEntry
    variant: Variant
    shape: LaunchShape
    predicted_us: float


@dataclass(frozen=True)
class Rejected:
    """One kernel that does not take the problem. `distance`: 0 where only the size is wrong."""

    name: str
    package: str
    reason: str
    distance: int


@dataclass(frozen=True)
class Decision:
    """The chosen kernel, then the others that would run by time, and those that would not."""

    problem: Problem
    chosen: Accepted
    others: tuple[Accepted, ...]
    rejected: tuple[Rejected, ...]
    forced: bool = False


def resolve(
    problem: Problem, device: Device, packages: Sequence[Package], force: str | None = None
) -> Decision:
    """Take the least predicted time; ties go to the more specific target, then to the name.

    force: name of the variant that must run. Raises: NoKernelError.
    """
    accepted: list[Accepted] = []
    rejected: list[Rejected] = []
    for package in packages:
        for entry in package.manifest.kernels:
            result = _judge(problem, device, package, entry, force)
            if isinstance(result, Accepted):
                accepted.append(result)
            else:
                rejected.append(result)
    rejected.sort(key=lambda r: (r.distance, r.name))
    if not accepted:
        raise NoKernelError(_explanation(problem, device, packages, rejected, force), _hint(device))
    accepted.sort(key=_preference)
    chosen, *others = accepted
    return Decision(problem, chosen, tuple(others), tuple(rejected), force is not None)


def package_for(device: Device) -> str:
    """Distribution that holds kernels for a device's own capability."""
    major, minor = device.capability
    return f"humming-cubins-sm{major}{minor}-cu13"


def _judge(
    problem: Problem, device: Device, package: Package, entry: KernelEntry, force: str | None
) -> Accepted | Rejected:
    variant = entry.variant

    def reject(reason: str, distance: int) -> Rejected:
        return Rejected(entry.name, package.name, reason, distance)

    if force is not None and entry.name != force:
        return reject(f"{force} is forced", 3)
    difference = _difference(problem, variant)
    if difference is not None:
        return reject(*difference)
    reason = incompatibility(variant.target, device.capability)
    if reason is not None:
        return reject(reason, 1)
    if force is None and is_test_target(variant.tier, variant.target):
        return reject(f"test build of tier {variant.tier}, runs only when forced", 2)
    choices = selection.candidates(variant, entry.cost, problem, device)
    if isinstance(choices, str):
        return reject(choices, 0)
    best = choices[0]
    return Accepted(package, entry, variant, best.shape, best.predicted_us)


def _difference(problem: Problem, variant: Variant) -> tuple[str, int] | None:
    """First fact of the format that differs, and how far it is from the problem."""
    facts = (
        ("op", problem.op, variant.op, 6),
        ("weight dtype", problem.weight, variant.weight, 5),
        ("activation dtype", problem.activation, variant.activation, 4),
        ("scale", str(problem.scale), str(variant.scale), 3),
        ("layout", problem.layout, variant.layout, 3),
    )
    for what, wanted, has, distance in facts:
        if wanted != has:
            return f"{what} is {has}, wanted {wanted}", distance
    return None


def _preference(accepted: Accepted) -> tuple[float, int, int, str]:
    rank, minor = specificity(accepted.variant.target)
    return accepted.predicted_us, -rank, -minor, accepted.entry.name


def _explanation(
    problem: Problem,
    device: Device,
    packages: Sequence[Package],
    rejected: Sequence[Rejected],
    force: str | None,
) -> str:
    major, minor = device.capability
    size = f"m {problem.m}, n {problem.n}, k {problem.k}"
    what = f"{problem.op} {problem.format} ({size})"
    lines = [f"{what}: no kernel takes it on {device.name}, capability {major}.{minor}"]
    if force is not None and all(r.name != force for r in rejected):
        lines.append(f"  {force}: is not installed")
    if not packages:
        lines.append("  no kernel package is installed")
    near = [r for r in rejected if force is None or r.name == force]
    lines += [f"  {r.name} ({r.package}): {r.reason}" for r in near[:_SHOWN_REJECTIONS]]
    if len(near) > _SHOWN_REJECTIONS:
        lines.append(f"  and {len(near) - _SHOWN_REJECTIONS} more (humming explain shows all)")
    return "\n".join(lines)


def _hint(device: Device) -> str:
    return f"pip install {package_for(device)}"
