"""Kernel wheels of one small kernel for any arch: all but the cubin is what a build writes, the
bytes of the cubin are those of one for sm_90a.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

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
CUBIN = ROOT / "tests/unit/build/dense_bf16_ch_decode_sm90a.cubin"
_DECODE = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
_MULTISTAGE = "dense_f16_u4_f16_g128f16_frag16_{tier}-multistage_t16x32x256_w4r2_s{stages}_{target}"


@cache
def archs():
    return {arch.name: arch for arch in load_specs(ROOT / "specs").archs}


def kernel_name(arch, target=None):
    """A kernel of the arch's tier, as built for `target` where that is not the arch's own."""
    if arch == "sm_90" and target is None:
        return _DECODE
    tier = archs()[arch].tier.replace("_", "")
    word = (target or archs()[arch].target).replace("_", "")
    stages = 2 if tier == "turing" else 3
    return _MULTISTAGE.format(tier=tier, stages=stages, target=word)


def small_kernel_wheel(folder, arch, targets=(None,), **changes):
    """A wheel as `humming-build` writes it; `changes` are fields of its manifest."""
    work = WorkFolder(folder / f"work-{arch}")
    planned = [
        Planned(Variant.parse(kernel_name(arch, target)), "family", None, None)
        for target in targets
    ]
    for item in planned:
        work.cubin(item.name).parent.mkdir(parents=True, exist_ok=True)
        work.cubin(item.name).write_bytes(CUBIN.read_bytes())
    kernels = [BuiltKernel(item, read_facts(CUBIN.read_bytes()), 0, 1) for item in planned]
    toolchain = Toolchain("nvcc", (13, 0), "Build x", "g++", "here", "0" * 64)
    plan = ArchPlan(archs()[arch], "default", tuple(planned), ())
    sources = render_sources(ROOT / "templates", planned)
    manifest = replace(make_manifest(plan, kernels, sources, toolchain, []), **changes)
    return build_wheel(
        work, manifest, toolchain.digest, folder / "dist", license_file().read_text()
    ).path
