"""Where the bytes of a wheel are, by group of kernels, and whether they are within the budgets."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from build_tools import name_glob
from build_tools.errors import BudgetError, Fault
from build_tools.spec_budgets import Budgets
from humming_runtime.contract.tuning import tile_of
from humming_runtime.contract.variant_name import Variant

_SUFFIX = ".cubin"
_MB = 1_000_000
_HINT = "humming-build sizes WHEEL; fewer tiles in the profile, or a larger budget with its reason"


@dataclass(frozen=True)
class KernelSize:
    """One cubin in a wheel."""

    name: str
    cubin_bytes: int
    compressed_bytes: int

    @property
    def variant(self) -> Variant:
        return Variant.parse(self.name)


@dataclass(frozen=True)
class GroupSize:
    """Kernels that have something in common."""

    group: str
    kernels: int
    cubin_bytes: int
    compressed_bytes: int


GROUPINGS: Mapping[str, Callable[[Variant], str]] = {
    "format": lambda variant: f"{variant.op} {variant.format}",
    "schedule": lambda variant: f"{variant.op} {variant.tier}-{variant.schedule}",
    "tile": tile_of,
    "activation": lambda variant: f"{variant.op} {variant.activation} x {variant.weight}",
}


def kernel_sizes(wheel: bytes) -> tuple[KernelSize, ...]:
    """By name. wheel: bytes of a kernel wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return tuple(
            KernelSize(PurePosixPath(entry.filename).stem, entry.file_size, entry.compress_size)
            for entry in sorted(archive.infolist(), key=lambda entry: entry.filename)
            if entry.filename.endswith(_SUFFIX)
        )


def group_sizes(sizes: Sequence[KernelSize], grouping: str) -> tuple[GroupSize, ...]:
    """Largest first. grouping: a key of GROUPINGS."""
    groups: dict[str, list[KernelSize]] = {}
    for size in sizes:
        groups.setdefault(GROUPINGS[grouping](size.variant), []).append(size)
    rows = [
        GroupSize(
            name, len(own), sum(s.cubin_bytes for s in own), sum(s.compressed_bytes for s in own)
        )
        for name, own in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.compressed_bytes, row.group)))


def require_budget(budgets: Budgets, profile: str, file_name: str, wheel: bytes) -> None:
    """Raises: BudgetError with every budget that is passed."""
    faults = [
        Fault(
            file_name,
            f"{len(wheel) / _MB:.2f} MB, budget of profile {profile!r} is "
            f"{budget.max_bytes / _MB:g} MB ({budget.place})",
            _HINT,
        )
        for budget in budgets.wheels
        if budget.profile == profile and len(wheel) > budget.max_bytes
    ]
    sizes = kernel_sizes(wheel)
    for group in budgets.groups:
        own = [size for size in sizes if name_glob.matches(group.rule.pattern, size.name)]
        total = sum(size.compressed_bytes for size in own)
        if total > group.max_bytes:
            faults.append(
                Fault(
                    file_name,
                    f"{len(own)} kernels of {group.rule.pattern!r} have {total / _MB:.2f} MB, "
                    f"budget is {group.max_bytes / _MB:g} MB ({group.rule.place})",
                    _HINT,
                )
            )
    if faults:
        raise BudgetError(faults)
