"""`--shard i/n`: which kernels of a plan one machine builds. Pure, the same on every machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from build_tools.errors import UsageError
from build_tools.plan import ArchPlan, Planned, Skipped
from build_tools.scale.compile_times import CompileTimes

_FORM = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


@dataclass(frozen=True)
class Shard:
    """Shard `index` of `count`, from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> Shard:
    """`2/4`. Raises: UsageError."""
    match = _FORM.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError.of("--shard", f"{text!r} is no shard (example: 2/4, the second of four)")
    return Shard(int(match[1]), int(match[2]))


def deal(planned: Sequence[Planned], count: int, times: CompileTimes) -> list[list[Planned]]:
    """The longest first, each to the shard that has the least so far; by name within a shard."""
    loads = [0.0] * count
    hands: list[list[Planned]] = [[] for _ in range(count)]
    costs = {item.name: times.estimate_ms(item.variant) for item in planned}
    for item in sorted(planned, key=lambda one: (-costs[one.name], one.name)):
        place = loads.index(min(loads))
        hands[place].append(item)
        loads[place] += costs[item.name]
    return [sorted(hand, key=lambda one: one.name) for hand in hands]


def shard_of(plan: ArchPlan, shard: Shard, times: CompileTimes) -> ArchPlan:
    """The plan with this shard's kernels; the others are skipped with that reason."""
    hands = deal(plan.build, shard.count, times)
    others = [
        Skipped(item.name, f"in shard {index}/{shard.count}")
        for index, hand in enumerate(hands, 1)
        if index != shard.index
        for item in hand
    ]
    skipped = tuple(sorted((*plan.skipped, *others), key=lambda one: one.name))
    return replace(plan, build=tuple(hands[shard.index - 1]), skipped=skipped)


def plan_sha256(plan: ArchPlan) -> str:
    """Identity of a whole plan: arch, profile, and every kernel's name."""
    lines = (plan.arch.name, plan.profile, *(item.name for item in plan.build))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
