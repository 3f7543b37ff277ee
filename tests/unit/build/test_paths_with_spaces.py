"""Folders of the checkout, the toolkit and the work may have any name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from fake_build import ROOT, VARIANT


def test_a_build_runs_where_every_path_has_a_space_and_a_quote(nvcc, tmp_path):
    home = tmp_path / "it's a $home"
    for name in ("build_tools", "humming_runtime", "specs", "templates"):
        shutil.copytree(ROOT / name, home / name)
    shutil.copy(ROOT / "pyproject.toml", home)
    shutil.copy(ROOT / "LICENSE", home)
    toolkit = home / "tool kit"
    shutil.copytree(nvcc.parent, toolkit)
    result = subprocess.run(
        [sys.executable, "-m", "build_tools.cli", "--nvcc", toolkit / "nvcc", "--select", VARIANT],
        check=False,
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert len(list((home / "dist").glob("*.whl"))) == 1
