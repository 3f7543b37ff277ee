"""However a build ends, a later run takes nothing that is not whole."""

from __future__ import annotations

import signal
import time

import pytest
from fake_build import VARIANT


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


@pytest.fixture
def cubin(tmp_path):
    return tmp_path / "work" / "sm_90" / "cubins" / f"{VARIANT}.cubin"


@pytest.fixture
def compiling(tmp_path):
    """Is a compiler at work that has written a part of its output?"""
    return lambda: list((tmp_path / "work" / "sm_90" / "tmp").glob("*/out.cubin"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_build_with_130_and_leaves_no_part_of_an_output(
    start_build, build, cubin, compiling, number
):
    process = start_build(FAKE_NVCC="slow")
    wait_for(compiling)
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    assert not cubin.exists()
    assert not compiling()
    assert build("-q") == 0
    assert cubin.exists()


def test_a_build_that_is_killed_holds_its_folder_until_its_compilers_end(
    start_build, cubin, compiling, compiled
):
    killed = start_build(FAKE_NVCC="slow", FAKE_NVCC_SECONDS="6")
    wait_for(compiling)
    killed.kill()
    killed.wait()
    next_one = start_build()
    _, error = next_one.communicate(timeout=20)
    assert next_one.returncode == 0
    assert "waiting for another build" in error
    assert cubin.stat().st_size > 5000
    assert set(compiled()) == {VARIANT}


def test_a_compiler_that_is_killed_is_a_failure_of_its_variant(start_build, cubin, compiling, nvcc):
    process = start_build(FAKE_NVCC="killed")
    _, error = process.communicate(timeout=20)
    assert process.returncode == 6
    assert f"{VARIANT}: nvcc was killed by signal 9" in error
    assert not cubin.exists()
    assert not compiling()


def test_two_builds_in_one_folder_take_turns(start_build, compiled):
    both = [start_build() for _ in range(2)]
    outputs = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("1 built" in text for text in outputs) == [False, True]
    assert compiled() == [VARIANT]
