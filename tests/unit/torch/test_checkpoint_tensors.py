"""Tensors of each scheme become the codes, scales and zero points that were written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peak_memory import peak_bytes
from plain_layouts import awq, gptq

from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import pack, packing, unpack
from humming_runtime.torch_layer.checkpoints import (
    AwqScheme,
    CheckpointError,
    CompressedScheme,
    GptqScheme,
)
from humming_runtime.torch_layer.checkpoints.words import WordsAlongColumns, WordsDownColumns
from humming_runtime.torch_layer.packing import Matrix, WeightSource

F16 = torch.float16
eights = st.integers(1, 30).map(lambda value: 8 * value)
group_sizes = st.sampled_from([None, 32, 64, 128])


def layer_of(n, k, group_size, seed, lowest_zero=0):
    generator = np.random.default_rng(seed)
    groups = 1 if group_size is None else -(-k // group_size)
    codes = generator.integers(0, 16, (k, n), dtype=np.uint8)
    zeros = generator.integers(lowest_zero, lowest_zero + 16, (groups, n), dtype=np.uint8)
    scales = torch.from_numpy(generator.random((groups, n), dtype=np.float32)).half()
    return codes, zeros, scales


def torched(tensors):
    return {name: torch.from_numpy(value) for name, value in tensors.items()}


def check(scheme, tensors, codes, zeros, scales, chunk_bytes=1 << 25):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "CHUNK_BYTES", chunk_bytes)
        found = unpack(pack(scheme.source(tensors, "here"), F16, "cpu"))
    assert torch.equal(found.codes, torch.from_numpy(codes))
    assert torch.equal(found.scale.half(), scales)
    if zeros is None:
        assert found.zero is None
    else:
        assert torch.equal(found.zero, torch.from_numpy(zeros))


@given(eights, eights, group_sizes, st.sampled_from([1, 2]), st.booleans(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_gptq_of_both_versions(n, k, group_size, version, symmetric, seed):
    codes, zeros, scales = layer_of(n, k, group_size, seed, lowest_zero=version % 2)
    tensors = torched(gptq(codes, zeros, version=version)) | {"scales": scales}
    tensors["g_idx"] = torch.arange(k, dtype=torch.int32) // (group_size or k)
    scheme = GptqScheme(group_size, symmetric, zero_offset=version % 2)
    check(scheme, tensors, codes, None if symmetric else zeros, scales, 40 * k)


@given(eights, eights, group_sizes, st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_awq(n, k, group_size, seed):
    codes, zeros, scales = layer_of(n, k, group_size, seed)
    tensors = torched(awq(codes, zeros)) | {"scales": scales}
    check(AwqScheme(group_size), tensors, codes, zeros, scales, 40 * k)


@given(eights, eights, group_sizes, st.booleans(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_compressed_tensors_packed_by_its_library(n, k, group_size, symmetric, seed):
    library = pytest.importorskip("compressed_tensors.compressors")
    codes, zeros, scales = layer_of(n, k, group_size, seed)
    signed = (torch.from_numpy(codes).to(torch.int16) - 8).to(torch.int8).t()
    tensors = {
        "weight_packed": library.pack_to_int32(signed, 4),
        "weight_scale": scales.t(),
        "weight_shape": torch.tensor([n, k]),
    }
    if not symmetric:
        signed = (torch.from_numpy(zeros).to(torch.int16) - 8).to(torch.int8).t()
        tensors["weight_zero_point"] = library.pack_to_int32(signed, 4, packed_dim=0)
    scheme = CompressedScheme(group_size, symmetric)
    check(scheme, tensors, codes, None if symmetric else zeros, scales, 40 * k)


@pytest.mark.parametrize("group_size", [32, 128])
def test_the_awq_converter_of_compressed_tensors_agrees(group_size):
    converters = pytest.importorskip("compressed_tensors.entrypoints.convert")
    codes, zeros, scales = layer_of(264, 384, group_size, 5)
    tensors = torched(awq(codes, zeros)) | {"scales": scales}
    ours = pack(AwqScheme(group_size).source(tensors, "here"), F16, "cpu")
    converter = converters.AutoAWQConverter(group_size=group_size)
    converted = converter.process({f"a.{name}": tensor for name, tensor in tensors.items()})
    stripped = {name.removeprefix("a."): tensor for name, tensor in converted.items()}
    theirs = pack(
        CompressedScheme(group_size, symmetric=False).source(stripped, "here"), F16, "cpu"
    )
    for name, tensor in ours.parts().items():
        assert torch.equal(tensor, theirs.parts()[name]), name


def test_awq_without_zero_points_is_symmetric():
    codes, zeros, scales = layer_of(16, 64, 64, 1)
    tensors = torched(awq(codes, zeros)) | {"scales": scales}
    check(AwqScheme(64, symmetric=True), tensors, codes, None, scales)
    del tensors["qzeros"]
    check(AwqScheme(64, symmetric=True), tensors, codes, None, scales)


def gptq_tensors(n=16, k=64, groups=1):
    return {
        "qweight": torch.zeros((k // 8, n), dtype=torch.int32),
        "qzeros": torch.zeros((groups, n // 8), dtype=torch.int32),
        "scales": torch.ones((groups, n), dtype=F16),
    }


@pytest.mark.parametrize(("changes", "text"), [
    ({"g_idx": torch.arange(63, -1, -1)}, "g_idx reorders k .*act-order feature"),
    ({"g_idx": torch.zeros(32)}, "g_idx reorders k"),
    ({"scales": None}, "scales is missing"),
    ({"qzeros": None}, "qzeros is missing"),
    ({"channel_scale": torch.ones(16)}, "unexpected tensor channel_scale"),
    ({"qweight": torch.zeros((8, 16))}, r"qweight is torch.float32, expected torch.int32"),
    ({"qweight": torch.zeros(8, dtype=torch.int32)}, "qweight has 1 dimensions"),
    ({"qzeros": torch.zeros((1, 3), dtype=torch.int32)}, r"qzeros has shape \(1, 3\)"),
    ({"scales": torch.ones((2, 16))}, r"scales has shape \(2, 16\), expected \(1, 16\)"),
])  # fmt: skip
def test_gptq_tensors_that_do_not_fit_are_refused(changes, text):
    tensors = gptq_tensors() | changes
    present = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(CheckpointError, match=f"here: {text}"):
        GptqScheme(64, symmetric=False).source(present, "here")


def test_every_missing_and_unknown_tensor_is_named_at_once():
    tensors = {"scales": torch.ones(1, 16), "b": torch.ones(1), "a": torch.ones(1)}
    text = "qweight is missing; qzeros is missing; unexpected tensor a; unexpected tensor b"
    with pytest.raises(CheckpointError, match=text):
        AwqScheme(64).source(tensors, "here")


def test_a_width_of_130_is_a_clear_error():
    tensors = gptq_tensors(n=130) | {"qzeros": torch.zeros((1, 16), dtype=torch.int32)}
    with pytest.raises(UsageError, match="n is 130, no positive multiple of 8"):
        pack(GptqScheme(64, symmetric=False).source(tensors, "here"), F16, "cpu")
    shape = {"weight_shape": torch.tensor([130, 100])}
    others = dict.fromkeys(("weight_packed", "weight_scale"), torch.zeros(1))
    with pytest.raises(UsageError, match=r"n is 130.*k is 100"):
        CompressedScheme(64, symmetric=True).source(shape | others, "here")


def test_compressed_act_order_is_refused_by_name_and_a_plain_order_is_not():
    tensors = {
        "weight_packed": torch.zeros((16, 8), dtype=torch.int32),
        "weight_scale": torch.ones((16, 2), dtype=F16),
        "weight_shape": torch.tensor([16, 64]),
        "weight_g_idx": torch.arange(64) // 32,
    }
    scheme = CompressedScheme(32, symmetric=True)
    assert scheme.source(tensors, "here").n == 16
    tensors["weight_g_idx"] = torch.arange(64) % 2
    with pytest.raises(CheckpointError, match="weight_g_idx reorders k"):
        scheme.source(tensors, "here")


def test_a_symmetric_gptq_checkpoint_has_zero_point_8_whatever_qzeros_hold():
    tensors = gptq_tensors()
    for fill in (0x77777777, -0x77777778, 0):
        tensors["qzeros"].fill_(fill)
        assert GptqScheme(64, symmetric=True).source(tensors, "here").zero is None


@pytest.mark.parametrize("words", [
    WordsDownColumns(torch.zeros((2048, 4096), dtype=torch.int32)),
    WordsAlongColumns(torch.zeros((4096, 2048), dtype=torch.int32)),
])  # fmt: skip
def test_packing_from_words_stays_within_the_stated_memory(monkeypatch, words):
    chunk = 1 << 22
    monkeypatch.setattr(packing, "CHUNK_BYTES", chunk)
    scale = Matrix(torch.ones((4096, 128), dtype=F16))
    source = WeightSource(4096, 16384, 128, words, scale)
    packed, peak = peak_bytes(lambda: pack(source, F16, "cpu"))
    assert peak - packed.size_bytes <= packing.PEAK_CODES_PER_CHUNK * chunk
