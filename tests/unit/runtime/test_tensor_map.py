"""Parameters of every tensor map, against numbers worked out by hand."""

import dataclasses

import fake_packages as fake
import pytest

from humming_runtime import tensor_map
from humming_runtime.contract import launch_shape
from humming_runtime.contract.layouts import stored_groups
from humming_runtime.contract.variant_name import ScaleScheme, Variant
from humming_runtime.driver import Driver
from humming_runtime.errors import UsageError

U8, U16, U32, U64, F16, BF16 = 0, 1, 2, 4, 6, 9
WIDTH = {U8: 1, U16: 2, U32: 4, U64: 8, F16: 2, BF16: 2}
PLAIN, SWIZZLED = (0, 0, 3, 0), (0, 3, 3, 0)  # interleave, swizzle, promotion, fill
N, K, GROUPS_32, GROUPS_128 = 2120, 7176, 228, 57  # n16 = 133, k64 = 113


@pytest.fixture
def encoded(stub):
    driver = Driver(stub)
    driver.context(0)

    def encode(tensor):
        raw = tensor_map.encode(driver, tensor)
        return raw, stub.maps[-1]

    return encode


def test_activations_are_16_bit_swizzled_and_k64_wide(encoded):
    variant = Variant.parse(fake.PREFILL)
    raw, got = encoded(tensor_map.activation_map(variant, 0x1000, 8192, 300, K))
    assert len(raw) == 128
    assert raw == bytes([1]) * 128
    assert got == {
        "data_type": F16,
        "address": 0x1000,
        "sizes": (K, 300),
        "stride_bytes": 16384,
        "box": (64, 128),
        "steps": (1, 1),
        "modes": SWIZZLED,
    }


@pytest.mark.parametrize(("m", "rows"), [(1, 8), (9, 16), (120, 120), (121, 128), (4096, 128)])
def test_a_lone_tile_asks_for_the_rows_that_exist(encoded, m, rows):
    variant = Variant.parse(fake.PREFILL)
    assert encoded(tensor_map.activation_map(variant, 0, K, m, K))[1]["box"] == (64, rows)


def test_bf16_activations_have_their_type(encoded):
    variant = Variant.parse(fake.PREFILL_ZERO)
    assert encoded(tensor_map.activation_map(variant, 0, K, 64, K))[1]["data_type"] == BF16


@pytest.mark.parametrize(
    ("weight", "data_type", "words", "box"),
    [("u4", U32, 128, 256), ("u3", U32, 96, 192), ("e3m2", U64, 96, 192), ("u8", U64, 128, 256)],
)
def test_weights_are_words_of_k64_tiles(encoded, weight, data_type, words, box):
    variant = dataclasses.replace(Variant.parse(fake.PREFILL), weight=weight)
    _, got = encoded(tensor_map.weight_map(variant, 0x2000, N, K))
    assert got["data_type"] == data_type
    assert got["sizes"] == (113 * words, 133)
    assert got["stride_bytes"] == 113 * words * WIDTH[data_type]
    assert got["box"] == (box, 8)
    assert got["modes"] == PLAIN


@pytest.mark.parametrize(
    ("scale", "groups", "box_x", "scale_type", "zero_type"),
    [
        ("g128zf16", GROUPS_128, 16, U16, U8),
        ("g32zf16", GROUPS_32, 64, U16, U8),
        ("g32ff16", GROUPS_32, 64, U16, U16),
        ("g32e8m0", GROUPS_32, 64, U8, None),
        ("g128zf32", GROUPS_128, 16, U32, U8),
    ],
)
def test_scales_and_zero_points_are_rows_of_groups(
    encoded, scale, groups, box_x, scale_type, zero_type
):
    variant = with_scale(scale)
    maps = [(tensor_map.scale_map(variant, 0x3000, N, groups), scale_type)]
    if zero_type is not None:
        maps.append((tensor_map.zero_map(variant, 0x4000, N, groups), zero_type))
    for tensor, data_type in maps:
        _, found = encoded(tensor)
        assert found["data_type"] == data_type
        assert found["sizes"] == (groups * 16, 133)
        assert found["stride_bytes"] == groups * 16 * WIDTH[data_type]
        assert found["box"] == (box_x, 8)
        assert found["modes"] == PLAIN


def with_scale(scale, weight="u4"):
    variant = Variant.parse(fake.PREFILL)
    return dataclasses.replace(variant, weight=weight, scale=ScaleScheme.parse(scale))


@pytest.mark.parametrize("weight", ["u1", "u3", "u4", "e4m3", "u7"])
@pytest.mark.parametrize("scale", ["g128f16", "g32f16", "g16e4m3", "g128e8m0", "g32f32"])
def test_a_box_of_every_map_is_whole_16_byte_units(weight, scale):
    variant = with_scale(scale, weight)
    width = WIDTH
    groups = stored_groups(K, variant.scale.group_size)
    for tensor in (
        tensor_map.activation_map(variant, 0, K, 64, K),
        tensor_map.weight_map(variant, 0, N, K),
        tensor_map.scale_map(variant, 0, N, groups),
    ):
        tensor.check()
        assert tensor.box_x * width[tensor.data_type] % 16 == 0
        if tensor.swizzle:
            assert tensor.box_x * width[tensor.data_type] == 128


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": 0x1008}, r"activations: address is no multiple of 16 \(4104\)"),
        ({"stride_bytes": 1000}, r"activations: row stride in bytes is no multiple of 16 \(1000\)"),
        ({"box_y": 264}, r"activations: rows of a box out of range \(264, limit 256\)"),
        ({"size_y": 0}, r"activations: rows out of range \(0, limit 4294967296\)"),
        ({"stride_bytes": 2**40}, "row stride in bytes out of range"),
    ],
)
def test_what_tma_cannot_address_is_refused_before_the_driver(encoded, stub, change, message):
    good = tensor_map.activation_map(Variant.parse(fake.PREFILL), 0, K, 64, K)
    with pytest.raises(UsageError, match=message):
        encoded(dataclasses.replace(good, **change))
    assert stub.maps == []


def test_only_the_prefill_schedule_uses_maps():
    names = (fake.DECODE, fake.PREFILL, fake.MULTISTAGE)
    uses = [launch_shape.uses_tensor_maps(Variant.parse(name)) for name in names]
    assert uses == [False, True, False]
