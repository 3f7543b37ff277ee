"""Whatever nvcc does, an output is whole or not there, and each cause has its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from fake_build import VARIANT

CAUSES = {
    "error": (6, "expected a declaration"),
    "killed": (6, "killed by signal 9"),
    "no output": (6, "wrote no cubin"),
    "serialised": (6, "C7510"),
    "spill": (7, "spill 12 bytes"),
    "truncated": (9, "truncated"),
}


def cubin(tmp_path):
    return tmp_path / "work" / "sm_90" / "cubins" / f"{VARIANT}.cubin"


@pytest.mark.parametrize("mode", CAUSES)
def test_a_failure_has_its_exit_code_and_leaves_no_output(build, tmp_path, monkeypatch, capsys, mode):
    code, text = CAUSES[mode]
    monkeypatch.setenv("FAKE_NVCC", mode)
    assert build("-q") == code
    error = capsys.readouterr().err
    assert VARIANT in error
    assert text in error
    assert "Traceback" not in error
    assert not cubin(tmp_path).exists()
    assert not list((tmp_path / "dist").glob("*"))


def test_a_failed_rebuild_removes_the_old_output_and_the_next_run_builds_again(
    build, sources, tmp_path, monkeypatch
):
    assert build("-q") == 0
    header = sources / "templates/components/gemm/ring.cuh"
    header.write_text(header.read_text() + "// changed\n")
    monkeypatch.setenv("FAKE_NVCC", "error")
    assert build("-q") == 6
    assert not cubin(tmp_path).exists()
    monkeypatch.setenv("FAKE_NVCC", "good")
    assert build("-q") == 0
    assert cubin(tmp_path).exists()


def test_a_spill_that_the_spec_allows_builds(build, sources, monkeypatch):
    spec = sources / "specs/dense_a16_w4.yaml"
    rule = f'spills:\n  - match: "{VARIANT}"\n    max_bytes: 12\n    why: known\n'
    spec.write_text(spec.read_text() + rule)
    monkeypatch.setenv("FAKE_NVCC", "spill")
    assert build("-q") == 0


def test_a_cubin_of_another_variant_is_a_mismatch_and_is_removed(build, tmp_path, capsys):
    other = VARIANT.replace("_ch_", "_chz_")
    assert build("-q", select=other) == 8
    assert "symbols" in capsys.readouterr().err
    assert not list((tmp_path / "work/sm_90/cubins").glob("*.cubin"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing_that_a_later_run_would_take(
    build, nvcc, sources, tmp_path, number
):
    folders = ["--work", str(tmp_path / "work"), "-o", str(tmp_path / "dist")]
    command = [sys.executable, "-m", "build_tools.cli", "--nvcc", str(nvcc), "--source", str(sources)]
    process = subprocess.Popen(
        [*command, "--select", VARIANT, *folders],
        env={**os.environ, "FAKE_NVCC": "slow"},
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = tmp_path / "work" / "sm_90" / "tmp"
    deadline = time.monotonic() + 20
    while not list(partial.glob("*/out.cubin")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert not cubin(tmp_path).exists()
    assert build("-q") == 0


def test_two_builds_in_one_folder_take_turns(nvcc, sources, tmp_path):
    folders = ["--work", str(tmp_path / "work"), "-o", str(tmp_path / "dist")]
    command = [sys.executable, "-m", "build_tools.cli", "--nvcc", str(nvcc), "--source", str(sources)]
    both = [
        subprocess.Popen([*command, "--select", VARIANT, *folders], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("1 built" in text for text in outputs) == [False, True]
