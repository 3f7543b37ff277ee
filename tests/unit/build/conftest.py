"""A stand-in for nvcc, so that builds run without one, and a copy of the specs to break."""

from __future__ import annotations

import shutil
import sys

import pytest
from fake_build import NVCC, REAL_CUBIN, ROOT, VARIANT

from build_tools.cli import main


@pytest.fixture
def nvcc(tmp_path):
    """A program that behaves as nvcc does, by the environment variable FAKE_NVCC."""
    folder = tmp_path / "toolkit"
    for header in ("cuda_runtime.h", "crt/host_config.h"):
        path = folder / "include" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    program = folder / "nvcc"
    text = NVCC.format(python=sys.executable, release="13.0", cubin=str(REAL_CUBIN))
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
def build(tmp_path, nvcc, sources):
    """Run humming-build on one variant with the stand-in. Returns the exit code."""

    def run(*arguments, select=VARIANT):
        folders = ["--work", str(tmp_path / "work"), "-o", str(tmp_path / "dist")]
        given = ["--nvcc", str(nvcc), "--source", str(sources), "--select", select, *folders]
        return main([*given, *arguments])

    return run
