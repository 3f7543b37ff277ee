"""What a process holds: decisions, force, counters, messages, errors of loading."""

import logging
import subprocess
import sys

import fake_packages as fake
import pytest
from stub_cuda import StubCuda

from humming_runtime import engine as engine_module
from humming_runtime.contract.variant_name import ScaleScheme
from humming_runtime.discover import discover
from humming_runtime.driver import Driver
from humming_runtime.engine import MOST_DECISIONS, Engine, process_engine
from humming_runtime.errors import DriverError, IntegrityError, NoKernelError
from humming_runtime.launch_counter import LaunchCounter
from humming_runtime.problem import Problem
from humming_runtime.resolve import Distance


def problem(m=8, n=4096):
    return Problem("dense", "f16", "u4", ScaleScheme.parse("g128f16"), "frag16", m, n, 4096)


def test_a_decision_is_taken_once(engine, hopper, monkeypatch):
    first = engine.resolve(problem(), hopper)
    monkeypatch.setattr(engine_module, "decide", None)
    assert engine.resolve(problem(), hopper) is first


def test_decisions_are_bounded(engine, hopper):
    for m in range(9, 9 + MOST_DECISIONS + 10):
        engine._decisions[problem(m), hopper] = None
    engine.resolve(problem(), hopper)
    assert len(engine._decisions) == MOST_DECISIONS


def test_a_new_kernel_for_a_layer_is_logged_once_at_info(engine, hopper, caplog):
    with caplog.at_level(logging.INFO, logger="humming"):
        for m in (8, 7, 500, 501, 8):
            engine.resolve(problem(m), hopper)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "f16_u4_g128f16 n 4096 k 4096" in messages[0]
    assert f"from m 8: {fake.DECODE}" in messages[0]
    assert f"from m 500: {fake.PREFILL}" in messages[1]


def test_force_of_the_environment_is_read_once(installed, hopper, monkeypatch):
    monkeypatch.setenv("HUMMING_FORCE", fake.PREFILL)
    engine = Engine(installed)
    monkeypatch.delenv("HUMMING_FORCE")
    decision = engine.resolve(problem(), hopper)
    assert decision.chosen.entry.name == fake.PREFILL
    assert decision.forced


def test_force_can_be_set_and_taken_back(engine, hopper):
    assert engine.resolve(problem(), hopper).chosen.entry.name == fake.DECODE
    engine.force = fake.PREFILL
    assert engine.resolve(problem(), hopper).chosen.entry.name == fake.PREFILL
    engine.force = None
    assert engine.resolve(problem(), hopper).chosen.entry.name == fake.DECODE
    engine.force = "nonsense"
    with pytest.raises(NoKernelError, match="nonsense: is forced and not installed"):
        engine.resolve(problem(), hopper)


def test_explain_holds_every_kernel_and_raises_for_none(engine, hopper):
    found = engine.explain(problem(), hopper)
    assert [a.entry.name for a in found.accepted] == [fake.DECODE, fake.PREFILL]
    distances = {r.name: r.distance for r in found.rejected}
    assert distances[fake.TEST_TARGET] is Distance.TEST_TARGET
    assert engine.explain(problem(m=2**40), hopper).accepted == ()


def test_faults_of_packages_are_logged_as_warnings(tmp_path, caplog):
    folder = fake.write_package(tmp_path, [fake.DECODE], contract="other")
    Engine(discover(str(folder)))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "built for contract other" in record.getMessage()


def test_counters_are_exact_and_reading_does_not_count():
    counter = LaunchCounter()
    for _ in range(5):
        counter.add()
    assert [counter.value, counter.value] == [5, 5]
    counter.add()
    assert counter.value == 6


def test_a_corrupted_cubin_is_refused_before_the_driver(engine, stub, package_folder):
    path = package_folder / "cubins" / f"{fake.DECODE}.cubin"
    image = bytearray(path.read_bytes())
    image[-1] ^= 1
    path.write_bytes(image)
    device = engine.device(0)
    accepted = engine.resolve(problem(), device).chosen
    with pytest.raises(IntegrityError, match="sha256 is"):
        engine.loader.load(accepted, device)
    assert stub.images == []
    path.write_bytes(fake.image_of(fake.DECODE))
    assert engine.loader.load(accepted, device).device == 0


def test_a_driver_error_at_load_has_all_that_a_report_needs(installed):
    stub = StubCuda(fail={"cuLibraryLoadData": 209})
    engine = Engine(installed, Driver(stub))
    device = engine.device(0)
    accepted = engine.resolve(problem(), device).chosen
    with pytest.raises(DriverError) as error:
        engine.loader.load(accepted, device)
    text = str(error.value)
    for part in (
        fake.DECODE,
        "target sm_90a, CUDA 13.0, humming-cubins-sm90-cu13 0.1.0",
        "device 0 (Stub GPU, capability 9.0, driver for CUDA 13.0)",
        "cuLibraryLoadData: CUDA_ERROR_209 (CUresult 209)",
        "hint: humming doctor",
    ):
        assert part in text
    stub.fail.clear()
    assert engine.loader.load(accepted, device)


def test_the_process_has_one_engine(monkeypatch):
    monkeypatch.setattr(engine_module, "_process_engine", None)
    assert process_engine() is process_engine()


CORE = (
    "cli cubin_file discover doctor driver driver_abi engine errors explanation gemm_plan "
    "known_devices launch_counter launch_slot launcher listing load prepared_launch problem "
    "resolve selection tensor_map weight_operands"
)
IMPORTS = f"""
import sys
before = set(sys.modules)
for name in {CORE.split()!r}:
    __import__("humming_runtime." + name)
roots = {{name.partition(".")[0] for name in set(sys.modules) - before}}
foreign = roots - set(sys.stdlib_module_names) - {{"humming_runtime"}}
assert not foreign, foreign
maps = open("/proc/self/maps").read()
assert "libcuda" not in maps and "nvidia" not in maps
import threading
assert threading.active_count() == 1
"""


def test_importing_the_core_brings_only_the_standard_library_and_opens_no_driver():
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
