"""The part of the runtime that knows torch: packing, operator, module, checkpoints."""

from humming_runtime.torch_layer.functional import matmul, prepare, weights_written
from humming_runtime.torch_layer.linear_plan import LinearPlan
from humming_runtime.torch_layer.load_linear import load_linear
from humming_runtime.torch_layer.packed_weight import PackedWeight
from humming_runtime.torch_layer.packing import Unpacked, WeightSource, pack, pack_codes, unpack
from humming_runtime.torch_layer.quant_linear import QuantLinear
from humming_runtime.torch_layer.weight_format import WeightFormat

__all__ = [
    "LinearPlan",
    "PackedWeight",
    "QuantLinear",
    "Unpacked",
    "WeightFormat",
    "WeightSource",
    "load_linear",
    "matmul",
    "pack",
    "pack_codes",
    "prepare",
    "unpack",
    "weights_written",
]
