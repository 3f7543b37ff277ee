"""The compiler is found in the documented order, and each fault says what fixes it."""

from __future__ import annotations

import dataclasses

import pytest
from fake_build import ROOT

from build_tools import toolchain
from build_tools.errors import ToolchainError
from build_tools.spec_load import load_specs

ARCH = next(arch for arch in load_specs(ROOT / "specs").archs if arch.name == "sm_90")


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Neither packages nor CUDA_HOME nor PATH have a compiler."""
    monkeypatch.setattr(
        toolchain.sysconfig,
        "get_paths",
        lambda: dict.fromkeys(("purelib", "platlib"), str(tmp_path)),
    )
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(
        toolchain.shutil, "which", lambda name: "/bin/" + name if name == "g++" else None
    )
    return tmp_path


def test_no_compiler_names_the_places_and_the_command(nowhere):
    with pytest.raises(
        ToolchainError, match=r"CUDA_HOME and PATH[\s\S]*hint: pip install 'humming-aot\[nvcc\]'"
    ):
        toolchain.find_toolchain(None, [], None)


def test_the_environments_packages_come_before_cuda_home(nowhere, nvcc, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(nowhere / "home"))
    for folder in (nowhere / "home/bin", nowhere / "nvidia/cu13/bin"):
        folder.mkdir(parents=True)
        (folder / "nvcc").symlink_to(nvcc)
        found = toolchain.find_toolchain(None, [ARCH], None)
        assert found.compiler == str(folder / "nvcc")
    assert found.cuda == "13.0"


def test_missing_headers_are_named(nowhere, nvcc):
    (nvcc.parent / "include/cuda_runtime.h").unlink()
    with pytest.raises(ToolchainError, match=r"cuda_runtime\.h"):
        toolchain.find_toolchain(nvcc, [], None)


def test_no_host_compiler_is_a_fault_with_a_command(nowhere, nvcc, monkeypatch):
    monkeypatch.setattr(toolchain.shutil, "which", lambda _name: None)
    with pytest.raises(ToolchainError, match=r"no C\+\+ compiler[\s\S]*apt-get install"):
        toolchain.find_toolchain(nvcc, [], None)


def test_an_arch_that_the_toolkit_does_not_know_is_a_fault(nowhere, nvcc):
    future = dataclasses.replace(ARCH, name="sm_130", min_cuda=(14, 0))
    with pytest.raises(ToolchainError, match=r"sm_130: needs CUDA 14\.0 or newer.*is 13\.0"):
        toolchain.find_toolchain(nvcc, [future], None)


def test_a_program_that_is_no_nvcc_is_refused(nowhere):
    other = nowhere / "other"
    other.write_text("#!/bin/sh\necho hello\n")
    other.chmod(0o755)
    with pytest.raises(ToolchainError, match="is no nvcc"):
        toolchain.find_toolchain(other, [], None)


def test_a_probe_is_kept_until_the_program_changes(nowhere, nvcc, monkeypatch):
    cache = nowhere / "toolchain.json"
    first = toolchain.find_toolchain(nvcc, [], cache)
    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "_probe", lambda _path: pytest.fail("probed again"))
        assert toolchain.find_toolchain(nvcc, [], cache) == first
    nvcc.write_text(nvcc.read_text() + "# newer\n")
    assert toolchain.find_toolchain(nvcc, [], cache).digest != first.digest
