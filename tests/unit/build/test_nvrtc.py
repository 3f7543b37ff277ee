"""The second engine: found or refused with a command, in the edge's words, and named in what it
makes.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from fake_build import ARCHS, REAL_CUBIN, VARIANT, as_cuda_12

from build_tools import nvrtc_compile, nvrtc_toolchain, toolchain
from build_tools.cli import main
from build_tools.cubin import read_facts
from build_tools.errors import SpecError, ToolchainError
from build_tools.nvrtc_toolchain import find_nvrtc
from build_tools.validation import read_validated
from humming_runtime.verify.cubin_elf import read_elf

FAKE_NVRTC = Path(__file__).with_name("fake_nvrtc.py")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """The environment's packages: a folder of the test's own."""
    site = tmp_path / "site"
    paths = dict.fromkeys(("purelib", "platlib"), str(site))
    monkeypatch.setattr(nvrtc_toolchain.sysconfig, "get_paths", lambda: paths)
    return site


@pytest.fixture
def library(packages, monkeypatch):
    """A stand-in for the library, and for the program that calls it."""
    folder = packages / "nvidia/cuda_nvrtc/lib"
    folder.mkdir(parents=True)
    (folder / "product").write_bytes(as_cuda_12(REAL_CUBIN.read_bytes()))
    (folder / "facts.json").write_text('{"release": [12, 9], "archs": [75, 80, 86, 87, 89, 90]}')
    path = folder / "libnvrtc.so.12"
    path.write_text("no library")
    for module in (toolchain, nvrtc_toolchain):
        monkeypatch.setattr(module, "NVRTC_PROGRAM", FAKE_NVRTC)
    return path


@pytest.fixture
def build(tmp_path, sources):
    folders = ["--work", str(tmp_path / "work"), "-o", str(tmp_path / "dist")]
    base = ["--engine", "nvrtc", "--source", str(sources), *folders, "--select", VARIANT]
    return lambda *more: main([*base, *more])


@pytest.mark.usefixtures("packages")
def test_a_missing_library_is_said_with_the_place_and_the_command():
    with pytest.raises(ToolchainError) as error:
        find_nvrtc([ARCHS["sm_90"]])
    text = str(error.value)
    assert "nvidia/cuda_nvrtc/lib/libnvrtc.so.12" in text
    assert "hint: pip install 'humming-aot[nvrtc]'" in text


def test_a_library_that_does_not_load_is_refused(library, monkeypatch):
    for module in (toolchain, nvrtc_toolchain):
        monkeypatch.setattr(module, "NVRTC_PROGRAM", Path(nvrtc_compile.__file__))
    with pytest.raises(ToolchainError, match=r"libnvrtc\.so\.12: does not load \(error: "):
        find_nvrtc([])


def test_archs_that_it_does_not_build_are_refused_each_with_its_reason(library):
    archs = [ARCHS[name] for name in ("sm_80", "sm_88", "sm_90", "sm_100")]
    with pytest.raises(ToolchainError) as error:
        find_nvrtc(archs)
    first, second = error.value.faults
    assert (first.place, second.place) == ("sm_88", "sm_100")
    assert first.message == f"is not known to {library} (CUDA 12.9)"
    assert "end at capability 9.0" in second.message
    assert {fault.hint for fault in error.value.faults} == {"--engine nvcc"}


def test_another_library_has_another_digest(library):
    first = find_nvrtc([ARCHS["sm_90"]])
    assert (first.engine, first.cuda, first.compiler) == ("nvrtc", "12.9", str(library))
    library.write_text("another")
    second = find_nvrtc([ARCHS["sm_90"]])
    assert second == replace(first, digest=second.digest) != first


def test_a_wheel_says_its_engine_and_cuda_in_name_and_manifest(library, build, tmp_path):
    assert build("-q") == 0
    [path] = (tmp_path / "dist").iterdir()
    assert path.name == "humming_cubins_sm90_cu12-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        manifest = json.loads(wheel.read("humming_cubins_sm90_cu12/manifest.json"))
        [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        text = wheel.read(metadata).decode()
    expected = {"engine": "nvrtc", "cuda": "12.9", "toolchain": "release 12.9"}
    assert expected.items() <= manifest.items()
    assert "driver from release 525 on" in text
    assert "NVIDIA CUDA :: 12" in text


def test_a_second_run_compiles_nothing(library, build, capsys):
    assert build("-q") == 0
    assert build() == 0
    assert "nothing to do" in capsys.readouterr().err
    assert library.with_name("calls").read_text().split() == [VARIANT]


@pytest.mark.usefixtures("library")
def test_an_error_of_the_compiler_is_an_error_of_the_build(build, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_NVRTC", "error")
    assert build("-q") == 6
    assert "error: expected a declaration" in capsys.readouterr().err


def test_an_nvcc_is_refused_beside_the_other_engine(build, nvcc, capsys):
    assert build("--nvcc", str(nvcc)) == 2
    assert "--nvcc: is not used with --engine nvrtc" in capsys.readouterr().err


def test_bundle_builds_with_the_engine_that_it_is_given(nvcc, sources, capsys):
    assert main(["bundle", "--engine", "nvrtc", "--nvcc", str(nvcc), "--source", str(sources)]) == 2
    assert "--nvcc: is not used with --engine nvrtc" in capsys.readouterr().err


@pytest.mark.parametrize(("engine", "claimed"), [("nvcc", []), ("nvrtc", ["9.0"])])
@pytest.mark.usefixtures("library")
def test_only_a_record_of_the_same_engine_counts(engine, claimed, build, sources, tmp_path):
    assert build("-q", "--until", "cubins") == 0
    path = tmp_path / "work/sm_90/manifest.json"
    [kernel] = json.loads(path.read_text())["kernels"]
    record = {
        "capability": "9.0", "device": "d", "driver": "r", "date": "2026-12-07",
        "engine": engine, "sources": {VARIANT: kernel["source_sha256"]},
    }  # fmt: skip
    for old in (sources / "specs/validated").iterdir():
        old.unlink()
    (sources / "specs/validated/one.json").write_text(json.dumps(record))
    assert build("-q", "--until", "cubins") == 0
    [kernel] = json.loads(path.read_text())["kernels"]
    assert kernel["validated_on"] == claimed


def test_a_record_of_an_unknown_engine_is_a_fault(sources):
    record = {"capability": "9.0", "device": "d", "driver": "r", "date": "x", "sources": {}}
    path = sources / "specs/validated/one.json"
    path.write_text(json.dumps({**record, "engine": "icc"}))
    with pytest.raises(SpecError, match="engine 'icc', none of nvcc, nvrtc"):
        read_validated(sources / "specs")


@pytest.mark.parametrize(("flags", "target"), [(0x5A0D5A, "sm_90a"), (0x5A055A, "sm_90")])
def test_both_readers_tell_target_and_release_of_a_file_of_cuda_12(flags, target):
    image = as_cuda_12(REAL_CUBIN.read_bytes(), flags)
    facts, elf = read_facts(image), read_elf(image)
    assert (facts.target, facts.toolchain, facts.capability) == (target, "release 12.9", (9, 0))
    assert (elf.target, elf.toolchain, elf.capability) == (target, "release 12.9", (9, 0))


class FakeNvrtc:
    """The calls that the program makes. `says`: (cubin, log)."""

    says: tuple[bytes | None, str] = (b"cubin", "ptxas info: x\n")
    options: list[str]

    def compile(self, text, name, options):
        FakeNvrtc.options = options
        assert text == Path(name).read_bytes()
        return self.says


@pytest.fixture
def compile_one(tmp_path, monkeypatch):
    """Run the program on a source with two headers; the library says what is given."""
    (tmp_path / "b").mkdir()
    (tmp_path / "k.cu").write_text('#include "b/one.cuh"\n#include <cstdint>\n')
    (tmp_path / "b/one.cuh").write_text('#pragma once\n#include "../two.cuh"\n')
    (tmp_path / "two.cuh").write_text("#pragma once\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvrtc_compile, "Nvrtc", lambda _path: FakeNvrtc())

    def run(*more, says=FakeNvrtc.says, source="k.cu"):
        monkeypatch.setattr(FakeNvrtc, "says", says)
        flags = ["-cubin", "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v"]
        gencode = "-gencode=arch=compute_90a,code=sm_90a"
        files = ["-MD", "-MT", "out", "-MF", "d", "-o", "o.cubin", source]
        return nvrtc_compile.main(["lib", *flags, gencode, *more, *files])

    return run


def test_a_compilation_leaves_cubin_depfile_and_log(compile_one, capsys):
    assert compile_one() == 0
    assert Path("o.cubin").read_bytes() == b"cubin"
    assert Path("d").read_text() == "out: k.cu b/one.cuh two.cuh\n"
    assert capsys.readouterr().out == "ptxas info: x\n"
    assert FakeNvrtc.options[:3] == [
        "--gpu-architecture=sm_90a",
        "--std=c++17",
        "--ptxas-options=-v",
    ]


@pytest.mark.parametrize(
    "says", [(None, "k.cu(1): error: no"), (b"cubin", "k.cu(1): warning #177-D: unused")]
)
def test_errors_and_warnings_leave_no_cubin(compile_one, capsys, says):
    assert compile_one(says=says) == 2
    assert not Path("o.cubin").exists()
    assert "error" in capsys.readouterr().out


def test_a_source_that_is_missing_is_named(compile_one, capsys):
    assert compile_one(source="no.cu") == 2
    assert "error: no.cu: No such file" in capsys.readouterr().err


def test_an_option_that_it_does_not_know_is_an_error(compile_one):
    with pytest.raises(SystemExit) as error:
        compile_one("--use_fast_math")
    assert error.value.code == 2


def test_a_target_that_is_not_one_cubin_is_an_error(compile_one, capsys):
    assert compile_one("-gencode=arch=compute_80,code=compute_80") == 2
    assert "no cubin of one target" in capsys.readouterr().err
