"""A build does only what is needed, and says so."""

from __future__ import annotations

import hashlib
import os
import time

import pytest
from fake_build import REAL_CUBIN, VARIANT


def wheel(tmp_path):
    (path,) = (tmp_path / "dist").glob("*.whl")
    return path


def test_a_second_run_does_nothing_and_says_so(build, tmp_path, capsys):
    assert build() == 0
    first = capsys.readouterr().err
    assert "1 built, 0 reused" in first
    assert hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest() in first
    before = wheel(tmp_path).stat().st_mtime_ns
    assert build() == 0
    assert "0 built, 1 reused" in (text := capsys.readouterr().err)
    assert "nothing to do" in text
    assert wheel(tmp_path).stat().st_mtime_ns == before


def test_a_changed_component_rebuilds_its_users_alone(build, sources, compiled):
    prefill = VARIANT.replace("decode_t8x64x1024_w8r4_s4", "prefill_t64x64x128_w8_s6")
    run = ["-q", "--until", "cubins", "--select", prefill]
    assert build(*run) == 8  # the stand-in's cubin is the decode kernel's
    assert sorted(compiled()) == [VARIANT, prefill]
    for file, rebuilt in (("hopper_decode", [VARIANT]), ("hopper_prefill", [])):
        before = len(compiled())
        header = sources / f"templates/components/gemm/{file}.cuh"
        header.write_text(header.read_text() + "// changed\n")
        assert build("-q") == 0
        assert compiled()[before:] == rebuilt


def test_touching_a_component_without_a_change_rebuilds_nothing(build, sources, capsys):
    assert build() == 0
    (sources / "templates/components/gemm/hopper_decode.cuh").touch()
    capsys.readouterr()
    assert build() == 0
    assert "0 built" in capsys.readouterr().err


def test_another_compiler_rebuilds_everything(build, nvcc, capsys):
    assert build() == 0
    nvcc.write_text(nvcc.read_text() + "# another release\n")
    capsys.readouterr()
    assert build() == 0
    assert "1 built" in capsys.readouterr().err


def test_a_missing_record_of_a_compilation_makes_it_again(build, tmp_path, compiled):
    assert build("-q") == 0
    (tmp_path / "work/sm_90/records" / f"{VARIANT}.json").unlink()
    assert build("-q") == 0
    assert compiled() == [VARIANT, VARIANT]


def test_a_cubin_that_was_changed_by_hand_is_made_again(build, tmp_path):
    assert build("-q") == 0
    path = tmp_path / "work/sm_90/cubins" / f"{VARIANT}.cubin"
    path.write_bytes(b"x" * 100)
    assert build("-q") == 0
    assert path.read_bytes() == REAL_CUBIN.read_bytes()


def test_outputs_of_another_profile_are_kept(build, tmp_path, compiled):
    assert build("-q") == 0
    assert build("-q", "--profile", "proof", select="dense_f16_u4_*_ch_*_t8x64x*") == 8
    assert build("-q") == 0
    assert compiled().count(VARIANT) == 1


def test_a_header_that_no_template_makes_any_more_is_removed(build, sources, tmp_path):
    extra = sources / "templates/components/gemm/extra.cuh"
    extra.write_text("// extra\n")
    assert build("-q", "--until", "render") == 0
    rendered = tmp_path / "work/sm_90/src/components/gemm/extra.cuh"
    assert rendered.exists()
    extra.unlink()
    assert build("-q", "--until", "render") == 0
    assert not rendered.exists()


def test_outputs_that_no_spec_names_are_removed(build, tmp_path):
    assert build("-q") == 0
    stale = tmp_path / "work/sm_90/cubins/dense_gone.cubin"
    stale.write_bytes(b"")
    assert build("-q") == 0
    assert not stale.exists()


def test_until_a_stage_leaves_what_that_stage_makes(build, tmp_path):
    work = tmp_path / "work" / "sm_90"
    assert build("-q", "--until", "plan") == 0
    assert not work.exists()
    assert build("-q", "--until", "render") == 0
    assert (work / "src/kernels" / f"{VARIANT}.cu").exists()
    assert not (work / "build.ninja").exists()
    assert build("-q", "--until", "ninja") == 0
    assert (work / "build.ninja").exists()
    assert build("-q", "--until", "cubins") == 0
    assert (work / "manifest.json").exists()
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("seconds", [-3e7, 3e7], ids=["past", "future"])
def test_a_clock_that_jumps_builds_what_changed_and_then_rests(
    build, sources, tmp_path, compiled, capsys, seconds
):
    """Times of files from another clock: a checkout in the future, outputs of a machine behind."""
    assert build("-q") == 0
    when = time.time() + seconds
    work = tmp_path / "work"
    for path in (*sources.rglob("*.*"), *work.rglob("*.cu*"), *work.rglob("compile_edge.py")):
        os.utime(path, (when, when))
    header = sources / "templates/components/gemm/ring.cuh"
    header.write_text(header.read_text() + "// changed\n")
    os.utime(header, (when, when))
    assert build("-q") == 0
    assert len(compiled()) >= 2, "the changed header is seen, whatever its time"
    count = len(compiled())
    capsys.readouterr()
    assert build() == 0
    assert "nothing to do" in capsys.readouterr().err
    assert len(compiled()) == count
