"""Calls of libcuda: struct layouts, contexts, errors, fork. The stub reads raw memory."""

import ctypes as c
import os
import threading

import pytest
from stub_cuda import FUNCTION_MAX_DYNAMIC_SHARED, StubCuda

from humming_runtime import driver_abi
from humming_runtime.contract.arguments import offsets, struct_size_bytes
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.driver import Driver
from humming_runtime.errors import DriverError, NoDeviceError
from humming_runtime.prepared_launch import PreparedLaunch

CLUSTER, OVERLAP = 4, 6
ARGUMENTS = bytes(range(256))  # of a kernel without tensor maps


def shape(cluster=1):
    return LaunchShape(
        grid=70000, threads=288, cluster=cluster, split_k=cluster, shared_bytes=142464, stages=4
    )


def loaded(driver, ordinal=0):
    return driver.load(b"\x7fELF", "symbol", driver.device(ordinal))


def test_structs_have_the_sizes_and_offsets_of_cuda_h():
    assert c.sizeof(driver_abi.LaunchAttribute) == 72
    assert driver_abi.LaunchAttribute.value.offset == 8
    assert c.sizeof(driver_abi.LaunchConfig) == 56
    assert driver_abi.LaunchConfig.shared_bytes.offset == 24
    assert driver_abi.LaunchConfig.stream.offset == 32
    assert driver_abi.LaunchConfig.attributes.offset == 40
    assert driver_abi.LaunchConfig.attribute_count.offset == 48


def test_device_facts_come_from_attributes():
    driver = Driver(StubCuda(((9, 0), (8, 6))))
    assert driver.device_count() == 2
    assert driver.version() == (13, 0)
    device = driver.device(1)
    assert device.capability == (8, 6)
    assert (device.ordinal, device.name, device.sm_count) == (1, "Stub GPU", 132)
    assert (device.shared_limit_bytes, device.shared_per_sm_bytes) == (232448, 233472)


def test_load_forces_the_kernel_and_allows_all_shared_memory(stub):
    function = loaded(Driver(stub))
    assert stub.symbols == ["symbol"]
    assert stub.images == [b"\x7fELF"]
    room = 232448 - 176  # less static
    assert stub.attributes_set == [(function.handle, FUNCTION_MAX_DYNAMIC_SHARED, room)]
    assert stub.contexts == []


@pytest.mark.parametrize("call", ["cuLibraryGetKernel", "cuKernelGetFunction"])
def test_a_failed_load_unloads_the_library(stub, call):
    stub.fail[call] = 209
    with pytest.raises(DriverError, match=rf"{call}: CUDA_ERROR_209 \(CUresult 209\)") as error:
        loaded(Driver(stub))
    assert error.value.code == 209
    assert len(stub.unloaded) == 1
    assert stub.contexts == []


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("cluster", [1, 2])
def test_launch_passes_sizes_arguments_and_attributes(stub, cluster, overlap):
    driver = Driver(stub)
    function = loaded(driver)
    prepared = PreparedLaunch(function, shape(cluster), ARGUMENTS)
    driver.launch(prepared, 0x7F00DEADBEEF, overlap=overlap)
    [launch] = stub.launches
    assert launch.function == function.handle
    assert launch.grid == (70000, 1, 1)
    assert launch.block == (288, 1, 1)
    assert launch.shared_bytes == 142464
    assert launch.stream == 0x7F00DEADBEEF
    assert launch.arguments == ARGUMENTS
    expected = {CLUSTER: (2, 1, 1)} if cluster == 2 else {}
    if overlap:
        expected[OVERLAP] = (1, 0, 0)
    assert launch.attributes == expected


def test_overlap_of_one_launch_does_not_stay_for_the_next(stub):
    driver = Driver(stub)
    prepared = PreparedLaunch(loaded(driver), shape(), ARGUMENTS)
    for overlap in (True, False):
        driver.launch(prepared, 1, overlap=overlap)
    assert [OVERLAP in launch.attributes for launch in stub.launches] == [True, False]


def test_fields_are_patched_at_the_offsets_of_the_contract(stub):
    driver = Driver(stub)
    prepared = PreparedLaunch(loaded(driver), shape(), bytes(struct_size_bytes(maps=True)))
    prepared.field("output").value = 0x7FFF_0000_1230
    raw = prepared.arguments(struct_size_bytes(maps=True))
    at = offsets()["output"]
    assert int.from_bytes(raw[at : at + 8], "little") == 0x7FFF_0000_1230
    assert raw[:at] + raw[at + 8 :] == bytes(struct_size_bytes(maps=True) - 8)


def test_a_thread_without_context_gets_the_devices_primary_one(stub):
    driver = Driver(stub)
    prepared = PreparedLaunch(loaded(driver), shape(), ARGUMENTS)
    thread = threading.Thread(target=driver.launch, args=(prepared, 1), kwargs={"overlap": False})
    thread.start()
    thread.join()
    assert stub.launches[0].context == 0x1000
    assert stub.contexts == []


def test_a_context_that_is_current_is_not_pushed_again(stub):
    driver = Driver(stub)
    prepared = PreparedLaunch(loaded(driver), shape(), ARGUMENTS)
    stub.contexts.append(0x1000)
    stub.calls.clear()
    driver.launch(prepared, 1, overlap=False)
    assert stub.calls == ["cuCtxGetCurrent", "cuLaunchKernelEx"]


def test_each_device_launches_in_its_own_context_and_the_callers_stays_current():
    stub = StubCuda(((9, 0), (9, 0)))
    driver = Driver(stub)
    stub.contexts.append(0x1000)
    prepared = PreparedLaunch(loaded(driver, 1), shape(), ARGUMENTS)
    driver.launch(prepared, 1, overlap=False)
    assert stub.launches[0].context == 0x1001
    assert stub.contexts == [0x1000]
    assert stub.calls.count("cuDevicePrimaryCtxRetain") == 1


def test_a_failed_launch_names_the_call_and_restores_the_context(stub):
    driver = Driver(stub)
    prepared = PreparedLaunch(loaded(driver), shape(), ARGUMENTS)
    stub.fail["cuLaunchKernelEx"] = 701
    with pytest.raises(DriverError, match=r"cuLaunchKernelEx: CUDA_ERROR_701 \(CUresult 701\)"):
        driver.launch(prepared, 1, overlap=False)
    assert stub.contexts == []


def test_capture_of_a_stream_and_of_the_default_one_beside_another(stub):
    driver = Driver(stub)
    assert not driver.is_capturing(0, 0)
    stub.capturing.add(7)
    assert driver.is_capturing(7, 0)
    assert not driver.is_capturing(8, 0)
    assert driver.is_capturing(0, 0)


def test_no_device_a_stub_library_and_an_old_driver_are_named():
    with pytest.raises(NoDeviceError, match="finds no device"):
        Driver(StubCuda(()))
    with pytest.raises(NoDeviceError, match="is a stub without a driver"):
        Driver(StubCuda(fail={"cuInit": 34}))
    old = StubCuda()
    old.cuLibraryLoadData = None
    with pytest.raises(NoDeviceError, match=r"no cuLibraryLoadData.*older than CUDA 12\.0"):
        Driver(old)


def test_a_driver_mismatch_says_what_to_do():
    with pytest.raises(DriverError, match="hint: remove the forward-compatibility") as error:
        Driver(StubCuda(fail={"cuInit": 804}))
    assert error.value.code == 804


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(driver_abi, "LIBRARY", "libcuda-that-is-not-there.so.1")
    with pytest.raises(NoDeviceError, match=r"libcuda-that-is-not-there.*no NVIDIA driver"):
        Driver()


def in_child(action):
    """Outcome of `action` in a forked child, as text."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            text = "no error"
        except DriverError as error:
            text = str(error)
        os.write(writable, text.encode())
        os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    with os.fdopen(readable) as pipe:
        return pipe.read()


def test_calls_in_a_forked_child_are_refused_before_the_driver(stub):
    driver = Driver(stub)
    said = in_child(lambda: driver.device(0))
    assert said.startswith("cuDeviceGet: CUDA was in use before this process was forked")
    assert "hint: start workers with the spawn method" in said


def test_a_launch_in_a_forked_child_says_so_when_the_driver_refuses(stub):
    driver = Driver(stub)
    prepared = PreparedLaunch(loaded(driver), shape(), ARGUMENTS)
    stub.fail["cuCtxGetCurrent"] = 3  # what the driver answers in a child
    said = in_child(lambda: driver.launch(prepared, 1, overlap=False))
    assert "CUDA was in use before this process was forked" in said


def test_the_first_use_in_a_child_of_a_cuda_process_says_so():
    with pytest.raises(DriverError, match="before this process was forked"):
        Driver(StubCuda(fail={"cuInit": 3}))
