"""What uv installs from an index of wheel variants, without a network and without a GPU: its
built-in NVIDIA provider takes the device from two variables.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from hatchling.builders.wheel import WheelBuilder
from small_kernel_wheels import ROOT, archs, kernel_name, small_kernel_wheel

from build_tools.release.variant_properties import CAPABILITIES, shown
from build_tools.release.wheel_variants import write_variant_index
from build_tools.release.wheel_variants_command import wheel_variants_command

UV = Path(sys.executable).with_name("uv")
PREVIEW = ["--preview-features", "wheel-variants"]
PARTS = {
    "two": ["sm_80", "sm_90"],
    "some": ["sm_75", "sm_80", "sm_87", "sm_90", "sm_100", "sm_120"],
    "all": [*archs()],
}

pytestmark = pytest.mark.skipif(not UV.is_file(), reason="no uv in this environment (dev extra)")


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """Name of a part of the archs -> its index."""
    folder = tmp_path_factory.mktemp("kernels")
    wheels = {arch: small_kernel_wheel(folder, arch) for arch in archs()}
    return {
        name: write_variant_index([wheels[arch] for arch in part], folder / name)
        for name, part in PARTS.items()
    }


@pytest.fixture(scope="module")
def runtime_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runtime")
    next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def uv(cache, *arguments, capability="9.0", driver="13.0", check=True, cwd="/", **variables):
    """Run uv; capability and driver None leave the device to its provider."""
    clean = {"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(cache), "UV_NO_CONFIG": "1", **variables}
    if capability is not None:
        clean["NV_VARIANT_PROVIDER_FORCE_SM_ARCH"] = capability
        clean["NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION"] = driver
    result = subprocess.run(
        [UV, *arguments], check=False, env=clean, cwd=cwd, capture_output=True, text=True
    )
    assert not check or result.returncode == 0, result.stderr
    return result


def install(cache, target, *source, preview=PREVIEW, wanted=("humming-cubins",), **options):
    """Labels of the wheels that came into the folder, and uv's answer."""
    place = ["--python", sys.executable, "--target", target]
    arguments = ["pip", "install", *place, *preview, *source, *wanted]
    result = uv(cache, *arguments, **options)
    packages = target.glob("humming_cubins_*")
    return [path.name.removeprefix("humming_cubins_") for path in packages], result


def found_in(index):
    return ["--offline", "--no-index", "--find-links", index.variants_json.parent]


def documented(head):
    """The one command of docs/wheel_variants.md that starts so, as words."""
    text = (ROOT / "docs/wheel_variants.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"    {head} ")]
    return line.split()


@pytest.mark.parametrize(("capability", "arch"), [("9.0", "sm_90"), ("8.0", "sm_80")])
def test_the_documented_commands_install_the_wheel_of_the_gpu_whose_kernels_are_listed(
    runtime_folder, cache, tmp_path, capability, arch
):
    dist = tmp_path / "dist"
    wheels = [str(small_kernel_wheel(tmp_path, word)) for word in PARTS["two"]]
    shutil.copytree(runtime_folder, dist, dirs_exist_ok=True)
    program, command, pattern, option, output = documented("humming-build variants")
    assert (program, command) == ("humming-build", wheel_variants_command.name)
    assert sorted(tmp_path.glob(pattern)) == sorted(map(Path, wheels))
    made = CliRunner().invoke(wheel_variants_command, [*wheels, option, str(tmp_path / output)])
    assert made.exit_code == 0, made.output

    uv(cache, "venv", "--offline", "--python", sys.executable, tmp_path / "environment")
    place = {"cwd": tmp_path, "VIRTUAL_ENV": str(tmp_path / "environment")}
    uv(cache, *documented("uv pip install")[1:], capability=capability, **place)
    program, *arguments = documented("humming list")
    listed = subprocess.run(
        [tmp_path / "environment" / "bin" / program, *arguments],
        check=True,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert listed.stdout.split() == [kernel_name(arch)]


@pytest.mark.parametrize("part", PARTS)
def test_uv_gives_every_capability_the_wheel_that_the_index_says(indexes, cache, tmp_path, part):
    index = indexes[part]
    expected = {route.capability: [route.label] if route.label else [] for route in index.routes}
    found = {}
    for device in CAPABILITIES:
        target = tmp_path / shown(device)
        options = {"capability": shown(device), "check": False}
        found[device], _ = install(cache, target, *found_in(index), **options)
    assert found == expected


def test_a_family_target_is_installed_on_the_members_of_its_family(cache, tmp_path):
    index = write_variant_index(
        [small_kernel_wheel(tmp_path, "sm_100", ["sm_100f"])], tmp_path / "index"
    )
    labels, _ = install(cache, tmp_path / "site", *found_in(index), capability="10.3")
    assert labels == ["sm100_cu13"]


def test_the_static_pages_serve_from_a_file_address(indexes, cache, tmp_path):
    address = (indexes["two"].simple).as_uri()
    source = ["--offline", "--default-index", address]
    labels, _ = install(cache, tmp_path / "site", *source, capability="8.0")
    assert labels == ["sm80_cu13"]


def test_the_static_pages_serve_from_any_web_server(indexes, tmp_path):
    folder = indexes["two"].variants_json.parent
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        source = ["--default-index", f"http://127.0.0.1:{server.server_port}/simple"]
        labels, _ = install(tmp_path / "cache", tmp_path / "site", *source)
        server.shutdown()
    assert labels == ["sm90_cu13"]


def test_a_file_that_is_not_the_one_of_the_page_is_refused(indexes, tmp_path):
    folder = tmp_path / "index"
    shutil.copytree(indexes["two"].variants_json.parent, folder)
    with zipfile.ZipFile(next(folder.glob("*-sm90_cu13.whl")), "a") as archive:
        archive.writestr("more.py", "")
    source = ["--offline", "--default-index", (folder / "simple").as_uri()]
    labels, result = install(tmp_path / "cache", tmp_path / "site", *source, check=False)
    assert labels == []
    assert "Hash mismatch for `humming-cubins==0.1.0`" in result.stderr


def test_required_hashes_name_the_variant(indexes, tmp_path):
    index = indexes["two"]
    digests = {wheel.variant.label: wheel.sha256 for wheel in index.wheels}
    pinned = tmp_path / "requirements.txt"
    pinned.write_text(f"humming-cubins==0.1.0 --hash=sha256:{digests['sm90_cu13']}\n")
    source = [tmp_path / "cache", tmp_path / "site", *found_in(index), "--require-hashes"]
    options = {"wanted": ["-r", pinned], "check": False}
    labels, result = install(*source, capability="8.0", **options)
    assert labels == []
    assert "Hash mismatch" in result.stderr
    labels, result = install(*source, **options)
    assert labels == ["sm90_cu13"], result.stderr


@pytest.mark.parametrize(
    "options",
    [
        {"capability": "9.0", "driver": "12.9"},  # older than the toolkit of the kernels
        {"capability": None},
        {"preview": []},
    ],
    ids=["old driver", "no GPU", "no preview"],
)
def test_without_a_device_that_fits_uv_installs_nothing_and_says_so(
    indexes, cache, tmp_path, options
):
    if options == {"capability": None} and Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    labels, result = install(
        cache, tmp_path / "site", *found_in(indexes["two"]), check=False, **options
    )
    assert labels == []
    assert "has only unsupported wheel variants" in " ".join(result.stderr.split())


def test_pip_does_not_see_variant_wheels(indexes, tmp_path):
    folder = indexes["two"].variants_json.parent
    command = [sys.executable, "-m", "pip", "download", "--no-index", "--find-links", folder]
    environment = {**os.environ, "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    result = subprocess.run(
        [*command, "-d", tmp_path, "humming-cubins"],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0
    assert "No matching distribution found for humming-cubins" in result.stderr
