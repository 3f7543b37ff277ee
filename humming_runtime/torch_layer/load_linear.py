"""One layer of a checkpoint on disk -> QuantLinear."""

from __future__ import annotations

from pathlib import Path

import torch

from humming_runtime.torch_layer.checkpoints import open_checkpoint, scheme_of
from humming_runtime.torch_layer.checkpoints.faults import Config
from humming_runtime.torch_layer.quant_linear import QuantLinear


def load_linear(
    path: Path | str,
    prefix: str,
    activation: torch.dtype,
    device: torch.device | str = "cpu",
    *,
    config: Config | None = None,
) -> QuantLinear:
    """Read the tensors of module `prefix` only, and pack them on `device`.

    path: a folder, or one safetensors file. config: in place of its quantization_config, for
    checkpoints whose metadata are wrong (GPTQ's `checkpoint_format`).
    Raises: CheckpointError, ExactnessError for a value that `activation` cannot hold.
    """
    checkpoint = open_checkpoint(Path(path), config)
    place = f"{path}: {prefix}"
    scheme = scheme_of(checkpoint.config, prefix, place)
    tensors = checkpoint.module(prefix)
    return QuantLinear.from_checkpoint_tensors(tensors, scheme, activation, device, place=place)
