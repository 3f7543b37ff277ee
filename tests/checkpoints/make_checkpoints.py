"""Write small real checkpoints: python make_checkpoints.py FOLDER

One folder each, as a model hub has them: config.json and safetensors, in one case two files with an
index. Beside them truth.pt: activation dtype, and codes, scales, zero points and bias by module.
compressed-tensors layers are made by that library; GPTQ and AWQ by plain_layouts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from plain_layouts import awq, gptq
from safetensors.torch import save_file

SHAPES = {
    "model.layers.0.self_attn.q_proj": (2112, 320),
    "model.layers.0.self_attn.o_proj": (24, 80),
    "model.layers.0.mlp.up_proj": (576, 1152),
    "model.layers.1.mlp.down_proj": (48, 64),
}
"""(n, k) by module; 320, 80 and 64 leave a partial group of 128."""
WITH_BIAS = "q_proj"


@dataclass(frozen=True)
class Recipe:
    """One checkpoint. group_size -1: channel scales."""

    name: str
    method: str
    group_size: int
    symmetric: bool
    dtype: torch.dtype = torch.float16
    version: int = 1


RECIPES = (
    Recipe("gptq_v1_g128", "gptq", 128, symmetric=False),
    Recipe("gptq_v2_g32", "gptq", 32, symmetric=False, version=2),
    Recipe("gptq_v1_sym_g64", "gptq", 64, symmetric=True),
    Recipe("gptq_v2_sym_g128_bf16", "gptq", 128, True, torch.bfloat16, 2),
    Recipe("gptq_v1_channel", "gptq", -1, symmetric=False),
    Recipe("awq_g128", "awq", 128, symmetric=False),
    Recipe("awq_g64_bf16", "awq", 64, symmetric=False, dtype=torch.bfloat16),
    Recipe("compressed_g128", "compressed-tensors", 128, symmetric=True),
    Recipe("compressed_asym_g32_bf16", "compressed-tensors", 32, False, torch.bfloat16),
    Recipe("compressed_channel", "compressed-tensors", -1, symmetric=True),
    Recipe("compressed_asym_channel_bf16", "compressed-tensors", -1, False, torch.bfloat16),
)


def write_all(folder: Path, recipes: Iterable[Recipe] = RECIPES) -> None:
    for seed, recipe in enumerate(recipes):
        write(folder / recipe.name, recipe, seed)


def write(folder: Path, recipe: Recipe, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {"lm_head.weight": torch.zeros(8, 8, dtype=recipe.dtype)}
    layers = {}
    for prefix, (n, k) in SHAPES.items():
        truth = random_layer(recipe, n, k, generator)
        if prefix.endswith(WITH_BIAS):
            truth["bias"] = torch.randn(n, generator=generator).to(recipe.dtype)
        layers[prefix] = truth
        made = stored_tensors(recipe, truth)
        tensors |= {f"{prefix}.{name}": value.contiguous() for name, value in made.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_shards(folder, tensors, shards=2 if recipe.name == "awq_g128" else 1)
    config = {"architectures": ["None"], "quantization_config": quantization_config(recipe)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    torch.save({"dtype": recipe.dtype, "layers": layers}, folder / "truth.pt")


def random_layer(
    recipe: Recipe, n: int, k: int, generator: torch.Generator
) -> dict[str, torch.Tensor | int | None]:
    """codes (k, n), scale (G, n), zero (G, n); zero None where symmetric. Every code occurs."""
    groups = 1 if recipe.group_size == -1 else -(-k // recipe.group_size)
    low = 1 if recipe.method == "gptq" and recipe.version == 1 else 0
    zero = torch.randint(low, low + 16, (groups, n), generator=generator, dtype=torch.uint8)
    scale = torch.rand((groups, n), generator=generator) * 0.015 + 0.005
    return {
        "codes": torch.randint(0, 16, (k, n), generator=generator, dtype=torch.uint8),
        "scale": scale.to(recipe.dtype),
        "zero": None if recipe.symmetric else zero,
        "group_size": recipe.group_size,
    }


def stored_tensors(recipe: Recipe, truth: dict) -> dict[str, torch.Tensor]:
    bias = {"bias": truth["bias"]} if "bias" in truth else {}
    if recipe.method == "compressed-tensors":
        return compressed(recipe, truth) | bias
    codes = truth["codes"].numpy()
    midpoint = np.full(tuple(truth["scale"].shape), 8)
    zeros = midpoint if truth["zero"] is None else truth["zero"].numpy()
    if recipe.method == "awq":
        packed = awq(codes, zeros)
    else:
        packed = gptq(codes, zeros, version=recipe.version)
    tensors = {name: torch.from_numpy(value) for name, value in packed.items()}
    tensors["scales"] = truth["scale"]
    if recipe.method == "gptq":
        size = codes.shape[0] if recipe.group_size == -1 else recipe.group_size
        tensors["g_idx"] = torch.arange(codes.shape[0], dtype=torch.int32) // size
    return tensors | bias


def compressed(recipe: Recipe, truth: dict) -> dict[str, torch.Tensor]:
    """By the library: its compressor where it takes the shape, its pack function for a last partial
    group, which the compressor does not quantize.
    """
    from compressed_tensors.compressors import PackedQuantizationCompressor, pack_to_int32

    codes = truth["codes"].t()
    n, k = codes.shape
    scale = truth["scale"].t().contiguous()
    zero = None if truth["zero"] is None else (truth["zero"].t().to(torch.int16) - 8).to(torch.int8)
    signed = (codes.to(torch.int16) - 8).to(torch.int8)
    size = k if recipe.group_size == -1 else recipe.group_size
    if k % size == 0:
        offset = 0 if zero is None else zero.double().repeat_interleave(size, 1)
        weight = (signed - offset) * scale.double().repeat_interleave(size, 1)
        state = {"weight": weight.float(), "weight_scale": scale}
        if zero is not None:
            state["weight_zero_point"] = zero
        return PackedQuantizationCompressor.compress(state, compressed_scheme(recipe))
    made = {
        "weight_packed": pack_to_int32(signed, 4),
        "weight_scale": scale,
        "weight_shape": torch.tensor([n, k]),
    }
    if zero is not None:
        made["weight_zero_point"] = pack_to_int32(zero, 4, packed_dim=0)
    return made


def compressed_scheme(recipe: Recipe):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    grouped = recipe.group_size != -1
    weights = QuantizationArgs(
        num_bits=4,
        type="int",
        symmetric=recipe.symmetric,
        strategy="group" if grouped else "channel",
        group_size=recipe.group_size if grouped else None,
    )
    return QuantizationScheme(targets=["Linear"], weights=weights)


def quantization_config(recipe: Recipe) -> dict:
    common = {"quant_method": recipe.method, "bits": 4, "group_size": recipe.group_size}
    if recipe.method == "awq":
        return common | {"version": "gemm", "zero_point": True, "modules_to_not_convert": None}
    if recipe.method == "gptq":
        form = "gptq" if recipe.version == 1 else "gptq_v2"
        return common | {"desc_act": False, "sym": recipe.symmetric, "checkpoint_format": form}
    from compressed_tensors.quantization import QuantizationConfig

    config = QuantizationConfig(
        config_groups={"group_0": compressed_scheme(recipe)},
        format="pack-quantized",
        ignore=["lm_head"],
        quantization_status="compressed",
    )
    return json.loads(config.model_dump_json())


def save_shards(folder: Path, tensors: dict[str, torch.Tensor], shards: int) -> None:
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    weight_map = {}
    names = sorted(tensors)
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard::shards]
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
