"""Real kernels with the real compiler: every arch, reuse, reproducible bytes, spills."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest

from build_tools.cli import main
from build_tools.errors import ToolchainError
from build_tools.spec_load import load_specs
from build_tools.toolchain import find_toolchain
from humming_runtime.contract.launch_shape import argument_bytes
from humming_runtime.contract.manifest import from_json
from humming_runtime.discover import Package, read_package
from humming_runtime.load import read_cubin


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
SPECS = load_specs(__import__("pathlib").Path(__file__).resolve().parents[2] / "specs")
ONE = "dense_f16_u4_f16_g128f16_frag16_hopper-decode_t8x32x1024_w8r2_s6_sm90a"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The quick profile of every arch. Returns the folder."""
    folder = tmp_path_factory.mktemp("every_arch")
    command = ["--arch", "all", "--profile", "quick", "-q"]
    assert main([*command, "--work", str(folder / "work"), "-o", str(folder / "dist")]) == 0
    return folder


@pytest.mark.parametrize("arch", SPECS.archs, ids=lambda arch: arch.name)
def test_every_arch_builds_a_wheel_of_kernels_for_its_target(built, arch):
    number = arch.name.replace("_", "")
    assert len(list((built / "dist").glob(f"humming_cubins_{number}_cu13-*.whl"))) == 1
    folder = built / "work" / arch.name
    manifest = from_json((folder / "manifest.json").read_text(), arch.name)
    assert manifest.kernels
    for kernel in manifest.kernels:
        assert kernel.variant.target == arch.target
        assert kernel.variant.tier == arch.tier
        assert kernel.parameter_bytes == argument_bytes(kernel.variant)
        assert kernel.spill_bytes == 0
        assert read_cubin(folder / kernel.file, kernel)


def test_the_runtime_reads_what_the_build_wrote(built):
    for arch in SPECS.archs:
        assert isinstance(read_package("built", built / "work" / arch.name), Package)


def test_a_second_run_compiles_nothing(built, capsys):
    command = ["--arch", "all", "--profile", "quick"]
    assert main([*command, "--work", str(built / "work"), "-o", str(built / "dist")]) == 0
    assert capsys.readouterr().err.count("nothing to do") == len(SPECS.archs)


def test_a_cubin_has_the_same_bytes_wherever_it_is_built(built, tmp_path):
    command = ["--select", ONE, "--until", "cubins", "-q"]
    assert main([*command, "--work", str(tmp_path / "other place")]) == 0
    digests = {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (
            built / "work/sm_90/cubins" / f"{ONE}.cubin",
            tmp_path / "other place/sm_90/cubins" / f"{ONE}.cubin",
        )
    }
    assert len(digests) == 1


def test_records_have_the_time_that_each_compilation_took(built):
    record = json.loads((built / "work/sm_90/records" / f"{ONE}.json").read_text())
    assert record["milliseconds"] > 0
    assert record["spill_bytes"] == 0


def test_merged_shards_are_the_wheel_of_one_machine(built, tmp_path):
    """Built in other folders, with other hash seeds, zones and numbers of jobs."""
    command = [sys.executable, "-m", "build_tools.cli", "--profile", "quick", "-q"]
    for index, (seed, zone, jobs) in enumerate((("1", "UTC-9", "1"), ("2", "UTC+5", "3")), 1):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone}
        options = ["--shard", f"{index}/2", "-j", jobs, "-o", str(tmp_path / "shards")]
        work = ["--work", str(tmp_path / f"work {index}")]
        subprocess.run([*command, *options, *work], check=True, env=environment)
    shards = [str(path) for path in sorted((tmp_path / "shards").iterdir())]
    folders = ["--work", str(tmp_path / "merge"), "-o", str(tmp_path / "merged")]
    assert main(["merge", "-q", *folders, *shards]) == 0
    (wheel,) = (built / "dist").glob("humming_cubins_sm90_cu13-*.whl")
    assert (tmp_path / "merged" / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_wheel_is_reproduced(built, tmp_path, capsys):
    (wheel,) = (built / "dist").glob("humming_cubins_sm80_cu13-*.whl")
    assert main(["rebuild-check", str(wheel), "--all", "--work", str(tmp_path)]) == 0
    assert "the wheel and all of its kernels have the same bytes" in capsys.readouterr().err
