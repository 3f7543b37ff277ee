"""The operator on a real device: streams, devices, graphs, reload, compile, sizes beyond 2^31."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import reference  # noqa: E402
from installed_kernels import make_layer  # noqa: E402
from reference import worst_error  # noqa: E402

from humming_runtime.engine import Engine  # noqa: E402
from humming_runtime.errors import CaptureError, UsageError  # noqa: E402
from humming_runtime.torch_layer import QuantLinear, binding, matmul, prepare  # noqa: E402
from humming_runtime.torch_layer.operator import GradientError  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("free_choice")]
N, K = 2112, 1152
LONG_CYCLES = 20_000_000  # about 10 ms


@pytest.fixture(params=["f16", "bf16"])
def form(request, kernels):
    """A format of each activation dtype, with zero points where there is one."""
    found = [f for f in kernels.free_formats() if f.activation == request.param]
    if not found:
        pytest.skip(f"no kernel for {request.param} activations runs unforced")
    return max(found, key=lambda f: (bool(f.scale.zero_point), f.group_size or 0))


def rows(form, m, k, generator, device="cuda"):
    values = torch.randn(m, k, generator=generator, device=generator.device)
    return values.to(device, form.activation_dtype)


def right(result, x, layer, bias=None):
    return worst_error(result.reshape(-1, layer.n), x.reshape(-1, layer.k), layer, bias) <= 1


@pytest.mark.parametrize("m", [1, 3, 17, 64, 300])
def test_inputs_that_are_not_contiguous(form, generator, m):
    layer, packed = make_layer(form, N, K, generator)
    wide = rows(form, 2 * m, 2 * K, generator)
    for x in (wide[:m, K:], wide[::2, :K], wide[:m, 3 : K + 3], wide[:m, :K].t().contiguous().t()):
        assert right(matmul(x, packed), x, layer)
    x = wide.view(2, m, 2 * K)[..., :K]
    assert right(matmul(x, packed), x, layer)
    assert right(matmul(x.transpose(0, 1), packed), x.transpose(0, 1), layer)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_no_rows(form, generator, shape):
    _, packed = make_layer(form, N, K, generator)
    x = torch.empty(*shape, K, dtype=form.activation_dtype, device="cuda")
    assert matmul(x, packed).shape == (*shape, N)


def test_two_runs_give_the_same_bits(form, generator):
    layer, packed = make_layer(form, N, K, generator)
    for m in (1, 16, 300):
        x = rows(form, m, K, generator)
        first = matmul(x, packed)
        assert right(first, x, layer)
        assert all(torch.equal(matmul(x, packed), first) for _ in range(5))


def test_launches_are_ordered_on_the_current_stream(form, generator):
    layer, packed = make_layer(form, N, K, generator)
    new = rows(form, 33, K, generator)
    x = torch.zeros_like(new)
    matmul(x, packed)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG_CYCLES)
        x.copy_(new)
        result = matmul(x, packed)
        copied = result.clone()
        result.fill_(torch.nan)
    stream.synchronize()
    assert right(copied, new, layer)


@pytest.mark.parametrize("m", [1, 16, 64, 512])
def test_weights_written_just_before_a_launch_are_the_ones_it_reads(form, generator, m):
    n, k = 7168, 4096
    x = rows(form, m, k, generator)
    sources = [make_layer(form, n, k, generator) for _ in range(2)]
    wanted = [matmul(x, packed) for _, packed in sources]
    for (layer, _), result in zip(sources, wanted, strict=True):
        assert right(result, x, layer)
    target = sources[0][1].map(torch.clone)
    for turn in range(40):
        source = sources[turn % 2][1]
        for name, tensor in target.parts().items():
            tensor.copy_(source.parts()[name])
        for _ in range(2):
            assert torch.equal(matmul(x, target), wanted[turn % 2])


def test_addresses_used_again_give_the_new_weights(form, generator):
    x = rows(form, 4, K, generator)
    for _ in range(20):
        layer, packed = make_layer(form, N, K, generator)
        assert right(matmul(x, packed), x, layer)
        del packed


def test_a_captured_stack_replays_with_new_data_and_new_weights(form, generator):
    shapes = [(1152, K), (576, 1152), (2112, 576)]
    layers = [make_layer(form, n, k, generator) for n, k in shapes]
    modules = [QuantLinear(packed) for _, packed in layers]
    stack = torch.nn.Sequential(*modules)
    for m in (1, 16, 200):
        for module in modules:
            module.prepare([m])
        x = torch.zeros(m, K, dtype=form.activation_dtype, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            inside = [x]
            for module in modules:
                inside.append(module(inside[-1]))
        for reload in (False, False, True):
            if reload:
                layers[1] = make_layer(form, *shapes[1], generator)
                modules[1].load_state_dict(QuantLinear(layers[1][1]).state_dict())
            x.copy_(rows(form, m, K, generator) / 8)
            for tensor in inside[1:]:
                tensor.fill_(torch.nan)
            graph.replay()
            for (layer, _), before, after in zip(layers, inside, inside[1:], strict=False):
                assert right(after, before, layer)
            assert torch.equal(stack(x), inside[-1])


def test_two_graphs_of_one_layer_replay_at_once_on_two_streams(form, generator):
    layer, packed = make_layer(form, N, K, generator)
    inputs, outputs, graphs = [], [], []
    for m in (5, 200):
        prepare(packed, [m])
        x = rows(form, m, K, generator)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs.append(matmul(x, packed))
        inputs.append(x)
        graphs.append(graph)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(20):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for x, out in zip(inputs, outputs, strict=True):
        assert right(out, x, layer)


def test_first_use_inside_a_capture_is_refused_and_works_after_prepare(kernels, form, generator):
    layer, packed = make_layer(form, N, K, generator)
    x = rows(form, 6, K, generator)
    unloaded = Engine(kernels.engine.installed, kernels.engine.driver)
    with binding.use_plans(binding.plans_of(unloaded)):
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(CaptureError, match="prepare"), torch.cuda.graph(graph):
            matmul(x, packed)
        prepare(packed, [6])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = matmul(x, packed)
        graph.replay()
        assert right(out, x, layer)


def test_compiled_without_a_graph_break_is_the_same(form, generator):
    layer, packed = make_layer(form, N, K, generator)
    bias = rows(form, 1, N, generator)[0]
    module = QuantLinear(packed, bias)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for m in (1, 16, 65, 300):
        x = rows(form, m, K, generator)
        result = compiled(x)
        assert right(result, x, layer, bias)
        assert torch.equal(result, module(x))


def test_autocast_changes_nothing_and_wrong_inputs_are_refused(form, generator):
    layer, packed = make_layer(form, N, K, generator)
    x = rows(form, 3, K, generator)
    with torch.autocast("cuda"):
        assert right(matmul(x, packed), x, layer)
    with pytest.raises(UsageError, match=r"x is torch\.float32"):
        matmul(x.float(), packed)
    with pytest.raises(UsageError, match="is on cpu"):
        matmul(x, packed.to("cpu"))
    with pytest.raises(GradientError):
        matmul(x.clone().requires_grad_(), packed)


def test_the_tensors_device_runs_it_whatever_the_current_device(form, generator):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    layer, packed = make_layer(form, N, K, generator)
    moved = layer.to("cuda:1"), packed.to("cuda:1")
    for m in (1, 200):
        x = rows(form, m, K, generator, "cuda:1")
        assert torch.cuda.current_device() == 0
        result = matmul(x, moved[1])
        assert result.device == x.device
        assert right(result, x, moved[0])


def test_activations_and_outputs_beyond_2_31_elements(form, generator):
    n = k = 16512
    m = 2**31 // k + 130
    if torch.cuda.mem_get_info()[0] < 5 * m * k:
        pytest.skip("needs 11 GB of free GPU memory")
    layer, packed = make_layer(form, n, k, generator)
    x = torch.zeros(m, k, dtype=form.activation_dtype, device="cuda")
    sample = torch.tensor([0, 1, m // 2, m - 131, m - 65, m - 1], device="cuda")
    x[sample] = rows(form, len(sample), k, generator)
    result = matmul(x, packed)
    assert right(result[sample], x[sample], layer)
    assert not result[m - 64 : m - 1].any()


def test_weights_beyond_2_31_bytes(form, generator):
    n, k = 65536 + 80, 65536
    if torch.cuda.mem_get_info()[0] < 5 * n * k // 2:
        pytest.skip("needs 11 GB of free GPU memory")
    layer, packed = make_layer(form, n, k, generator)
    columns = torch.cat([torch.arange(64), torch.arange(n - 64, n)]).cuda()
    zero = None if layer.zero is None else layer.zero[:, columns]
    part = reference.Layer(
        layer.codes[:, columns], layer.scale[:, columns], zero, layer.group_size, layer.activation
    )
    del layer
    for m in (1, 16, 200):
        x = rows(form, m, k, generator) / 8
        assert right(matmul(x, packed)[:, columns].contiguous(), x, part)
