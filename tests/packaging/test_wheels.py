"""Wheels that index servers and installers accept, and that work where nothing else is
installed.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from build_tools.native_build import MACHINES

ROOT = Path(__file__).resolve().parents[2]
NAME = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"


def native_wheel(machine, folder):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    environment = {**os.environ, "HUMMING_NATIVE": machine}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def native_wheels(tmp_path_factory):
    """The runtime with its extension, by machine."""
    return {
        machine: native_wheel(machine, tmp_path_factory.mktemp(machine)) for machine in MACHINES
    }


@pytest.fixture(scope="module")
def environment(tmp_path_factory, data_wheel, runtime_wheel):
    """An empty environment with both wheels, installed without a network. Returns its bin
    folder.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, runtime_wheel, data_wheel], check=True)
    return folder / "bin"


def run(environment, *command, code=0):
    clean = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    result = subprocess.run(
        [environment / command[0], *command[1:]],
        check=False,
        env=clean,
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert result.returncode == code, result.stderr
    return result.stdout


@pytest.mark.parametrize("wheel", ["data_wheel", "runtime_wheel"])
def test_index_servers_accept_it(wheel, request):
    path = request.getfixturevalue(wheel)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", path], check=True)
    # One distribution of two packages; a builder carries the licence for the wheels it makes.
    ignored = ["--ignore", "W002,W009"] if wheel == "runtime_wheel" else []
    program = Path(sys.executable).with_name("check-wheel-contents")
    subprocess.run([program, *ignored, path], check=True)


@pytest.mark.parametrize("wheel", ["data_wheel", "runtime_wheel"])
def test_its_record_has_every_file_with_its_hash(wheel, request):
    with zipfile.ZipFile(request.getfixturevalue(wheel)) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        rows = {row[0]: row[1] for row in csv.reader(archive.read(record).decode().splitlines())}
        assert set(rows) == set(archive.namelist())
        for name in set(rows) - {record}:
            digest = urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).decode()
            assert rows[name] == "sha256=" + digest.rstrip("=")


def test_a_kernel_wheel_holds_data_licence_and_entry_point(data_wheel):
    assert data_wheel.name == "humming_cubins_sm90_cu13-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(data_wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith("METADATA"))
        points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "Metadata-Version: 2.4" in archive.read(metadata).decode()
        assert "[humming.cubins]\nsm_90 = humming_cubins_sm90_cu13" in archive.read(points).decode()
        assert f"humming_cubins_sm90_cu13/cubins/{NAME}.cubin" in names
        assert any(name.endswith("licenses/LICENSE") for name in names)


def test_a_kernel_wheel_has_a_valid_sbom(data_wheel):
    place = "humming_cubins_sm90_cu13-0.1.0.dist-info/sboms/humming-cubins-sm90-cu13.cdx.json"
    with zipfile.ZipFile(data_wheel) as archive:
        text = archive.read(place).decode()
        manifest = archive.read("humming_cubins_sm90_cu13/manifest.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    wheel, (compiler,) = bom["metadata"]["component"], bom["components"]
    assert wheel["purl"] == f"pkg:pypi/humming-cubins-sm90-cu13@0.1.0?file_name={data_wheel.name}"
    facts = properties(wheel)
    assert facts["manifest-sha256"] == hashlib.sha256(manifest).hexdigest()
    assert facts["kernels"] == "1"
    assert len(facts["sources-sha256"]) == 64
    assert (compiler["name"], compiler["version"]) == ("cuda-compiler", "13.0")
    assert compiler["scope"] == "excluded"
    assert properties(compiler)["programs-sha256"] == "0" * 64
    assert properties(compiler)["engine"] == "nvcc"
    used = {one["ref"]: one.get("dependsOn", []) for one in bom["dependencies"]}
    assert used[wheel["bom-ref"]] == [compiler["bom-ref"]]
    assert bom["metadata"]["timestamp"] == "2020-02-02T00:00:00+00:00"


def properties(component):
    return {one["name"].removeprefix("humming:"): one["value"] for one in component["properties"]}


def test_the_runtime_lists_kernels_without_torch_or_gpu(environment):
    assert run(environment, "humming", "list", "--names").split() == [NAME]
    problem = ["--m", "1", "--n", "64", "--k", "128", "--format", "bf16_u4_ch"]
    explained = run(environment, "humming", "explain", *problem, "--capability", "9.0")
    assert NAME in explained


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
def test_doctor_says_that_there_is_no_driver(environment):
    assert "humming-cubins-sm90-cu13" in run(environment, "humming", "doctor", code=11)


def test_the_schema_and_the_builders_sources_are_installed(environment):
    (site,) = (environment.parent / "lib").glob("python3*/site-packages")
    assert (site / "humming_runtime/contract/manifest.schema.json").is_file()
    assert (site / "build_tools/sources/specs/archs.yaml").is_file()
    assert (site / "build_tools/sources/templates/kernels/dense_decode.cu.j2").is_file()
    assert (site / "build_tools/sources/LICENSE").is_file()


def test_an_installed_builder_uses_the_sources_it_carries(environment, tmp_path):
    """Its dependencies come from this environment; it runs where no checkout is."""
    (site,) = (environment.parent / "lib").glob("python3*/site-packages")
    ours = os.pathsep.join([str(site), *(p for p in sys.path if p.endswith("site-packages"))])
    result = subprocess.run(
        [sys.executable, "-S", "-m", "build_tools.cli", "--until", "render", "--select", NAME],
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ours},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "build/sm_90/src/kernels" / f"{NAME}.cu").is_file()


@pytest.mark.parametrize("machine", MACHINES)
def test_a_wheel_with_the_extension_keeps_the_stable_abi_and_an_old_glibc(native_wheels, machine):
    path = native_wheels[machine]
    assert path.name.endswith(f"-cp310-abi3-manylinux_2_28_{machine}.whl")
    assert path.stat().st_size < 400_000
    bin_folder = Path(sys.executable).parent
    subprocess.run([bin_folder / "abi3audit", "--strict", path], check=True)
    shown = subprocess.run(
        [bin_folder / "auditwheel", "show", path], check=True, capture_output=True, text=True
    ).stdout
    assert f'"manylinux_2_17_{machine}"' in shown  # older than the tag promises
    assert "libcuda" not in shown
    assert "libcudart" not in shown
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", path], check=True)


def test_the_extension_is_the_same_bytes_when_built_twice(native_wheels, tmp_path):
    first = native_wheels["aarch64"].read_bytes()
    assert native_wheel("aarch64", tmp_path).read_bytes() == first


def test_an_unknown_machine_is_named(tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as error:
        native_wheel("sparc", tmp_path)
    assert b"HUMMING_NATIVE: 'sparc' is not known" in error.value.stderr


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="no wheel for this machine")
@pytest.mark.parametrize("minor", range(10, 15))
def test_one_extension_serves_every_python(native_wheels, tmp_path, minor):
    python = shutil.which(f"python3.{minor}")
    if python is None or subprocess.run([python, "-V"], check=False).returncode:
        pytest.skip(f"no python3.{minor} here")
    with zipfile.ZipFile(native_wheels[platform.machine()]) as archive:
        archive.extractall(tmp_path)
    code = "from humming_runtime import _native; print(_native.Launch.__doc__)"
    shown = subprocess.run(
        [python, "-c", code], check=True, cwd=tmp_path, capture_output=True, text=True
    ).stdout
    assert shown.startswith("Launch(driver, kernel, shape, template")


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="no wheel for this machine")
def test_the_extension_loads_where_nothing_else_is_installed(native_wheels, tmp_path):
    target = tmp_path / "site"
    wheel = native_wheels[platform.machine()]
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", target]
    subprocess.run([sys.executable, *install, wheel], check=True)
    code = "from humming_runtime import launcher; print(launcher.extension().__file__)"
    command = [sys.executable, "-S", "-c", code]
    place = subprocess.run(
        command,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
    ).stdout
    assert place.startswith(str(target))
