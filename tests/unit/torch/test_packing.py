"""Packing is a bijection to the contract's layouts, exact, and refuses what it cannot hold."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peak_memory import peak_bytes

from humming_runtime.contract import layouts
from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import pack_codes, packing, unpack
from humming_runtime.torch_layer.dtypes import ExactnessError

F16, BF16 = torch.float16, torch.bfloat16
eights = st.integers(1, 20).map(lambda value: 8 * value)


@st.composite
def layers(draw):
    """(n, k, group_size, codes, scale, zero): any size, every scale scheme."""
    n, k = draw(eights), draw(eights)
    group_size = draw(st.sampled_from([None, 16, 32, 64, 128, 256]))
    groups = 1 if group_size is None else -(-k // group_size)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    codes = torch.randint(0, 16, (k, n), generator=generator, dtype=torch.uint8)
    scale = torch.randn((groups, n), generator=generator).to(draw(st.sampled_from([F16, BF16])))
    zero = torch.randint(0, 17, (groups, n), generator=generator) if draw(st.booleans()) else None
    return n, k, group_size, codes, scale, zero


def packed_of(layer):
    _, _, group_size, codes, scale, zero = layer
    return pack_codes(codes, scale, zero, group_size=group_size, activation=scale.dtype)


@given(layers(), st.sampled_from([1, 5000, 1 << 25]))
@settings(max_examples=150, deadline=None)
def test_unpacking_gives_back_what_was_packed_whatever_the_chunk(layer, chunk_bytes):
    _, _, _, codes, scale, zero = layer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "CHUNK_BYTES", chunk_bytes)
        found = unpack(packed_of(layer))
    assert torch.equal(found.codes, codes)
    assert torch.equal(found.scale.to(scale.dtype), scale)
    assert (found.zero is None) == (zero is None)
    assert zero is None or torch.equal(found.zero.long(), zero)


@given(layers())
@settings(max_examples=25, deadline=None)
def test_every_weight_lies_where_the_contract_says_and_padding_is_code_8(layer):
    n, k, _, codes, _, _ = layer
    packed = packed_of(layer)
    assert packed.weight.nbytes == layouts.packed_weight_bytes(n, k)
    words = packed.weight.view(torch.int32).flatten().tolist()
    rows = codes.tolist()
    padded_n, padded_k = layouts.pad(n, 16), layouts.pad(k, 64)
    seen = set()
    for col in range(padded_n):
        for row in range(padded_k):
            word, nibble = layouts.frag16_nibble(col, row, padded_k)
            seen.add((word, nibble))
            wanted = rows[row][col] if col < n and row < k else 8
            assert (words[word] >> (4 * nibble)) & 15 == wanted
    assert len(seen) == 8 * len(words)


@given(layers())
@settings(max_examples=50, deadline=None)
def test_scales_and_zero_points_lie_where_the_contract_says_and_padding_is_0(layer):
    n, k, group_size, _, scale, zero = layer
    packed = packed_of(layer)
    groups = layouts.stored_groups(k, group_size)
    pairs = [(packed.weight_zero, zero)]
    if group_size is None:
        assert torch.equal(packed.channel_scale, scale[0].float())
    else:
        assert groups * group_size % 128 == 0
        pairs.append((packed.weight_scale, scale))
    for tensor, values in pairs:
        if values is None:
            assert tensor is None
            continue
        assert tensor.shape == (layouts.pad(n, 16) // 16, groups, 16)
        stored = tensor.flatten().tolist()
        for col in range(layouts.pad(n, 16)):
            for group in range(groups):
                inside = col < n and group < values.shape[0]
                wanted = values[group, col].item() if inside else 0
                assert stored[layouts.rows16_place(col, group, groups)] == wanted


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
