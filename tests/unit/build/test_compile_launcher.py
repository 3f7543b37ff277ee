"""`--launcher`: a program of the user's runs each compiler call, and changes nothing else."""

from __future__ import annotations

import json
import sys

import pytest
from fake_build import REAL_CUBIN, VARIANT

_LAUNCHER = """#!{python} -IS
import json, os, subprocess, sys
from pathlib import Path

words = sys.argv[1:]
while words[0].startswith("--"):
    words.pop(0)
here = Path(__file__).resolve().parent
with (here / "launched").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], os.environ.get("TMPDIR")]) + "\\n")
if (here / "server").exists():  # as sccache does: a process that outlives the call
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen(["sleep", "120"], start_new_session=True, close_fds=False, **quiet)
os.execv(words[0], words)
"""


@pytest.fixture
def launcher(tmp_path):
    program = tmp_path / "a cache" / "launcher"
    program.parent.mkdir()
    program.write_text(_LAUNCHER.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.fixture
def launched(launcher):
    """Words and TMPDIR of each call so far."""

    def calls():
        path = launcher.with_name("launched")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return calls


def test_each_compilation_goes_through_the_launcher(build, nvcc, launcher, launched, tmp_path):
    assert build("-q", "--launcher", f"'{launcher}' --share") == 0
    ((words, temporary),) = launched()
    assert words[:2] == ["--share", str(nvcc)]
    assert words[-1] == f"src/kernels/{VARIANT}.cu"
    assert str(tmp_path / "work") not in str(temporary), "a folder that goes with the call"
    cubin = tmp_path / "work/sm_90/cubins" / f"{VARIANT}.cubin"
    assert cubin.read_bytes() == REAL_CUBIN.read_bytes()


def test_with_and_without_it_nothing_is_built_again(
    build, launcher, launched, compiled, monkeypatch
):
    assert build("-q") == 0
    monkeypatch.setenv("HUMMING_LAUNCHER", f"'{launcher}'")
    assert build("-q") == 0
    assert launched() == []
    assert compiled() == [VARIANT]


def test_it_can_come_from_the_environment(build, launcher, launched, monkeypatch):
    monkeypatch.setenv("HUMMING_LAUNCHER", f"'{launcher}'")
    assert build("-q") == 0
    assert len(launched()) == 1


def test_a_server_that_it_leaves_behind_does_not_hold_the_folder(
    build, start_build, launcher, launched
):
    launcher.with_name("server").touch()
    assert build("-q", "--launcher", f"'{launcher}'") == 0
    assert len(launched()) == 1
    process = start_build()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "waiting for another build" not in said


def test_what_a_failing_launcher_says_is_the_failure(build, tmp_path, capsys):
    program = tmp_path / "farm"
    program.write_text("#!/bin/sh\necho 'farm: error: no server answers'\nexit 2\n")
    program.chmod(0o755)
    assert build("-q", "--launcher", str(program)) == 6
    assert "no server answers" in capsys.readouterr().err


def test_a_truncated_cubin_names_the_launchers_cache(build, launcher, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_NVCC", "truncated")
    assert build("-q", "--launcher", f"'{launcher}'") == 9
    assert "launcher's cache may keep such a cubin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["no-such-program --x"], 5, "no program 'no-such-program --x'"),
        (["'unbalanced"], 2, "no closing quotation"),
        (["cat", "--engine", "nvrtc"], 2, "is not used with --engine nvrtc"),
        ([" "], 5, "no program ' '"),
    ],
)
def test_a_launcher_that_cannot_work_is_an_error(build, capsys, words, code, message):
    assert build("--launcher", *words) == code
    assert message in capsys.readouterr().err
