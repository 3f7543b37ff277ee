"""A wheel's bytes follow from sources, specs, compiler and SOURCE_DATE_EPOCH, and nothing else."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fake_build import ROOT

from build_tools.cli import main

SELECT = "dense_bf16_u4_bf16_ch_*hopper-decode_t8x*"
KERNELS = 3
NOBODY = 65534


@pytest.fixture
def reference(options, tmp_path, monkeypatch):
    """The wheel's bytes as this process builds it."""
    monkeypatch.setenv("FAKE_NVCC", "named")  # for processes of the tests too
    assert main([*options, "--select", SELECT, "-q"]) == 0
    return wheel_in(tmp_path / "dist")


@pytest.fixture
def elsewhere(nvcc, sources):
    """A folder with copies of the stand-in and the sources, in which any user may build."""
    folder = Path(tempfile.mkdtemp(prefix="humming aot-"))
    folder.chmod(0o777)
    shutil.copytree(nvcc.parent, folder / "toolkit")
    (folder / "toolkit").chmod(0o777)
    (folder / "toolkit" / "calls").unlink(missing_ok=True)  # the stand-in writes to it
    shutil.copytree(sources, folder / "sources")
    yield folder
    shutil.rmtree(folder)


def wheel_in(folder):
    (path,) = folder.glob("*.whl")
    return path.read_bytes()


def compilations(folder):
    return len((folder / "toolkit/calls").read_text().split())


def build(folder, *options, before=(), umask=-1, **environment):
    """The wheel of a process of its own that works in `folder`. before: words of a command."""
    command = [*before, sys.executable, "-m", "build_tools.cli", "-q", "--select", SELECT]
    command += ["--nvcc", folder / "toolkit/nvcc", "--source", folder / "sources", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return wheel_in(folder / "dist")


@pytest.mark.parametrize(
    ("umask", "jobs", "environment"),
    [
        (
            0o077,
            "1",
            {"PYTHONHASHSEED": "1", "TZ": "Pacific/Auckland", "LC_ALL": "C", "PYTHONUTF8": "0"},
        ),
        (
            0o000,
            "3",
            {"PYTHONHASHSEED": "4294967295", "TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8"},
        ),
    ],
)
def test_folder_umask_jobs_hash_seed_zone_and_language_do_not_matter(
    reference, elsewhere, umask, jobs, environment
):
    who = {"USER": "someone", "HOME": "/nowhere", "HOSTNAME": "other"}
    assert build(elsewhere, "-j", jobs, umask=umask, **environment, **who) == reference
    assert compilations(elsewhere) == KERNELS


def test_other_times_and_modes_of_files_give_the_same_bytes(reference, elsewhere):
    """Of what is read, and of what an earlier run left: cubins go into the wheel as files."""
    assert build(elsewhere) == reference
    drawn = random.Random(5)
    work = elsewhere / "build/sm_90"
    for folder in (elsewhere / "sources", work / "wheel", work / "cubins"):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            path.chmod(drawn.choice([0o600, 0o644, 0o664, 0o666]))
            if folder.name != "cubins":  # an old one would be made again
                at = drawn.randrange(10**9)
                os.utime(path, (at, at))
    shutil.rmtree(elsewhere / "dist")
    assert build(elsewhere) == reference
    assert compilations(elsewhere) == KERNELS


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root becomes another user"
)
def test_another_user_gives_the_same_bytes(reference, elsewhere):
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    become += [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]  # root's Python
    trial = [*become, "/bin/sh", "-c", '"$0" -c "import hatchling"', sys.executable]
    if subprocess.run(trial, check=False, capture_output=True).returncode:
        pytest.skip("another user cannot run this environment")
    assert build(elsewhere, before=become, HOME="/nowhere") == reference
    (wheel,) = (elsewhere / "dist").iterdir()
    assert (wheel.stat().st_uid, stat.S_IMODE(wheel.stat().st_mode)) == (NOBODY, 0o644)


def test_shards_that_are_merged_give_the_same_bytes(reference, elsewhere):
    for index in (1, 2):
        shards = elsewhere / "shards"
        assert main([*words(elsewhere), "--shard", f"{index}/2", "-o", str(shards)]) == 0
    found = [str(path) for path in shards.iterdir()]
    merge = ["merge", "-q", "--source", str(elsewhere / "sources"), "-o", str(elsewhere / "dist")]
    assert main([*merge, "--work", str(elsewhere / "merge"), *found]) == 0
    assert wheel_in(elsewhere / "dist") == reference


def words(folder):
    tools = ["--nvcc", str(folder / "toolkit/nvcc"), "--source", str(folder / "sources")]
    return ["-q", "--select", SELECT, "--work", str(folder / "build"), *tools]


@pytest.mark.parametrize("changed", ["epoch", "compiler"])
def test_what_the_bytes_do_depend_on(reference, elsewhere, changed):
    """So that the other tests compare something."""
    if changed == "epoch":
        assert build(elsewhere, SOURCE_DATE_EPOCH="1700000000") != reference
    else:
        program = elsewhere / "toolkit/nvcc"
        program.write_text(program.read_text() + "# of another release\n")
        assert build(elsewhere) != reference
