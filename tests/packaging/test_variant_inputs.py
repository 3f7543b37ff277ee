"""Kernel wheels that make no index: each is refused by name, before anything is written."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from small_kernel_wheels import small_kernel_wheel

from build_tools.errors import BuildError, UsageError
from build_tools.release.wheel_archive import (
    archive_bytes,
    dist_info_folder,
    read_archive,
    with_record,
)
from build_tools.release.wheel_variants import write_variant_index


@pytest.fixture(scope="module")
def kernel_wheels(tmp_path_factory):
    """arch -> wheel."""
    folder = tmp_path_factory.mktemp("kernels")
    return {arch: small_kernel_wheel(folder, arch) for arch in ("sm_80", "sm_90")}


@pytest.fixture(scope="module")
def index(kernel_wheels, tmp_path_factory):
    return write_variant_index([*kernel_wheels.values()], tmp_path_factory.mktemp("index"))


def refused(wheels, folder):
    with pytest.raises(BuildError) as error:
        write_variant_index(wheels, folder)
    assert isinstance(error.value, UsageError)
    assert not folder.exists() or not any(folder.glob("simple"))
    return error.value.faults


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0.2.0"}, "version is 0.2.0"),
        ({"contract": "0" * 16}, "contract is 0000000000000000"),
        ({"cuda": "13.1"}, "cuda is 13.1"),
    ],
)
def test_wheels_of_two_releases_are_refused(kernel_wheels, tmp_path, changes, message):
    other = small_kernel_wheel(tmp_path, "sm_90", **changes)
    (fault,) = refused([kernel_wheels["sm_80"], other], tmp_path / "out")
    assert fault.place == str(other)
    assert fault.message.startswith(f"{message}, {kernel_wheels['sm_80']} has ")
    assert fault.hint.startswith("humming-build")


def test_two_wheels_with_one_label_are_refused(kernel_wheels, tmp_path):
    again = Path(shutil.copy(kernel_wheels["sm_90"], tmp_path))
    (fault,) = refused([kernel_wheels["sm_90"], again], tmp_path / "out")
    assert fault.place == str(again)
    assert f"label 'sm90_cu13' is that of {kernel_wheels['sm_90']}" in fault.message


def test_a_wheel_that_no_gpu_would_get_is_refused(tmp_path):
    family = small_kernel_wheel(tmp_path, "sm_100", ["sm_100f"])
    own = small_kernel_wheel(tmp_path, "sm_103")
    (fault,) = refused([family, own], tmp_path / "out")
    expected = "never installed, capability 10.3 takes sm100_cu13 for its '103_real'"
    assert (fault.place, fault.message) == (str(own), expected)


def test_kernels_of_an_a_target_alone_are_refused_by_the_wheels_name(tmp_path):
    wheel = small_kernel_wheel(tmp_path, "sm_100", ["sm_100a"])
    (fault,) = refused([wheel], tmp_path / "out")
    assert fault.place == str(wheel)
    assert "100_real is offered to 10.3" in fault.message


def changed(wheel, folder, name=None, drop=(), **files):
    """The wheel with other contents; keys have `__` for dots, values are bytes."""
    folder.mkdir()
    path = folder / (name or wheel.name)
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(path, "w") as new:
        for item in old.namelist():
            short = item.rsplit("/", 1)[1].replace(".", "__")
            if short not in drop:
                new.writestr(item, files.pop(short, None) or old.read(item))
        for item, content in files.items():
            new.writestr(item.replace("__", "."), content)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "humming_cubins-0.1.0-py3-none-any-sm90_cu13.whl"}, "name is not NAME-VERSION"),
        ({"manifest__json": b"{}"}, "its RECORD says sha256="),
        ({"extra__py": b"import os"}, "'extra.py' is missing in its RECORD"),
        ({"drop": ("RECORD",)}, "no humming_cubins_sm90_cu13-0.1.0.dist-info/RECORD"),
        ({"RECORD": b"a,b\n"}, "is no record"),
        ({"drop": ("METADATA",)}, "METADATA' is missing in the wheel"),
        ({"name": "humming_cubins_sm90_cu13-0.3.0-py3-none-any.whl"}, "manifest is that of"),
    ],
)
def test_a_file_that_is_no_whole_kernel_wheel_is_named(kernel_wheels, tmp_path, change, message):
    path = changed(kernel_wheels["sm_90"], tmp_path / "changed", **change)
    (fault,) = refused([kernel_wheels["sm_80"], path], tmp_path / "out")
    assert fault.place == str(path)
    assert message in fault.message


def edited(wheel, folder, name, content):
    """The wheel with another file, its RECORD right."""
    files = read_archive(wheel)
    info = dist_info_folder(files)
    files[name.format(info=info)] = content
    path = folder / wheel.name
    path.write_bytes(archive_bytes(with_record(files, info)))
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("{info}/entry_points.txt", b"", "0 entry points of humming.cubins, 1 expected"),
        ("{info}/entry_points.txt", b"sm_90", "entry_points.txt cannot be read"),
        (
            "{info}/entry_points.txt",
            b"[humming.cubins]\nsm_90 = other",
            "no other/manifest.json, which its entry point names",
        ),
        (
            "{info}/entry_points.txt",
            b"[humming.cubins]\nsm_80 = humming_cubins_sm90_cu13",
            "entry point sm_80 = humming_cubins_sm90_cu13, its manifest has sm_90 =",
        ),
        ("{info}/METADATA", b"Name: x", "no METADATA with 'Name: humming-cubins-sm90-cu13'"),
        ("humming_cubins_sm90_cu13/manifest.json", b"{}", "manifest schema None"),
        ("site.pth", b"import os", "holds 'site.pth' besides humming_cubins_sm90_cu13/"),
        ("../up", b"", "'../up' lies outside of the wheel"),
        ("x.dist-info/RECORD", b"", "2 dist-info folders, a wheel has one"),
    ],
)
def test_a_whole_wheel_that_holds_something_else_is_named(
    kernel_wheels, tmp_path, name, content, message
):
    path = edited(kernel_wheels["sm_90"], tmp_path, name, content)
    (fault,) = refused([path], tmp_path / "out")
    assert fault.place == str(path)
    assert message in fault.message


def test_a_manifest_without_kernels_or_cuda_release_is_named(tmp_path):
    wheel = small_kernel_wheel(tmp_path / "none", "sm_90", kernels=())
    assert "its manifest has no kernels" in refused([wheel], tmp_path / "out")[0].message
    wheel = small_kernel_wheel(tmp_path / "cuda", "sm_90", cuda="13")
    assert "cuda is '13', no release like 13.0" in refused([wheel], tmp_path / "out")[0].message
    wheel = small_kernel_wheel(tmp_path / "name", "sm_90", package="kernels")
    assert "package 'kernels' is not humming-cubins-" in refused([wheel], tmp_path)[0].message


def test_other_files_are_refused_all_at_once(index, tmp_path):
    text = tmp_path / "humming_cubins_sm90_cu13-0.1.0-py3-none-any.whl"
    text.write_text("no zip")
    faults = refused([index.wheels[0].path, text], tmp_path / "out")
    assert [fault.place for fault in faults] == [str(index.wheels[0].path), str(text)]
    assert "not a zip file" in faults[1].message
    with pytest.raises(BuildError, match=r"missing-1-py3-none-any\.whl: no such file"):
        write_variant_index([tmp_path / "missing-1-py3-none-any.whl"], tmp_path)
    assert "0 kernel wheels" in refused([], tmp_path / "out")[0].message


def test_a_folder_with_wheels_of_another_run_is_refused(kernel_wheels, tmp_path):
    write_variant_index([*kernel_wheels.values()], tmp_path)
    with pytest.raises(UsageError) as error:
        write_variant_index([kernel_wheels["sm_90"]], tmp_path)
    (fault,) = error.value.faults
    assert (fault.message, fault.hint) == ("not of this index", f"rm {fault.place}")
    assert fault.place.endswith("sm80_cu13.whl")
