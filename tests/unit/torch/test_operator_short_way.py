"""The operator takes the short way with weights that it has seen, and forgets them with these."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import pytest
import torch
from small_layer import F16, OVERLAP, K, N, value, weights

from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import operator
from humming_runtime.torch_layer.linear_plan import gemm, inputs_of


@pytest.fixture
def checked(monkeypatch):
    """How often the operator checked its inputs: once for each long call."""
    calls = []

    def counted(given):
        calls.append(tuple(given.x.shape))
        return true_check(given)

    true_check = operator.check_inputs
    monkeypatch.setattr(operator, "check_inputs", counted)
    return calls


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_operator_itself_takes_the_short_way(stub, checked, mode):
    packed = weights()
    out = torch.zeros(4, N, dtype=F16)
    x = torch.zeros(4, K, dtype=F16)
    with mode():
        for _ in range(3):
            assert gemm(inputs_of(x, packed, None), out) is out
            result = gemm(inputs_of(x, packed, None))
    assert (result.shape, result.dtype) == ((4, N), F16)
    assert checked == [(4, K)]
    first, *others = stub.launches
    assert len(others) == 5
    assert OVERLAP not in first.attributes
    assert all(OVERLAP in launch.attributes for launch in others)
    assert value(others[-1], "output") == result.data_ptr()
    with pytest.raises(UsageError, match="last dimension has to be k"):
        gemm(inputs_of(torch.zeros(4, K + 8, dtype=F16), packed, None))


@pytest.mark.usefixtures("engine")
def test_the_operator_sees_other_scales_of_the_same_weight(stub, checked):
    packed = weights()
    other = dataclasses.replace(packed, weight_scale=packed.weight_scale.clone())
    x = torch.zeros(4, K, dtype=F16)
    for one in (packed, packed, other, other, packed):
        gemm(inputs_of(x, one, None))
        assert value(stub.launches[-1], "weight_scale") == one.weight_scale.data_ptr()
    assert len(checked) == 3


@pytest.mark.usefixtures("engine")
def test_what_the_operator_remembers_goes_with_the_weight():
    packed = weights()
    gemm(inputs_of(torch.zeros(4, K, dtype=F16), packed, None))
    before = len(operator._short_calls)
    scale = weakref.ref(packed.weight_scale)
    del packed
    gc.collect()
    assert len(operator._short_calls) == before - 1
    assert scale() is None
