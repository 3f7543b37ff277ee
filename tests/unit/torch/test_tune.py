"""Making tables: from timed launches, from sweeps, and onto the disk."""

from __future__ import annotations

import sys
from pathlib import Path

import fake_packages as fake
import pytest
import torch
from stub_cuda import StubCuda

from humming_runtime import cli
from humming_runtime.contract.tuning import TunedLaunch, TunedShape, table_from_json, tile_of
from humming_runtime.contract.variant_name import Variant
from humming_runtime.discover import discover
from humming_runtime.driver import Driver
from humming_runtime.errors import UsageError
from humming_runtime.known_devices import assumed_device
from humming_runtime.measure import launch_timing, tune
from humming_runtime.measure.random_layer import clones, dequantized, random_packed
from humming_runtime.problem import Problem

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.bench.make_table import table_of_sweep

H200 = assumed_device((9, 0))
DECODE = tile_of(Variant.parse(fake.DECODE))


def table():
    launches = (TunedLaunch(1, DECODE, 1, 1, 4, 5.0),)
    return tune.table_of(H200, "x", [TunedShape("dense", ("f16_u4_g128f16",), 64, 256, launches)])


def test_a_table_is_written_whole_and_never_over_another(tmp_path):
    path = tmp_path / "table.json"
    tune.write_table(table(), path, replace=False)
    assert table_from_json(path.read_text()) == table()
    with pytest.raises(UsageError, match=r"-o: .*table\.json exists"):
        tune.write_table(table(), path, replace=False)
    tune.write_table(table(), path, replace=True)
    assert [p.name for p in tmp_path.iterdir()] == ["table.json"]
    with pytest.raises(UsageError, match="no such file or directory"):
        tune.write_table(table(), tmp_path / "gone/table.json", replace=False)


def test_the_table_is_for_the_class_of_the_device():
    assert table().fits(H200.capability, H200.sm_count, H200.memory_gbps)
    assert f"torch {torch.__version__}" in table().measured_on


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "4096"], "'4096' is not N,K"),
        (["--shape", "64,0"], "'64,0' is not N,K"),
        (["--shape", "64,256", "--rows", "0"], "'0' is no number of rows"),
        ([], "--shape"),
    ],
)
def test_arguments_that_are_none_are_named(arguments, message, capsys, tmp_path):
    with pytest.raises(SystemExit) as error:
        cli.main(["tune", "-o", str(tmp_path / "x"), *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_a_file_that_exists_is_refused_before_anything_is_measured(tmp_path, capsys):
    path = tmp_path / "x"
    path.touch()
    assert cli.main(["tune", "-o", str(path), "--shape", "64,256"]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_the_driver_is_what_is_missing(tmp_path, capsys):
    assert cli.main(["tune", "-o", str(tmp_path / "x"), "--shape", "64,256"]) == 11
    assert "libcuda.so.1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_launch_of_every_plausible_kernel_is_timed(tmp_path):
    folder = fake.write_package(tmp_path / "k", (fake.DECODE, fake.PREFILL, fake.TEST_TARGET))
    engine = launch_timing.FixedEngine(discover(str(folder)), Driver(StubCuda()))
    form = tune.parse_format("f16_u4_g128f16")

    def names(m):
        problem = Problem(
            "dense", form.activation, form.weight, form.scale, form.layout, m, 4096, 4096
        )
        return {a.entry.name for a in launch_timing.launches(engine, problem, H200)}

    tile_m = Variant.parse(fake.PREFILL).tile_m
    assert names(1) == {fake.DECODE} | ({fake.PREFILL} if tile_m <= 64 else set())
    assert names(tile_m) == {fake.PREFILL}


def test_a_sweep_becomes_a_table_of_its_fastest_launches():
    shape = {"n": 64, "k": 256, "split_k": 1, "ctas_per_sm": 1, "stages": 4}
    rows = [
        {"variant": fake.DECODE, "m": 1, "us": 5.0, **shape},
        {"variant": fake.PREFILL, "m": 1, "us": 6.0, **shape},
        {"variant": fake.PREFILL, "m": 64, "us": 7.004, **shape},
    ]
    facts = {"capability": [9, 0], "sm_count": 132, "memory_gbps": 4814}
    where = {"device": "d", "driver": "580", "date": "2026-12-01", "class": facts}
    made = table_of_sweep({**where, "rows": rows}, "h200", ["*_u4_*"])
    assert made.shapes[0].formats == ("f16_u4_g128f16", "*_u4_*")
    assert [(r.m, r.tile == DECODE, r.us) for r in made.shapes[0].launches] == [
        (1, True, 5.0),
        (64, False, 7.0),
    ]
    assert made.measured_on == "d, driver 580, 2026-12-01"


def test_random_layers_are_finite_and_copies_have_memory_of_their_own():
    packed = random_packed(tune.parse_format("f16_u4_g32zf16"), 64, 256, "cpu")
    weight = dequantized(packed)
    assert weight.shape == (256, 64)
    assert weight.isfinite().all()
    one, other = clones(packed, 2)
    assert one.weight.data_ptr() != other.weight.data_ptr()
