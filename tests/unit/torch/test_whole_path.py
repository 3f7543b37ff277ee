"""From a tensor to what the driver gets: operator, plan, engine, driver; only CUDA is a stub."""

from __future__ import annotations

import struct

import fake_packages as fake
import pytest
import torch
from stub_cuda import StubCuda

from humming_runtime.contract.arguments import offsets
from humming_runtime.discover import discover
from humming_runtime.driver import Driver
from humming_runtime.engine import Engine
from humming_runtime.errors import CaptureError, NoKernelError
from humming_runtime.torch_layer import binding, matmul, pack_codes, prepare

F16 = torch.float16
N, K = 48, 256
OVERLAP = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


@pytest.fixture
def stub():
    return StubCuda()


@pytest.fixture
def path(request, monkeypatch, tmp_path, stub):
    """Launches of the operator go to the stub driver, with one decode kernel installed."""
    request.getfixturevalue("cpu_launches")
    monkeypatch.delenv("HUMMING_FORCE", raising=False)
    folder = fake.write_package(tmp_path / "kernels", (fake.DECODE,))
    engine = Engine(discover(str(folder)), Driver(stub))
    with binding.use_plans(binding.plans_of(engine)):
        yield engine


def weights(group_size=128):
    codes = torch.full((K, N), 9, dtype=torch.uint8)
    groups = 1 if group_size is None else K // group_size
    return pack_codes(
        codes, torch.ones(groups, N, dtype=F16), None, group_size=group_size, activation=F16
    )


def value(launch, name, code):
    return struct.unpack_from(code, launch.arguments, offsets()[name])[0]


@pytest.mark.usefixtures("path")
def test_addresses_strides_sizes_stream_and_overlap_arrive(stub):
    packed = weights()
    x = torch.zeros(3, 2 * K, dtype=F16)[:, K:]
    out = torch.zeros(3, 2 * N, dtype=F16)[:, :N]
    bias = torch.zeros(N, dtype=F16)
    matmul(x, packed, bias, out)
    matmul(x, packed, None, out)
    first, second = stub.launches
    wanted = {
        "activation": x.data_ptr(),
        "output": out.data_ptr(),
        "weight": packed.weight.data_ptr(),
        "weight_scale": packed.weight_scale.data_ptr(),
        "weight_zero": 0,
        "channel_scale": 0,
        "bias": bias.data_ptr(),
        "activation_stride": 2 * K,
        "output_stride": 2 * N,
    }
    assert {name: value(first, name, "<q") for name in wanted} == wanted
    assert [value(first, name, "<i") for name in ("m", "n", "k", "groups", "group_size")] == [
        3, N, K, 2, 128,
    ]  # fmt: skip
    assert value(second, "bias", "<q") == 0
    assert first.stream == 7
    assert OVERLAP not in first.attributes
    assert OVERLAP in second.attributes


@pytest.mark.usefixtures("path")
def test_a_first_use_inside_a_capture_is_refused_and_not_after_prepare(stub):
    packed, x = weights(), torch.zeros(2, K, dtype=F16)
    stub.capturing.add(7)
    with pytest.raises(CaptureError, match="prepare"):
        matmul(x, packed)
    stub.capturing.clear()
    prepare(packed, [2])
    stub.capturing.add(7)
    matmul(x, packed)
    assert len(stub.launches) == 1


@pytest.mark.usefixtures("path")
def test_a_format_without_a_kernel_is_an_error_that_says_so():
    with pytest.raises(NoKernelError, match="f16_u4_g32f16"):
        matmul(torch.zeros(2, K, dtype=F16), weights(32))
