"""Quantized checkpoints -> packed weights: GPTQ, AWQ, compressed-tensors pack-quantized."""

from humming_runtime.torch_layer.checkpoints.awq import AwqScheme
from humming_runtime.torch_layer.checkpoints.compressed import CompressedScheme
from humming_runtime.torch_layer.checkpoints.faults import CheckpointError
from humming_runtime.torch_layer.checkpoints.files import Checkpoint, open_checkpoint
from humming_runtime.torch_layer.checkpoints.gptq import GptqScheme
from humming_runtime.torch_layer.checkpoints.schemes import Scheme, scheme_of

__all__ = [
    "AwqScheme",
    "Checkpoint",
    "CheckpointError",
    "CompressedScheme",
    "GptqScheme",
    "Scheme",
    "open_checkpoint",
    "scheme_of",
]
