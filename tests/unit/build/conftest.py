"""A stand-in for nvcc, so that builds run without one, and a copy of the specs to break."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from fake_build import FAKE_NVCC, REAL_CUBIN, ROOT, VARIANT

from build_tools.cli import main


@pytest.fixture
def nvcc(tmp_path):
    """A program that behaves as nvcc does, by the environment variable FAKE_NVCC."""
    folder = tmp_path / "toolkit"
    for header in ("cuda_runtime.h", "crt/host_config.h"):
        path = folder / "include" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / "release").write_text("13.0", encoding="utf-8")
    shutil.copy(REAL_CUBIN, folder / "product")
    program = folder / "nvcc"
    text = f"#!{sys.executable} -IS\n{FAKE_NVCC.read_text(encoding='utf-8')}"
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.fixture
def sources(tmp_path):
    """specs/ and templates/ that a test may change."""
    folder = tmp_path / "sources"
    for name in ("specs", "templates"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.fixture
def options(tmp_path, nvcc, sources):
    """Options of a build with the stand-in in folders of its own."""
    folders = ["--work", str(tmp_path / "work"), "-o", str(tmp_path / "dist")]
    return ["--nvcc", str(nvcc), "--source", str(sources), *folders]


@pytest.fixture
def build(options):
    """Run humming-build on one variant with the stand-in. Returns the exit code."""

    def run(*arguments, select=VARIANT):
        return main([*options, "--select", select, *arguments])

    return run


@pytest.fixture
def start_build(options):
    """Start such a build in a process of its own."""
    started = []

    def start(*more, **environment):
        command = [sys.executable, "-m", "build_tools.cli", *options, "--select", VARIANT, *more]
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def compiled(nvcc):
    """Names that the stand-in has compiled so far, in order."""

    def names():
        calls = nvcc.with_name("calls")
        return calls.read_text(encoding="utf-8").split() if calls.exists() else []

    return names
