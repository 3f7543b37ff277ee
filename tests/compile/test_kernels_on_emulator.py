"""PTX of real kernels, run on the CPU, against the float64 reference; and kernels with a fault."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
ml_dtypes = pytest.importorskip("ml_dtypes")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from emulator import GlobalMemory, Launch, Machine, parse, translate  # noqa: E402
from emulator.cases import FAULTS as WRONG  # noqa: E402
from emulator.cases import Case, run  # noqa: E402
from emulator.compile import compile_ptx, compile_text  # noqa: E402

from build_tools.errors import ToolchainError  # noqa: E402
from build_tools.toolchain import find_toolchain  # noqa: E402
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
    pytest.mark.xdist_group("nvcc"),
]

TURING_SMALL = "dense_f16_u4_f16_g128f16_frag16_turing-multistage_t16x32x256_w4r2_s2_sm75"
TURING_WIDE = "dense_f16_u4_f16_g32zf16_frag16_turing-multistage_t64x128x64_w4r2_s2_sm75"
AMPERE_SMALL = "dense_f16_u4_f16_g128f16_frag16_ampere-multistage_t16x32x256_w4r2_s4_sm80"
AMPERE_CHANNEL = "dense_bf16_u4_bf16_chz_frag16_ampere-multistage_t32x64x128_w4r2_s3_sm80"
AMPERE_GROUP = "dense_bf16_u4_bf16_g32bf16_frag16_ampere-multistage_t16x32x256_w4r2_s4_sm80"
DECODE_GROUP = "dense_f16_u4_f16_g128f16_frag16_hopper-decode_t8x32x1024_w8r2_s6_sm90a"
DECODE_CHANNEL = "dense_bf16_u4_bf16_chz_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
DECODE_ZERO = "dense_f16_u4_f16_g32zf16_frag16_hopper-decode_t16x64x1024_w8r4_s4_sm90a"
DECODE_BF16 = "dense_bf16_u4_bf16_g128zbf16_frag16_hopper-decode_t8x16x1024_w8r1_s8_sm90a"
PREFILL_ZERO = "dense_f16_u4_f16_g32zf16_frag16_hopper-prefill_t16x64x128_w8_s8_sm90a"
PREFILL_GROUP = "dense_f16_u4_f16_g128f16_frag16_hopper-prefill_t64x64x128_w8_s6_sm90a"
PREFILL_CHANNEL = "dense_bf16_u4_bf16_ch_frag16_hopper-prefill_t32x64x128_w8_s8_sm90a"
PREFILL_REGISTERS = "dense_bf16_u4_bf16_g128bf16_frag16_hopper-prefill_t160x128x128_w8_s4_sm90a"

CASES = [
    Case(TURING_SMALL, 5, 40, 520, seed=1),
    Case(TURING_WIDE, 40, 136, 200, bias=True, seed=2),
    Case(AMPERE_SMALL, 17, 24, 1032, bias=True, seed=3),
    Case(AMPERE_CHANNEL, 33, 72, 328, tensor_scale=0.5, seed=4),
    Case(AMPERE_GROUP, 1, 8, 264, seed=None),
    Case(DECODE_GROUP, 5, 72, 1160, bias=True, seed=5),
    Case(DECODE_GROUP, 1, 104, 2056, ctas=2, stages=2, seed=6),
    Case(DECODE_GROUP, 8, 40, 1160, split_k=2, seed=7),
    Case(DECODE_CHANNEL, 2, 136, 72, bias=True, seed=8),
    Case(DECODE_CHANNEL, 7, 72, 1032, split_k=4, ctas=8, tensor_scale=2.0, seed=9),
    Case(DECODE_ZERO, 13, 88, 1096, seed=None),
    Case(DECODE_BF16, 3, 24, 2184, split_k=2, stages=2, seed=10),
    Case(PREFILL_ZERO, 21, 72, 712, bias=True, seed=11),
    Case(PREFILL_ZERO, 40, 72, 1096, split_k=2, whole_tiles=2, seed=12),
    Case(PREFILL_GROUP, 33, 136, 456, split_k=2, seed=13),
    Case(PREFILL_CHANNEL, 7, 40, 1160, tensor_scale=0.5, seed=14),
    Case(PREFILL_REGISTERS, 40, 136, 520, bias=True, seed=None),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_is_right(case):
    assert run(case) is None


SMALL_KERNEL = """
#include <cstdint>
__constant__ float levels[4] = {0.5f, -2.0f, 3.0f, 7.25f};
extern "C" __global__ void kernel(const uint16_t* codes, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes[i % count]));
  float low, high;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(low), "=f"(high) : "r"(pair));
  float sum = low * levels[i & 3] + high;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[blockIdx.x], sum / 3.0f);
}
"""


def test_any_kernel_can_be_run():
    """Of CUDA text: tables, 8-bit floats, shuffles, division, atomics."""
    text = compile_text(SMALL_KERNEL, "sm_89")
    memory = GlobalMemory(1 << 16)
    codes = np.arange(24, dtype=np.uint16) * 0x0302 + 0x2130
    source = memory.upload("codes", codes)
    out = memory.upload("out", np.zeros(2, np.float32))
    parameters = np.array([source, out, codes.size], np.uint64).tobytes()[:20]
    Machine(translate(parse(text)), memory, Launch(parameters, grid=2, threads=64), seed=1).run()
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64).reshape(-1, 2)
    threads = np.arange(128)
    levels = np.array([0.5, -2, 3, 7.25])[threads % 4]
    wanted = values[threads % codes.size, 0] * levels + values[threads % codes.size, 1]
    got = memory.bytes_at(out, 8).view(np.float32)
    assert np.allclose(got, wanted.reshape(2, 64).sum(1) / 3, rtol=1e-6)


def mutated(name: str, pattern: str, replacement: str, occurrence: int) -> str:
    """PTX of a variant with one match of `pattern` replaced."""
    text = compile_ptx(Variant.parse(name))
    found = list(re.finditer(pattern, text))[occurrence]
    return text[: found.start()] + found.expand(replacement) + text[found.end() :]


def _waits(name: str, occurrence: int) -> str:
    """A wait for an mbarrier that does not wait."""
    pattern = r"WAIT: mbarrier\.try_wait\S+ p, \[%r\d+\], %r\d+;"
    return mutated(name, pattern, "WAIT: setp.eq.u32 p, 0, 0;", occurrence)


FAULTS = {
    "decode: producer does not wait for an empty stage": (
        Case(DECODE_GROUP, 1, 104, 2056, ctas=2, stages=2, seed=1),
        lambda: _waits(DECODE_GROUP, 0),
    ),
    "decode: consumers do not wait for a full stage": (
        Case(DECODE_GROUP, 5, 72, 1160, seed=1),
        lambda: _waits(DECODE_GROUP, -1),
    ),
    "decode: no wait for the preceding kernel": (
        Case(DECODE_GROUP, 5, 72, 1160, seed=1),
        lambda: mutated(DECODE_GROUP, r"griddepcontrol\.wait;", "", 0),
    ),
    "multistage: no barrier of the main loop": (
        Case(AMPERE_SMALL, 17, 24, 1032, seed=1),
        lambda: mutated(AMPERE_SMALL, r"bar\.sync\s+0;", "", 0),
    ),
    "multistage: no wait for cp.async": (
        Case(AMPERE_SMALL, 17, 24, 1032, seed=1),
        lambda: mutated(AMPERE_SMALL, r"cp\.async\.wait_group \d+;", "", 0),
    ),
    "prefill: consumers do not wait for a full stage": (
        Case(PREFILL_ZERO, 21, 72, 712, seed=1),
        lambda: _waits(PREFILL_ZERO, -1),
    ),
    "prefill: no wait for wgmma": (
        Case(PREFILL_ZERO, 21, 72, 712, seed=1),
        lambda: mutated(PREFILL_ZERO, r"wgmma\.wait_group\.sync\.aligned 0;", "", 0),
    ),
    "decode: words of the second half from a wrong place": (
        Case(DECODE_GROUP, 5, 72, 1160, seed=1),
        lambda: mutated(DECODE_GROUP, r"(ld\.shared\.v4\.u32 .*)\+512\];", r"\1+528];", 0),
    ),
    "prefill: a k16 step of activations from a wrong place": (
        Case(PREFILL_ZERO, 21, 72, 712, seed=1),
        lambda: mutated(PREFILL_ZERO, r"4611686293305360388", "4611686293305360386", 0),
    ),
    "multistage: an output address 16 bytes too far": (
        Case(AMPERE_SMALL, 17, 24, 1032, seed=1),
        lambda: mutated(
            AMPERE_SMALL, r"st\.global\.v4\.u32 \t?\[(%rd\d+)\]", r"st.global.v4.u32 [\1+16]", 0
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_kernel_shows(fault):
    case, text = FAULTS[fault]
    try:
        wrong = run(case, text())
    except WRONG as error:
        wrong = str(error)
    assert wrong, "the emulator did not notice"
