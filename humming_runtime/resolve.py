"""(problem, device, packages) -> the kernel to launch, or why each candidate is not it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from humming_runtime import selection
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.contract.manifest import KernelEntry
from humming_runtime.contract.targets import incompatibility, is_test_target, specificity
from humming_runtime.contract.tuning import TuningTable, tile_of
from humming_runtime.contract.variant_name import Variant
from humming_runtime.cuda_support import driver_hint, major_of, package_name, too_new
from humming_runtime.discover import Package
from humming_runtime.errors import NoKernelError
from humming_runtime.problem import Device, Problem
from humming_runtime.selection import Choice
from humming_runtime.tuning import Measured, measured_rows, same_launch

_SHOWN_REJECTIONS = 6
_OLDEST_CAPABILITY = (7, 5)


class Distance(IntEnum):
    """How far a rejected kernel is from the problem: the nearest are shown first."""

    SIZE = 0
    DRIVER = 1
    TARGET = 2
    TEST_TARGET = 3
    LAYOUT = 4
    SCALE = 5
    ACTIVATION = 6
    WEIGHT = 7
    OP = 8
    NOT_FORCED = 9
    SUPERSEDED = 10
    ORDER = 11


@dataclass(frozen=True)
class Accepted:
    """One kernel, how to launch it, and the time that selection expects."""

    package: Package
    entry: KernelEntry
    variant: Variant
    shape: LaunchShape
    predicted_us: float
    measured: Measured | None = None  # None: chosen by the cost model


@dataclass(frozen=True)
class Rejected:
    """One kernel that does not take the problem."""

    name: str
    package: str
    reason: str
    distance: Distance


@dataclass(frozen=True)
class Decision:
    """The chosen kernel, then the others that would run by time, and those that would not."""

    problem: Problem
    chosen: Accepted
    others: tuple[Accepted, ...]
    rejected: tuple[Rejected, ...]
    forced: bool = False
    rows_at_once: int | None = None  # where more rows take several launches (batch_invariance.py)


@dataclass(frozen=True)
class Survey:
    """Every kernel of every package, judged: the best first, the nearest first."""

    accepted: tuple[Accepted, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True)
class Shortlist:
    """Kernels of a format that load on a device, whatever the size; the others are rejected."""

    kernels: tuple[tuple[Package, KernelEntry, Variant], ...]
    rejected: tuple[Rejected, ...]


def resolve(
    problem: Problem,
    device: Device,
    packages: Sequence[Package],
    force: str | None = None,
    tables: Sequence[TuningTable] = (),
) -> Decision:
    """Take what `tables` measured, else the least predicted time; ties go to the more specific
    target, then to the name.

    force: name of the variant that must run. Raises: NoKernelError.
    """
    kernels = shortlist(problem, device, packages, force)
    return decide(problem, device, packages, kernels, force, tables)


def decide(
    problem: Problem,
    device: Device,
    packages: Sequence[Package],
    kernels: Shortlist,
    force: str | None = None,
    tables: Sequence[TuningTable] = (),
) -> Decision:
    """resolve() for a shortlist that was made before, with any m, n, k."""
    found = judge(problem, device, kernels, tables)
    if not found.accepted:
        raise refusal(problem, device, packages, found, force)
    chosen, *others = found.accepted
    return Decision(problem, chosen, tuple(others), found.rejected, force is not None)


def survey(
    problem: Problem,
    device: Device,
    packages: Sequence[Package],
    force: str | None = None,
    tables: Sequence[TuningTable] = (),
) -> Survey:
    """Judge every kernel."""
    return judge(problem, device, shortlist(problem, device, packages, force), tables)


def shortlist(
    problem: Problem, device: Device, packages: Sequence[Package], force: str | None = None
) -> Shortlist:
    """All that does not depend on m, n and k."""
    kernels: list[tuple[Package, KernelEntry, Variant]] = []
    rejected: list[Rejected] = []
    for package in packages:
        for entry, variant in package.kernels:
            reason = _mismatch(problem, device, variant, entry.name, force)
            if reason is None:
                driver = too_new(package.manifest.cuda, device.driver_cuda)
                reason = None if driver is None else (Distance.DRIVER, driver)
            if reason is None:
                kernels.append((package, entry, variant))
            else:
                rejected.append(Rejected(entry.name, package.name, reason[1], reason[0]))
    kernels, superseded = _of_newest_cuda(kernels)
    rejected = sorted([*rejected, *superseded], key=_nearness)
    return Shortlist(tuple(kernels), tuple(rejected))


def _of_newest_cuda(
    kernels: Sequence[tuple[Package, KernelEntry, Variant]],
) -> tuple[list[tuple[Package, KernelEntry, Variant]], list[Rejected]]:
    """Of a kernel that packages of several CUDA majors have, the newest; the others rejected."""
    newest: dict[str, Package] = {}
    for package, entry, _ in kernels:
        best = newest.setdefault(entry.name, package)
        if _cuda_major(package) > _cuda_major(best):
            newest[entry.name] = package
    kept: list[tuple[Package, KernelEntry, Variant]] = []
    superseded: list[Rejected] = []
    for kernel in kernels:
        package, entry, _ = kernel
        best = newest[entry.name]
        if _cuda_major(package) == _cuda_major(best):
            kept.append(kernel)
        else:
            reason = f"{best.name} has it for a newer CUDA"
            superseded.append(Rejected(entry.name, package.name, reason, Distance.SUPERSEDED))
    return kept, superseded


def _cuda_major(package: Package) -> int:
    return major_of(package.manifest.cuda)


def judge(
    problem: Problem, device: Device, kernels: Shortlist, tables: Sequence[TuningTable] = ()
) -> Survey:
    """Which of a shortlist take this size, and how fast they would be; what was measured first."""
    accepted: list[Accepted] = []
    every: dict[str, tuple[Choice, ...]] = {}
    rejected: list[Rejected] = []
    for package, entry, variant in kernels.kernels:
        choices = selection.candidates(variant, entry.cost, problem, device)
        if isinstance(choices, str):
            rejected.append(Rejected(entry.name, package.name, choices, Distance.SIZE))
        else:
            best = choices[0]
            every[entry.name] = choices
            accepted.append(Accepted(package, entry, variant, best.shape, best.predicted_us))
    accepted.sort(key=_preference)
    measured = _measured(problem, accepted, every, tables)
    if measured is not None:
        others = [a for a in accepted if a.entry.name != measured.entry.name]
        accepted = [measured, *others]
    rejected.sort(key=_nearness)
    return Survey(tuple(accepted), (*rejected, *kernels.rejected))


def _measured(
    problem: Problem,
    accepted: Sequence[Accepted],
    every: Mapping[str, tuple[Choice, ...]],
    tables: Sequence[TuningTable],
) -> Accepted | None:
    """The launch that a table names, if a kernel of its tile takes the problem."""
    tiles: dict[str, Accepted] = {}
    for one in accepted:
        tiles.setdefault(tile_of(one.variant), one)
    for row, source in measured_rows(problem, tables):
        found = tiles.get(row.tile)
        if found is not None:
            choice = same_launch(row, every[found.entry.name])
            return replace(
                found, shape=choice.shape, predicted_us=choice.predicted_us, measured=source
            )
    return None


def expectation(accepted: Accepted) -> str:
    """For people: the time that was measured, or the one that the cost model predicts."""
    source = accepted.measured
    if source is None:
        return f"predicted {accepted.predicted_us:.1f} us"
    return f"measured {source.us:.1f} us at m {source.m}, table {source.table}"


def package_for(device: Device) -> str:
    """Distribution that holds kernels for a device's own capability, and its driver."""
    return package_name(device.capability, device.driver_cuda)


def refusal(
    problem: Problem,
    device: Device,
    packages: Sequence[Package],
    found: Survey,
    force: str | None = None,
) -> NoKernelError:
    """The error that says what is missing, which kernels come near and what would help."""
    major, minor = device.capability
    ordinal = "" if device.ordinal < 0 else f"device {device.ordinal}, "
    where = f"{ordinal}{device.name}, capability {major}.{minor}"
    size = f"m {problem.m}, n {problem.n}, k {problem.k}"
    head = f"{problem.op} {problem.format} {problem.layout} ({size}): no kernel takes it on {where}"
    lines = [head]
    if not packages:
        lines.append("  no kernel package is installed")
    if force is not None and all(r.name != force for r in found.rejected):
        lines.append(f"  {force}: is forced and not installed")
    near = [r for r in found.rejected if force is None or r.name == force]
    lines += [f"  {r.name} ({r.package}): {r.reason}" for r in near[:_SHOWN_REJECTIONS]]
    if len(near) > _SHOWN_REJECTIONS:
        lines.append(f"  and {len(near) - _SHOWN_REJECTIONS} more (humming explain shows all)")
    return NoKernelError("\n".join(lines), _hint(problem, device, packages, force))


def _mismatch(
    problem: Problem, device: Device, variant: Variant, name: str, force: str | None
) -> tuple[Distance, str] | None:
    if force is not None and name != force:
        return Distance.NOT_FORCED, f"{force} is forced"
    difference = _difference(problem, variant)
    if difference is not None:
        return difference
    reason = incompatibility(variant.target, device.capability)
    if reason is not None:
        return Distance.TARGET, reason
    if force is None and is_test_target(variant.tier, variant.target):
        return Distance.TEST_TARGET, f"test target of tier {variant.tier}, runs only when forced"
    return None


def _difference(problem: Problem, variant: Variant) -> tuple[Distance, str] | None:
    """First fact of the format that differs, the farthest first."""
    if problem.op != variant.op:
        distance, what, wanted, has = Distance.OP, "op", problem.op, variant.op
    elif problem.weight != variant.weight:
        distance, what = Distance.WEIGHT, "weight dtype"
        wanted, has = problem.weight, variant.weight
    elif problem.activation != variant.activation:
        distance, what = Distance.ACTIVATION, "activation dtype"
        wanted, has = problem.activation, variant.activation
    elif problem.scale != variant.scale:
        distance, what = Distance.SCALE, "scale"
        wanted, has = str(problem.scale), str(variant.scale)
    elif problem.layout != variant.layout:
        distance, what, wanted, has = Distance.LAYOUT, "layout", problem.layout, variant.layout
    else:
        return None
    return distance, f"{what} is {has}, wanted {wanted}"


def _nearness(rejected: Rejected) -> tuple[int, str]:
    return rejected.distance, rejected.name


def _preference(accepted: Accepted) -> tuple[float, int, int, str]:
    rank, minor = specificity(accepted.variant.target)
    return accepted.predicted_us, -rank, -minor, accepted.entry.name


def _hint(
    problem: Problem, device: Device, packages: Sequence[Package], force: str | None
) -> str | None:
    """The command that helps; None where no package could."""
    if force is not None:
        return "humming list"
    if device.capability < _OLDEST_CAPABILITY or problem.m < 1:
        return None
    driver = driver_hint(device.capability, device.driver_cuda)
    if driver is not None:
        return driver
    wanted = package_for(device)
    if any(package.name == wanted for package in packages):
        return f"pip install --upgrade {wanted}"
    return f"pip install {wanted}"
