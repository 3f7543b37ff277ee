"""`--launcher sccache` with a scheduler and two servers, one of which dies in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from sccache_farm import missing, running_farm

MISSING = missing()
pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.xdist_group("nvcc"),
]
ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 240


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    with running_farm(tmp_path_factory.mktemp("farm")) as running:
        yield running


def _start(folder, *more, environment=None):
    folders = ["--work", str(folder / "work"), "-o", str(folder / "dist")]
    command = [sys.executable, "-m", "build_tools.cli", "--profile", "quick", "-q"]
    return subprocess.Popen(
        [*command, *folders, *more], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )


def _cubins(folder):
    return {path.name: path.read_bytes() for path in (folder / "work/sm_90/cubins").glob("*")}


def test_a_farm_that_loses_a_server_makes_the_bytes_of_one_machine(farm, tmp_path):
    first, second = tmp_path / "farm", tmp_path / "alone"
    build = _start(first, "--launcher", "sccache", "-j", "4", environment=farm.environment)
    while not list((first / "work/sm_90").glob("records/*.json")) and build.poll() is None:
        time.sleep(0.05)
    assert build.poll() is None, "the build ended before a server could be killed"
    farm.kill_server(0)
    _, said = build.communicate(timeout=_SECONDS)
    assert build.returncode == 0, said
    assert sum(farm.distributed().values()) > 0
    alone = _start(second)
    _, said = alone.communicate(timeout=_SECONDS)
    assert alone.returncode == 0, said
    assert len(_cubins(first)) >= 5
    assert _cubins(first) == _cubins(second)
    wheels = [next((folder / "dist").glob("*.whl")).read_bytes() for folder in (first, second)]
    assert wheels[0] == wheels[1]
