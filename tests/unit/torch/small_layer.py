"""One small quantized layer, and what its launches say."""

from __future__ import annotations

import struct

import torch

from humming_runtime.contract.arguments import offsets
from humming_runtime.torch_layer import pack_codes

F16 = torch.float16
N, K = 48, 256
OVERLAP = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def weights():
    codes = torch.full((K, N), 9, dtype=torch.uint8)
    scale = torch.ones(2, N, dtype=F16)
    return pack_codes(codes, scale, None, group_size=128, activation=F16)


def value(launch, name, code="<q"):
    return struct.unpack_from(code, launch.arguments, offsets()[name])[0]
