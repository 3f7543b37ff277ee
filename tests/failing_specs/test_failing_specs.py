"""One broken spec a message: the place is file:line:column, and all faults come at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from build_tools.errors import SpecError
from build_tools.spec_load import load_specs

SPECS = Path(__file__).resolve().parents[2] / "specs"
FAMILY, ARCHS, PROFILES, COSTS = "dense_a16_w4.yaml", "archs.yaml", "profiles.yaml", "costs.yaml"
# file, text, what stands there instead, what is said
BROKEN = [
    (FAMILY, "op: dense", "op: dens", "did you mean 'dense'"),
    (FAMILY, "activations: [f16, bf16]", "activations: [f16, fp16]", "fp16"),
    (FAMILY, "activations: [f16, bf16]", "activations: [f16, f16]", "twice"),
    (FAMILY, "weights: [u4]", "weights: [u9]", "u9"),
    (FAMILY, "layout: frag16", "layout: frag", "did you mean 'frag16'"),
    (FAMILY, "scales: [g32", "scales: [h32", "no granularity"),
    (FAMILY, "scales: [g32", "scales: [g32z", "zero points are listed under zero_points"),
    (FAMILY, "scales: [g32", "scales: [g48", "group sizes are 16, 32, 64, 128"),
    (FAMILY, "scales: [g32", "scales: [chf32", "channel scales are fp32"),
    (FAMILY, "weights: [u4]", "weights: [u4, e2m1]", "floats have no zero point (e2m1)"),
    (FAMILY, "scales: [g32", "scales: [g32f32", "with g32f32 scales at most 128"),
    (FAMILY, "scales: [g32, g64", "scales: [g32, g32", "listed twice"),
    (FAMILY, "zero_points: [none, integer]", "zero_points: [none, int]", "int"),
    (FAMILY, "scales:", "scale:", "scale"),
    (FAMILY, "  hopper:", "  hoper:", "did you mean 'hopper'"),
    (FAMILY, "    decode:", "    decoder:", "did you mean 'decode'"),
    (FAMILY, "t8x32x1024_w8r2_s6", "t8x32_w8r2_s4", "tile"),
    (FAMILY, "t8x32x1024_w8r2_s6", "t8x48x1024_w8r2_s4", "16 * rows is 32"),
    (FAMILY, "t8x32x1024_w8r2_s6", "t8x32x512_w8r2_s4", "128 * warps is 1024"),
    (FAMILY, "t8x32x1024_w8r2_s6", "t8x32x1024_w8r2_s1", "at least 2 stages"),
    (FAMILY, "t16x64x128_w8_s8", "t16x64x128_w8_s7", "no multiple of 2 groups"),
    (FAMILY, "t16x64x128_w8_s8", "t12x64x128_w8_s8", "no multiple of 8"),
    (FAMILY, "t256x128x128_w8_s2", "t264x128x128_w8_s2", "at most 256"),
    (FAMILY, "t64x128x64_w4r2_s3", "t64x128x32_w4r2_s3", "64 * warps along k"),
    (FAMILY, "dense_bf16_*_turing-multistage_*", "dense_bf17_*", "matches no variant"),
    (FAMILY, "dense_bf16_*_turing-multistage_*", "dense_{bf16_*", "without"),
    (ARCHS, "tier: hopper", "tier: hoper", "did you mean 'hopper'"),
    (ARCHS, "target: sm_90a", "target: sm_90b", "sm_90b"),
    (ARCHS, "forms: [sm_90, sm_90a]", "forms: [sm_90, sm_91a]", "no target of sm_90"),
    (ARCHS, "shared_bytes: 65536", "shared_bytes: 64 KB", "64 KB"),
    (ARCHS, 'min_cuda: "12.0"', "min_cuda: 12.0", "12.0"),
    (ARCHS, "features: []", "features: [tmaa]", "tma"),
    (ARCHS, "  sm_75:", "  sm75:", "no arch"),
    (ARCHS, "  sm_80:", "  sm_75:", "sm_75"),
    (PROFILES, "    why: everything", "    because: everything", "because"),
    (PROFILES, "sm_90: [turing", "sm_91: [turing", "unknown arch"),
    (PROFILES, 'select: ["*"]', "select: no", "no"),
    (COSTS, "fixed_us: ", "fixed_us: x", "x"),
    (COSTS, "step_us:", "steps_us:", "did you mean 'step_us'"),
]


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(SPECS, tmp_path / "specs")


def break_spec(folder, file, old, new):
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("file", "old", "new", "said"), BROKEN, ids=[f"{b[0]}-{b[2]}" for b in BROKEN]
)
def test_a_fault_has_its_place_and_says_what_is_wrong(folder, file, old, new, said):
    break_spec(folder, file, old, new)
    with pytest.raises(SpecError) as caught:
        load_specs(folder)
    fault = next(f for f in caught.value.faults if said in str(f))
    name, line, column = fault.place.rsplit(":", 2)
    assert name == f"specs/{file}"
    assert int(line) > 0
    assert int(column) > 0


def test_the_line_and_column_are_those_of_the_word(folder):
    line = break_spec(folder, ARCHS, "tier: hopper", "tier: hoper")
    with pytest.raises(SpecError) as caught:
        load_specs(folder)
    column = len("    tier: ") + 1
    assert caught.value.faults[0].place == f"specs/{ARCHS}:{line}:{column}"


def test_faults_of_all_files_come_at_once(folder):
    for name in (FAMILY, ARCHS, PROFILES):
        file, old, new, _ = next(broken for broken in BROKEN if broken[0] == name)
        break_spec(folder, file, old, new)
    with pytest.raises(SpecError) as caught:
        load_specs(folder)
    assert {f.place.split(":")[0] for f in caught.value.faults} == {
        f"specs/{name}" for name in (FAMILY, ARCHS, PROFILES)
    }


def test_a_missing_table_is_named(folder):
    (folder / ARCHS).unlink()
    with pytest.raises(SpecError, match=r"specs/archs\.yaml: file is missing"):
        load_specs(folder)


@pytest.mark.parametrize("text", ["a: [1", "a: 1\na: 2\n", "- 1\n", ""])
def test_text_that_is_no_spec_has_a_place(folder, text):
    (folder / PROFILES).write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"specs/profiles\.yaml"):
        load_specs(folder)
