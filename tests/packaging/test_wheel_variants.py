"""Variant wheels and their index: equal bytes everywhere, agreement with each other and with
variantlib, and inputs that are refused by name.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_kernel_wheels import archs, small_kernel_wheel

from build_tools.errors import UsageError
from build_tools.release.variant_properties import (
    CAPABILITIES,
    NoWordError,
    offered_words,
    routes,
    sm_arch_words,
)
from build_tools.release.wheel_variants import write_variant_index
from build_tools.release.wheel_variants_command import wheel_variants_command
from humming_runtime.contract.targets import incompatibility, target_capability

STEM = "humming_cubins-0.1.0"


@pytest.fixture(scope="module")
def kernel_wheels(tmp_path_factory):
    """arch -> wheel."""
    folder = tmp_path_factory.mktemp("kernels")
    return {arch: small_kernel_wheel(folder, arch) for arch in ("sm_80", "sm_90")}


@pytest.fixture(scope="module")
def index(kernel_wheels, tmp_path_factory):
    return write_variant_index([*kernel_wheels.values()], tmp_path_factory.mktemp("index"))


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def dist_info(wheel, name):
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"{STEM}.dist-info/{name}").decode()


def test_an_index_has_a_wheel_a_label_their_json_and_static_pages(index):
    names = set(contents(index.variants_json.parent))
    wheels = {f"{STEM}-py3-none-any-sm{arch}_cu13.whl" for arch in (80, 90)}
    pages = {"simple/index.html", "simple/humming-cubins/index.html"}
    assert names == wheels | pages | {f"{STEM}-variants.json"}


def test_bytes_do_not_depend_on_folder_clock_zone_umask_or_order(
    index, kernel_wheels, tmp_path, monkeypatch
):
    moved = []
    for number, wheel in enumerate(kernel_wheels.values()):
        place = tmp_path / "elsewhere" / str(number)
        place.mkdir(parents=True)
        moved.append(Path(shutil.copy(wheel, place)))
        os.utime(moved[-1], (number, number))
        moved[-1].chmod(0o600)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    before = os.umask(0o077)
    try:
        write_variant_index(moved[::-1], tmp_path / "again")
    finally:
        os.umask(before)
        monkeypatch.undo()
        time.tzset()
    assert contents(tmp_path / "again") == contents(index.variants_json.parent)
    write_variant_index(moved, tmp_path / "again")  # over what is there
    assert contents(tmp_path / "again") == contents(index.variants_json.parent)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (None, (2020, 2, 2, 0, 0, 0)),
        ("1700000000", (2023, 11, 14, 22, 13, 20)),
        ("0", (1980, 1, 1, 0, 0, 0)),
        ("99999999999", (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_times_are_those_of_source_date_epoch(
    kernel_wheels, tmp_path, monkeypatch, epoch, expected
):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    written = write_variant_index([kernel_wheels["sm_90"]], tmp_path)
    with zipfile.ZipFile(written.wheels[0].path) as archive:
        assert {info.date_time for info in archive.infolist()} == {expected}
        assert {info.external_attr >> 16 for info in archive.infolist()} == {0o100644}


def test_an_epoch_that_is_no_number_is_named(kernel_wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH: 'today' is no number"):
        write_variant_index([kernel_wheels["sm_90"]], tmp_path)


def test_record_has_every_file_with_its_hash_and_comes_last(index):
    for wheel in index.wheels:
        with zipfile.ZipFile(wheel.path) as archive:
            names = archive.namelist()
            assert names[-1] == f"{STEM}.dist-info/RECORD"
            rows = {row[0]: row[1:] for row in csv.reader(archive.read(names[-1]).decode().split())}
            assert list(rows) == names
            for name in names[:-1]:
                content = archive.read(name)
                digest = urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                assert rows[name] == [f"sha256={digest}", str(len(content))]


def test_the_package_and_its_entry_point_stay_and_the_distribution_is_one(index, kernel_wheels):
    for wheel, original in zip(index.wheels, kernel_wheels.values(), strict=True):
        with zipfile.ZipFile(original) as old, zipfile.ZipFile(wheel.path) as new:
            kept = [name for name in old.namelist() if ".dist-info/" not in name]
            assert kept
            for name in kept:
                assert old.read(name) == new.read(name)
        points = dist_info(wheel.path, "entry_points.txt")
        assert "[humming.cubins]" in points
        assert f"humming_cubins_{wheel.variant.label}" in points
        assert dist_info(wheel.path, "METADATA").count("Name: humming-cubins\n") == 1


def test_the_json_beside_the_wheels_is_the_union_of_theirs(index):
    combined = json.loads(index.variants_json.read_text())
    variants = {}
    for wheel in index.wheels:
        own = json.loads(dist_info(wheel.path, "variant.json"))
        variants |= own.pop("variants")
        assert own == {key: combined[key] for key in own}
    assert variants == combined["variants"]
    assert combined["variants"]["sm90_cu13"] == {
        "nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90_real"]}
    }


def test_links_of_the_page_have_the_hash_of_the_file(index):
    page = (index.simple / "humming-cubins" / "index.html").read_text()
    links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', page)
    assert len(links) == 3
    for address, digest in links:
        target = (index.simple / "humming-cubins" / address).resolve()
        assert hashlib.sha256(target.read_bytes()).hexdigest() == digest


def test_variantlib_reads_the_same_out_of_names_and_json(index, tmp_path):
    """The reference implementation of the drafts: names, metadata, and its own index JSON."""
    constants = pytest.importorskip("variantlib.constants")
    from variantlib.commands.generate_index_json import generate_index_json
    from variantlib.variant_dist_info import VariantDistInfo
    from variantlib.variants_json import VariantsJson

    ours = VariantsJson(json.loads(index.variants_json.read_text()))
    for wheel in index.wheels:
        name = constants.VALIDATION_WHEEL_NAME_REGEX.fullmatch(wheel.path.name)
        label = wheel.variant.label
        assert (name["name"], name["ver"], name["variant_label"]) == (*STEM.split("-"), label)
        own = VariantDistInfo(dist_info(wheel.path, "variant.json"), label)
        words = [f"nvidia :: sm_arch :: {word}" for word in wheel.variant.sm_arch]
        properties = {item.to_str() for item in own.variant_desc.properties}
        assert properties == {"nvidia :: cuda_version_lower_bound :: 13.0", *words}
        assert ours.variants[label] == own.variant_desc
        shutil.copy(wheel.path, tmp_path)
    generate_index_json(["-d", str(tmp_path)])
    theirs = VariantsJson(json.loads((tmp_path / index.variants_json.name).read_text()))
    assert vars(theirs) == vars(ours)


def test_index_servers_accept_metadata_and_files(index, tmp_path):
    for wheel in index.wheels:
        twine = [sys.executable, "-m", "twine", "check", "--strict", wheel.path]
        subprocess.run(twine, check=True, capture_output=True)
        plain = tmp_path / f"{STEM}-py3-none-any.whl"  # the checker does not know variants
        shutil.copy(wheel.path, plain)
        checker = Path(sys.executable).with_name("check-wheel-contents")
        subprocess.run([checker, plain], check=True, capture_output=True)


def test_every_arch_carries_its_own_word_and_each_gpu_gets_its_own_wheel():
    known = {target_capability(arch): arch for arch in archs()}
    assert tuple(sorted(known)) == CAPABILITIES
    words = {arch: sm_arch_words(arch, [facts.target]) for arch, facts in archs().items()}
    assert words == {arch: (f"{arch.removeprefix('sm_')}_real",) for arch in archs()}
    for route in routes(words, {arch: [facts.target] for arch, facts in archs().items()}):
        assert (route.label, route.loads) == (known[route.capability], True)


@pytest.mark.parametrize(
    ("arch", "targets", "words"),
    [
        ("sm_90", ["sm_90a"], ("90_real",)),
        ("sm_100", ["sm_100f"], ("100_real", "103_real")),
        ("sm_103", ["sm_103f"], ("103_real",)),
        ("sm_120", ["sm_120f"], ("120_real", "121_real")),
        ("sm_103", ["sm_103a"], ("103_real",)),
        ("sm_100", ["sm_100", "sm_100a"], ("100_real",)),
        ("sm_100", ["sm_100a", "sm_100f"], ("100_real", "103_real")),
    ],
)
def test_words_follow_from_targets(arch, targets, words):
    assert sm_arch_words(arch, targets) == words


@pytest.mark.parametrize(("arch", "other"), [("sm_100", "10.3"), ("sm_120", "12.1")])
def test_an_a_target_gets_no_word_that_reaches_another_capability(arch, other):
    with pytest.raises(NoWordError, match=rf"{arch}a alone, \d+_real is offered to {other} as"):
        sm_arch_words(arch, [f"{arch}a"])


def test_a_gpu_whose_wheel_is_missing_gets_one_that_loads_except_between_tegra_and_desktop():
    """Any part of the twelve: what the provider offers is what loads, but for 8.7."""
    wheels = {arch: [facts.target] for arch, facts in archs().items()}
    for left_out in wheels:
        rest = {arch: targets for arch, targets in wheels.items() if arch != left_out}
        words = {arch: sm_arch_words(arch, targets) for arch, targets in rest.items()}
        for route in routes(words, rest):
            if route.label is None:
                assert all(
                    incompatibility(target, route.capability)
                    for targets in rest.values()
                    for target in targets
                )
            elif not route.loads:
                assert "sm_87" in (left_out, route.label)


def test_words_are_offered_from_the_own_minor_down():
    assert offered_words((8, 6))[:2] == ("86_real", "85_real")
    assert offered_words((8, 6))[-1] == "80_real"
    assert offered_words((9, 0)) == ("90_real",)


def test_the_command_says_what_each_gpu_gets_and_warns_where_it_does_not_load(
    kernel_wheels, tmp_path
):
    arguments = [*map(str, kernel_wheels.values()), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(wheel_variants_command, arguments)
    assert result.exit_code == 0, result.output
    assert "  for capabilities 8.0, 8.6, 8.7, 8.8, 8.9\n" in result.stdout
    assert "  for capabilities 9.0\n" in result.stdout
    assert "no wheel for capabilities 7.5, 10.0, 10.3, 11.0, 12.0, 12.1\n" in result.stdout
    assert "sm80_cu13: a GPU of capability 8.7 would get this wheel" in result.stderr
    assert "humming-build --arch sm_87" in result.stderr
    assert (tmp_path / "out" / f"{STEM}-variants.json").is_file()


def test_the_command_leaves_faults_to_the_program(tmp_path):
    result = CliRunner().invoke(wheel_variants_command, ["x.whl", "-o", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert CliRunner().invoke(wheel_variants_command, []).exit_code == 2
