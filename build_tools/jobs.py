"""How many compilers at once: cores, cgroup limits and free memory decide."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

JOB_MEMORY_BYTES = 300 << 20
"""What one nvcc of this project needs at most (measured)."""
_CGROUP = Path("/sys/fs/cgroup")


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
    words = _read(_CGROUP / "cpu.max").split()
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota = _number(_CGROUP / "cpu" / "cpu.cfs_quota_us")
    period = _number(_CGROUP / "cpu" / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _limit_bytes() -> int | None:
    """Memory that the cgroup leaves."""
    limit = _number(_CGROUP / "memory.max")
    if limit is not None:
        return limit - (_number(_CGROUP / "memory.current") or 0)
    limit = _number(_CGROUP / "memory" / "memory.limit_in_bytes")
    if limit is None or limit >= 1 << 60:
        return None
    return limit - (_number(_CGROUP / "memory" / "memory.usage_in_bytes") or 0)


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
