"""A wheel built again: equal bytes are said, every difference is an error with its reason."""

from __future__ import annotations

import zipfile

import pytest
from fake_build import VARIANT
from hypothesis import given
from hypothesis import strategies as st

from build_tools.cli import main
from build_tools.scale.rebuild_check import sample_of


@pytest.fixture
def wheel(build, tmp_path):
    assert build("-q") == 0
    (path,) = (tmp_path / "dist").glob("*.whl")
    return path


@pytest.fixture
def check(nvcc, sources, tmp_path):
    options = ["--nvcc", str(nvcc), "--source", str(sources), "--work", str(tmp_path / "again")]

    def run(wheel, *arguments):
        return main(["rebuild-check", str(wheel), *options, *arguments])

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--all",), "the wheel and all of its kernels"), ((), "1 of 1 kernels")],
)
def test_equal_bytes_are_said(check, wheel, compiled, capsys, arguments, said):
    assert check(wheel, *arguments) == 0
    assert f"{wheel.name}: {said} have the same bytes" in capsys.readouterr().err
    assert compiled() == [VARIANT] * 2
    assert check(wheel, *arguments) == 0
    assert compiled() == [VARIANT] * 3, "nothing of an earlier check is taken"


@pytest.mark.parametrize("arguments", [("--all",), ()])
def test_a_compiler_that_makes_other_bytes_is_found(check, wheel, nvcc, capsys, arguments):
    product = nvcc.with_name("product")
    product.write_bytes(product.read_bytes() + b"\0")
    assert check(wheel, "-q", *arguments) == 12
    error = capsys.readouterr().err
    assert f"{VARIANT}: its cubin is " in error
    assert "was the wheel changed after its build?" in error


def test_changed_sources_are_named(check, wheel, sources, capsys):
    header = sources / "templates/components/gemm/ring.cuh"
    header.write_text(header.read_text() + "// changed\n")
    assert check(wheel, "-q") == 12
    assert f"{VARIANT}: its source was " in capsys.readouterr().err


def test_another_release_of_the_compiler_is_the_hint(check, wheel, nvcc, capsys):
    nvcc.with_name("release").write_text("13.1")
    product = nvcc.with_name("product")
    product.write_bytes(product.read_bytes() + b"\0")
    assert check(wheel, "-q") == 12
    assert "its cuda is '13.0', here it is '13.1'" in capsys.readouterr().err


def test_other_archive_bytes_are_found_by_all_alone(check, wheel, monkeypatch, capsys):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert check(wheel, "-q") == 0
    assert check(wheel, "-q", "--all") == 12
    error = capsys.readouterr().err
    assert "/sboms/humming-cubins-sm90-cu13.cdx.json differs" in error
    assert "hint: SOURCE_DATE_EPOCH of its build" in error


def test_equal_files_in_another_archive_are_found_by_all_alone(check, wheel, capsys):
    with zipfile.ZipFile(wheel) as archive:
        files = {info: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(wheel, "w", compression=zipfile.ZIP_STORED) as archive:
        for info, content in files.items():
            archive.writestr(info, content, compress_type=zipfile.ZIP_STORED)
    assert check(wheel, "-q") == 0
    assert check(wheel, "-q", "--all") == 12
    assert "equal files in another archive" in capsys.readouterr().err


def test_specs_that_do_not_plan_its_kernels_are_not_its_sources(check, wheel, sources, capsys):
    for path in (sources / "specs").rglob("*.*"):
        text = path.read_text()
        path.write_text(text.replace("t8x64x1024_w8r4_s4", "t8x64x1024_w8r4_s3"))
    assert check(wheel, "-q") == 12
    assert f"{VARIANT} is not in profile 'default' of these specs" in capsys.readouterr().err


def test_a_file_that_is_no_kernel_wheel_is_a_usage_error(check, tmp_path, capsys):
    path = tmp_path / "x-1-py3-none-any.whl"
    path.write_text("no zip")
    assert check(path) == 2
    assert "not a zip file" in capsys.readouterr().err


@given(st.sets(st.text(min_size=1), min_size=1), st.integers(1, 20), st.text())
def test_a_sample_is_drawn_without_return_and_the_same_again(names, count, seed):
    drawn = sample_of(sorted(names), count, seed)
    assert len(set(drawn)) == len(drawn) == min(count, len(names))
    assert set(drawn) <= names
    assert sample_of(sorted(names, reverse=True), count, seed) == drawn
