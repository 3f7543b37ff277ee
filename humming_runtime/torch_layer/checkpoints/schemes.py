"""quantization_config of a checkpoint -> the scheme of one module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from humming_runtime.torch_layer.checkpoints.awq import awq_scheme
from humming_runtime.torch_layer.checkpoints.compressed import compressed_scheme
from humming_runtime.torch_layer.checkpoints.faults import (
    CheckpointError,
    Config,
    Tensors,
    nearest,
)
from humming_runtime.torch_layer.checkpoints.gptq import gptq_scheme
from humming_runtime.torch_layer.packing import WeightSource


class Scheme(Protocol):
    """How a module's tensors are to be read."""

    def source(self, tensors: Tensors, place: str) -> WeightSource:
        """The weights in `tensors`, by names without the module's prefix."""


_METHODS: dict[str, Callable[[Config, str, str], Scheme]] = {
    "gptq": gptq_scheme,
    "awq": awq_scheme,
    "compressed-tensors": compressed_scheme,
}


def scheme_of(config: Config, prefix: str, place: str) -> Scheme:
    """config: the value of quantization_config. Raises: CheckpointError."""
    method = config.get("quant_method")
    if method is None and "w_bit" in config:
        method = "awq"
    read = _METHODS.get(str(method))
    if read is None:
        known = ", ".join(sorted(_METHODS))
        hint = nearest(str(method), _METHODS)
        raise CheckpointError(f"{place}: quant_method {method!r} (known: {known}){hint}")
    return read(config, prefix, place)
