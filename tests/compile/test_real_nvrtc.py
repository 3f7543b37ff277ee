"""Real kernels with the real NVRTC 12.9, which comes from the package index where it is missing."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import nvrtc_compile, nvrtc_toolchain
from build_tools.cli import main
from build_tools.cubin import read_facts
from build_tools.errors import ToolchainError
from build_tools.folders import kernel_path
from build_tools.ninja_file import NVCC_FLAGS, gencode
from build_tools.plan import Planned
from build_tools.render import render_sources
from humming_runtime.contract.manifest import from_json
from humming_runtime.contract.variant_name import Variant
from humming_runtime.discover import Package, read_package
from humming_runtime.verify.kernel_files import elf_differences

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.compile, pytest.mark.xdist_group("nvrtc")]
REQUIREMENT = "nvidia-cuda-nvrtc-cu12==12.9.*"
KERNELS = {
    "sm_80": "dense_bf16_u4_bf16_chz_frag16_ampere-multistage_t32x64x128_w4r2_s3_sm80",
    "sm_90": "dense_f16_u4_f16_g128f16_frag16_hopper-decode_t8x32x1024_w8r2_s6_sm90a",
}
TARGETS = {"sm_80": "sm_80", "sm_90": "sm_90a"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The environment's packages, or a folder that the library was installed into."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            nvrtc_toolchain.find_nvrtc([])
        except ToolchainError:
            site = str(tmp_path_factory.mktemp("site"))
            pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", site]
            result = subprocess.run(
                [*pip, REQUIREMENT], capture_output=True, text=True, check=False
            )
            if result.returncode:
                pytest.skip(f"no NVRTC: {result.stderr.strip().splitlines()[-1:]}")
            paths = dict.fromkeys(("purelib", "platlib"), site)
            patch.setattr(nvrtc_toolchain.sysconfig, "get_paths", lambda *_, **__: paths)
        yield


@pytest.fixture(scope="module")
def built(packages, tmp_path_factory):
    """One kernel of each arch. Returns the folder."""
    folder = tmp_path_factory.mktemp("nvrtc")
    command = ["--engine", "nvrtc", "--arch", "sm_80,sm_90", "-q"]
    selected = [word for name in KERNELS.values() for word in ("--select", name)]
    folders = ["--work", str(folder / "work"), "-o", str(folder / "dist")]
    assert main([*command, *selected, *folders]) == 0
    return folder


@pytest.mark.parametrize("arch", KERNELS)
def test_a_kernel_is_for_its_target_and_of_cuda_12(built, arch):
    folder = built / "work" / arch
    text = (folder / "manifest.json").read_text()
    manifest = from_json(text, arch)
    assert (manifest.engine, manifest.cuda) == ("nvrtc", "12.9")
    assert json.loads(text)["package"] == f"humming-cubins-{arch.replace('_', '')}-cu12"
    [kernel] = manifest.kernels
    image = (folder / kernel.file).read_bytes()
    facts = read_facts(image)
    assert (facts.target, facts.toolchain) == (TARGETS[arch], "release 12.9")
    assert image[7:9] == b"\x33\x07"  # what drivers below 580 load
    assert elf_differences(image, kernel, manifest) == []
    assert kernel.spill_bytes == 0
    assert "spill stores" in (folder / "logs" / f"{kernel.name}.log").read_text()
    assert isinstance(read_package("built", folder), Package)


def test_a_cubin_has_the_same_bytes_wherever_it_is_built(built, tmp_path):
    name = KERNELS["sm_90"]
    command = ["--engine", "nvrtc", "--select", name, "--until", "cubins", "-q"]
    assert main([*command, "--work", str(tmp_path / "other place")]) == 0
    first, second = (
        (work / "sm_90/cubins" / f"{name}.cubin").read_bytes()
        for work in (built / "work", tmp_path / "other place")
    )
    assert first == second


@pytest.mark.parametrize(
    ("name", "m"),
    [
        (KERNELS["sm_80"], 19),
        (KERNELS["sm_90"], 5),
        ("dense_bf16_e2m1_bf16_g32e8m0_frag16_hopper-prefill_t64x128x128_w8_s4_sm90a", 9),
    ],
)
def test_what_its_front_end_makes_is_right_on_the_emulator(
    packages, name, m, tmp_path, monkeypatch
):
    """PTX of the same compilation: its cubins cannot run here."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(ROOT / "tests")
    from emulator.cases import Case, run

    assert run(Case(name, m, 72, 328, bias=True), ptx_of(name, tmp_path)) is None


def ptx_of(name, folder):
    """What NVRTC would hand to its assembler."""
    variant = Variant.parse(name)
    planned = Planned(variant, "test", None, None)
    for path, text in render_sources(ROOT / "templates", [planned]).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    source = folder / kernel_path(name)
    library = nvrtc_compile.Nvrtc(nvrtc_toolchain.find_nvrtc([]).compiler)
    words = [*NVCC_FLAGS, gencode(variant.target), "-MD", "-MT", "x", "-MF", "x", "-o", "x"]
    options = nvrtc_compile.nvrtc_options(nvrtc_compile.parse([*words, str(source)]))
    with library._program(source.read_bytes(), str(source)) as program:
        given = (ctypes.c_char_p * len(options))(*(word.encode() for word in options))
        code = library._library.nvrtcCompileProgram(program, len(options), given)
        assert code == 0, library._bytes("ProgramLog", program)
        return library._bytes("PTX", program).rstrip(b"\0").decode()
