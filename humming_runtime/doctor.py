"""Can this machine run, and what? Driver, devices, packages, coverage by format, op and device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from humming_runtime.contract.exit_codes import RuntimeExit
from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.targets import incompatibility, is_test_target
from humming_runtime.cuda_support import driver_hint, major_of, too_new
from humming_runtime.discover import FaultKind, Installed, Package
from humming_runtime.driver import Driver
from humming_runtime.errors import HummingError
from humming_runtime.listing import fault_json, table
from humming_runtime.problem import Device
from humming_runtime.resolve import package_for

_TOO_NEW = "built with a newer CUDA than the driver supports"


@dataclass(frozen=True)
class Coverage:
    """Kernels of one op and format that load on one device; validated_here: of those, proven there.

    A kernel that loads is not yet known to be right on a capability that never ran it.
    """

    device: int
    capability: str
    op: str
    format: str
    layout: str
    kernels: int
    validated_here: int


@dataclass(frozen=True)
class Report:
    """What doctor found. driver: CUDA version that it supports; None with `driver_fault`."""

    installed: Installed
    driver: tuple[int, int] | None
    driver_fault: str | None
    devices: tuple[Device, ...]
    coverage: tuple[Coverage, ...]

    @property
    def too_new(self) -> tuple[str, ...]:
        """Packages built with a CUDA major that the driver does not support."""
        if self.driver is None:
            return ()
        cudas = ((package.name, package.manifest.cuda) for package in self.installed.packages)
        return tuple(name for name, cuda in cudas if too_new(cuda, self.driver) is not None)

    @property
    def exit_code(self) -> RuntimeExit:
        """A device without kernels counts, and so does a package that cannot be used."""
        if self.driver is None or not self.devices:
            return RuntimeExit.NO_DRIVER_OR_DEVICE
        covered = {line.device for line in self.coverage if line.kernels}
        broken = any(fault.kind is not FaultKind.SHADOWED for fault in self.installed.faults)
        if broken or any(device.ordinal not in covered for device in self.devices):
            return RuntimeExit.KERNELS_MISSING
        return RuntimeExit.OK


def examine(installed: Installed, open_driver: Callable[[], Driver] = Driver) -> Report:
    """Ask the driver and every manifest. Never raises for what is missing: that is the report."""
    version: tuple[int, int] | None = None
    fault: str | None = None
    devices: tuple[Device, ...] = ()
    try:
        driver = open_driver()
        version = driver.version()
        devices = tuple(driver.device(i) for i in range(driver.device_count()))
    except HummingError as error:
        fault = error.message
    return Report(installed, version, fault, devices, coverage(installed, devices))


def coverage(installed: Installed, devices: Iterable[Device]) -> tuple[Coverage, ...]:
    """One line for each device and each op and format that any package has, sorted."""
    lines: dict[tuple[int, str, str, str], Coverage] = {}
    seen: set[tuple[int, str]] = set()
    for device in devices:
        capability = ".".join(str(part) for part in device.capability)
        for package in sorted(installed.packages, key=_newest_first):
            fits = too_new(package.manifest.cuda, device.driver_cuda) is None
            for entry, variant in package.kernels:
                key = (device.ordinal, variant.op, variant.format, variant.layout)
                line = lines.get(key) or Coverage(
                    device.ordinal, capability, variant.op, variant.format, variant.layout, 0, 0
                )
                loads = fits and incompatibility(variant.target, device.capability) is None
                is_new = (device.ordinal, entry.name) not in seen
                if loads and is_new and not is_test_target(variant.tier, variant.target):
                    seen.add((device.ordinal, entry.name))
                    proven = line.validated_here + (capability in entry.validated_on)
                    line = replace(line, kernels=line.kernels + 1, validated_here=proven)
                lines[key] = line
    return tuple(lines[key] for key in sorted(lines))


def _newest_first(package: Package) -> int:
    """A kernel of packages of several CUDA majors runs from the newest that loads."""
    return -major_of(package.manifest.cuda)


def as_json(report: Report) -> dict[str, Any]:
    driver = None if report.driver is None else ".".join(str(part) for part in report.driver)
    return {
        "contract": contract_hash(),
        "driver_cuda": driver,
        "driver_fault": report.driver_fault,
        "devices": [_device_json(device) for device in report.devices],
        "packages": [
            {
                "package": package.name,
                "version": package.manifest.version,
                "arch": package.manifest.arch,
                "cuda": package.manifest.cuda,
                "contract": package.manifest.contract,
                "place": str(package.place),
                "kernels": len(package.kernels),
                "validated_on": sorted({c for e, _ in package.kernels for c in e.validated_on}),
            }
            for package in report.installed.packages
        ],
        "faults": [fault_json(fault) for fault in report.installed.faults],
        "packages_too_new_for_driver": list(report.too_new),
        "coverage": [asdict(line) for line in report.coverage],
        "exit_code": int(report.exit_code),
    }


def as_text(report: Report) -> str:
    """For people: what is there, what is wrong, one command for each fault."""
    lines = [f"contract  {contract_hash()}"]
    if report.driver is None:
        lines.append(f"driver    {report.driver_fault}")
    else:
        lines.append(f"driver    CUDA {report.driver[0]}.{report.driver[1]}")
    lines += _device_lines(report)
    for package in report.installed.packages:
        facts = package.manifest
        lines.append(
            f"package   {facts.package} {facts.version}: {len(facts.kernels)} kernels, "
            f"CUDA {facts.cuda}, {package.place}"
        )
    if not report.installed.packages:
        lines.append("package   none is installed")
    lines += [f"fault     {fault}" for fault in report.installed.faults]
    lines += [f"not used  {name}: {_TOO_NEW}" for name in report.too_new]
    if report.coverage:
        lines += ["", _coverage_table(report)]
    return "\n".join(lines)


def _device_lines(report: Report) -> list[str]:
    covered = {line.device for line in report.coverage if line.kernels}
    lines = []
    for device in report.devices:
        major, minor = device.capability
        lines.append(
            f"device {device.ordinal}  {device.name}, capability {major}.{minor}, "
            f"{device.sm_count} SMs"
        )
        if device.ordinal not in covered:
            help_by = driver_hint(device.capability, device.driver_cuda)
            hint = help_by or f"pip install {package_for(device)}"
            lines.append(f"  no kernel loads on it\n  hint: {hint}")
    if not report.devices:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
        lines.append(f"device    none{why}")
    return lines


def _coverage_table(report: Report) -> str:
    rows = [("device", "capability", "op", "format", "layout", "kernels", "validated here")]
    rows += [
        (
            str(line.device), line.capability, line.op, line.format, line.layout,
            str(line.kernels), str(line.validated_here),
        )
        for line in report.coverage
    ]  # fmt: skip
    return table(rows)


def _device_json(device: Device) -> dict[str, Any]:
    return {**asdict(device), "capability": ".".join(str(part) for part in device.capability)}
