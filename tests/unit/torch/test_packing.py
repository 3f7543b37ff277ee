"""Packing is a bijection to the contract's layouts, exact, and refuses what it cannot hold."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peak_memory import peak_bytes

from humming_runtime.contract import layouts
from humming_runtime.contract.number_formats import (
    BYTE_SCALES,
    byte_scale_format,
    every_weight_format,
    weight_fault,
    weight_format,
)
from humming_runtime.contract.variant_name import ZeroPoint
from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import pack_codes, packing, unpack
from humming_runtime.torch_layer.dtypes import ExactnessError

F16, BF16 = torch.float16, torch.bfloat16
WEIGHTS = [str(f) for f in every_weight_format() if weight_fault(str(f), "f16") is None]
eights = st.integers(1, 20).map(lambda value: 8 * value)


@dataclass(frozen=True)
class Given:
    """Arguments of pack_codes."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    group_size: int | None
    activation: torch.dtype
    weight: str
    scale_dtype: str | None

    @property
    def size(self):
        return self.codes.shape[1], self.codes.shape[0]

    def packed(self):
        more = {"weight": self.weight, "scale_dtype": self.scale_dtype}
        more |= {"group_size": self.group_size, "activation": self.activation}
        return pack_codes(self.codes, self.scale, self.zero, **more)


@st.composite
def layers(draw):
    """Any size, weight format, granularity, scale dtype and zero point."""
    n, k = draw(eights), draw(eights)
    activation = draw(st.sampled_from([F16, BF16]))
    number = weight_format(draw(st.sampled_from(WEIGHTS)))
    group_size = draw(st.sampled_from([None, 16, 32, 64, 128, 256]))
    groups = 1 if group_size is None else -(-k // group_size)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    allowed = torch.tensor([c for c, v in enumerate(number.values) if abs(v) < 60000])
    codes = allowed[torch.randint(0, len(allowed), (k, n), generator=generator)].to(torch.uint8)
    word = None if group_size is None else draw(st.sampled_from([None, "f32", *BYTE_SCALES]))
    reach = max(1.0, number.largest / 64)  # weights have to be finite in fp16
    scale = (torch.randn((groups, n), generator=generator) / reach).to(activation)
    if word in BYTE_SCALES:
        most = 255 - 7 if word == "e5m2" else 126
        scale = torch.randint(0, most, (groups, n), generator=generator, dtype=torch.uint8)
        scale[scale == 127] = 1
        scale = scale.clamp(max=120)
    zero = None
    if not number.is_float:
        kind = draw(st.sampled_from(ZeroPoint))
        if kind is ZeroPoint.INTEGER:
            most = min(number.codes, 255) + 1
            zero = torch.randint(0, most, (groups, n), generator=generator)
        elif kind is ZeroPoint.FLOAT:
            zero = torch.rand((groups, n), generator=generator).to(activation)
    return Given(codes, scale, zero, group_size, activation, number.name, word)


def spread(values, group_size):
    """Groups of 256 as they are stored: twice."""
    return values.repeat_interleave(2, 0) if group_size == 256 else values


@given(layers(), st.sampled_from([1, 5000, 1 << 25]))
@settings(max_examples=200, deadline=None)
def test_unpacking_gives_back_what_was_packed_whatever_the_chunk(layer, chunk_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "CHUNK_BYTES", chunk_bytes)
        found = unpack(layer.packed())
    assert torch.equal(found.codes, layer.codes)
    groups = found.scale.shape[0]
    wanted = spread(layer.scale, layer.group_size)[:groups]
    assert torch.equal(found.scale.to(wanted.dtype), wanted)
    assert (found.zero is None) == (layer.zero is None)
    if layer.zero is not None:
        wanted = spread(layer.zero, layer.group_size)[:groups]
        assert torch.equal(found.zero.to(wanted.dtype), wanted)


@given(layers())
@settings(max_examples=25, deadline=None)
def test_every_weight_lies_where_the_contract_says_and_padding_is_the_code_of_zero(layer):
    n, k = layer.size
    packed = layer.packed()
    number = weight_format(layer.weight)
    assert packed.weight.nbytes == layouts.packed_weight_bytes(n, k, number.bits)
    words = packed.weight.view(torch.int32).flatten().tolist()
    rows = layer.codes.tolist()
    padded_n, padded_k = layouts.pad(n, 16), layouts.pad(k, 64)
    for col in range(padded_n):
        for row in range(padded_k):
            found = shift = 0
            for place in layouts.frag16_places(col, row, padded_k, number.bits):
                part = (words[place.word] >> place.bit) & ((1 << place.width) - 1)
                found |= part << shift
                shift += place.width
            assert found == (rows[row][col] if col < n and row < k else number.midpoint)


@given(layers())
@settings(max_examples=50, deadline=None)
def test_scales_and_zero_points_lie_where_the_contract_says_and_padding_is_0(layer):
    (n, k), group_size = layer.size, layer.group_size
    packed = layer.packed()
    size = packed.form.group_size
    groups = layouts.stored_groups(k, size)
    pairs = [(packed.weight_zero, layer.zero)]
    if group_size is None:
        assert torch.equal(packed.channel_scale, layer.scale[0].float())
    else:
        assert groups * size % 128 == 0
        pairs.append((packed.weight_scale, layer.scale))
    for tensor, values in pairs:
        if values is None:
            assert tensor is None
            continue
        assert tensor.shape == (layouts.pad(n, 16) // 16, groups, 16)
        stored = tensor.flatten().tolist()
        values = spread(values, group_size)  # noqa: PLW2901
        for col in range(layouts.pad(n, 16)):
            for group in range(groups):
                inside = col < n and group < values.shape[0]
                wanted = values[group, col].item() if inside else 0
                assert stored[layouts.rows16_place(col, group, groups)] == wanted


@pytest.mark.parametrize("word", BYTE_SCALES)
def test_scales_of_one_byte_may_be_given_as_numbers(word):
    number = byte_scale_format(word)
    finite = [c for c in range(256) if c not in number.special_codes and c != 0x80]
    codes = torch.tensor(finite[: len(finite) // 16 * 16], dtype=torch.uint8).view(-1, 16)
    numbers = torch.tensor(number.values, dtype=torch.float64)[codes.long()]
    weight = torch.zeros((16 * codes.shape[0], 16), dtype=torch.uint8)
    packs = [
        pack_codes(weight, scale, None, group_size=16, activation=BF16, scale_dtype=word)
        for scale in (codes, numbers)
    ]
    assert torch.equal(packs[0].weight_scale, packs[1].weight_scale)
    rounded = numbers * 1.01
    with pytest.raises(ExactnessError, match=f"is not exact in {word}"):
        pack_codes(weight, rounded, None, group_size=16, activation=BF16, scale_dtype=word)


def test_torch_floats_of_8_bits_are_codes():
    codes = torch.arange(64 * 16, dtype=torch.int64).remainder(0x7F).to(torch.uint8).view(64, 16)
    scale = torch.ones((1, 16))
    given = {"group_size": None, "activation": BF16, "weight": "e4m3"}
    one = pack_codes(codes, scale, None, **given)
    other = pack_codes(codes.view(torch.float8_e4m3fn), scale, None, **given)
    assert torch.equal(one.weight, other.weight)


@pytest.mark.parametrize(
    ("weight", "code", "activation", "said"),
    [
        ("e4m3", 0x7F, BF16, "code 127 of e4m3 is nan, which bf16 kernels cannot hold"),
        ("e5m2", 0x7C, F16, "code 124 of e5m2 is inf"),
        ("e5m1", 0x3E, F16, "code 62 of e5m1 is 65536.0, which f16 kernels cannot hold"),
    ],
)
def test_codes_that_are_no_number_of_the_kernel_are_refused(weight, code, activation, said):
    codes = torch.zeros((64, 16), dtype=torch.uint8)
    codes[5, 3] = code
    with pytest.raises(ExactnessError, match=said):
        pack_codes(
            codes, torch.ones(1, 16), None, group_size=None, activation=activation, weight=weight
        )


def test_a_scale_code_that_is_no_number_is_refused():
    scale = torch.full((2, 16), 100, dtype=torch.uint8)
    scale[1, 4] = 127
    codes = torch.zeros((64, 16), dtype=torch.uint8)
    given = {"group_size": 32, "activation": F16, "weight": "e2m1"}
    with pytest.raises(ExactnessError, match=r"at \[4, 1\]: code 127 is no e4m3"):
        pack_codes(codes, scale, None, scale_dtype="e4m3", **given)
    scale[1, 4] = 255  # of e8m0: kernels make NaN of it
    packed = pack_codes(codes, scale, None, scale_dtype="e8m0", **given)
    assert torch.equal(unpack(packed).scale, scale)


def test_second_scales_are_of_the_tensor_or_of_channels():
    codes, scale = torch.zeros((64, 16), dtype=torch.uint8), torch.ones((4, 16))
    given = {"group_size": 16, "activation": F16, "weight": "e2m1", "scale_dtype": "e4m3"}
    assert pack_codes(codes, scale, None, **given).channel_scale.tolist() == [1.0] * 16
    whole = pack_codes(codes, scale, None, second_scale=torch.tensor(0.37), **given)
    assert torch.equal(whole.channel_scale, torch.full((16,), 0.37))
    channels = torch.rand(16)
    found = pack_codes(codes, scale, None, second_scale=channels, **given)
    assert torch.equal(found.channel_scale, channels)
    assert torch.equal(unpack(found).second_scale, channels)
    with pytest.raises(UsageError, match=r"second scale: shape \(3,\), expected \(1,\) or \(16,\)"):
        pack_codes(codes, scale, None, second_scale=torch.rand(3), **given)
    with pytest.raises(UsageError, match="has none"):
        pack_codes(
            codes, scale[:1], None, group_size=64, activation=F16, second_scale=torch.ones(1)
        )


def small(n=16, k=64, groups=1):
    return torch.full((k, n), 7, dtype=torch.uint8), torch.ones((groups, n), dtype=F16)


@pytest.mark.parametrize(("n", "k", "text"), [
    (130, 64, "n is 130, no positive multiple of 8"),
    (16, 100, "k is 100, no positive multiple of 8"),
    (130, 100, "n is 130, no positive multiple of 8; k is 100"),
])  # fmt: skip
def test_sizes_that_are_no_multiple_of_8_are_refused(n, k, text):
    codes, scale = small(n, k)
    with pytest.raises(UsageError, match=text):
        pack_codes(codes, scale, None, group_size=128, activation=F16)


@pytest.mark.parametrize("group_size", [0, 48, 192, -1])
def test_group_sizes_that_do_not_meet_the_k_step_are_refused(group_size):
    codes, scale = small()
    with pytest.raises(UsageError, match=f"group_size is {group_size}"):
        pack_codes(codes, scale, None, group_size=group_size, activation=F16)


def test_codes_and_zero_points_out_of_range_are_refused():
    codes, scale = small()
    bad = codes.clone()
    bad[3, 5] = 16
    with pytest.raises(UsageError, match=r"code: values 7\.\.16"):
        pack_codes(bad, scale, None, group_size=64, activation=F16)
    zero = torch.zeros((1, 16), dtype=torch.int32)
    zero[0, 2] = 17
    with pytest.raises(UsageError, match=r"zero point: values 0\.\.17"):
        pack_codes(codes, scale, zero, group_size=64, activation=F16)
    with pytest.raises(ExactnessError, match="not an integer"):
        pack_codes(codes, scale, torch.full((1, 16), 7.5), group_size=64, activation=F16)


@pytest.mark.parametrize(("value", "given_dtype", "activation"), [
    (0.1, torch.float32, F16),  # rounds
    (1e-9, torch.float32, F16),  # underflows
    (1e9, torch.float32, F16),  # overflows
    (2.0**-20, BF16, F16),  # fine: subnormal but exact
    (1.0009765625, F16, BF16),  # 11 bits do not fit into 8
    (float("nan"), F16, F16),
    (float("inf"), F16, F16),
])  # fmt: skip
def test_a_scale_that_would_change_is_an_error_that_says_which(value, given_dtype, activation):
    codes, scale = small()
    scale = scale.to(given_dtype)
    scale[0, 11] = value
    exact = torch.tensor(value, dtype=given_dtype).to(activation).to(given_dtype).item() == value
    if exact and abs(value) < 1e6:
        pack_codes(codes, scale, None, group_size=64, activation=activation)
        return
    with pytest.raises(ExactnessError, match=r"scale of rows 0\.\.15, at \[11, 0\]"):
        pack_codes(codes, scale, None, group_size=64, activation=activation)


def test_a_scale_whose_largest_weight_is_infinite_is_refused():
    codes, scale = small()
    scale[0, 4] = 8192.0
    with pytest.raises(ExactnessError, match="reaches 65536"):
        pack_codes(codes, scale, None, group_size=64, activation=F16)
    pack_codes(codes, scale, None, group_size=None, activation=F16)  # applied in fp32


def test_scales_of_another_shape_are_refused():
    codes, scale = small(groups=2)
    with pytest.raises(UsageError, match="scale: shape by n is"):
        pack_codes(codes, scale, None, group_size=64, activation=F16)


def test_packing_and_unpacking_stay_within_the_stated_memory(monkeypatch):
    n, k = 4096, 16384
    codes = torch.randint(0, 16, (n, k), dtype=torch.uint8).t()
    scale = torch.ones((k // 128, n), dtype=F16)
    chunk = 1 << 22
    monkeypatch.setattr(packing, "CHUNK_BYTES", chunk)
    allowed = packing.PEAK_CODES_PER_CHUNK * chunk

    packed, peak = peak_bytes(
        lambda: pack_codes(codes, scale, None, group_size=128, activation=F16)
    )
    assert peak - packed.size_bytes <= allowed

    found, peak = peak_bytes(lambda: unpack(packed))
    assert peak - found.codes.nbytes - 2 * found.scale.nbytes <= allowed
