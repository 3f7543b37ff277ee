"""A wheel over its budget is not written; where its bytes are can be asked."""

from __future__ import annotations

import json

import pytest
from fake_build import SPECS, VARIANT

from build_tools.cli import main
from build_tools.errors import SpecError
from build_tools.spec_budgets import read_budgets
from build_tools.spec_load import every_variant

NAMES = [str(variant) for variant in every_variant(SPECS)]
GROUP = "dense_{f16,bf16}_u4_*"


def set_budgets(sources, text):
    (sources / "specs/budgets.yaml").write_text(text)


def test_a_wheel_over_its_budget_is_refused_and_not_written(build, sources, tmp_path, capsys):
    set_budgets(
        sources,
        f"wheels:\n  default: {{max_mb: 0.001}}\n"
        f'groups:\n  - {{match: "{GROUP}", max_mb: 0.002, why: test}}\n',
    )
    assert build("-q") == 10
    error = capsys.readouterr().err
    assert "budget of profile 'default' is 0.001 MB (specs/budgets.yaml:2:12)" in error
    assert f"1 kernels of '{GROUP}' have" in error
    assert not list((tmp_path / "dist").glob("*.whl"))


def test_a_budget_that_shrinks_refuses_a_wheel_that_is_there(build, sources):
    assert build("-q") == 0
    set_budgets(sources, "wheels:\n  default: {max_mb: 0.001}\ngroups: []\n")
    assert build("-q") == 10


def test_a_profile_without_a_budget_may_be_of_any_size(build, sources):
    set_budgets(sources, "wheels:\n  full: {max_mb: 0.001}\ngroups: []\n")
    assert build("-q") == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wheels:\n  defaut: {max_mb: 1}\ngroups: []\n", "did you mean 'default'"),
        ("wheels:\n  default: {max_mb: big}\ngroups: []\n", "big"),
        ("wheels:\n  default: {max_kb: 1}\ngroups: []\n", "max_kb"),
        ("wheels: {}\ngroups:\n  - {match: 'x*', max_mb: 1, why: y}\n", "matches no variant"),
        (f"wheels: {{}}\ngroups:\n  - {{match: '{GROUP}', max_mb: 1}}\n", "why"),
        ("wheels: {}\n", "groups"),
    ],
)
def test_a_fault_has_its_place(tmp_path, text, said):
    (tmp_path / "budgets.yaml").write_text(text)
    with pytest.raises(SpecError, match=said) as error:
        read_budgets(tmp_path, SPECS, NAMES)
    assert all("budgets.yaml:" in fault.place for fault in error.value.faults)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"budgets\.yaml: file is missing"):
        read_budgets(tmp_path, SPECS, NAMES)


@pytest.mark.parametrize(
    ("by", "group"),
    [
        ("format", "dense bf16_u4_ch"),
        ("schedule", "dense hopper-decode"),
        ("tile", "hopper-decode_t8x64x1024_w8r4_s4"),
        ("activation", "dense bf16 x u4"),
    ],
)
def test_sizes_are_shown_by_group(build, tmp_path, capsys, by, group):
    assert build("-q") == 0
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert main(["sizes", str(wheel), "--by", by, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    cubin = tmp_path / "work/sm_90/cubins" / f"{VARIANT}.cubin"
    assert row["group"] == group
    assert (row["kernels"], row["cubin_bytes"]) == (1, cubin.stat().st_size)
    assert 0 < row["compressed_bytes"] < row["cubin_bytes"]
    assert main(["sizes", str(wheel), "--by", by]) == 0
    text = capsys.readouterr().out
    assert group in text
    assert f"{wheel.name}: " in text


def test_sizes_of_a_file_that_is_no_wheel_are_a_clear_error(tmp_path, capsys):
    path = tmp_path / "x.whl"
    path.write_text("no zip")
    assert main(["sizes", str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert "Traceback" not in error
