"""Build hook of hatchling: compiles humming_runtime/native/*.c into the runtime wheel.

HUMMING_NATIVE says for which machine: `x86_64` or `aarch64` (zig from PyPI as the compiler, bound
to glibc 2.28, needs no toolchain of that machine), or `none`. An editable install compiles for
this machine with its own C compiler where there is one, and does without otherwise: the runtime
has the same path in Python.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "HUMMING_NATIVE"
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 28)
LIMITED_API = "0x030A0000"  # CPython 3.10 and every later one
LIBRARY = "humming_runtime/_native.abi3.so"
_FLAGS = (
    *("-std=c11", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-s"),
    *("-Wall", "-Wextra", "-Werror", f"-DPy_LIMITED_API={LIMITED_API}", "-DNDEBUG"),
)


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """See the module."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: `standard` or `editable`. Raises: RuntimeError where a named machine fails."""
        machine = os.environ.get(VARIABLE, "")
        root = Path(self.root)
        if version == "editable":
            if machine != "none":
                self._compile_in_place(root)
            return
        if machine in ("", "none"):
            return
        if machine not in MACHINES:
            known = ", ".join(("none", *MACHINES))
            raise RuntimeError(f"{VARIABLE}: {machine!r} is not known (known: {known})")
        folder = Path(tempfile.mkdtemp(prefix="humming_native"))
        self._folder = folder
        library = folder / "_native.abi3.so"
        compile_library(root, library, zig_compiler(machine))
        build_data["force_include"][str(library)] = LIBRARY
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel holds the library now."""
        del version, build_data, artifact_path
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder)

    def _compile_in_place(self, root: Path) -> None:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None or platform.system() != "Linux" or not has_headers():
            self.app.display_warning("no C compiler or Python.h: launches go through Python")
            return
        compile_library(root, root / LIBRARY, (compiler,))


def has_headers() -> bool:
    return Path(sysconfig.get_paths()["include"], "Python.h").is_file()


def zig_compiler(machine: str) -> tuple[str, ...]:
    """Raises: RuntimeError where the package ziglang is missing."""
    if importlib.util.find_spec("ziglang") is None:
        raise RuntimeError("ziglang: not installed; hint: pip install ziglang")
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    return sys.executable, "-m", "ziglang", "cc", "-target", target


def compile_library(root: Path, target: Path, compiler: tuple[str, ...]) -> None:
    """The same bytes wherever `root` is. Raises: RuntimeError with what the compiler says."""
    include = sysconfig.get_paths()["include"]
    sources = sorted(str(p.relative_to(root)) for p in root.glob("humming_runtime/native/*.c"))
    partial = target.with_name(target.name + ".partial")
    command = [*compiler, *_FLAGS, "-isystem", include, *sources, "-o", str(partial)]
    done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{LIBRARY}: {' '.join(command)} failed\n{done.stderr}")
    partial.replace(target)
