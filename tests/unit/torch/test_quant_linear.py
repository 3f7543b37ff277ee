"""The module behaves as any other: state dicts, devices, copies, pickles, compiled graphs."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from reference import random_layer, worst_error
from torch import nn

import humming_runtime
from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import QuantLinear, pack_codes
from humming_runtime.torch_layer.dtypes import ExactnessError
from humming_runtime.torch_layer.weight_format import LayoutError

F16, BF16 = torch.float16, torch.bfloat16
N, K = 24, 136


def make(generator, group_size=64, *, bias=True, zero_point=True):
    layer = random_layer(N, K, group_size, F16, zero_point=zero_point, generator=generator)
    packed = pack_codes(layer.codes, layer.scale, layer.zero, group_size=group_size, activation=F16)
    offset = torch.randn(N, generator=generator).half() if bias else None
    return layer, offset, QuantLinear(packed, offset)


def rows(generator, m=3):
    return torch.randn(m, K, generator=generator).half()


@pytest.mark.usefixtures("cpu_launches")
@pytest.mark.parametrize("group_size", [None, 64])
@pytest.mark.parametrize("bias", [False, True])
def test_forward_multiplies_and_adds_the_bias(generator, group_size, bias):
    layer, offset, module = make(generator, group_size, bias=bias)
    x = rows(generator)
    assert worst_error(module(x), x, layer, offset) <= 1
    out = torch.empty(3, N, dtype=F16)
    assert module(x, out=out) is out


@pytest.mark.usefixtures("cpu_launches")
def test_a_state_dict_holds_the_packed_tensors_and_loads_in_place(generator):
    layer, offset, module = make(generator)
    empty = QuantLinear.empty(module.form, K, N, bias=True, device="cpu")
    before = {name: buffer.data_ptr() for name, buffer in empty.named_buffers()}
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    empty.load_state_dict(torch.load(file, weights_only=True))
    assert {name: buffer.data_ptr() for name, buffer in empty.named_buffers()} == before
    assert set(before) == {"weight", "weight_scale", "weight_zero", "bias"}
    x = rows(generator)
    assert worst_error(empty(x), x, layer, offset) <= 1


def test_reloading_in_place_is_a_write_that_the_next_launch_sees(cpu_launches, generator):
    _, _, module = make(generator)
    layer, offset, other = make(generator)
    x = rows(generator)
    module(x)
    module(x)
    module.load_state_dict(other.state_dict())
    assert worst_error(module(x), x, layer, offset) <= 1
    (plan,) = cpu_launches.plans
    assert [overlap for *_, overlap in plan.launches] == [False, True, False]


@pytest.mark.usefixtures("cpu_launches")
def test_an_empty_layer_on_meta_takes_tensors_by_assignment(generator):
    layer, offset, module = make(generator)
    empty = QuantLinear.empty(module.form, K, N, bias=True)
    assert empty.weight.device.type == "meta"
    empty.load_state_dict(module.state_dict(), assign=True)
    x = rows(generator)
    assert worst_error(empty(x), x, layer, offset) <= 1


def test_a_state_dict_of_another_format_is_refused_before_anything_changes(generator):
    _, _, module = make(generator)
    _, _, other = make(generator, 128)
    before = module.weight.clone()
    with pytest.raises(UsageError, match="state dict holds f16_u4_g128zf16"):
        nn.ModuleList([module]).load_state_dict(nn.ModuleList([other]).state_dict())
    assert torch.equal(module.weight, before)


def test_a_state_dict_of_another_layout_version_is_refused_by_name(generator):
    _, _, module = make(generator)
    state = module.state_dict()
    text = bytes(state["_extra_state"].tolist()).decode().replace("frag16v1", "frag16v2")
    state["_extra_state"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    with pytest.raises(LayoutError, match="layout frag16 version 2"):
        module.load_state_dict(state)


@pytest.mark.usefixtures("cpu_launches")
def test_a_copy_is_independent(generator):
    layer, offset, module = make(generator)
    copied = copy.deepcopy(module)
    module.weight.zero_()
    x = rows(generator)
    assert worst_error(copied(x), x, layer, offset) <= 1


def test_pickles_go_to_another_process(generator, tmp_path):
    _, _, module = make(generator)
    (tmp_path / "module.pickle").write_bytes(pickle.dumps(module))
    code = (
        "import pickle, sys\n"
        "module = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "print(module.config, int(module.weight.sum()), module.packed.n)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "module.pickle")]
    environment = os.environ | {"PYTHONPATH": str(Path(humming_runtime.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [module.config, str(int(module.weight.sum())), str(N)]


@pytest.mark.parametrize("change", [
    lambda module: module.bfloat16(),
    lambda module: module.float(),
    lambda module: module.to(torch.float64),
])  # fmt: skip
def test_another_dtype_is_refused(generator, change):
    _, _, module = make(generator)
    with pytest.raises(UsageError, match=r"its weights are packed for torch\.float16"):
        change(module)


def test_its_own_dtype_and_other_devices_leave_every_value_as_it_is(generator):
    _, _, module = make(generator, None)
    scale = module.channel_scale.clone()
    module.half().to(torch.float16).cpu()
    assert module.channel_scale.dtype == torch.float32
    assert torch.equal(module.channel_scale, scale)
    moved = nn.Sequential(module).to("meta", torch.float16)[0]
    assert {buffer.device.type for buffer in moved.buffers()} == {"meta"}
    assert moved.channel_scale.dtype == torch.float32


def test_a_bias_that_would_change_is_refused(generator):
    _, _, module = make(generator)
    with pytest.raises(ExactnessError, match="bias"):
        QuantLinear(module.packed, torch.full((N,), 0.1))
    with pytest.raises(UsageError, match="bias: shape"):
        QuantLinear(module.packed, torch.zeros(N + 1))


@pytest.mark.usefixtures("cpu_launches")
def test_a_stack_compiles_without_a_graph_break(generator):
    layer, offset, module = make(generator)
    torch._dynamo.reset()
    stack = nn.Sequential(module, nn.Identity())
    compiled = torch.compile(stack, fullgraph=True, backend="aot_eager")
    for m in (1, 4):
        x = rows(generator, m)
        assert worst_error(compiled(x), x, layer, offset) <= 1
    with pytest.raises(Exception, match="no backward pass"):  # dynamo may wrap it
        compiled(rows(generator).requires_grad_())


@pytest.mark.usefixtures("cpu_launches")
def test_layers_of_one_format_share_one_compiled_graph(generator):
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph

    def run(x, weight, scale, zero, config):
        return torch.ops.humming.gemm(x, weight, scale, zero, None, None, config, N, K)

    compiled = torch.compile(run, fullgraph=True, backend=backend)
    for _ in range(3):
        layer, _, module = make(generator)
        x = rows(generator)
        parts = module.weight, module.weight_scale, module.weight_zero
        assert worst_error(compiled(x, *parts, module.config), x, layer) <= 1
    assert len(graphs) == 1


@pytest.mark.usefixtures("cpu_launches")
def test_autocast_changes_nothing(generator):
    layer, offset, module = make(generator)
    x = rows(generator)
    with torch.autocast("cpu", dtype=BF16):
        result = module(x)
    assert result.dtype == F16
    assert worst_error(result, x, layer, offset) <= 1


def test_prepare_takes_the_sizes(cpu_launches, generator):
    _, _, module = make(generator)
    module.prepare([1, 8])
    assert cpu_launches.plans[0].prepared == [1, 8]


def test_its_text_says_what_it_is(generator):
    _, _, module = make(generator)
    assert repr(module) == f"QuantLinear({K}, {N}, bias=True, f16_u4_g64zf16_frag16v1_rows16v1)"
