"""Generated texts as they should be. `HUMMING_WRITE_GOLDEN=1 pytest tests/golden` writes them
again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from build_tools.folders import kernel_path
from build_tools.ninja_file import Programs, ninja_text
from build_tools.plan import Planned
from build_tools.render import render_sources
from humming_runtime.contract.variant_name import Variant

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected"
NAMES = {
    "decode": "dense_f16_u4_f16_g128zf16_frag16_hopper-decode_t8x32x1024_w8r2_s6_sm90a",
    "prefill": "dense_bf16_u4_bf16_g32bf16_frag16_hopper-prefill_t64x128x128_w8_s4_sm90a",
    "multistage": "dense_f16_u4_f16_ch_frag16_turing-multistage_t16x32x256_w4r2_s2_sm75",
}
PLANNED = [Planned(Variant.parse(name), "family", None, None) for name in NAMES.values()]


def check(file: str, text: str) -> None:
    path = EXPECTED / file
    if os.environ.get("HUMMING_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("schedule", NAMES)
def test_a_kernel_of_each_schedule(schedule):
    sources = render_sources(ROOT / "templates", PLANNED)
    check(f"{schedule}.cu", sources[kernel_path(NAMES[schedule])])


def test_the_argument_struct():
    sources = render_sources(ROOT / "templates", [])
    check("arguments.cuh", sources["src/components/arguments.cuh"])


def test_the_ninja_file():
    programs = Programs("/usr/bin/python 3", ("/opt/cuda/nvcc", "-ccbin", "g++"))
    keys = {item.name: f"key{index}" for index, item in enumerate(PLANNED)}
    check("build.ninja", ninja_text(PLANNED, keys, programs))
