"""Measured choices: which row speaks for a problem, and that none leads outside of what runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import fake_packages as fake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stub_cuda import StubCuda

from build_tools.plan import make_plan
from build_tools.spec_load import every_variant, load_specs
from build_tools.tuning_tables import read_tuning
from humming_runtime import selection
from humming_runtime.cli import main
from humming_runtime.contract.tuning import (
    TunedLaunch,
    TunedShape,
    TuningError,
    TuningTable,
    best_launches,
    table_from_json,
    table_to_json,
    tile_of,
)
from humming_runtime.contract.variant_name import ScaleScheme, Variant
from humming_runtime.discover import Package, discover
from humming_runtime.driver import Driver
from humming_runtime.engine import Engine
from humming_runtime.errors import UsageError
from humming_runtime.known_devices import assumed_device
from humming_runtime.problem import Problem
from humming_runtime.resolve import resolve
from humming_runtime.tuning import tables_for

ROOT = Path(__file__).resolve().parents[3]
N, K = 4096, 4096
DECODE, PREFILL = (tile_of(Variant.parse(name)) for name in (fake.DECODE, fake.PREFILL))
H200 = assumed_device((9, 0))


def problem(m, text="f16_u4_g128f16", n=N, k=K):
    activation, weight, scale = text.split("_")
    return Problem("dense", activation, weight, ScaleScheme.parse(scale), "frag16", m, n, k)


def table(*launches, formats=("f16_u4_g128f16", "*_u4_*"), name="test", **changes):
    shape = TunedShape("dense", formats, N, K, tuple(TunedLaunch.parse(t) for t in launches))
    facts = {"capability": "9.0", "sm_count": 132, "memory_gbps": 4814, "measured_on": "here"}
    return TuningTable(name=name, shapes=(shape,), **{**facts, **changes})


def chosen(installed, m, *tables, **others):
    return resolve(problem(m, **others), H200, installed.packages, None, tables).chosen


def test_a_row_of_the_same_m_decides_tile_and_launch(installed):
    one = table(f"8 {DECODE} 2 1 4 5.8", f"64 {PREFILL} 4 1 3 7.5")
    decode = chosen(installed, 8, one)
    assert (decode.entry.name, decode.shape.split_k, decode.shape.ctas_per_sm) == (
        (fake.DECODE, 2, 1)
    )
    assert decode.measured is not None
    assert (decode.measured.us, decode.measured.m, decode.measured.table) == (5.8, 8, "test")
    assert chosen(installed, 64, one).entry.name == fake.PREFILL
    assert chosen(installed, 8).measured is None


def test_between_and_beyond_the_rows(installed):
    one = table(f"2 {PREFILL} 1 1 3 5.0", f"6 {DECODE} 1 2 2 5.8", f"64 {PREFILL} 1 1 3 7.5")
    names = {m: chosen(installed, m, one).entry.name for m in (1, 2, 3, 6, 7, 64, 500)}
    assert names == {
        1: fake.PREFILL,
        2: fake.PREFILL,
        3: fake.DECODE,
        6: fake.DECODE,
        7: fake.PREFILL,
        64: fake.PREFILL,
        500: fake.PREFILL,
    }
    assert chosen(installed, 3, one).shape.ctas_per_sm == 2


def test_a_tile_that_is_not_installed_or_does_not_take_the_rows_is_passed_over(installed):
    gone = "hopper-decode_t8x48x1024_w8r3_s4"
    one = table(f"8 {gone} 1 1 4 5.0", f"16 {PREFILL} 1 1 3 7.0")
    assert chosen(installed, 8, one).entry.name == fake.PREFILL
    too_small = table(f"16 {DECODE} 1 1 4 5.0")  # takes 8 rows
    found = chosen(installed, 16, too_small)
    assert (found.entry.name, found.measured) == (fake.PREFILL, None)


def test_other_shapes_and_formats_are_left_to_the_cost_model(installed):
    one = table(f"8 {PREFILL} 1 1 3 5.0", formats=("f16_u4_g32f16",))
    assert chosen(installed, 8, one).measured is None
    assert chosen(installed, 8, table(f"8 {PREFILL} 1 1 3 5.0"), n=N + 16).measured is None


def test_a_table_of_the_very_format_goes_before_a_glob(installed):
    any_format = table(f"8 {PREFILL} 1 1 3 5.0", formats=("bf16_u4_ch", "*")).shapes[0]
    own = table(f"8 {DECODE} 1 1 4 5.0").shapes[0]
    both = dataclasses.replace(table(f"8 {DECODE} 1 1 4 5.0"), shapes=(any_format, own))
    assert chosen(installed, 8, both).entry.name == fake.DECODE


def test_force_goes_before_tables(installed):
    one = table(f"8 {DECODE} 1 1 4 5.0")
    decision = resolve(problem(8), H200, installed.packages, fake.PREFILL, [one])
    assert decision.chosen.entry.name == fake.PREFILL


def test_a_device_takes_the_tables_of_its_class_and_an_override_first():
    mine, other = table(f"8 {DECODE} 1 1 4 5.0"), table(f"8 {DECODE} 1 1 4 5.0", sm_count=114)
    slower = table(f"8 {DECODE} 1 1 4 5.0", memory_gbps=3352)  # the same chip, older memory
    override = table(f"8 {PREFILL} 1 1 3 5.0", name="tuned", memory_gbps=4700)
    assert tables_for(H200, [other, mine, slower]) == (mine,)
    assert tables_for(H200, [mine], override) == (override, mine)
    unknown = dataclasses.replace(H200, memory_gbps=0)
    assert tables_for(unknown, [mine]) == ()


@pytest.fixture
def override(tmp_path, monkeypatch):
    def write(value):
        path = tmp_path / "table.json"
        text = value if isinstance(value, str) else table_to_json(value)
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("HUMMING_TUNING", str(path))
        return path

    return write


def test_an_override_is_read_when_it_is_named(installed, override, caplog):
    override(table(f"8 {PREFILL} 1 1 3 5.0", name="mine"))
    with caplog.at_level("INFO", logger="humming"):
        decision = Engine(installed, Driver(StubCuda())).resolve(problem(8), H200)
    assert decision.chosen.entry.name == fake.PREFILL
    assert "measured 5.0 us at m 8, table mine" in caplog.text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"name": 1}', "missing or of another kind: name"),
        (table(f"8 {DECODE} 1 1 4 5.0", sm_count=78), r"is for capability 9\.0, 78 SMs"),
    ],
)
def test_an_override_that_cannot_be_used_is_an_error_that_names_it(
    installed, override, value, message
):
    override(value)
    engine = Engine(installed, Driver(StubCuda()))
    with pytest.raises(UsageError, match=f"HUMMING_TUNING: .*{message}"):
        engine.resolve(problem(8), H200)


def test_a_missing_override_is_named(installed, monkeypatch, tmp_path):
    monkeypatch.setenv("HUMMING_TUNING", str(tmp_path / "gone.json"))
    with pytest.raises(UsageError, match=r"gone\.json: no such file"):
        Engine(installed, Driver(StubCuda())).explain(problem(8), H200)


def test_the_tables_of_a_package_are_used(tmp_path):
    folder = fake.write_package(tmp_path / "kernels", (fake.DECODE, fake.PREFILL))
    path = folder / "manifest.json"
    raw = json.loads(path.read_text())
    raw["tuning"] = [json.loads(table_to_json(table(f"8 {PREFILL} 1 1 3 5.0", name="shipped")))]
    path.write_text(json.dumps(raw))
    installed = discover(str(folder))
    assert installed.faults == ()
    decision = Engine(installed, Driver(StubCuda())).resolve(problem(8), H200)
    assert decision.chosen.measured is not None
    raw["tuning"][0]["shapes"][0]["launches"] = ["8 nonsense"]
    path.write_text(json.dumps(raw))
    assert "'8 nonsense' is no launch" in str(discover(str(folder)).faults[0])


def test_explain_shows_the_source(package_folder, override, monkeypatch, capsys):
    monkeypatch.setenv("HUMMING_CUBIN_PATH", str(package_folder))
    override(table(f"8 {PREFILL} 1 1 3 5.0", name="mine"))
    arguments = ["explain", "--m", "8", "--n", str(N), "--k", str(K), "--format", "f16_u4_g128f16"]
    assert main([*arguments, "--capability", "9.0"]) == 0
    assert "measured 5.0 us at m 8, table mine" in capsys.readouterr().out
    assert main([*arguments, "--capability", "9.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"]["measured"]["us"] == 5.0


PACKAGE = Package(fake.manifest((fake.DECODE, fake.PREFILL)), Path("nowhere"))
LAUNCHES = st.builds(
    TunedLaunch,
    m=st.integers(1, 600),
    tile=st.sampled_from([DECODE, PREFILL, "hopper-prefill_t512x128x128_w8_s9"]),
    split_k=st.integers(0, 9),
    ctas_per_sm=st.integers(0, 9),
    stages=st.integers(0, 99),
    us=st.floats(0.1, 1e4).map(lambda us: round(us, 2)),
)


@settings(max_examples=60, deadline=None)
@given(launches=st.lists(LAUNCHES, min_size=1, max_size=8), m=st.integers(1, 700))
def test_no_table_leads_to_a_launch_that_selection_does_not_offer(launches, m):
    rows = best_launches(launches)
    one = TuningTable("any", "9.0", 132, 4814, "here", (TunedShape("dense", ("*",), N, K, rows),))
    assert table_from_json(table_to_json(one)) == one
    found = resolve(problem(m), H200, [PACKAGE], None, [one]).chosen
    choices = selection.candidates(found.variant, found.entry.cost, problem(m), H200)
    assert found.shape in [choice.shape for choice in choices]


def test_the_fastest_wins_and_a_tie_stays_with_the_m_before():
    timed = [
        TunedLaunch(1, DECODE, 1, 1, 4, 5.0),
        TunedLaunch(1, PREFILL, 1, 1, 3, 6.0),
        TunedLaunch(2, DECODE, 1, 1, 4, 5.04),
        TunedLaunch(2, PREFILL, 1, 1, 3, 5.0),
        TunedLaunch(4, DECODE, 1, 1, 4, 5.5),
        TunedLaunch(4, PREFILL, 1, 1, 3, 5.0),
    ]
    assert [launch.tile for launch in best_launches(timed)] == [DECODE, DECODE, PREFILL]


@pytest.mark.parametrize(
    "text", ["", "8", f"x {DECODE} 1 1 4 5", f"8 {DECODE} 1 1 4", "8 t 1 1 4 5"]
)
def test_texts_that_are_no_launch_are_refused(text):
    with pytest.raises(TuningError, match="is no launch"):
        TunedLaunch.parse(text)


SPECS = load_specs(ROOT / "specs")
EVERY = every_variant(SPECS)
TABLES = read_tuning(ROOT / "specs", EVERY)


def test_tables_are_shipped():
    assert [shipped.name for shipped in TABLES] == ["h200"]


@pytest.mark.parametrize("shipped", TABLES, ids=lambda shipped: shipped.name)
def test_every_row_of_a_shipped_table_is_a_launch_of_the_default_profile(shipped):
    """Its tile takes these rows in every format that the table speaks for; in the measured one
    the launch is the very one: split, CTAs an SM, depth of the ring.
    """
    arch = next(
        a for a in SPECS.archs if a.capability == tuple(map(int, shipped.capability.split(".")))
    )
    (plan,) = make_plan(SPECS, [arch], "default", ())
    by_tile = {}
    for item in plan.build:
        by_tile.setdefault(tile_of(item.variant), []).append(item)
    facts = assumed_device(arch.capability, shipped.sm_count)
    assert shipped.fits(facts.capability, facts.sm_count, facts.memory_gbps)
    for shape in shipped.shapes:
        for row in shape.launches:
            items = [i for i in by_tile[row.tile] if i.variant.format in shape.formats]
            assert any(item.variant.format == shape.formats[0] for item in items)
            for item in items:
                asked = problem(row.m, item.variant.format, shape.n, shape.k)
                choices = selection.candidates(item.variant, item.cost, asked, facts)
                assert not isinstance(choices, str), (row, choices)
                if item.variant.format == shape.formats[0]:
                    assert any(tuned_as(row, c.shape) for c in choices), row


def tuned_as(row, shape):
    return (row.split_k, row.ctas_per_sm, row.stages) == (
        (shape.split_k, shape.ctas_per_sm, shape.stages)
    )
