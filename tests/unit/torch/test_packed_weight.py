"""Packed weights carry their format, and refuse tensors or layouts that are not theirs."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from humming_runtime.contract.variant_name import ZeroPoint
from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import PackedWeight, WeightFormat, pack_codes
from humming_runtime.torch_layer.weight_format import LayoutError, format_of

F16, BF16 = torch.float16, torch.bfloat16


def packed(group_size=64):
    codes = torch.arange(16 * 64, dtype=torch.int64).view(64, 16).remainder(16).to(torch.uint8)
    scale = torch.ones((1, 16), dtype=F16)
    return pack_codes(codes, scale, None, group_size=group_size, activation=F16)


integer_formats = st.builds(
    format_of,
    st.sampled_from([F16, BF16]),
    st.sampled_from(["u1", "u4", "u7", "u8"]),
    st.sampled_from([None, 16, 32, 64, 128, 256]),
    zero=st.sampled_from(ZeroPoint),
)
float_formats = st.builds(
    format_of,
    st.sampled_from([F16, BF16]),
    st.sampled_from(["e2m1", "e4m3", "e0m3", "e5m2"]),
    st.sampled_from([16, 32, 128]),
    scale=st.sampled_from([None, "f32", "e4m3", "e5m3", "e8m0"]),
)
formats = integer_formats | float_formats


@given(formats)
def test_the_text_of_a_format_parses_back(form):
    assert WeightFormat.parse(str(form)) == form


@given(formats, formats)
def test_formats_that_differ_have_different_texts(one, other):
    assert (one == other) == (str(one) == str(other))


@pytest.mark.parametrize("text", ["", "f16", "f32_u4_ch_frag16v1_rows16v1", "f16_u4_g0x_a1v1_b1v1"])
def test_a_text_that_is_no_format_is_refused(text):
    with pytest.raises(UsageError, match="weight format"):
        WeightFormat.parse(text)


@pytest.mark.parametrize(("text", "message"), [
    ("f16_u4_ch_frag16v2_rows16v1", "layout frag16 version 2, this runtime reads version 1"),
    ("f16_u4_ch_frag16v1_rows16v9", "layout rows16 version 9, this runtime reads version 1"),
    ("f16_u4_ch_frag32v1_rows16v1", "layout frag32 version 1, this runtime reads none"),
])  # fmt: skip
def test_another_layout_is_refused_by_name(text, message):
    with pytest.raises(LayoutError, match=message):
        WeightFormat.parse(text)


def test_float32_activations_are_refused():
    with pytest.raises(UsageError, match=r"activation dtype torch\.float32"):
        format_of(torch.float32, "u4", 64)


@pytest.mark.parametrize(
    ("weight", "group", "more", "message"),
    [
        ("e6m1", None, {}, "e6m1 has 6 exponent bits, f16 holds 5"),
        ("u9", None, {}, "'u9' is no weight format"),
        ("e2m1", 32, {"zero": ZeroPoint.INTEGER}, "e2m1 is a float: it has no zero point"),
        ("u4", None, {"scale": "e8m0"}, "channel scales are fp32"),
        ("u4", 8, {}, "group_size is 8, expected 16, 32, 64 or a multiple of 128"),
        ("u4", 32, {"scale": "u4"}, "group scales in 'u4'"),
    ],
)
def test_a_format_that_no_kernel_has_is_refused_with_the_reason(weight, group, more, message):
    with pytest.raises(UsageError, match=message):
        format_of(F16, weight, group, **more)


def test_pickling_keeps_everything_and_checks_the_layout_again(monkeypatch):
    before = packed()
    data = pickle.dumps(before)
    after = pickle.loads(data)
    assert (after.form, after.n, after.k) == (before.form, before.n, before.k)
    for name, tensor in before.parts().items():
        assert torch.equal(tensor, after.parts()[name])
    monkeypatch.setitem(
        __import__("humming_runtime.contract.layouts", fromlist=["x"]).LAYOUT_VERSIONS, "frag16", 2
    )
    with pytest.raises(LayoutError, match="version 1, this runtime reads version 2"):
        pickle.loads(data)


def test_tensors_that_do_not_fit_are_named_all_at_once():
    good = packed()
    with pytest.raises(UsageError) as caught:
        PackedWeight(good.form, 32, 64, good.weight.to(torch.int16), None, good.weight_scale)
    for text in (
        "weight has shape (1, 1, 512), expected (2, 1, 512)",
        "weight is torch.int16",
        "weight_scale is missing",
        "weight_zero is not a part",
    ):
        assert text in str(caught.value)
    with pytest.raises(UsageError, match="weight is not contiguous"):
        replace_weight(good, good.weight.repeat(1, 1, 2)[..., ::2])


def replace_weight(good, weight):
    return PackedWeight(good.form, good.n, good.k, weight, good.weight_scale)


def test_moving_keeps_the_format_and_packed_weights_are_frozen():
    moved = packed().to("meta")
    assert moved.device.type == "meta"
    assert moved.form == packed().form
    with pytest.raises(AttributeError):
        moved.n = 3
    with pytest.raises(LayoutError):
        replace(moved.form, layout_version=7).check_layouts()
