"""The page's parts as HTML. Plain Python: compiling a template took longer than all the rest.

Every text from outside goes through `escape`; numbers need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from build_tools.html_report.shapes import (
    FRAME,
    LABEL_MARGIN,
    LINE_HEIGHT,
    GroupTile,
    Shape,
    Timeline,
)
from build_tools.html_report.tables import Cell, Table

_SHADE = "38% 31%"  # saturation and lightness: white text has a contrast of 4.5 or more in any hue


def facts_html(facts: Mapping[str, str]) -> str:
    """Items of a description list."""
    items = (
        f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in facts.items()
    )
    return "\n".join(items)


def table_html(table: Table) -> str:
    """With its heading."""
    heads = "".join(f'<th scope="col">{_heading(text, table)}</th>' for text in table.headings)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(map(_cell, cells))}</tr>'
        for name, cells in table.rows
    )
    content = (
        f'<table id="{table.key}">\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )
    return _section(table.title, table.note, content)


def _heading(text: str, table: Table) -> str:
    return f'<button type="button">{escape(text)}</button>' if table.sorts else escape(text)


def _cell(cell: Cell) -> str:
    alarm = ' class="alarm"' if cell.is_alarm else ""
    return f"<td{alarm}>{escape(cell.text)}</td>"


def treemap_html(groups: Sequence[GroupTile]) -> str:
    """With its heading."""
    note = (
        "Bytes of cubins by op and format, before compression; each small tile is a kernel and "
        "shows its name under the pointer."
    )
    return _section("Sizes", note, _drawing("treemap", FRAME.height, map(_group, groups)))


def _group(group: GroupTile) -> str:
    """The inner svg cuts a label off at the group's edge, whatever the font."""
    box = group.shape.box
    tiles = "\n".join(_path("kernel", tile) for tile in group.kernels)
    label = "".join(
        f'<text class="label" x="{LABEL_MARGIN}" y="{at * LINE_HEIGHT}">{escape(line)}</text>'
        for at, line in enumerate(group.lines, 1)
    )
    return (
        f'<g color="hsl({group.hue:g} {_SHADE})">\n{tiles}\n'
        f'<path class="group" d="{group.shape.path}"/>\n'
        f'<svg x="{box.x:.2f}" y="{box.y:.2f}" width="{box.width:.2f}" height="{box.height:.2f}">'
        f"<title>{escape(group.shape.title)}</title>{label}</svg>\n</g>"
    )


def timeline_html(timeline: Timeline) -> str:
    """With its heading; without a drawing where no times are known."""
    height = timeline.height
    ticks = [
        f'<path class="tick" d="M{tick.x:.2f} 0v{height}"/>'
        f'<text class="time" x="{tick.x + 3:.2f}" y="{height - 3}">{tick.label}</text>'
        for tick in timeline.ticks
    ]
    bars = [_path("run", bar) for bar in timeline.bars]
    drawing = _drawing("timeline", height, [*ticks, *bars]) if bars else ""
    return _section("Compilation", timeline.summary, drawing)


def _path(kind: str, shape: Shape) -> str:
    return f'<path class="{kind}" d="{shape.path}"><title>{escape(shape.title)}</title></path>'


def _drawing(key: str, height: float, content: Iterable[str]) -> str:
    lines = "\n".join(content)
    return f'<svg id="{key}" role="img" viewBox="0 0 {FRAME.width:g} {height:g}">\n{lines}\n</svg>'


def _section(title: str, note: str, content: str) -> str:
    """What is wider than the window scrolls, by keyboard too."""
    text = f"<h2>{escape(title)}</h2>\n<p>{escape(note)}</p>\n"
    if not content:
        return text
    scroll = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(title)}">'
    return f"{text}{scroll}\n{content}\n</div>"
