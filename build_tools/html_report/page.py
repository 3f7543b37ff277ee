"""What the page shows, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2

from build_tools.facts import BuiltKernel
from build_tools.file_writes import write_if_changed
from build_tools.folders import WorkFolder
from build_tools.html_report.coverage import coverage
from build_tools.html_report.timeline import lanes, last_run, spans_of
from build_tools.html_report.treemap import Rectangle, squarify
from build_tools.ninja_run import Compiled
from build_tools.wheel_sizes import GROUPINGS
from humming_runtime.contract.manifest import Manifest

_FRAME = Rectangle(0.0, 0.0, 960.0, 420.0)
_LANE_HEIGHT = 16
_TEXT_WIDTH = 7.2
_LABEL_HEIGHT = 18.0
_SLOWEST = 20
_DEGREES = 137.5  # neighbours differ in colour


@dataclass(frozen=True)
class Tile:
    """A kernel's rectangle."""

    title: str
    hue: float
    box: Rectangle


@dataclass(frozen=True)
class GroupTile:
    """A group's rectangle. label: empty where it has no room."""

    title: str
    label: str
    hue: float
    box: Rectangle
    kernels: tuple[Tile, ...]


@dataclass(frozen=True)
class Bar:
    """A compilation in the timeline."""

    title: str
    x: float
    y: int
    width: float


@dataclass(frozen=True)
class Timeline:
    """The last run of the compiler."""

    bars: tuple[Bar, ...]
    seconds: float
    lanes: int
    height: int
    others: int  # kernels compiled earlier or elsewhere


def write_page(
    work: WorkFolder, manifest: Manifest, compiled: Compiled, kernels: Sequence[BuiltKernel]
) -> Path:
    """Returns the file. Raises: DiskError."""
    write_if_changed(work.report, page_text(manifest, compiled, kernels))
    return work.report


def page_text(manifest: Manifest, compiled: Compiled, kernels: Sequence[BuiltKernel]) -> str:
    """The HTML. The same build gives the same text."""
    slowest = sorted(kernels, key=lambda k: (-k.milliseconds, k.planned.name))[:_SLOWEST]
    return _template().render(
        manifest=manifest,
        compiled=compiled,
        kernels=sorted(kernels, key=lambda k: k.planned.name),
        total_bytes=sum(k.facts.size_bytes for k in kernels),
        coverage=coverage(k.planned.variant for k in kernels),
        frame=_FRAME,
        groups=group_tiles(kernels),
        timeline=timeline(kernels),
        lane_height=_LANE_HEIGHT,
        slowest=slowest,
        longest=max((k.milliseconds for k in slowest), default=0) or 1,
    )


def group_tiles(kernels: Sequence[BuiltKernel]) -> tuple[GroupTile, ...]:
    """Groups by op and format, largest first, and their kernels inside."""
    groups: dict[str, list[BuiltKernel]] = {}
    for kernel in kernels:
        groups.setdefault(GROUPINGS["format"](kernel.planned.variant), []).append(kernel)
    sizes = {name: sum(k.facts.size_bytes for k in own) for name, own in groups.items()}
    names = sorted(groups, key=lambda name: (-sizes[name], name))
    boxes = squarify([sizes[name] for name in names], _FRAME)
    return tuple(
        _group_tile(name, groups[name], index * _DEGREES % 360, box)
        for index, (name, box) in enumerate(zip(names, boxes, strict=True))
    )


def _group_tile(name: str, kernels: Sequence[BuiltKernel], hue: float, box: Rectangle) -> GroupTile:
    own = sorted(kernels, key=lambda k: (-k.facts.size_bytes, k.planned.name))
    boxes = squarify([k.facts.size_bytes for k in own], box)
    tiles = tuple(
        Tile(f"{k.planned.name}: {k.facts.size_bytes:,} bytes", hue, inner)
        for k, inner in zip(own, boxes, strict=True)
    )
    total = sum(k.facts.size_bytes for k in own)
    room = int((box.width - 8) / _TEXT_WIDTH)
    fits = len(name) <= room and box.height >= _LABEL_HEIGHT
    title = f"{name}: {len(own)} kernels, {total:,} bytes"
    return GroupTile(title, name if fits else "", hue, box, tiles)


def timeline(kernels: Sequence[BuiltKernel]) -> Timeline:
    """Bars over the width of the frame."""
    placed = lanes(last_run(spans_of(kernels)))
    start = min((p.span.started for p in placed), default=0.0)
    seconds = max((p.span.ended - start for p in placed), default=0.0)
    scale = _FRAME.width / (seconds or 1.0)
    bars = tuple(
        Bar(
            title=f"{p.span.name}: {p.span.ended - p.span.started:.2f} s",
            x=(p.span.started - start) * scale,
            y=p.lane * _LANE_HEIGHT,
            width=(p.span.ended - p.span.started) * scale,
        )
        for p in placed
    )
    count = max((p.lane for p in placed), default=-1) + 1
    return Timeline(bars, seconds, count, count * _LANE_HEIGHT, len(kernels) - len(bars))


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2")
