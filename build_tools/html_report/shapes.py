"""Rectangles that the page draws: the treemap of sizes and the bars of compilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from build_tools.facts import BuiltKernel
from build_tools.html_report.timeline import lanes, last_run, spans_of
from build_tools.html_report.treemap import Rectangle, squarify
from build_tools.wheel_sizes import GROUPINGS

FRAME = Rectangle(0.0, 0.0, 960.0, 420.0)
LABEL_MARGIN = 6
LINE_HEIGHT = 15
LETTER_WIDTH = 6.7  # of the fixed-width font that the page sets at 11 pixels
_DEGREES = 137.5  # neighbours differ in colour
_LANE_HEIGHT = 16
_GAP = 1.0  # above and below a bar
_AXIS_HEIGHT = 18
_TICKS = 12  # at most, on the timeline
_TICK_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_NO_START = "No start of a compilation is recorded: kernels came from a store or an older builder."


@dataclass(frozen=True)
class Shape:
    """A rectangle with a text that a pointer over it shows."""

    title: str
    box: Rectangle

    @property
    def path(self) -> str:
        """The outline as SVG has it."""
        box = self.box
        return f"M{box.x:.2f} {box.y:.2f}h{box.width:.2f}v{box.height:.2f}h-{box.width:.2f}z"


@dataclass(frozen=True)
class GroupTile:
    """A group's rectangle and its kernels'. lines: its label, none where it has no room."""

    shape: Shape
    lines: tuple[str, ...]
    hue: float
    kernels: tuple[Shape, ...]


@dataclass(frozen=True)
class Tick:
    """A time on the axis. x: its place."""

    x: float
    label: str


@dataclass(frozen=True)
class Timeline:
    """The last run of the compiler."""

    bars: tuple[Shape, ...]
    ticks: tuple[Tick, ...]
    height: int
    summary: str


def group_tiles(kernels: Sequence[BuiltKernel]) -> tuple[GroupTile, ...]:
    """Groups by op and format, largest first, and their kernels inside."""
    groups: dict[str, list[BuiltKernel]] = {}
    for kernel in kernels:
        groups.setdefault(GROUPINGS["format"](kernel.planned.variant), []).append(kernel)
    sizes = {name: sum(k.facts.size_bytes for k in own) for name, own in groups.items()}
    names = sorted(groups, key=lambda name: (-sizes[name], name))
    boxes = squarify([sizes[name] for name in names], FRAME)
    return tuple(
        _group_tile(name, groups[name], index * _DEGREES % 360, box)
        for index, (name, box) in enumerate(zip(names, boxes, strict=True))
    )


def _group_tile(name: str, kernels: Sequence[BuiltKernel], hue: float, box: Rectangle) -> GroupTile:
    own = sorted(kernels, key=lambda k: (-k.facts.size_bytes, k.planned.name))
    boxes = squarify([k.facts.size_bytes for k in own], box)
    tiles = tuple(
        Shape(f"{k.planned.name}: {k.facts.size_bytes:,} bytes", inner)
        for k, inner in zip(own, boxes, strict=True)
    )
    total = sum(k.facts.size_bytes for k in own)
    title = f"{name}: {len(own)} kernels, {total:,} bytes"
    op, format_name = name.split(" ")
    lines = (format_name, f"{op}, {total / 1e3:,.0f} kB")
    widest = max(map(len, lines)) * LETTER_WIDTH
    fits = widest <= box.width - 2 * LABEL_MARGIN and box.height >= (len(lines) + 0.5) * LINE_HEIGHT
    return GroupTile(Shape(title, box), lines if fits else (), hue, tiles)


def timeline(kernels: Sequence[BuiltKernel]) -> Timeline:
    """Bars over the width of the frame."""
    placed = lanes(last_run(spans_of(kernels)))
    start = min((p.span.started for p in placed), default=0.0)
    seconds = max((p.span.ended - start for p in placed), default=0.0)
    scale = FRAME.width / (seconds or 1.0)
    bars = tuple(
        Shape(
            f"{p.span.name}: {p.span.ended - p.span.started:.2f} s",
            Rectangle(
                (p.span.started - start) * scale,
                p.lane * _LANE_HEIGHT + _GAP,
                (p.span.ended - p.span.started) * scale,
                _LANE_HEIGHT - 2 * _GAP,
            ),
        )
        for p in placed
    )
    count = max((p.lane for p in placed), default=-1) + 1
    busy = sum(p.span.ended - p.span.started for p in placed)
    others = len(kernels) - len(bars)
    summary = (
        f"{len(bars)} kernels in {seconds:.1f} s, {busy:.1f} s of compilation, at most {count} at "
        "a time" + (f"; {others} others came from earlier or a store." if others else ".")
    )
    height = count * _LANE_HEIGHT + _AXIS_HEIGHT
    return Timeline(bars, _ticks(seconds, scale), height, summary if bars else _NO_START)


def _ticks(seconds: float, scale: float) -> tuple[Tick, ...]:
    """Round times from 0 on."""
    step = next((s for s in _TICK_SECONDS if s * _TICKS >= seconds), _TICK_SECONDS[-1])
    return tuple(
        Tick(round(at * step * scale, 2), f"{at * step:g} s")
        for at in range(int(seconds / step) + 1)
    )
