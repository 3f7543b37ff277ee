"""Variant names and their parts are one to one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_runtime.contract.variant_name import (
    ACTIVATIONS,
    OPS,
    SCHEDULES,
    TIERS,
    ScaleScheme,
    Variant,
    VariantNameError,
)

NAME = "dense_f16_u4_f16_g128zf16_frag16_hopper-decode_t8x32x1024_w8r2_s6_sm90a"
numbers = st.integers(1, 4096)
scales = st.builds(
    ScaleScheme,
    granularity=st.just("g"),
    group_size=st.sampled_from([16, 32, 64, 128]),
    zero_point=st.sampled_from(["", "z"]),
    dtype=st.sampled_from(["f16", "bf16", "e4m3", "e8m0"]),
) | st.builds(ScaleScheme, granularity=st.just("ch"), zero_point=st.sampled_from(["", "z"]))
variants = st.builds(
    Variant,
    op=st.sampled_from(OPS),
    activation=st.sampled_from(ACTIVATIONS),
    weight=st.sampled_from(["u1", "u4", "u8", "e2m1", "e4m3"]),
    output=st.sampled_from(["f16", "bf16"]),
    scale=scales,
    layout=st.just("frag16"),
    tier=st.sampled_from(TIERS),
    schedule=st.sampled_from(SCHEDULES),
    tile_m=numbers,
    tile_n=numbers,
    tile_k=numbers,
    warps=st.integers(1, 32),
    rows=st.none() | st.integers(1, 8),
    cluster=st.none() | st.integers(2, 8),
    stages=st.integers(1, 32),
    flags=st.sampled_from([(), ("acc16",)]),
    target=st.sampled_from(["sm_75", "sm_80", "sm_90a", "sm_100f", "sm_121"]),
)


@given(variants)
def test_a_name_parses_back(variant):
    assert Variant.parse(str(variant)) == variant


@given(variants, variants)
def test_variants_that_differ_have_different_names(one, other):
    assert (one == other) == (str(one) == str(other))


@given(variants)
def test_a_symbol_is_a_c_identifier(variant):
    assert variant.symbol.isidentifier()


@pytest.mark.parametrize(
    ("wrong", "segment"),
    [
        (NAME.replace("dense", "dens"), "op"),
        (NAME.replace("_f16_u4", "_f17_u4"), "activation"),
        (NAME.replace("u4", "x4"), "weight"),
        (NAME.replace("hopper", "hoper"), "tier"),
        (NAME.replace("decode", "decoder"), "schedule"),
        (NAME.replace("t8x32x1024", "t8x32"), "tile"),
        (NAME.replace("w8r2", "8r2"), "warps"),
        (NAME.replace("sm90a", "sm90z"), "target"),
        (NAME.replace("t8x", "t08x"), "canonical"),
        ("dense_f16", "segments"),
    ],
)
def test_a_fault_names_its_segment(wrong, segment):
    with pytest.raises(VariantNameError, match=segment):
        Variant.parse(wrong)
