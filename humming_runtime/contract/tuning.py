"""Measured choices: which launch was the fastest for a shape, on one class of devices.

Tables lie in manifests of kernel wheels (`tuning`), in specs/tuning/*.json, and in files that `humming tune` writes;
all have one form. A launch is one line of text, so that tables stay short and their changes readable:

    "m tile split_k ctas_per_sm stages us"       "8 hopper-decode_t8x32x1024_w8r2_s6 2 1 4 5.8"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from humming_runtime.contract.variant_name import Variant

_LAUNCH = re.compile(r"(\d+) ([a-z0-9-]+_t\d+x\d+x\d+_\w+) (\d+) (\d+) (\d+) (\d+(?:\.\d+)?)")
_BANDWIDTH_TOLERANCE = 0.1
_AS_FAST, _AS_FAST_LONG, _LONG_US = 1.01, 1.05, 500.0
"""What noise can be: a long launch runs into the power limit, where the clock follows no rule."""


class TuningError(ValueError):
    """A table that is not one: what is wrong, without the place."""


@dataclass(frozen=True, order=True)
class TunedLaunch:
    """The fastest launch that was measured for m rows. us: its time, microseconds."""

    m: int
    tile: str  # see tile_of
    split_k: int
    ctas_per_sm: int
    stages: int
    us: float

    def __str__(self) -> str:
        return f"{self.m} {self.tile} {self.split_k} {self.ctas_per_sm} {self.stages} {self.us:g}"

    @classmethod
    def parse(cls, text: str) -> TunedLaunch:
        """Raises: TuningError."""
        match = _LAUNCH.fullmatch(text)
        if match is None:
            example = "8 hopper-decode_t8x32x1024_w8r2_s6 2 1 4 5.8"
            raise TuningError(
                f"{text!r} is no launch (m tile split_k ctas_per_sm stages us: {example!r})"
            )
        m, tile, split_k, ctas_per_sm, stages, us = match.groups()
        return cls(int(m), tile, int(split_k), int(ctas_per_sm), int(stages), float(us))


@dataclass(frozen=True)
class TunedShape:
    """Launches of one weight shape by rising m. formats: globs of formats that it holds for, measured first."""

    op: str
    formats: tuple[str, ...]
    n: int
    k: int
    launches: tuple[TunedLaunch, ...]


@dataclass(frozen=True)
class TuningTable:
    """One class of devices: SM count and peak bandwidth tell apart what has one capability."""

    name: str
    capability: str  # `9.0`
    sm_count: int
    memory_gbps: int  # peak of device memory, 10^9 bytes a second
    measured_on: str  # device, driver and date, for people
    shapes: tuple[TunedShape, ...]

    def fits(self, capability: tuple[int, int], sm_count: int, memory_gbps: int) -> bool:
        """Is a device of this class? A bandwidth of 0 is unknown and fits no other."""
        return (
            self.capability == f"{capability[0]}.{capability[1]}"
            and self.sm_count == sm_count
            and abs(self.memory_gbps - memory_gbps) <= _BANDWIDTH_TOLERANCE * self.memory_gbps
        )


def tile_of(variant: Variant) -> str:
    """Tier, schedule and tile of a name: `hopper-decode_t8x32x1024_w8r2_s6`."""
    return "_".join(str(variant).split("_")[6:-1])


def best_launches(timed: Iterable[TunedLaunch]) -> tuple[TunedLaunch, ...]:
    """The fastest of each m. The one of the m before stays where it is as fast within the noise: fewer kernels."""
    by_m: dict[int, list[TunedLaunch]] = {}
    for launch in timed:
        by_m.setdefault(launch.m, []).append(launch)
    found: list[TunedLaunch] = []
    for m in sorted(by_m):
        fastest = min(by_m[m], key=lambda launch: (launch.us, str(launch)))
        limit = fastest.us * (_AS_FAST if fastest.us < _LONG_US else _AS_FAST_LONG)
        near = [x for x in by_m[m] if x.us <= limit and found and _alike(x, found[-1])]
        found.append(min(near, key=lambda launch: launch.us) if near else fastest)
    return tuple(found)


def _alike(one: TunedLaunch, other: TunedLaunch) -> bool:
    return (one.tile, one.split_k, one.ctas_per_sm) == (
        other.tile,
        other.split_k,
        other.ctas_per_sm,
    )


def table_to_dict(table: TuningTable) -> dict[str, Any]:
    """JSON values; launches as texts."""
    raw = asdict(table)
    raw["shapes"] = [
        {
            "op": shape.op,
            "formats": list(shape.formats),
            "n": shape.n,
            "k": shape.k,
            "launches": [str(launch) for launch in shape.launches],
        }
        for shape in table.shapes
    ]
    return raw


def table_from_dict(raw: Any) -> TuningTable:
    """Raises: TuningError that names the key."""
    if not isinstance(raw, dict):
        raise TuningError("not a JSON object")
    kinds = {
        "name": str,
        "capability": str,
        "sm_count": int,
        "memory_gbps": int,
        "measured_on": str,
        "shapes": list,
    }
    _check_keys(raw, kinds, "table")
    if not re.fullmatch(r"\d+\.\d", raw["capability"]):
        raise TuningError(f"capability: {raw['capability']!r} is none (example: 9.0)")
    shapes = tuple(_shape(value, f"shapes[{i}]") for i, value in enumerate(raw["shapes"]))
    return TuningTable(**{**raw, "shapes": shapes})


def table_from_json(text: str) -> TuningTable:
    """Raises: TuningError."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise TuningError(f"not JSON ({error})") from error
    return table_from_dict(raw)


def table_to_json(table: TuningTable) -> str:
    """Equal tables give equal bytes."""
    return json.dumps(table_to_dict(table), indent=1, sort_keys=True) + "\n"


def _shape(raw: Any, place: str) -> TunedShape:
    if not isinstance(raw, dict):
        raise TuningError(f"{place}: not a JSON object")
    _check_keys(raw, {"op": str, "formats": list, "n": int, "k": int, "launches": list}, place)
    try:
        launches = tuple(TunedLaunch.parse(str(text)) for text in raw["launches"])
    except TuningError as error:
        raise TuningError(f"{place}: {error}") from error
    rows = [launch.m for launch in launches]
    if not rows or rows != sorted(set(rows)):
        raise TuningError(f"{place}: launches are not of rising m")
    formats = tuple(str(text) for text in raw["formats"])
    return TunedShape(raw["op"], formats, raw["n"], raw["k"], launches)


def _check_keys(raw: dict[str, Any], kinds: dict[str, type], place: str) -> None:
    wrong = [key for key, kind in kinds.items() if type(raw.get(key)) is not kind]
    unknown = sorted(set(raw) - set(kinds))
    if wrong or unknown:
        parts = [f"missing or of another kind: {', '.join(wrong)}"] if wrong else []
        parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
        raise TuningError(f"{place}: keys {'; '.join(parts)}")
