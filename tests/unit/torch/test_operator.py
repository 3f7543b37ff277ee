"""Operator: what reaches the launch, strides, refusals, graphs. A plan by address multiplies."""

from __future__ import annotations

import pytest
import torch
from reference import random_layer, worst_error

from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import binding, matmul, pack_codes, prepare, weights_written
from humming_runtime.torch_layer.operator import GradientError

F16, BF16 = torch.float16, torch.bfloat16
N, K = 24, 136


def make(generator, n=N, k=K, group_size=64, dtype=F16, zero_point=True):
    layer = random_layer(n, k, group_size, dtype, zero_point=zero_point, generator=generator)
    packed = pack_codes(
        layer.codes, layer.scale, layer.zero, group_size=group_size, activation=dtype
    )
    return layer, packed


def activations(generator, *shape, dtype=F16):
    return torch.randn(*shape, K, generator=generator).to(dtype)


def check(result, x, layer, bias=None):
    assert result.is_contiguous()
    assert result.dtype == layer.activation
    assert result.shape == (*x.shape[:-1], layer.n)
    rows, given = result.reshape(-1, layer.n), x.reshape(-1, layer.k)
    assert worst_error(rows, given, layer, bias) <= 1


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("group_size", [None, 32, 128])
@pytest.mark.parametrize("zero_point", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_every_format_reaches_the_launch_whole(
    cpu_launches, generator, dtype, group_size, zero_point, with_bias
):
    layer, packed = make(generator, dtype=dtype, group_size=group_size, zero_point=zero_point)
    x = activations(generator, 3, dtype=dtype)
    bias = torch.randn(N, generator=generator).to(dtype) if with_bias else None
    check(matmul(x, packed, bias), x, layer, bias)
    (plan,) = cpu_launches.plans
    assert plan.launches == [(3, 7, False)]


@pytest.mark.usefixtures("cpu_launches")
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 2)])
def test_any_leading_dimensions(generator, shape):
    layer, packed = make(generator)
    x = activations(generator, *shape)
    check(matmul(x, packed), x, layer)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_no_rows_no_launch(cpu_launches, generator, shape):
    _, packed = make(generator)
    result = matmul(activations(generator, *shape), packed)
    assert result.shape == (*shape, N)
    assert cpu_launches.plans == []


def strided(name, generator):
    wide = torch.randn(4, 2 * K + 16, generator=generator).to(F16)
    return {
        "rows of a wider tensor": wide[:, 8 : 8 + K],
        "every second row": wide[::2, :K],
        "a leading dimension of rows with one stride": wide.view(2, 2, -1)[..., :K],
        "row stride no multiple of 8": torch.randn(3, K + 4, generator=generator).to(F16)[:, :K],
        "address no multiple of 16 bytes": wide[:, 1 : K + 1],
        "transposed": torch.randn(K, 3, generator=generator).to(F16).t(),
        "one row for all": wide[:1, :K].expand(3, K),
        "rows that overlap": wide.view(-1).as_strided((3, K), (8, 1)),
        "leading dimensions that do not collapse": wide.view(2, 2, -1)[..., :K].transpose(0, 1),
        "contiguous at an odd address": wide.view(-1)[1 : 3 * K + 1].view(3, K),
    }[name]  # fmt: skip


@pytest.mark.parametrize(("name", "copied"), [
    ("rows of a wider tensor", False),
    ("every second row", False),
    ("a leading dimension of rows with one stride", False),
    ("row stride no multiple of 8", True),
    ("address no multiple of 16 bytes", True),
    ("transposed", True),
    ("one row for all", True),
    ("rows that overlap", True),
    ("leading dimensions that do not collapse", True),
    ("contiguous at an odd address", True),
])  # fmt: skip
def test_rows_are_taken_where_they_lie_or_copied(
    cpu_launches, generator, monkeypatch, name, copied
):
    layer, packed = make(generator)
    x = strided(name, generator)
    seen = []
    entry = cpu_launches.cache.entry

    def recording(key):
        found = entry(key)
        launch = found.plan.launch

        def noted(m, address, *rest, **options):
            seen.append(address)
            assert address % 16 == 0
            launch(m, address, *rest, **options)

        monkeypatch.setattr(found.plan, "launch", noted)
        return found

    monkeypatch.setattr(cpu_launches.cache, "entry", recording)
    check(matmul(x, packed), x, layer)
    assert (seen[0] != x.data_ptr()) == copied


@pytest.mark.usefixtures("cpu_launches")
def test_out_is_written_where_it_lies_and_returned(generator):
    layer, packed = make(generator)
    x = activations(generator, 3)
    wide = torch.full((3, 2 * N), torch.nan, dtype=F16)
    out = wide[:, N:]
    assert matmul(x, packed, out=out) is out
    assert worst_error(out, x, layer) <= 1
    assert wide[:, :N].isnan().all()


@pytest.mark.usefixtures("cpu_launches")
@pytest.mark.parametrize(("out", "text"), [
    (torch.empty(3, N + 8, dtype=F16), "expected torch.float16"),
    (torch.empty(3, N, dtype=BF16), "out is torch.bfloat16"),
    (torch.empty(N, 3, dtype=F16).t(), "its rows need one stride"),
    (torch.empty(3, N + 1, dtype=F16)[:, :N], "its rows need one stride"),
    (torch.empty(3 * N + 1, dtype=F16)[1:].view(3, N), "its rows need one stride"),
])  # fmt: skip
def test_an_out_that_cannot_take_the_result_is_refused(generator, out, text):
    _, packed = make(generator)
    with pytest.raises(UsageError, match=text):
        matmul(activations(generator, 3), packed, out=out)


@pytest.mark.usefixtures("cpu_launches")
def test_tensors_that_do_not_fit_are_refused_all_at_once(generator):
    _, packed = make(generator)
    x = torch.zeros(2, K + 8)
    with pytest.raises(UsageError) as caught:
        matmul(x, packed, torch.zeros(N + 1, dtype=F16))
    for text in ("x is torch.float32, these weights take torch.float16", f"k = {K}", "bias is"):
        assert text in str(caught.value)
    tensors = [packed.weight, None, packed.weight_zero, torch.zeros(N), None]
    with pytest.raises(UsageError, match=r"weight_scale is missing.*channel_scale is given"):
        torch.ops.humming.gemm(x, *tensors, packed.config, N, K)


@pytest.mark.usefixtures("cpu_launches")
def test_a_scalar_input_is_refused(generator):
    _, packed = make(generator)
    with pytest.raises(UsageError, match="its last dimension"):
        matmul(torch.tensor(1.0, dtype=F16), packed)


def test_the_cpu_is_refused_by_name(generator):
    _, packed = make(generator)
    x = activations(generator, 2)
    with pytest.raises(UsageError, match="tensors are on cpu, kernels run on CUDA"):
        matmul(x, packed)
    with pytest.raises(UsageError, match="on cpu"):
        prepare(packed, [1])
    with pytest.raises(UsageError, match="on cpu"):
        matmul(x, packed, out=torch.empty(2, N, dtype=F16))


@pytest.mark.usefixtures("cpu_launches")
def test_gradients_are_refused_and_only_where_one_is_needed(generator):
    layer, packed = make(generator)
    x = activations(generator, 2).requires_grad_()
    bias = torch.zeros(N, dtype=F16, requires_grad=True)
    for arguments in ((x, packed), (x.detach(), packed, bias)):
        with pytest.raises(GradientError, match="no backward pass"):
            matmul(*arguments)
    with pytest.raises(GradientError):
        matmul(x, packed, out=torch.empty(2, N, dtype=F16))
    with torch.no_grad():
        check(matmul(x, packed), x, layer)
    with torch.inference_mode():
        check(matmul(x, packed), x, layer)


def test_a_second_launch_overlaps_until_weights_are_written(cpu_launches, generator):
    layer, packed = make(generator)
    x = activations(generator, 1)
    for _ in range(2):
        matmul(x, packed)
    packed.weight.copy_(packed.weight.clone())
    for _ in range(2):
        check(matmul(x, packed), x, layer)
    weights_written(packed)
    matmul(x, packed)
    (plan,) = cpu_launches.plans
    assert [overlap for *_, overlap in plan.launches] == [False, True, False, True, False]


@pytest.mark.usefixtures("cpu_launches")
def test_addresses_used_again_by_other_weights_give_the_new_result(generator):
    x = activations(generator, 2)
    for _ in range(20):
        layer, packed = make(generator)
        check(matmul(x, packed), x, layer)
        del packed


def test_prepare_reaches_the_plan_of_the_weights(cpu_launches, generator):
    _, packed = make(generator)
    prepare(packed, [1, 16])
    matmul(activations(generator, 1), packed)
    (plan,) = cpu_launches.plans
    assert plan.prepared == [1, 16]


@pytest.mark.usefixtures("cpu_launches")
def test_weights_at_an_odd_address_are_refused(generator):
    _, packed = make(generator)
    storage = torch.zeros(packed.weight.nbytes + 1, dtype=torch.uint8)
    odd = storage[1:].view(packed.weight.shape)
    moved = packed.map(lambda tensor: odd if tensor is packed.weight else tensor)
    with pytest.raises(UsageError, match="weight: address is no multiple of 16"):
        matmul(activations(generator, 1), moved)


@pytest.mark.usefixtures("cpu_launches")
def test_the_operators_pass_torchs_own_checks(generator):
    _, packed = make(generator)
    parts = [getattr(packed, name) for name in ("weight", "weight_scale", "weight_zero")]
    arguments = (activations(generator, 2), *parts, None, None, packed.config, N, K)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.humming.gemm.default, arguments, test_utils=tests)
    with_out = (torch.empty(2, N, dtype=F16), *arguments)
    torch.library.opcheck(torch.ops.humming.gemm_out.default, with_out, test_utils=tests)


@pytest.mark.usefixtures("cpu_launches")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("use_out", [False, True])
def test_compiled_without_a_graph_break(generator, dynamic, use_out):
    layer, packed = make(generator)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, dynamic=dynamic, backend="aot_eager")
    def twice(x, out):
        if use_out:
            matmul(x, packed, out=out)
            return out * 2
        return matmul(x, packed) * 2

    for m in (2, 3, 5):
        x = activations(generator, m)
        with torch.no_grad():
            result = twice(x, torch.empty(m, N, dtype=F16))
        assert worst_error(result / 2, x, layer) <= 1


@pytest.mark.usefixtures("cpu_launches")
def test_a_fake_result_is_like_the_real_one(generator):
    _, packed = make(generator)
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = activations(generator, 4, 3).transpose(0, 1)
    real = matmul(x, packed)
    with FakeTensorMode() as mode:
        fake = matmul(mode.from_tensor(x), packed.map(mode.from_tensor))
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_plans_are_given_back_when_the_scope_ends(cpu_launches):
    assert binding.plans() is cpu_launches.cache
