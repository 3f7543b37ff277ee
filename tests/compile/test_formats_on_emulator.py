"""Every weight format, scale dtype and zero point through a real kernel's PTX on the emulator.

Which kernel computes a format alternates, so that every schedule meets every kind of format.
`python -m tests.emulator` runs whole profiles.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from emulator.cases import Case, run  # noqa: E402
from emulator.gemm import run_gemm  # noqa: E402

from build_tools.errors import ToolchainError  # noqa: E402
from build_tools.toolchain import find_toolchain  # noqa: E402
from humming_runtime.contract.number_formats import (  # noqa: E402
    byte_scale_format,
    every_weight_format,
    weight_fault,
    weight_format,
)
from humming_runtime.contract.variant_name import Variant  # noqa: E402
from humming_runtime.torch_layer import pack_codes  # noqa: E402


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
DECODE = "hopper-decode_t8x32x1024_w8r2_s6_sm90a"
PREFILL = "hopper-prefill_t64x128x128_w8_s4_sm90a"
AMPERE = "ampere-multistage_t64x128x64_w4r2_s3_sm80"
TURING = "turing-multistage_t64x128x64_w4r2_s2_sm75"
AMPERE_SUMS = "ampere-multistage_t64x128x64_w8r1_s3_sm80"
TURING_SUMS = "turing-multistage_t64x128x64_w8r1_s2_sm75"
KERNELS = (DECODE, PREFILL, AMPERE, TURING)


def variant_of(activation, weight, scale, kernel):
    return Variant.parse(f"dense_{activation}_{weight}_{activation}_{scale}_frag16_{kernel}")


def require_right(variant, m, n, k, **launch):
    assert run(Case(str(variant), m, n, k, bias=True, **launch)) is None


def weight_cases():
    """Each format with the activation dtypes in turn, each on one kernel."""
    for place, number in enumerate(every_weight_format()):
        kernel = KERNELS[place % len(KERNELS)]
        activation = ("f16", "bf16")[place // len(KERNELS) % 2]
        if weight_fault(str(number), activation) is not None:
            activation = "bf16"
        if kernel == TURING and activation == "bf16":
            kernel = AMPERE
        yield pytest.param(activation, str(number), kernel, id=f"{activation}-{number}")


@pytest.mark.parametrize(("activation", "weight", "kernel"), list(weight_cases()))
def test_every_weight_format_with_group_scales(activation, weight, kernel):
    require_right(variant_of(activation, weight, f"g128{activation}", kernel), 5, 40, 136)


@pytest.mark.parametrize(
    ("activation", "weight", "scale", "kernel", "launch"),
    [
        ("bf16", "e2m1", "g32e8m0", DECODE, {}),
        ("f16", "e2m1", "g32e8m0", PREFILL, {}),
        ("bf16", "e2m1", "g16e4m3", PREFILL, {"split_k": 2}),
        ("f16", "e2m1", "g16e4m3", AMPERE_SUMS, {}),
        ("bf16", "e4m3", "g128f32", PREFILL, {}),
        ("f16", "e5m2", "g128f32", TURING_SUMS, {}),
        ("f16", "u4", "g32ze5m3", DECODE, {"split_k": 2}),
        ("bf16", "u4", "g32e5m2", AMPERE_SUMS, {}),
        ("f16", "u4", "g16f16", PREFILL, {}),
        ("f16", "u8", "chz", DECODE, {}),
        ("bf16", "u8", "chf", PREFILL, {}),
        ("bf16", "u3", "g64fbf16", AMPERE, {}),
        ("f16", "u7", "g32zf16", TURING, {}),
    ],
)
def test_scale_dtypes_and_zero_points(activation, weight, scale, kernel, launch):
    require_right(variant_of(activation, weight, scale, kernel), 7, 72, 328, **launch)


@pytest.mark.parametrize("kernel", [DECODE, PREFILL, AMPERE_SUMS])
def test_every_e8m0_scale_byte_is_exact_before_the_output_is_rounded(kernel):
    """Row n has byte n everywhere; activations keep products of extreme scales in range."""
    n, k = 256, 128
    codes = torch.full((k, n), weight_format("e2m1").nearest(1.5), dtype=torch.uint8)
    scale = torch.arange(n, dtype=torch.int32).to(torch.uint8).expand(4, n).contiguous()
    packed = pack_codes(
        codes,
        scale,
        None,
        group_size=32,
        activation=torch.bfloat16,
        weight="e2m1",
        scale_dtype="e8m0",
    )
    x = torch.zeros(2, k, dtype=torch.bfloat16)
    x[0, 3] = 2.0**-4  # for large scales
    x[1, 70] = 2.0**4  # for small ones
    variant = variant_of("bf16", "e2m1", "g32e8m0", kernel)
    found = run_gemm(variant, x, packed).output.double()
    values = torch.tensor(byte_scale_format("e8m0").values, dtype=torch.float64)
    for row, factor in ((0, 2.0**-4), (1, 2.0**4)):
        wanted = (values * 1.5 * factor).to(torch.bfloat16).double()
        torch.testing.assert_close(found[row], wanted, rtol=0, atol=0, equal_nan=True)
    assert math.isnan(found[0, 255].item())
