"""No writes, no network, no subprocess, no compiler: from a read-only tree, as another user,
without a home, with traps for everything else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import fake_packages as fake
import pytest

import humming_runtime

HERE = Path(__file__).parent
NOBODY = 65534
TOOLS = ("nvcc", "gcc", "cc", "g++", "c++", "clang", "ninja", "ptxas", "nvlink", "ld", "make")
DEEDS = (
    *("socket", "lookup", "popen", "system", "spawn", "fork", "write", "append", "mkdir"),
    *("remove", "rename", "temporary", "copy"),
)


@lru_cache
def interpreter() -> tuple[str, dict[str, object]]:
    """A Python that another user can start, and that user; else this one as ourselves."""
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    if os.getuid() == 0:
        check = "import ctypes, sys; sys.exit(sys.version_info < (3, 10))"
        for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            try:
                done = subprocess.run([path, "-c", check], check=False, cwd="/", **nobody)
            except OSError:
                continue
            if done.returncode == 0:
                return path, nobody
    return sys.executable, {}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the runtime and a kernel package that nobody can write."""
    root = tmp_path_factory.mktemp("tree")
    source = Path(humming_runtime.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, root / "site/humming_runtime", ignore=ignored)
    for name in ("stub_cuda.py", "strict_child.py"):
        shutil.copy(HERE / name, root / "site")
    fake.write_package(root / "kernels", (fake.DECODE, fake.PREFILL))
    traps = root / "traps"
    traps.mkdir()
    for name in TOOLS:
        (traps / name).write_text(f"#!/bin/sh\necho {name} was called >&2\nexit 99\n")
        (traps / name).chmod(0o755)
    for path in (root, *root.parents):  # pytest's folders are private
        if path.stat().st_uid == os.getuid() and "pytest" in str(path):
            path.chmod(0o755)
    for path in sorted(root.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() or path.parent == traps else 0o444)
    root.chmod(0o555)
    yield root
    for path in (root, *(p for p in root.rglob("*") if p.is_dir())):
        path.chmod(0o755)


def child(tree, what, **changes):
    """Without HOME, with PATH of traps alone, in a folder that cannot be written."""
    environment = {
        "PATH": str(tree / "traps"),
        "PYTHONPATH": str(tree / "site"),
        "HUMMING_CUBIN_PATH": str(tree / "kernels"),
        "TMPDIR": "/nowhere",
        **changes,
    }
    python, user = interpreter()
    return subprocess.run(
        [python, "-s", tree / "site/strict_child.py", what],
        check=False,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        **user,
    )


@pytest.mark.parametrize("pure", ["", "1"], ids=["extension", "python"])
def test_the_whole_run_side_keeps_its_hands_still(tree, pure):
    before = sorted(str(path) for path in tree.rglob("*"))
    done = child(tree, "launch", HUMMING_PURE_PYTHON=pure)
    assert done.returncode == 0, done.stderr
    assert "was called" not in done.stderr
    assert fake.DECODE in done.stdout
    assert sorted(str(path) for path in tree.rglob("*")) == before


@pytest.mark.parametrize("deed", DEEDS)
def test_each_trap_works(tree, deed):
    done = child(tree, deed)
    assert done.returncode == 0, done.stderr
    assert "trapped" in done.stdout
