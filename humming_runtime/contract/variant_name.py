"""The grammar of variant names: one name is file stem, symbol, ninja target, log name and manifest key.

    <op>_<activation>_<weight>_<output>_<scale>_<layout>_<tier>-<schedule>
        _t<m>x<n>x<k>_w<warps>[r<rows>][c<cluster>]_s<stages>[_<flag>...]_<target>

The hyphen between tier and schedule becomes a double underscore in the CUDA symbol (`symbol`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class VariantNameError(ValueError):
    """A text that is no variant name."""


class Granularity(Enum):
    TENSOR = "tn"
    CHANNEL = "ch"
    GROUP = "g"
    BLOCK = "b"


class ZeroPoint(Enum):
    NONE = ""
    INTEGER = "z"
    FLOAT = "f"


OPS = ("dense", "moe", "quantize", "align", "reduce")
ACTIVATIONS = ("f16", "bf16", "e4m3", "e5m2", "i8", "i4")
OUTPUTS = ("f16", "bf16", "any")
SCALE_DTYPES = ("f16", "bf16", "f32", "e4m3", "e5m2", "e5m3", "e8m0")
TIERS = ("turing", "ampere", "ada", "hopper", "blackwell", "blackwell_rtx")
SCHEDULES = ("decode", "prefill", "multistage")

# A tier with an underscore keeps segments free of underscores in names.
_TIER_TOKENS = {tier: tier.replace("_", "") for tier in TIERS}
_TIER_OF_TOKEN = {token: tier for tier, token in _TIER_TOKENS.items()}

_WEIGHT = re.compile(r"u[1-8]|e\d+m\d+")
_SCALE = re.compile(
    r"(?P<gran>tn|ch|gc|g(?P<group>\d+)|b(?P<bn>\d+)x(?P<bk>\d+))"
    r"(?P<zero>[zf](?!16|32))?(?P<dtype>f16|bf16|f32|e4m3|e5m2|e5m3|e8m0)?"
)
_TILE = re.compile(r"t(\d+)x(\d+)x(\d+)")
_WARPS = re.compile(r"w(\d+)(?:r(\d+))?(?:c(\d+))?")
_STAGES = re.compile(r"s(\d+)")
_TARGET = re.compile(r"sm\d{2,3}[af]?")
_FLAG = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True, order=True)
class ScaleScheme:
    """Granularity, zero point and, where the loop decodes it, the scale's dtype.

    `group_size` is elements along k (None: not grouped, or chosen at run time for `gc`).
    """

    granularity: str  # value of Granularity
    group_size: int | None = None
    block: tuple[int, int] | None = None  # (n, k)
    zero_point: str = ""  # value of ZeroPoint
    dtype: str | None = None

    def __str__(self) -> str:
        if self.granularity == "g":
            head = "gc" if self.group_size is None else f"g{self.group_size}"
        elif self.granularity == "b" and self.block is not None:
            head = f"b{self.block[0]}x{self.block[1]}"
        else:
            head = self.granularity
        return f"{head}{self.zero_point}{self.dtype or ''}"

    @classmethod
    def parse(cls, text: str) -> ScaleScheme:
        match = _SCALE.fullmatch(text)
        if match is None:
            raise VariantNameError(
                f"{text!r} is no scale scheme; examples: ch, chz, g128f16, g32zbf16"
            )
        gran, group, dtype = match["gran"], match["group"], match["dtype"]
        block = (int(match["bn"]), int(match["bk"])) if match["bn"] else None
        return cls(
            granularity=gran if gran in ("tn", "ch") else gran[0],
            group_size=int(group) if group else None,
            block=block,
            zero_point=match["zero"] or "",
            dtype=dtype,
        )


@dataclass(frozen=True, order=True)
class Variant:
    """One point op x format x layout x tile x target; `str()` and `parse` are inverse."""

    op: str
    activation: str
    weight: str
    output: str
    scale: ScaleScheme
    layout: str
    tier: str
    schedule: str
    tile_m: int
    tile_n: int
    tile_k: int
    warps: int
    rows: int | None
    cluster: int | None
    stages: int
    flags: tuple[str, ...]
    target: str  # `sm_90a`

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        rows = "" if self.rows is None else f"r{self.rows}"
        cluster = "" if self.cluster is None else f"c{self.cluster}"
        return "_".join((
            self.op, self.activation, self.weight, self.output, str(self.scale), self.layout,
            f"{_TIER_TOKENS[self.tier]}-{self.schedule}",
            f"t{self.tile_m}x{self.tile_n}x{self.tile_k}",
            f"w{self.warps}{rows}{cluster}", f"s{self.stages}", *self.flags,
            self.target.replace("_", ""),
        ))  # fmt: skip

    @property
    def symbol(self) -> str:
        """The `extern "C"` entry: the name with C's alphabet."""
        return str(self).replace("-", "__")

    @property
    def format(self) -> str:
        """What a problem must ask for: activation, weight, scale scheme."""
        return f"{self.activation}_{self.weight}_{self.scale}"

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Raises: VariantNameError that names the segment at fault."""
        parts = text.split("_")
        if len(parts) < 11:
            raise VariantNameError(
                f"{text!r}: {len(parts)} segments, a variant name has 11 or more"
            )
        op, act, weight, out, scale, layout, schedule, tile, warps, stages, *flags, target = parts
        _one_of(text, "op", op, OPS)
        _one_of(text, "activation", act, ACTIVATIONS)
        _matching(text, "weight", weight, _WEIGHT)
        _one_of(text, "output", out, OUTPUTS)
        tier_token, _, schedule_name = schedule.partition("-")
        _one_of(text, "tier", tier_token, tuple(_TIER_OF_TOKEN))
        _one_of(text, "schedule", schedule_name, SCHEDULES)
        tile_m, tile_n, tile_k = (int(v) for v in _matching(text, "tile", tile, _TILE).groups())
        w, r, c = _matching(text, "warps", warps, _WARPS).groups()
        stage_count = int(_matching(text, "stages", stages, _STAGES)[1])
        for flag in flags:
            _matching(text, "flag", flag, _FLAG)
        _matching(text, "target", target, _TARGET)
        variant = cls(
            op=op, activation=act, weight=weight, output=out, scale=ScaleScheme.parse(scale),
            layout=layout, tier=_TIER_OF_TOKEN[tier_token], schedule=schedule_name,
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, warps=int(w),
            rows=int(r) if r else None, cluster=int(c) if c else None,
            stages=stage_count, flags=tuple(flags), target=f"sm_{target[2:]}",
        )  # fmt: skip
        if str(variant) != text:
            raise VariantNameError(
                f"{text!r}: not in canonical form; did you mean {str(variant)!r}"
            )
        return variant


def _one_of(name: str, segment: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise VariantNameError(f"{name!r}: unknown {segment} {value!r} (known: {', '.join(known)})")


def _matching(name: str, segment: str, value: str, pattern: re.Pattern[str]) -> re.Match[str]:
    match = pattern.fullmatch(value)
    if match is None:
        raise VariantNameError(f"{name!r}: {value!r} is no {segment} (pattern {pattern.pattern})")
    return match
