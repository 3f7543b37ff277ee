"""specs/ -> frozen values. Every fault of every file is reported at once, with file:line:column."""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from yaml.nodes import Node

from build_tools import name_glob
from build_tools.enumerate_points import family_variants
from build_tools.errors import Fault, SpecError, did_you_mean
from build_tools.spec_budgets import BUDGETS
from build_tools.spec_family import read_family
from build_tools.spec_values import (
    FEATURES,
    Arch,
    CostRule,
    Family,
    NameRule,
    Profile,
    Specs,
)
from build_tools.yaml_nodes import NodeReader
from humming_runtime.contract.manifest import Cost
from humming_runtime.contract.targets import target_capability
from humming_runtime.contract.variant_name import TIERS, Variant

ARCHS, PROFILES, COSTS = "archs.yaml", "profiles.yaml", "costs.yaml"
_ARCH_NAME = re.compile(r"sm_[1-9][0-9]{1,2}")
_CUDA = re.compile(r"([1-9][0-9]*)\.([0-9]+)")
_MOST_SHARED_BYTES = 1 << 20
_MOST_US = 1e6


def load_specs(folder: Path) -> Specs:
    """Read every spec in `folder`. Raises: SpecError with all faults."""
    faults: list[Fault] = []
    archs = _read_archs(folder, faults)
    families: list[Family] = []
    for path in sorted(folder.glob("*.yaml")):
        if path.name not in (ARCHS, PROFILES, COSTS, BUDGETS):
            reader = NodeReader(_shown(folder, path.name))
            node = reader.root(path)
            family = None if node is None else read_family(reader, node)
            faults += reader.faults
            if family is not None:
                families.append(family)
    if not families and not faults:
        faults.append(Fault(_shown(folder, ""), "no family files (*.yaml besides the tables)"))
    profiles = _read_profiles(folder, archs, faults)
    costs = _read_costs(folder, faults)
    specs = Specs(archs, tuple(families), profiles, costs)
    if not faults:
        faults += [*_double_variants(families), *_dead_patterns(specs)]
    if faults:
        raise SpecError(faults)
    return specs


def _shown(folder: Path, name: str) -> str:
    return f"{folder.name}/{name}"


def _open(folder: Path, name: str, faults: list[Fault]) -> tuple[NodeReader, Node | None]:
    """The file's root node; a missing file is a fault."""
    reader = NodeReader(_shown(folder, name))
    reader.faults = faults
    path = folder / name
    if not path.is_file():
        faults.append(Fault(reader.shown, "file is missing"))
        return reader, None
    return reader, reader.root(path)


def _read_archs(folder: Path, faults: list[Fault]) -> tuple[Arch, ...]:
    reader, root = _open(folder, ARCHS, faults)
    if root is None:
        return ()
    table = reader.fields(root, ["archs"]).get("archs")
    rows = [] if table is None else reader.entries(table)
    archs = [_read_arch(reader, name, key, value) for name, key, value in rows]
    return tuple(sorted((a for a in archs if a is not None), key=lambda a: a.capability))


def _read_arch(reader: NodeReader, name: str, key: Node, value: Node) -> Arch | None:
    required = ["target", "tier", "shared_bytes", "min_cuda", "features"]
    if not _ARCH_NAME.fullmatch(name):
        reader.fault(key, f"{name!r} is no arch (example: sm_90)")
        return None
    fields = reader.fields(value, required, ["forms"])
    if any(word not in fields for word in required):
        return None
    forms = reader.texts(fields["forms"]) if "forms" in fields else (name,)
    for form in forms:
        if not re.fullmatch(f"{name}[af]?", form):
            reader.fault(fields["forms"], f"{form!r} is no target of {name} (example: {name}a)")
    cuda = reader.text(fields["min_cuda"])
    match = _CUDA.fullmatch(cuda)
    if cuda and match is None:
        reader.fault(fields["min_cuda"], f'{cuda!r} is no toolkit release (example: "13.0")')
    return Arch(
        name=name,
        target=reader.word(fields["target"], forms, "target"),
        forms=forms,
        tier=reader.word(fields["tier"], TIERS, "tier"),
        shared_bytes=reader.integer(fields["shared_bytes"], 1024, _MOST_SHARED_BYTES),
        features=reader.words(fields["features"], FEATURES, "feature"),
        min_cuda=(int(match[1]), int(match[2])) if match else target_capability(name),
    )


def _read_profiles(
    folder: Path, archs: tuple[Arch, ...], faults: list[Fault]
) -> tuple[Profile, ...]:
    reader, root = _open(folder, PROFILES, faults)
    if root is None:
        return ()
    table = reader.fields(root, ["profiles"]).get("profiles")
    rows = [] if table is None else reader.entries(table)
    return tuple(_read_profile(reader, name, value, archs) for name, _, value in rows)


def _read_profile(reader: NodeReader, name: str, node: Node, archs: tuple[Arch, ...]) -> Profile:
    fields = reader.fields(node, ["why", "select"], ["drop", "test_tiers"])
    why = reader.text(fields["why"]) if "why" in fields else ""
    tiers: list[tuple[str, tuple[str, ...]]] = []
    known = tuple(arch.name for arch in archs)
    if "test_tiers" in fields:
        for word, key, value in reader.entries(fields["test_tiers"]):
            if known and word not in known:
                near = did_you_mean(word, known)
                reader.fault(key, f"unknown arch {word!r} (known: {', '.join(known)}){near}")
            tiers.append((word, reader.words(value, TIERS, "tier")))
    return Profile(
        name=name,
        why=why,
        select=_patterns(reader, fields.get("select"), why),
        drop=_patterns(reader, fields.get("drop"), why),
        test_tiers=tuple(sorted(tiers)),
        place=reader.place(node),
    )


def _patterns(reader: NodeReader, node: Node | None, why: str) -> tuple[NameRule, ...]:
    items = [] if node is None else reader.items(node)
    return tuple(NameRule(reader.pattern(i), why, reader.place(i)) for i in items)


def _read_costs(folder: Path, faults: list[Fault]) -> tuple[CostRule, ...]:
    reader, root = _open(folder, COSTS, faults)
    if root is None:
        return ()
    rules = []
    names = [field.name for field in dataclasses.fields(Cost)]
    node = reader.fields(root, ["costs"]).get("costs")
    for item in [] if node is None else reader.items(node):
        fields = reader.fields(item, ["match", *names])
        if len(fields) == len(names) + 1:
            cost = Cost(**{name: reader.number(fields[name], 0.0, _MOST_US) for name in names})
            pattern = reader.pattern(fields["match"])
            rules.append(CostRule(pattern, cost, reader.place(item)))
    return tuple(rules)


def _double_variants(families: Sequence[Family]) -> list[Fault]:
    """Families that have a variant in common: one name is one kernel."""
    first: dict[str, Family] = {}
    faults = []
    heads = Counter(head for family in families for head in _heads(family))
    for family in families:
        if all(heads[head] == 1 for head in _heads(family)):
            continue
        tiers = sorted({tile.tier for tile in family.tiles})
        names = [str(v) for tier in tiers for v in family_variants(family, tier, "sm_90")]
        double = next((name for name in names if name in first), None)
        if double is not None:
            what = double.removesuffix("_sm90")
            other = first[double].place
            faults.append(Fault(family.place, f"variant {what!r} is also one of {other}"))
        first = dict.fromkeys(names, family) | first
    return faults


def _heads(family: Family) -> list[tuple[str, str, str]]:
    """What families have to have in common before a variant of theirs can be the same."""
    return [(family.op, weight, family.layout) for weight in family.weights]


def _dead_patterns(specs: Specs) -> list[Fault]:
    """Patterns that match no variant of any family on any arch: a typing mistake, or left over."""
    names = [str(v) for v in every_variant(specs)]
    random.Random(0).shuffle(names)  # noqa: S311  what a pattern matches is soon met
    rules: list[NameRule] = []
    for profile in specs.profiles:
        rules += [*profile.select, *profile.drop]
    for family in specs.families:
        rules += family.exceptions
        rules += [NameRule(s.pattern, s.why, s.place) for s in family.spills]
    rules += [NameRule(c.pattern, "", c.place) for c in specs.costs]
    return [
        Fault(rule.place, f"pattern {rule.pattern!r} matches no variant")
        for rule in rules
        if not any(name_glob.matches(rule.pattern, name) for name in names)
    ]


def every_variant(specs: Specs) -> list[Variant]:
    """Every point of every family on every arch, test targets included, before any limit."""
    pairs = {(arch.tier, arch.target) for arch in specs.archs}
    by_name = {arch.name: arch for arch in specs.archs}
    for profile in specs.profiles:
        for arch_name, tiers in profile.test_tiers:
            pairs |= {(tier, by_name[arch_name].target) for tier in tiers}
    return [
        variant
        for family in specs.families
        for tier, target in sorted(pairs)
        for variant in family_variants(family, tier, target)
    ]
