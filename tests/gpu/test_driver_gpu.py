"""The runtime below torch's operator on a real driver: loading, maps, contexts, capture, overlap.

Weights are all code 9 with scale 1 and zero point 8, so that every packed layout is the same bytes
and each output is the sum of its row of activations, exact in both dtypes.
"""

import threading

import pytest

from humming_runtime.contract.layouts import packed_weight_bytes, stored_groups
from humming_runtime.engine import Engine
from humming_runtime.errors import CaptureError, NoDeviceError
from humming_runtime.gemm_plan import GemmPlan, WeightOperands

pytestmark = pytest.mark.gpu

N, K = 320, 256
SIZES = (1, 2, 7, 8, 16, 17, 64, 129, 300)


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return found


@pytest.fixture(scope="module")
def packages(torch):
    engine = Engine()
    try:
        device = engine.device(0)
    except NoDeviceError as error:
        pytest.skip(str(error))
    if not engine.installed.packages:
        pytest.skip("no kernel package is installed, and HUMMING_CUBIN_PATH lists none")
    assert device.capability == torch.cuda.get_device_capability(0)
    return engine.installed


class Layer:
    """Operands of a layer of ones in a variant's format, with the tensors kept alive."""

    def __init__(self, torch, variant, ordinal=0):
        where = f"cuda:{ordinal}"
        self.torch = torch
        self.dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[variant.activation]
        grouped = variant.scale.group_size is not None
        groups = stored_groups(K, variant.scale.group_size)
        size = packed_weight_bytes(N, K)
        self.weight = torch.full((size,), 0x99, dtype=torch.uint8, device=where)
        self.scale = torch.ones(N * groups, dtype=self.dtype, device=where)
        self.zero = torch.full((N * groups,), 8, dtype=torch.uint8, device=where)
        self.channel = torch.ones(N, dtype=torch.float32, device=where)
        self.operands = WeightOperands(
            op=variant.op,
            activation=variant.activation,
            weight_dtype=variant.weight,
            scale=variant.scale,
            layout=variant.layout,
            n=N,
            k=K,
            groups=groups,
            weight=self.weight.data_ptr(),
            weight_scale=self.scale.data_ptr() if grouped else 0,
            weight_zero=self.zero.data_ptr() if variant.scale.zero_point else 0,
            channel_scale=0 if grouped else self.channel.data_ptr(),
        )
        self.where = where

    def inputs(self, m, seed=0):
        generator = self.torch.Generator(self.where).manual_seed(seed + m)
        shape = {"size": (m, K), "generator": generator, "device": self.where}
        return self.torch.randint(-1, 2, **shape).to(self.dtype)

    def output(self, m):
        return self.torch.full((m, N), float("nan"), dtype=self.dtype, device=self.where)

    def launch(self, plan, x, out, **changes):
        stream = self.torch.cuda.current_stream(x.device).cuda_stream
        plan.launch(
            x.shape[0], x.data_ptr(), x.stride(0), out.data_ptr(), out.stride(0), stream, **changes
        )

    def check(self, x, out):
        expected = x.float().sum(1, keepdim=True).expand(-1, N)
        self.torch.testing.assert_close(out.float(), expected, rtol=0, atol=0)


def loadable(installed, device):
    """Every kernel that the device takes, test targets too."""
    from humming_runtime.contract.targets import incompatibility

    return [
        (entry, variant)
        for package in installed.packages
        for entry, variant in package.kernels
        if incompatibility(variant.target, device.capability) is None
    ]


def test_every_installed_kernel_loads_and_sums_rows_exactly(torch, packages):
    engine = Engine(packages)
    device = engine.device(0)
    for entry, variant in loadable(packages, device):
        layer = Layer(torch, variant)
        engine.force = entry.name
        plan = GemmPlan(layer.operands, 0, engine)
        for m in SIZES:
            if not engine.explain(layer.operands.problem(m), device).accepted:
                continue
            x, out = layer.inputs(m), layer.output(m)
            layer.launch(plan, x, out)
            layer.check(x, out)
        assert engine.launches()[entry.name] > 0


@pytest.fixture
def free_layer(torch, packages):
    """A layer of the first format whose kernels run unforced, with an engine of its own."""
    from humming_runtime.contract.targets import is_test_target

    engine = Engine(packages)
    for _, variant in loadable(packages, engine.device(0)):
        if not is_test_target(variant.tier, variant.target):
            return Layer(torch, variant), engine
    pytest.skip("no installed kernel runs unforced on this device")


def test_device_facts_agree_with_torch(torch, packages):
    driver = Engine(packages).driver
    assert driver.device_count() == torch.cuda.device_count()
    for ordinal in range(driver.device_count()):
        device = driver.device(ordinal)
        properties = torch.cuda.get_device_properties(ordinal)
        assert device.name == properties.name
        assert device.sm_count == properties.multi_processor_count
        assert device.capability == (properties.major, properties.minor)
        assert device.shared_limit_bytes == properties.shared_memory_per_block_optin
        assert device.shared_per_sm_bytes == properties.shared_memory_per_multiprocessor


@pytest.mark.parametrize("m", [8, 300])
def test_strided_inputs_and_moving_addresses(free_layer, m):
    layer, engine = free_layer
    plan = GemmPlan(layer.operands, 0, engine)
    for seed in range(3):
        wide = layer.inputs(m, seed).repeat(1, 2)
        x, out = wide[:, :K], layer.output(m).repeat(1, 2)[:, N:]
        layer.launch(plan, x, out)
        layer.check(x, out)


def test_a_thread_that_never_used_cuda_can_launch(free_layer):
    layer, engine = free_layer
    plan = GemmPlan(layer.operands, 0, engine)
    x, out = layer.inputs(8), layer.output(8)
    layer.torch.cuda.synchronize()
    stream = layer.torch.cuda.Stream()
    where = (x.data_ptr(), K, out.data_ptr(), N, stream.cuda_stream)
    thread = threading.Thread(target=plan.launch, args=(8, *where))
    thread.start()
    thread.join()
    stream.synchronize()
    layer.check(x, out)


def test_overlapping_launches_see_their_predecessors_results(free_layer):
    layer, engine = free_layer
    plan = GemmPlan(layer.operands, 0, engine)
    for m in (1, 8, 300):
        x, out = layer.inputs(m), layer.output(m)
        moving = layer.torch.zeros_like(x)
        layer.launch(plan, moving, out)
        for seed in range(20):
            moving.copy_(layer.inputs(m, seed))
            layer.launch(plan, moving, out, overlap=True)
        layer.check(moving, out)


def test_capture_before_loading_is_refused_and_after_prepare_replays(free_layer):
    layer, engine = free_layer
    plan = GemmPlan(layer.operands, 0, engine)
    x, out = layer.inputs(8), layer.output(8)
    cuda = layer.torch.cuda
    with pytest.raises(CaptureError), cuda.graph(cuda.CUDAGraph()):
        layer.launch(plan, x, out)
    cuda.synchronize()
    plan.prepare([8])
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        layer.launch(plan, x, out)
    for seed in range(3):
        x.copy_(layer.inputs(8, seed))
        graph.replay()
        layer.check(x, out)


def test_every_device_of_the_process_is_used(torch, packages):
    engine = Engine(packages)
    count = engine.driver.device_count()
    if count < 2:
        pytest.skip(f"{count} device, needs 2")
    for ordinal in range(count):
        for entry, variant in loadable(packages, engine.device(ordinal))[:1]:
            layer = Layer(torch, variant, ordinal)
            engine.force = entry.name
            x, out = layer.inputs(8), layer.output(8)
            torch.cuda.synchronize(ordinal)
            with torch.cuda.device((ordinal + 1) % count):  # another one is current
                layer.launch(GemmPlan(layer.operands, ordinal, engine), x, out)
            torch.cuda.synchronize(ordinal)
            layer.check(x, out)
