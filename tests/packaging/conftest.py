"""Real wheels: a kernel wheel with one real cubin, and the loader's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from build_tools.cubin import read_facts
from build_tools.facts import BuiltKernel
from build_tools.folders import WorkFolder, license_file
from build_tools.manifest_write import make_manifest
from build_tools.plan import ArchPlan, Planned
from build_tools.render import render_sources
from build_tools.spec_load import load_specs
from build_tools.toolchain import Toolchain
from build_tools.wheel import build_wheel
from humming_runtime.contract.variant_name import Variant

ROOT = Path(__file__).resolve().parents[2]
NAME = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
CUBIN = ROOT / "tests/unit/build/dense_bf16_ch_decode_sm90a.cubin"
TOOLCHAIN = Toolchain("nvcc", (13, 0), "Build x", "g++", "here", "0" * 64)


@pytest.fixture(scope="session")
def data_wheel(tmp_path_factory):
    """A kernel wheel with one real cubin."""
    folder = tmp_path_factory.mktemp("data")
    work = WorkFolder(folder / "sm_90")
    work.cubin(NAME).parent.mkdir(parents=True)
    work.cubin(NAME).write_bytes(CUBIN.read_bytes())
    planned = Planned(Variant.parse(NAME), "family", None, None)
    arch = next(a for a in load_specs(ROOT / "specs").archs if a.name == "sm_90")
    kernel = BuiltKernel(planned, read_facts(CUBIN.read_bytes()), 0, 1)
    sources = render_sources(ROOT / "templates", [planned])
    plan = ArchPlan(arch, "default", (planned,), ())
    manifest = make_manifest(plan, [kernel], sources, TOOLCHAIN, [])
    return build_wheel(
        work, manifest, TOOLCHAIN.digest, folder / "dist", license_file().read_text()
    ).path


@pytest.fixture(scope="session")
def runtime_wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runtime")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))
