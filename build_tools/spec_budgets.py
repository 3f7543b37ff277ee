"""specs/budgets.yaml -> frozen values: how large wheels and groups of kernels may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build_tools import name_glob
from build_tools.errors import Fault, SpecError
from build_tools.spec_values import NameRule, Specs
from build_tools.yaml_nodes import NodeReader

BUDGETS = "budgets.yaml"
_MOST_MB = 10_000.0
_BYTES = 1_000_000


@dataclass(frozen=True)
class WheelBudget:
    """Most bytes of a profile's wheel."""

    profile: str
    max_bytes: int
    place: str


@dataclass(frozen=True)
class GroupBudget:
    """Most bytes of the cubins that match, as they are compressed in the wheel."""

    rule: NameRule
    max_bytes: int


@dataclass(frozen=True)
class Budgets:
    """A profile without a budget, and a kernel of no group, may be of any size."""

    wheels: tuple[WheelBudget, ...]
    groups: tuple[GroupBudget, ...]


def read_budgets(folder: Path, specs: Specs, names: Sequence[str]) -> Budgets:
    """names: every variant that the specs name. Raises: SpecError with all faults."""
    reader = NodeReader(f"{folder.name}/{BUDGETS}")
    path = folder / BUDGETS
    if not path.is_file():
        raise SpecError([Fault(reader.shown, "file is missing")])
    root = reader.root(path)
    fields = {} if root is None else reader.fields(root, ["wheels", "groups"])
    profiles = [profile.name for profile in specs.profiles]
    wheels = []
    for name, key, value in reader.entries(fields["wheels"]) if "wheels" in fields else ():
        reader.word(key, profiles, "profile")
        size = reader.fields(value, ["max_mb"]).get("max_mb")
        limit = 0 if size is None else round(reader.number(size, 0.0, _MOST_MB) * _BYTES)
        wheels.append(WheelBudget(name, limit, reader.place(value)))
    groups = []
    for item in reader.items(fields["groups"]) if "groups" in fields else ():
        row = reader.fields(item, ["match", "max_mb", "why"])
        if len(row) == 3:
            rule = NameRule(
                reader.pattern(row["match"]), reader.text(row["why"]), reader.place(item)
            )
            if not any(name_glob.matches(rule.pattern, name) for name in names):
                reader.fault(item, f"pattern {rule.pattern!r} matches no variant")
            limit = round(reader.number(row["max_mb"], 0.0, _MOST_MB) * _BYTES)
            groups.append(GroupBudget(rule, limit))
    if reader.faults:
        raise SpecError(reader.faults)
    return Budgets(tuple(wheels), tuple(groups))
