"""The report of a build: true areas, lanes without overlap, one file that needs nothing else."""

from __future__ import annotations

import colorsys
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from fake_build import REAL_CUBIN, VARIANT
from hypothesis import given
from hypothesis import strategies as st

from build_tools.cubin import read_facts
from build_tools.facts import BuiltKernel
from build_tools.html_report.coverage import coverage
from build_tools.html_report.markup import _SHADE
from build_tools.html_report.page import page_text
from build_tools.html_report.shapes import FRAME as PAGE_FRAME
from build_tools.html_report.shapes import LETTER_WIDTH, group_tiles, timeline
from build_tools.html_report.timeline import Span, lanes, last_run
from build_tools.html_report.treemap import Rectangle, squarify
from build_tools.ninja_run import Compiled
from build_tools.plan import Planned
from humming_runtime.contract.manifest import from_json
from humming_runtime.contract.variant_name import ScaleScheme, Variant

FRAME = Rectangle(10.0, 20.0, 960.0, 420.0)
NOTHING = Compiled((), (), ())
SPANS = st.lists(
    st.builds(
        lambda start, length: Span("k", start, start + length),
        st.integers(0, 500),
        st.integers(1, 90),
    ),
    max_size=40,
)


class Page(HTMLParser):
    """Refuses tags that do not match; keeps attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, _tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def kernels():
    facts = read_facts(REAL_CUBIN.read_bytes())
    first = Variant.parse(VARIANT)
    variants = [first, replace(first, tile_m=16), replace(first, op="moe")]
    return [
        BuiltKernel(Planned(v, "f", None, None), facts, 4 * at, 900 + at, 1e9 + at)
        for at, v in enumerate(variants)
    ]


@pytest.fixture
def manifest(build, tmp_path):
    assert build("-q", "--until", "cubins") == 0
    return from_json(
        (tmp_path / "work/sm_90/manifest.json").read_text(encoding="utf-8"), "manifest"
    )


@given(st.lists(st.floats(1.0, 1e7), min_size=1, max_size=60))
def test_areas_are_in_proportion_inside_the_frame_and_do_not_overlap(sizes):
    sizes.sort(reverse=True)
    tiles = squarify(sizes, FRAME)
    for size, tile in zip(sizes, tiles, strict=True):
        assert tile.area == pytest.approx(size / sum(sizes) * FRAME.area, rel=1e-6, abs=1e-6)
        assert tile.x >= FRAME.x - 1e-6
        assert tile.y >= FRAME.y - 1e-6
        assert tile.x + tile.width <= FRAME.x + FRAME.width + 1e-6
        assert tile.y + tile.height <= FRAME.y + FRAME.height + 1e-6
    for at, one in enumerate(tiles):
        for other in tiles[:at]:
            wide = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            high = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(wide, high) < 1e-6


@given(SPANS)
def test_lanes_never_overlap_and_are_as_few_as_can_be(spans):
    placed = lanes(spans)
    assert len(placed) == len(spans)
    for at, one in enumerate(placed):
        for other in placed[:at]:
            if one.lane == other.lane:
                assert one.span.started >= other.span.ended or other.span.started >= one.span.ended
    most = max((sum(s.started <= t.started < s.ended for s in spans) for t in spans), default=0)
    assert len({p.lane for p in placed}) == most


def test_a_pause_of_a_minute_ends_a_run():
    spans = [Span("old", 0.0, 5.0), Span("new", 70.0, 71.0), Span("newer", 100.0, 101.0)]
    assert [s.name for s in last_run(spans)] == ["new", "newer"]
    assert last_run([]) == ()


def test_coverage_counts_each_format_by_op_schedule_and_target():
    table = coverage(k.planned.variant for k in kernels())
    assert table.columns == (("dense", "decode", "sm_90a"), ("moe", "decode", "sm_90a"))
    assert table.rows == (("bf16_u4_ch", (2, 1)),)


def test_groups_hold_the_tiles_of_their_kernels():
    groups = group_tiles(kernels())
    assert [len(g.kernels) for g in groups] == [2, 1]
    assert groups[0].shape.box.area == pytest.approx(2 * groups[1].shape.box.area)


def test_a_label_is_there_where_it_has_room():
    (first, *_) = kernels()
    sized = [
        replace(
            first,
            planned=Planned(
                replace(first.planned.variant, op=op, scale=ScaleScheme("g", group_size=size)),
                "f",
                None,
                None,
            ),
            facts=replace(first.facts, size_bytes=10 * size),
        )
        for size in (1, 10, 1000, 5000)
        for op in ("dense", "moe")
    ]
    groups = group_tiles(sized)
    assert {len(group.lines) for group in groups} == {0, 2}
    for group in groups:
        assert all(len(line) * LETTER_WIDTH <= group.shape.box.width for line in group.lines)


@pytest.mark.parametrize("hue", range(0, 360, 5))
def test_white_labels_have_contrast_on_every_colour(hue):
    saturation, lightness = (float(part.rstrip("%")) / 100 for part in _SHADE.split())
    parts = colorsys.hls_to_rgb(hue / 360, lightness, saturation)
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    assert 1.05 / (luminance + 0.05) >= 4.5  # WCAG 2, AA


@pytest.mark.parametrize("seconds", [0.01, 0.3, 7, 59, 61, 218.5, 3599, 36000])
def test_the_timeline_has_a_few_round_times_inside_the_drawing(seconds):
    one = replace(kernels()[0], milliseconds=round(seconds * 1e3))
    ticks = timeline([one]).ticks
    assert 1 <= len(ticks) <= 13
    assert ticks[0].label == "0 s"
    assert all(0 <= tick.x <= PAGE_FRAME.width for tick in ticks)


def test_texts_are_escaped(manifest):
    hostile = '<script>alert("x")</script>'
    text = page_text(replace(manifest, package=hostile, profile=hostile), NOTHING, kernels())
    assert hostile not in text
    assert hostile in "".join(Page(text).texts)


def test_the_page_is_well_formed_and_needs_nothing_else(manifest):
    text = page_text(manifest, NOTHING, kernels())
    page = Page(text)
    assert not {name for name, _ in page.attributes} & {"src", "href", "srcset", "action"}
    assert not re.search(r"https?:|//\w|url\(|@import|\bimport\b|fetch\(", text)
    assert text.count('class="run"') == 3
    assert text == page_text(manifest, NOTHING, kernels())


def test_a_page_without_kernels_says_so_and_has_no_empty_sections(manifest):
    text = page_text(manifest, NOTHING, [])
    Page(text)
    assert "No kernel is in this build" in text
    assert "<h2>" not in text


def test_a_page_without_times_says_so(manifest):
    text = page_text(manifest, NOTHING, [replace(k, started=None) for k in kernels()])
    assert "No start of a compilation" in text
    assert "timeline" not in text


def test_spills_and_holes_in_the_coverage_are_marked(manifest):
    text = page_text(manifest, NOTHING, kernels())
    alarms = re.findall(r'<td class="alarm">([^<]+)</td>', text)
    assert alarms == ["4", "8"]  # bytes
    assert "<dd>2 kernels spill</dd>" in text
    other = kernels()[2]
    scale = replace(other.planned.variant.scale, zero_point="z")
    hole = replace(
        other, planned=Planned(replace(other.planned.variant, scale=scale), "f", None, None)
    )
    text = page_text(manifest, NOTHING, [*kernels()[:2], hole])
    assert text.count('<td class="alarm">none</td>') == 2


def test_first_and_later_pages_of_a_process_take_milliseconds(manifest):
    many = kernels() * 100
    started = time.process_time()
    page_text(manifest, NOTHING, many)
    assert time.process_time() - started < 0.1  # 15 ms on a free machine


@pytest.mark.parametrize("until", ["cubins", "wheel"])
def test_the_last_line_of_a_build_names_the_report(build, tmp_path, capsys, until):
    assert build("--until", until) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    path = tmp_path / "work/sm_90/report.html"
    assert last == f"  report: {path}"
    text = path.read_text(encoding="utf-8")
    assert VARIANT in text
    assert "1 built, 0 fetched, 0 reused" in text
    assert text.count('class="run"') == 1


def test_a_run_that_changes_nothing_leaves_the_file(build, tmp_path):
    path = tmp_path / "work/sm_90/report.html"
    assert build("-q") == 0
    assert build("-q") == 0
    assert "0 built, 0 fetched, 1 reused" in path.read_text(encoding="utf-8")
    before = path.stat().st_mtime_ns
    assert build("-q") == 0
    assert path.stat().st_mtime_ns == before


def test_the_start_of_a_compilation_is_recorded_and_in_no_manifest(build, tmp_path):
    assert build("-q") == 0
    work = tmp_path / "work/sm_90"
    record = json.loads((work / "records" / f"{VARIANT}.json").read_text(encoding="utf-8"))
    assert record["started"] > 1e9
    assert "started" not in (work / "manifest.json").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_is_a_fault_of_the_disk(build, tmp_path, capsys):
    path = tmp_path / "work/sm_90/report.html"
    path.mkdir(parents=True)
    assert build("-q") == 9
    assert f"{path}: is a directory" in capsys.readouterr().err
