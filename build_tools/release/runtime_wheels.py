"""The loader's wheels, built from a checkout: with its extension for each machine, and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from build_tools.errors import ToolchainError, UsageError
from build_tools.native_build import MACHINES, VARIABLE

_PURE = "none"
_LAST_LINES = 5


def build_runtime_wheels(checkout: Path, folder: Path) -> list[Path]:
    """A wheel for each machine, and the pure one. Raises: UsageError, ToolchainError."""
    if not (checkout / "pyproject.toml").is_file():
        hint = "pip download --no-deps humming-aot, then --runtime FILE"
        raise UsageError.of("--runtime", "an installed builder has no sources of the loader", hint)
    return [_build(checkout, folder / machine, machine) for machine in (*MACHINES, _PURE)]


def _build(checkout: Path, folder: Path, machine: str) -> Path:
    shutil.rmtree(folder, ignore_errors=True)  # wheels of another version
    place = str(folder.resolve())
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place]
    result = subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, VARIABLE: machine},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()[-_LAST_LINES:]
        raise ToolchainError.of(
            f"runtime wheel ({machine})", "; ".join(lines), "pip install 'humming-aot[release]'"
        )
    return next(folder.glob("*.whl"))
