"""Whatever nvcc does, an output is whole or not there, and each cause has its exit code."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest
from fake_build import VARIANT

from build_tools.cli import main

CAUSES = {
    "error": (6, "expected a declaration"),
    "killed": (6, "killed by signal 9"),
    "no output": (6, "wrote no cubin"),
    "serialised": (6, "C7510"),
    "spill": (7, "spill 12 bytes"),
    "truncated": (9, "truncated"),
    "full disk": (9, "No space left on device"),
}


def cubin(tmp_path):
    return tmp_path / "work" / "sm_90" / "cubins" / f"{VARIANT}.cubin"


@pytest.mark.parametrize("mode", CAUSES)
def test_a_failure_has_its_exit_code_and_leaves_no_output(
    build, tmp_path, monkeypatch, capsys, mode
):
    code, text = CAUSES[mode]
    monkeypatch.setenv("FAKE_NVCC", mode)
    assert build("-q") == code
    error = capsys.readouterr().err
    assert VARIANT in error
    assert text in error
    assert "Traceback" not in error
    assert not cubin(tmp_path).exists()
    assert not list((tmp_path / "dist").glob("*"))


def test_a_failed_rebuild_removes_the_old_output_and_the_next_run_builds_again(
    build, sources, tmp_path, monkeypatch
):
    assert build("-q") == 0
    header = sources / "templates/components/gemm/ring.cuh"
    header.write_text(header.read_text() + "// changed\n")
    monkeypatch.setenv("FAKE_NVCC", "error")
    assert build("-q") == 6
    assert not cubin(tmp_path).exists()
    monkeypatch.setenv("FAKE_NVCC", "good")
    assert build("-q") == 0
    assert cubin(tmp_path).exists()


def test_a_spill_that_the_spec_allows_builds(build, sources, monkeypatch):
    spec = sources / "specs/dense_a16_w4.yaml"
    rule = f'spills:\n  - match: "{VARIANT}"\n    max_bytes: 12\n    why: known\n'
    spec.write_text(spec.read_text() + rule)
    monkeypatch.setenv("FAKE_NVCC", "spill")
    assert build("-q") == 0


def test_a_cubin_of_another_variant_is_a_mismatch_and_is_removed(build, tmp_path, capsys):
    other = VARIANT.replace("_ch_", "_chz_")
    assert build("-q", select=other) == 8
    assert "symbols" in capsys.readouterr().err
    assert not list((tmp_path / "work/sm_90/cubins").glob("*.cubin"))


def test_one_failure_does_not_stop_the_others_and_every_failure_is_named(build, tmp_path, capsys):
    """The stand-in makes one variant's cubin, so that every other one is a mismatch."""
    many = VARIANT.replace("t8x64x1024_w8r4_s4", "*-decode_*").replace("hopper-decode_", "")
    assert build("-q", select=many) == 8
    error = capsys.readouterr().err
    wrong = [line for line in error.splitlines() if ": symbols (" in line]
    assert len(wrong) == 3  # the other decode tiles of the default profile
    assert [path.stem for path in (tmp_path / "work/sm_90/cubins").glob("*.cubin")] == [VARIANT]
    assert build("-q") == 0


def test_causes_of_several_variants_come_together_and_the_disk_decides(
    build, nvcc, monkeypatch, capsys
):
    text = nvcc.read_text(encoding="utf-8")
    mode = '"truncated" if "_chz_" in sys.argv[-1] else "error"'
    nvcc.write_text(text.replace('os.environ.get("FAKE_NVCC", "good")', mode), encoding="utf-8")
    assert build("-q", "--select", VARIANT.replace("_ch_", "_chz_")) == 9
    error = capsys.readouterr().err
    assert "truncated cubin" in error
    assert "expected a declaration" in error


def test_a_folder_that_cannot_be_written_is_a_fault_of_the_disk(build, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert build("-q", "-o", str(tmp_path / "file" / "dist")) == 9
    assert "not a directory" in capsys.readouterr().err
    assert build("-q", "--work", str(tmp_path / "file" / "work")) == 9


def test_failures_of_several_archs_come_together(options, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_NVCC", "error")
    select = ["--select", "dense_f16_u4_*_ch_*_{ada,ampere}-multistage_t16x32x256_*"]
    assert main([*options, "--arch", "8.0,8.9", *select]) == 6
    error = capsys.readouterr().err
    assert "sm_80: failed" in error
    assert "sm_89: failed" in error
    assert error.count("expected a declaration") == 2


@pytest.mark.parametrize("where", ["dist", "work"])
def test_a_read_only_file_system_is_a_fault_of_the_disk(
    build, tmp_path, monkeypatch, capsys, where
):
    """As root every folder can be written, so the refusal of the kernel is what is faked."""

    def refuse(*arguments, **options):
        folder = Path(options.get("dir") or "/")
        if (tmp_path / where) in (folder, *folder.parents):
            raise OSError(errno.EROFS, "Read-only file system", str(folder))
        return made(*arguments, **options)

    made = tempfile.mkstemp
    monkeypatch.setattr("build_tools.file_writes.tempfile.mkstemp", refuse)
    assert build("-q") == 9
    error = capsys.readouterr().err
    assert "read-only file system" in error
    assert "Traceback" not in error
    assert not list((tmp_path / "dist").glob("*.whl"))
