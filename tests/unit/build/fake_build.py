"""Constants that tests of builds share."""

from __future__ import annotations

import struct
from pathlib import Path

from build_tools.spec_load import load_specs

ROOT = Path(__file__).resolve().parents[3]
REAL_CUBIN = Path(__file__).with_name("dense_bf16_ch_decode_sm90a.cubin")
FAKE_NVCC = Path(__file__).with_name("fake_nvcc.py")
VARIANT = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
"""What the real cubin is."""
SPECS = load_specs(ROOT / "specs")


def as_cuda_12(image, flags=0x5A0D5A):
    """The same cubin with the header that CUDA 12.9 writes; the default is one for sm_90a."""
    changed = bytearray(image)
    changed[7:9] = 0x33, 7  # OSABI, ABI version
    struct.pack_into("<I", changed, 20, 129)
    struct.pack_into("<I", changed, 48, flags)
    return bytes(changed)


ARCHS = {arch.name: arch for arch in SPECS.archs}
