"""Which kernel packages a driver takes: cubins load from the first driver of their CUDA major on.

Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html.
"""

from __future__ import annotations

from humming_runtime.contract.targets import Capability

FIRST_DRIVERS = {12: 525, 13: 580}
"""CUDA major -> first driver branch that loads its cubins."""
NEWEST = max(FIRST_DRIVERS)
LAST_OF_CUDA_12: Capability = (9, 0)
"""Later GPUs have packages of CUDA 13 alone."""

CudaVersion = tuple[int, int]


def major_of(cuda: str) -> int:
    """`12.9` -> 12."""
    return int(cuda.partition(".")[0])


def too_new(cuda: str, driver: CudaVersion | None) -> str | None:
    """Why cubins of a CUDA release do not load with a driver; None if they do.

    driver: newest CUDA that it supports; None: not known.
    """
    major = major_of(cuda)
    if driver is None or major <= driver[0]:
        return None
    first = FIRST_DRIVERS.get(major)
    needed = f"a driver for CUDA {major}" + ("" if first is None else f" ({first} or newer)")
    return f"needs {needed}, this one supports CUDA {driver[0]}.{driver[1]}"


def package_name(capability: Capability, driver: CudaVersion | None) -> str:
    """Distribution for a GPU: of the newest CUDA that its driver takes."""
    is_old = driver is not None and driver[0] < NEWEST and capability <= LAST_OF_CUDA_12
    major, minor = capability
    return f"humming-cubins-sm{major}{minor}-cu{min(FIRST_DRIVERS) if is_old else NEWEST}"


def driver_hint(capability: Capability, driver: CudaVersion | None) -> str | None:
    """Which driver to install, where no package is for the one that is there."""
    if driver is None or driver[0] >= NEWEST:
        return None
    if capability > LAST_OF_CUDA_12:
        return f"install NVIDIA driver {FIRST_DRIVERS[NEWEST]} or newer"
    oldest = min(FIRST_DRIVERS)
    if driver[0] < oldest:
        return f"install NVIDIA driver {FIRST_DRIVERS[oldest]} or newer"
    return None
