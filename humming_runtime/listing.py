"""Installed kernels by op, format and target: values for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from humming_runtime.contract.targets import is_test_target
from humming_runtime.discover import Installed, Package, PackageFault


@dataclass(frozen=True, order=True)
class Family:
    """Kernels that differ in tile and depth only."""

    op: str
    format: str
    layout: str
    target: str
    kernel: str  # tier-schedule
    package: str
    is_test_target: bool
    kernels: int = 0
    validated: int = 0  # how many ran on some device with this very source and target


def families(packages: Iterable[Package]) -> tuple[Family, ...]:
    """Every family of kernels, sorted."""
    counts: dict[Family, list[int]] = {}
    for package in packages:
        for entry, variant in package.kernels:
            family = Family(
                op=variant.op,
                format=variant.format,
                layout=variant.layout,
                target=variant.target,
                kernel=f"{variant.tier}-{variant.schedule}",
                package=package.name,
                is_test_target=is_test_target(variant.tier, variant.target),
            )
            count = counts.setdefault(family, [0, 0])
            count[0] += 1
            count[1] += bool(entry.validated_on)
    return tuple(
        replace(family, kernels=count, validated=validated)
        for family, (count, validated) in sorted(counts.items())
    )


def as_json(installed: Installed) -> dict[str, Any]:
    """Packages with every kernel, and faults."""
    return {
        "packages": [_package_json(package) for package in installed.packages],
        "faults": [fault_json(fault) for fault in installed.faults],
    }


def fault_json(fault: PackageFault) -> dict[str, Any]:
    return {
        "package": fault.name,
        "kind": fault.kind.value,
        "reason": fault.reason,
        "hint": fault.hint,
    }


def _package_json(package: Package) -> dict[str, Any]:
    manifest = package.manifest
    kernels = [
        {
            "name": entry.name,
            "op": variant.op,
            "format": variant.format,
            "layout": variant.layout,
            "target": variant.target,
            "is_test_target": is_test_target(variant.tier, variant.target),
            "size_bytes": entry.size_bytes,
            "validated_on": list(entry.validated_on),
            "validated_as": entry.validated_as,
        }
        for entry, variant in package.kernels
    ]
    return {
        "package": manifest.package,
        "version": manifest.version,
        "place": str(package.place),
        "arch": manifest.arch,
        "cuda": manifest.cuda,
        "engine": manifest.engine,
        "contract": manifest.contract,
        "profile": manifest.profile,
        "kernels": kernels,
    }


def as_text(installed: Installed) -> str:
    """A table of families; test targets are marked."""
    rows = [("op", "format", "layout", "target", "kernel", "count", "validated", "package")]
    for family in families(installed.packages):
        kernel = family.kernel + (" (test)" if family.is_test_target else "")
        name, count = (family.op, family.format, family.layout), str(family.kernels)
        rows.append((*name, family.target, kernel, count, str(family.validated), family.package))
    if len(rows) == 1:
        return "no kernel package is installed"
    return table(rows)


def names(installed: Installed) -> str:
    """Variant names, one a line, sorted."""
    found = {entry.name for package in installed.packages for entry in package.manifest.kernels}
    return "\n".join(sorted(found))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
