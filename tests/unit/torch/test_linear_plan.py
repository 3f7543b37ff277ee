"""The short way from tensors to the driver: same launches as the long way, and when it is left."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import fake_packages as fake
import pytest
import torch
from small_layer import F16, OVERLAP, K, N, value, weights
from torch.utils.flop_counter import FlopCounterMode

from humming_runtime.errors import DriverError, NoKernelError, UsageError
from humming_runtime.torch_layer import (
    LinearPlan,
    QuantLinear,
    matmul,
    prepare,
    weights_written,
)


@pytest.mark.usefixtures("engine")
def test_a_second_call_takes_the_short_way_with_the_same_arguments(stub, long_calls):
    plan = LinearPlan(weights())
    x, out = torch.zeros(3, K, dtype=F16), torch.zeros(3, N, dtype=F16)
    bias = torch.zeros(N, dtype=F16)
    for _ in range(3):
        assert plan(x, bias, out) is out
    assert long_calls == [(3, K)]
    first, second, third = stub.launches
    assert first.arguments == second.arguments == third.arguments
    assert (first.grid, first.block, first.shared_bytes) == (
        (second.grid, second.block, second.shared_bytes)
    )
    assert [OVERLAP in launch.attributes for launch in stub.launches] == [False, True, True]
    assert value(second, "activation") == x.data_ptr()
    assert value(second, "output") == out.data_ptr()
    assert value(second, "bias") == bias.data_ptr()


@pytest.mark.usefixtures("engine")
def test_an_output_is_made_where_none_is_given(stub, long_calls):
    plan = LinearPlan(weights())
    x = torch.zeros(2, 3, K, dtype=F16)
    plan(x)
    result = plan(x)
    assert len(long_calls) == 1
    assert (result.shape, result.dtype) == ((2, 3, N), F16)
    assert value(stub.launches[-1], "output") == result.data_ptr()
    assert value(stub.launches[-1], "m", "<i") == 6
    assert value(stub.launches[-1], "bias") == 0


@pytest.mark.parametrize(
    ("make", "stride"),
    [
        (lambda: torch.zeros(4, 2 * K, dtype=F16)[:, K:], 2 * K),
        (lambda: torch.zeros(4, 3, K, dtype=F16)[:, 1], 3 * K),
        (lambda: torch.zeros(4, 1, K, dtype=F16), K),
        (lambda: torch.zeros(1, 4, K, dtype=F16), K),
        (lambda: torch.zeros(2, 2, K + 8, dtype=F16)[..., :K], K + 8),
        (lambda: torch.zeros(2, 5, K, dtype=F16)[:, :2], None),  # rows without one stride
        (lambda: torch.zeros(K, 4, dtype=F16).t(), None),
        (lambda: torch.zeros(4, K + 1, dtype=F16)[:, 1:], None),  # no 16-byte vectors
        (lambda: torch.zeros(1, K, dtype=F16).expand(4, K), None),
    ],
)
@pytest.mark.usefixtures("engine")
def test_rows_that_kernels_can_go_through_are_read_where_they_are(stub, long_calls, make, stride):
    plan = LinearPlan(weights())
    x = make()
    out = torch.zeros(*x.shape[:-1], N, dtype=F16)
    plan(x, None, out)
    plan(x, None, out)
    assert len(long_calls) == (1 if stride else 2)
    last = stub.launches[-1]
    assert value(last, "m", "<i") == 4
    if stride:
        assert value(last, "activation") == x.data_ptr()
        assert value(last, "activation_stride") == stride
    else:
        assert value(last, "activation") != x.data_ptr() or x.stride(0) == 0


@pytest.mark.usefixtures("engine")
def test_each_size_is_learned_once(stub, long_calls):
    plan = LinearPlan(weights())
    for _ in range(2):
        for m in (1, 8, 64, 500):
            plan(torch.zeros(m, K, dtype=F16))
    assert [shape[0] for shape in long_calls] == [1, 8, 64, 500]
    assert [value(launch, "m", "<i") for launch in stub.launches] == [1, 8, 64, 500] * 2
    for m in range(1, 200):  # more than a call remembers
        plan(torch.zeros(m, K, dtype=F16))
    plan(torch.zeros(3, K, dtype=F16))
    assert value(stub.launches[-1], "m", "<i") == 3


@pytest.mark.usefixtures("engine")
def test_activations_of_tensor_maps_are_encoded_where_they_moved(stub):
    plan = LinearPlan(weights())
    first, second = (torch.zeros(64, K, dtype=F16) for _ in range(2))
    for x in (first, first, second, second, first):
        plan(x)
    maps = [entry["address"] for entry in stub.maps if entry["data_type"] == 6]
    assert maps == [first.data_ptr(), second.data_ptr(), first.data_ptr()]


@pytest.mark.usefixtures("engine")
def test_after_a_write_the_next_launch_does_not_overlap(stub):
    packed = weights()
    plan = LinearPlan(packed)
    x = torch.zeros(1, K, dtype=F16)

    def overlaps(count):
        before = len(stub.launches)
        for _ in range(count):
            plan(x)
        return [OVERLAP in launch.attributes for launch in stub.launches[before:]]

    assert overlaps(3) == [False, True, True]
    packed.weight_scale.mul_(1)
    assert overlaps(3) == [False, True, True]
    packed.weight.data.zero_()  # no version shows it
    weights_written(packed)
    assert overlaps(3) == [False, True, True]


@pytest.mark.usefixtures("engine")
def test_weights_that_moved_below_their_tensor_are_followed(stub):
    packed = weights()
    plan = LinearPlan(packed)
    x = torch.zeros(1, K, dtype=F16)
    plan(x)
    plan(x)
    packed.weight.data = packed.weight.clone()
    for _ in range(2):
        plan(x)
        assert value(stub.launches[-1], "weight") == packed.weight.data_ptr()


@pytest.mark.usefixtures("engine")
def test_weights_of_inference_mode_never_overlap(stub, long_calls):
    with torch.inference_mode():
        packed = weights().map(torch.clone)
    plan = LinearPlan(packed)
    for _ in range(3):
        plan(torch.zeros(1, K, dtype=F16))
    assert len(long_calls) == 1
    assert not any(OVERLAP in launch.attributes for launch in stub.launches)


def test_another_choice_of_kernels_is_seen(engine, stub):
    plan = LinearPlan(weights())
    x = torch.zeros(4, K, dtype=F16)
    for _ in range(2):
        plan(x)
    engine.force = fake.PREFILL
    for _ in range(2):
        plan(x)
    assert engine.launches() == {fake.DECODE: 2, fake.PREFILL: 2}
    assert stub.launches[1].function != stub.launches[2].function


def test_one_call_can_name_its_kernel_and_the_others_stay_free(engine, stub):
    packed = weights()
    x = torch.zeros(4, K, dtype=F16)
    for kernel in ("", fake.PREFILL, "", fake.PREFILL):
        matmul(x, packed, kernel=kernel)
    assert engine.launches() == {fake.DECODE: 2, fake.PREFILL: 2}
    prepare(packed, [500], kernel=fake.PREFILL)
    with pytest.raises(NoKernelError, match="dense_gone: is forced and not installed"):
        matmul(x, packed, kernel="dense_gone")
    assert len(stub.launches) == 4


@pytest.mark.usefixtures("engine")
def test_a_plan_says_which_kernel_and_why():
    plan = LinearPlan(weights())
    assert plan.kernel(4) == fake.DECODE
    text = plan.explain(500)
    assert f"chosen: {fake.PREFILL}" in text
    assert f"{fake.DECODE} (humming-cubins-sm90-cu13): m is 500" in text


@pytest.mark.usefixtures("engine")
def test_what_the_operator_refuses_is_refused_after_short_calls_too(stub):
    plan = LinearPlan(weights())
    x = torch.zeros(4, K, dtype=F16)
    for _ in range(2):
        plan(x)
    done = len(stub.launches)
    with pytest.raises(UsageError, match="last dimension has to be k"):
        plan(torch.zeros(4, K + 8, dtype=F16))
    with pytest.raises(UsageError, match=r"x is torch\.bfloat16"):
        plan(x.bfloat16())
    with pytest.raises(UsageError, match="gradient"):
        plan(x.clone().requires_grad_())
    with pytest.raises(UsageError, match="out is"):
        plan(x, None, torch.zeros(4, N + 8, dtype=F16))
    with pytest.raises(UsageError, match="bias is"):
        plan(x, torch.zeros(N + 1, dtype=F16))
    with pytest.raises(UsageError, match="bias is"):
        plan(x, torch.zeros(N))
    assert len(stub.launches) == done
    with torch.no_grad():
        plan(x.clone().requires_grad_())
    assert len(stub.launches) == done + 1


@pytest.mark.usefixtures("engine")
def test_a_refusal_of_the_driver_names_its_call_and_leaves_the_plan_usable(stub, monkeypatch):
    plan = LinearPlan(weights())
    x = torch.zeros(4, K, dtype=F16)
    for _ in range(2):
        plan(x)
    monkeypatch.setattr(stub, "fail", {"cuLaunchKernelEx": 719})
    with pytest.raises(DriverError, match=r"cuLaunchKernelEx: CUDA_ERROR_719 \(CUresult 719\)"):
        plan(x)
    monkeypatch.setattr(stub, "fail", {})
    plan(x)
    assert len(stub.launches) == 3
    assert stub.contexts == []


@pytest.mark.usefixtures("engine")
def test_modes_that_watch_operators_see_it(long_calls):
    plan = LinearPlan(weights())
    x = torch.zeros(4, K, dtype=F16)
    for _ in range(2):
        plan(x)
    with FlopCounterMode(display=False):
        plan(x)
    assert len(long_calls) == 2


@pytest.mark.usefixtures("engine")
def test_the_functional_form_and_the_module_take_the_short_way(stub, long_calls):
    packed = weights()
    bias = torch.zeros(N, dtype=F16)
    layer = QuantLinear(packed, bias)
    x = torch.zeros(4, K, dtype=F16)
    for _ in range(3):
        matmul(x, packed)
        layer(x)
    assert len(long_calls) == 2
    assert len(stub.launches) == 6
    assert value(stub.launches[-1], "bias") == layer.bias.data_ptr()
    layer.weight = layer.weight.clone()
    layer(x)
    assert value(stub.launches[-1], "weight") == layer.weight.data_ptr()


@pytest.mark.usefixtures("engine")
def test_layers_and_weights_that_have_run_are_copied_and_pickled(stub):
    packed = weights()
    layer, plan = QuantLinear(packed), LinearPlan(packed)
    x = torch.zeros(4, K, dtype=F16)
    for call in (layer, plan):
        call(x)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        copied(x)
        assert value(stub.launches[-1], "weight") == copied.weight.data_ptr()
        assert copied.weight.data_ptr() != packed.weight.data_ptr()
    for copied in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        copied(x)
        assert value(stub.launches[-1], "weight") == copied.parts[0].data_ptr()


def test_threads_share_a_plan_and_none_of_their_launches_is_lost(engine, stub):
    plan = LinearPlan(weights())
    rows = {m: torch.zeros(m, K, dtype=F16) for m in range(1, 17)}

    def work():
        for _ in range(20):
            for x in rows.values():
                plan(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stub.launches) == 4 * 20 * 16
    assert sum(engine.launches().values()) == 4 * 20 * 16
    for launch in stub.launches:
        assert value(launch, "activation") == rows[value(launch, "m", "<i")].data_ptr()


def test_a_plan_keeps_no_more_than_its_weights_alive(engine):
    del engine
    packed = weights()
    matmul(torch.zeros(1, K, dtype=F16), packed)
    matmul(torch.zeros(1, K, dtype=F16), packed)
    gone = weakref.ref(packed.weight)
    del packed
    gc.collect()
    assert gone() is None
