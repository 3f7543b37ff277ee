"""Code tables against ml_dtypes, and the rules that hold for every format."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_runtime.contract.number_formats import (
    BYTE_SCALES,
    NumberFormatError,
    byte_scale_format,
    every_weight_format,
    weight_fault,
    weight_format,
)

FORMATS = every_weight_format()
KNOWN = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("name", KNOWN)
def test_values_of_weights_are_those_of_ml_dtypes(name):
    form = weight_format(name)
    wanted = np.arange(form.codes, dtype=np.uint8).view(KNOWN[name]).astype(np.float64)
    np.testing.assert_array_equal(np.array(form.values), wanted)
    numbers = ~np.isnan(wanted)  # a NaN's sign says nothing
    signs = np.signbit(np.array(form.values)[numbers])
    np.testing.assert_array_equal(signs, np.signbit(wanted[numbers]))


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e8m0"])
def test_values_of_scales_are_those_of_ml_dtypes(name):
    known = {**KNOWN, "e8m0": ml_dtypes.float8_e8m0fnu}[name]
    wanted = np.arange(256, dtype=np.uint8).view(known).astype(np.float64)
    np.testing.assert_array_equal(np.array(byte_scale_format(name).values), wanted)


def test_unsigned_e5m3_is_half_precision_without_sign_and_low_mantissa():
    wanted = (np.arange(256, dtype=np.uint16) << 7).view(np.float16).astype(np.float64)
    values = np.array(byte_scale_format("e5m3").values)
    np.testing.assert_array_equal(values[: 31 << 3], wanted[: 31 << 3])
    assert np.isfinite(values).all()


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_a_name_says_everything(form):
    assert weight_format(str(form)) is form
    assert len(form.values) == 1 << form.bits


@pytest.mark.parametrize("form", [f for f in FORMATS if f.is_float], ids=str)
def test_floats_are_symmetric_and_grow_with_their_code(form):
    half = form.codes // 2
    positive = [v for v in form.values[:half] if math.isfinite(v)]
    assert positive == sorted(set(positive))
    assert [-v for v in form.values[half : half + len(positive)]] == positive


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_every_finite_code_is_the_nearest_of_its_value(form):
    for code, value in enumerate(form.values):
        if math.isfinite(value):
            assert form.nearest(value) == code


@pytest.mark.parametrize("name", [n for n in KNOWN if n != "e5m2"])
@given(value=st.floats(-600, 600))
def test_nearest_rounds_as_ml_dtypes_within_the_range(name, value):
    form = weight_format(name)
    value = float(np.float32(max(-form.largest, min(value, form.largest))))
    wanted = np.array([value], np.float32).astype(KNOWN[name]).astype(np.float64)[0]
    assert form.values[form.nearest(value)] == wanted


def test_nearest_saturates_and_refuses_nan():
    assert weight_format("e4m3").nearest(1e9) == 0x7E
    assert weight_format("u4").nearest(-3.0) == 0
    assert weight_format("u4").nearest(99.0) == 15
    with pytest.raises(ValueError, match="NaN"):
        weight_format("e2m1").nearest(math.nan)


def test_sign_and_magnitude_counts():
    assert weight_format("e0m3").values == (*map(float, range(8)), *(-float(v) for v in range(8)))


@pytest.mark.parametrize("name", ["u0", "u9", "e1m0", "e5m3", "e8m0", "int4", "", "e4m"])
def test_what_is_no_weight_format_is_an_error(name):
    with pytest.raises(NumberFormatError, match=repr(name) if name else "''"):
        weight_format(name)


def test_what_is_no_scale_format_is_an_error():
    with pytest.raises(NumberFormatError, match="e4m3, e5m2, e5m3, e8m0"):
        byte_scale_format("e3m4")
    assert [byte_scale_format(name).signed for name in BYTE_SCALES] == [True, True, False, False]


def test_fp16_holds_five_exponent_bits_and_bf16_all():
    faults = {str(f) for f in FORMATS if weight_fault(str(f), "f16") is not None}
    assert faults == {"e6m0", "e6m1", "e7m0"}
    assert not [f for f in FORMATS if weight_fault(str(f), "bf16") is not None]
    assert weight_fault("e6m1", "f16") == "e6m1 has 6 exponent bits, f16 holds 5"
