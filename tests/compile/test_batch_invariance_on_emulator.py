"""Launches of one order give a row the same bits, whatever the tile and the other rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from emulator.cases import layer_of, packed_of  # noqa: E402
from emulator.gemm import run_gemm  # noqa: E402

from build_tools.errors import ToolchainError  # noqa: E402
from build_tools.toolchain import find_toolchain  # noqa: E402
from humming_runtime.batch_invariance import k_order  # noqa: E402
from humming_runtime.contract.variant_name import Variant  # noqa: E402


def _missing() -> str | None:
    try:
        find_toolchain(None, [], None)
    except ToolchainError as error:
        return str(error)
    return None


MISSING = _missing()
pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(MISSING is not None, reason=f"no compiler: {MISSING}"),
]
N, K, ROWS = 72, 1160, 13


def results(scheme, launches, bias=None):
    """Of each launch: its order, and the rows of the result. launches: (tile, rows, options)."""
    first = Variant.parse(f"dense_{scheme}_frag16_{launches[0][0]}")
    generator = torch.Generator().manual_seed(4)
    layer = layer_of(first, N, K, generator)
    packed = packed_of(layer)
    x = torch.randn(ROWS, K, generator=generator).to(layer.activation)
    for tile, rows, options in launches:
        variant = Variant.parse(f"dense_{scheme}_frag16_{tile}")
        outcome = run_gemm(variant, x[rows], packed, bias=bias, **options)
        yield k_order(variant, outcome.shape), rows, outcome.output


SPLIT = {"split_k": 2}


@pytest.mark.parametrize(
    ("scheme", "launches"),
    [
        (
            "f16_u4_f16_g128f16",
            [
                ("hopper-decode_t16x64x1024_w8r4_s4_sm90a", list(range(ROWS)), SPLIT),
                ("hopper-decode_t8x32x1024_w8r2_s6_sm90a", [3, 7, 12], SPLIT),
                ("hopper-decode_t8x16x1024_w8r1_s8_sm90a", [12], SPLIT),
            ],
        ),
        (
            "bf16_e2m1_bf16_g16e4m3",
            [
                ("hopper-prefill_t64x128x128_w8_s4_sm90a", list(range(ROWS)), {}),
                ("hopper-prefill_t128x128x128_w8_s3_sm90a", [5, 1], {}),
            ],
        ),
        (
            "f16_u4_f16_ch",
            [
                ("ampere-multistage_t64x128x64_w4r2_s3_sm80", list(range(ROWS)), {}),
                ("ampere-multistage_t128x128x64_w8r1_s3_sm80", [9, 2], {}),
            ],
        ),
    ],
)
def test_rows_have_the_same_bits(scheme, launches):
    (order, _, every), *others = results(scheme, launches)
    for other_order, rows, found in others:
        assert other_order == order
        assert torch.equal(found.view(torch.int16), every[rows].view(torch.int16))


def test_another_order_shows_in_the_bits():
    """Or the test above would prove nothing. The bias leaves only what rounding had hidden."""
    tile = "hopper-decode_t8x32x1024_w8r2_s6_sm90a"
    launches = [(tile, [0], {}), (tile, [0], SPLIT)]
    ((_, _, plain),) = results("f16_u8_f16_ch", launches[:1])
    (one, _, first), (two, _, second) = results("f16_u8_f16_ch", launches, -plain[0])
    assert one != two
    assert not torch.equal(first, second)
