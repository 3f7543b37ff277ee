"""Checkpoint folders: the tensors of the right module, by the scheme that its config names."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

pytest.importorskip("safetensors")

import make_checkpoints
from reference import Layer, dequantize, worst_error
from safetensors.torch import save_file

from humming_runtime.torch_layer import load_linear, unpack
from humming_runtime.torch_layer.checkpoints import (
    AwqScheme,
    CheckpointError,
    CompressedScheme,
    GptqScheme,
    open_checkpoint,
    scheme_of,
)
from humming_runtime.torch_layer.dtypes import ExactnessError

RECIPES = {recipe.name: recipe for recipe in make_checkpoints.RECIPES}
HAS_LIBRARY = find_spec("compressed_tensors") is not None
NAMES = sorted(name for name in RECIPES if HAS_LIBRARY or "compressed" not in name)
SMALL = "model.layers.0.self_attn.o_proj"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    make_checkpoints.write_all(folder, [RECIPES[name] for name in NAMES])
    return folder


def truth_of(folder, prefix):
    truth = torch.load(folder / "truth.pt", weights_only=True)
    return truth["dtype"], truth["layers"][prefix]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prefix", sorted(make_checkpoints.SHAPES))
def test_every_layer_of_every_checkpoint_is_what_was_written(folder, name, prefix):
    dtype, truth = truth_of(folder / name, prefix)
    module = load_linear(folder / name, prefix, dtype)
    found = unpack(module.packed)
    assert torch.equal(found.codes, truth["codes"])
    assert torch.equal(found.scale.to(dtype), truth["scale"])
    assert (found.zero is None) == (truth["zero"] is None)
    assert found.zero is None or torch.equal(found.zero, truth["zero"])
    bias = truth.get("bias")
    assert (module.bias is None) == (bias is None)
    assert bias is None or torch.equal(module.bias, bias)


@pytest.mark.parametrize("name", [name for name in NAMES if "compressed" in name])
def test_the_library_itself_dequantises_to_the_same_weights(folder, name):
    from compressed_tensors.compressors import PackedQuantizationCompressor

    dtype, truth = truth_of(folder / name, "model.layers.0.mlp.up_proj")
    tensors = open_checkpoint(folder / name).module("model.layers.0.mlp.up_proj")
    scheme = make_checkpoints.compressed_scheme(RECIPES[name])
    wanted = PackedQuantizationCompressor.decompress(tensors, scheme)["weight"].t()
    size = None if truth["group_size"] == -1 else truth["group_size"]
    layer = Layer(truth["codes"], truth["scale"], truth["zero"], size, dtype)
    assert torch.equal(dequantize(layer).to(dtype), wanted)


@pytest.mark.usefixtures("cpu_launches")
def test_a_layer_multiplies(folder, generator):
    dtype, truth = truth_of(folder / "awq_g128", SMALL)
    module = load_linear(folder / "awq_g128", SMALL, dtype)
    layer = Layer(truth["codes"], truth["scale"], truth["zero"], 128, dtype)
    x = torch.randn(2, 80, generator=generator).to(dtype)
    assert worst_error(module(x), x, layer) <= 1


def test_one_file_is_read_with_the_config_beside_it(folder):
    path = folder / "gptq_v2_g32" / "model.safetensors"
    assert torch.equal(
        load_linear(path, SMALL, torch.float16).weight,
        load_linear(path.parent, SMALL, torch.float16).weight,
    )


def test_only_the_tensors_of_the_module_are_read(folder, monkeypatch):
    from humming_runtime.torch_layer.checkpoints import files

    asked = []
    open_file = files._open

    class Recording:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            self.inside = self.file.__enter__()
            return self

        def __exit__(self, *error):
            return self.file.__exit__(*error)

        def keys(self):
            return self.inside.keys()

        def get_tensor(self, name):
            asked.append(name)
            return self.inside.get_tensor(name)

    monkeypatch.setattr(files, "_open", lambda path: Recording(open_file(path)))
    load_linear(folder / "awq_g128", SMALL, torch.float16)
    assert sorted(asked) == [f"{SMALL}.{name}" for name in ("qweight", "qzeros", "scales")]


def test_an_activation_dtype_that_cannot_hold_the_scales_is_an_error(folder):
    with pytest.raises(ExactnessError, match="load with another activation dtype"):
        load_linear(folder / "gptq_v2_g32", SMALL, torch.bfloat16)


def test_a_config_of_the_callers_stands_in_for_one_that_lies(folder):
    path = folder / "gptq_v2_g32"
    config = open_checkpoint(path).config
    told = load_linear(path, SMALL, torch.float16, config={**config, "checkpoint_format": "gptq"})
    read = load_linear(path, SMALL, torch.float16)
    difference = unpack(told.packed).zero.int() - unpack(read.packed).zero.int()
    assert difference.unique().tolist() == [1]


def test_a_module_that_is_not_there_is_an_error_that_names_a_near_one(folder):
    with pytest.raises(CheckpointError, match=r"did you mean 'model\.layers\.0.*o_proj'"):
        load_linear(folder / "awq_g128", "model.layers.0.self_attn.o_pro", torch.float16)


def write(folder, config=None, **files):
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(config)
    for name, tensors in files.items():
        save_file(tensors, folder / f"{name}.safetensors")
    return folder


def test_folders_that_are_no_checkpoint_are_refused(tmp_path):
    one = {"a.qweight": torch.zeros(1)}
    quantized = json.dumps({"quantization_config": {"quant_method": "awq"}})
    cases = {
        "no such file or folder": tmp_path / "missing",
        "no .safetensors files": write(tmp_path / "empty", quantized),
        "no quantization_config": write(tmp_path / "plain", "{}", model=one),
        "not a JSON object": write(tmp_path / "list", "[]", model=one),
        "config.json: Expecting": write(tmp_path / "text", "{", model=one),
        "a.qweight: in": write(tmp_path / "twice", quantized, model=one, other=one),
    }
    broken = write(tmp_path / "broken", quantized)
    (broken / "model.safetensors").write_bytes(b"not safetensors")
    cases["model.safetensors:"] = broken
    absent = write(tmp_path / "absent", quantized)
    index = json.dumps({"weight_map": {"a": "gone.safetensors"}})
    (absent / "model.safetensors.index.json").write_text(index)
    cases["files are missing"] = absent
    for text, path in cases.items():
        with pytest.raises(CheckpointError, match=text):
            open_checkpoint(path)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def compressed(targets=("Linear",), group=None, weights=None, **rest):
    entry = {"targets": list(targets), "weights": WEIGHTS | (weights or {})} | (group or {})
    base = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    return base | {"config_groups": {"group_0": entry}} | rest


@pytest.mark.parametrize(("config", "scheme"), [
    (GPTQ, GptqScheme(128, symmetric=False, zero_offset=1)),
    (GPTQ | {"checkpoint_format": "gptq_v2"}, GptqScheme(128, symmetric=False, zero_offset=0)),
    (GPTQ | {"group_size": -1, "sym": True}, GptqScheme(None, symmetric=True)),
    (GPTQ | {"dynamic": {"+:.*q$": {"group_size": 32}}}, GptqScheme(32, symmetric=False)),
    (GPTQ | {"dynamic": {"-:.*k$": {}}}, GptqScheme(128, symmetric=False)),
    (AWQ, AwqScheme(128)),
    (AWQ | {"zero_point": False}, AwqScheme(128, symmetric=True)),
    ({"w_bit": 4, "q_group_size": 64, "version": "GEMM", "zero_point": True}, AwqScheme(64)),
    (compressed(), CompressedScheme(128, symmetric=True)),
    (compressed(["re:.*q$"], weights={"symmetric": False}), CompressedScheme(128, symmetric=False)),
    (compressed(["a.q"], weights={"strategy": "channel"}), CompressedScheme(None, symmetric=True)),
])  # fmt: skip
def test_a_config_gives_the_scheme(config, scheme):
    assert scheme_of(config, "a.q", "here") == scheme


def test_a_group_that_names_the_module_wins_over_one_for_its_class():
    config = compressed()
    named = {"targets": ["a.q"], "weights": WEIGHTS | {"group_size": 32}}
    config["config_groups"]["group_1"] = named
    assert scheme_of(config, "a.q", "here").group_size == 32
    assert scheme_of(config, "a.k", "here").group_size == 128


@pytest.mark.parametrize(("config", "text"), [
    ({"quant_method": "gptqq"}, "quant_method 'gptqq' .*did you mean 'gptq'"),
    ({}, "quant_method None"),
    (GPTQ | {"bits": 3}, "3-bit weights, this version reads 4 bits"),
    (GPTQ | {"bits": "4"}, "'bits' is '4', expected int"),
    (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
    (GPTQ | {"group_size": 0}, "group_size is 0"),
    (GPTQ | {"dynamic": {"-:.*q$": {}}}, "not quantized"),
    ({"quant_method": "gptq"}, "has no 'bits'"),
    (AWQ | {"version": "gemv"}, "AWQ version 'gemv'"),
    (AWQ | {"modules_to_not_convert": ["a."]}, "not quantized"),
    (compressed(format="nvfp4-pack-quantized"), "format 'nvfp4-pack-quantized'"),
    (compressed(ignore=["re:a.*"]), "not quantized"),
    (compressed(["b"]), "no group of quantization_config targets it"),
    (compressed(weights={"num_bits": 8}), "8-bit weights"),
    (compressed(weights={"type": "float"}), "float weights with strategy 'group'"),
    (compressed(weights={"strategy": "block"}), "int weights with strategy 'block'"),
    (compressed(group={"input_activations": {"num_bits": 8}}), "input_activations are quantized"),
])  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(config, text):
    with pytest.raises(CheckpointError, match=f"here: .*{text}"):
        scheme_of(config, "a.q", "here")
