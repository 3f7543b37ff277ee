"""How many compilers at once: cores, cgroup limits and free memory decide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

JOB_MEMORY_BYTES = 300 << 20
"""What one nvcc of this project needs at most (measured)."""
_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),  # v2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # v1
)
_NO_LIMIT_BYTES = 1 << 60
"""v1 has a number near 2^63 where there is no limit."""


@dataclass(frozen=True)
class Machine:
    """What limits parallel work; None where nothing does."""

    cores: int
    free_bytes: int | None
    quota_cores: float | None
    limit_bytes: int | None


def plan_jobs(machine: Machine, wanted: int | None) -> int:
    """At least one; what the user asked for is taken as it is."""
    if wanted is not None:
        return max(1, wanted)
    jobs = machine.cores
    if machine.quota_cores is not None:
        jobs = min(jobs, round(machine.quota_cores))
    for room in (machine.free_bytes, machine.limit_bytes):
        if room is not None:
            jobs = min(jobs, room // JOB_MEMORY_BYTES)
    return max(1, jobs)


def this_machine() -> Machine:
    """Facts of the process's own machine and cgroup (v2 or v1)."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        free_bytes=_free_bytes(),
        quota_cores=_quota_cores(),
        limit_bytes=_limit_bytes(),
    )


def _free_bytes() -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _quota_cores() -> float | None:
    """Cores of the tightest quota among the process's own cgroup and its parents."""
    quotas = (_quota_of(folder) for folder in _cgroups("cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_of(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota = _number(folder / "cpu.cfs_quota_us")
    period = _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _limit_bytes() -> int | None:
    """Memory that the process's own cgroup and its parents leave."""
    limits = (_room_of(folder) for folder in _cgroups("memory"))
    return min((limit for limit in limits if limit is not None), default=None)


def _room_of(folder: Path) -> int | None:
    """Limit less what is in use and is no file cache that the kernel gives up when asked."""
    for limit_name, used_name, cache_name in _MEMORY_FILES:
        limit = _number(folder / limit_name)
        if limit is not None and limit < _NO_LIMIT_BYTES:
            used = _number(folder / used_name) or 0
            lines = (line.split() for line in _read(folder / "memory.stat").splitlines())
            cached = next((int(words[1]) for words in lines if words[0] == cache_name), 0)
            return limit - max(0, used - cached)
    return None


def _cgroups(controller: str) -> Iterator[Path]:
    """Folders of the process's own cgroup and of its parents (v2, or v1's `controller`)."""
    for line in _read(_OWN_CGROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = _CGROUP / controller if controllers else _CGROUP
        folder = mount / path.lstrip("/")
        yield folder
        while folder != mount:
            folder = folder.parent
            yield folder


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
