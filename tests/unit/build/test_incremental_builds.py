"""A build does only what is needed, and says so."""

from __future__ import annotations

import hashlib

from fake_build import VARIANT


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


def test_a_changed_component_rebuilds_its_users_alone(build, sources, capsys):
    assert build() == 0
    unused = sources / "templates/components/gemm/hopper_prefill.cuh"
    unused.write_text(unused.read_text() + "// changed\n")
    assert build() == 0
    assert "0 built, 1 reused" in capsys.readouterr().err.split("1 built, 0 reused")[1]
    used = sources / "templates/components/gemm/hopper_decode.cuh"
    used.write_text(used.read_text() + "// changed\n")
    assert build() == 0
    assert "1 built, 0 reused" in capsys.readouterr().err


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


def test_outputs_that_no_spec_names_are_removed(build, tmp_path):
    assert build("-q") == 0
    stale = tmp_path / "work/sm_90/cubins/dense_gone.cubin"
    stale.write_bytes(b"")
    assert build("-q") == 0
    assert not stale.exists()


def test_wheels_of_two_folders_are_the_same_bytes(build, tmp_path, monkeypatch):
    assert build("-q") == 0
    first = wheel(tmp_path).read_bytes()
    assert build("-q", "--work", str(tmp_path / "elsewhere"), "-o", str(tmp_path / "out")) == 0
    (second,) = (tmp_path / "out").glob("*.whl")
    assert second.read_bytes() == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert build("-q") == 0
    assert wheel(tmp_path).read_bytes() != first


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
