"""`humming verify WHEEL | installed`, with and without something to trust."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import venv
import zipfile

import pytest

from humming_runtime.cli import main
from humming_runtime.contract.exit_codes import RuntimeExit

PACKAGE = "humming_cubins_sm90_cu13"


def verify(capsys, *arguments):
    code = main(["verify", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out or "{}")


def sums_of(*paths):
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  wheels/{p.name}\n" for p in paths]
    return "".join(sorted(lines, key=lambda line: line.split()[1]))


@pytest.mark.parametrize("wheel", ["data_wheel", "runtime_wheel"])
def test_a_wheel_alone_is_integrity_only(wheel, request, capsys):
    code, report = verify(capsys, request.getfixturevalue(wheel))
    assert (code, report["verdict"]) == (0, "integrity only")


def test_a_wheel_against_its_sums_is_verified(data_wheel, tmp_path, capsys):
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(sums_of(data_wheel))
    code, report = verify(capsys, data_wheel, "--against", sums)
    assert (code, report["verdict"]) == (0, "verified")


def test_a_wheel_against_its_manifest_is_verified(data_wheel, tmp_path, capsys):
    with zipfile.ZipFile(data_wheel) as archive:
        content = archive.read(f"{PACKAGE}/manifest.json")
    trusted = tmp_path / "manifest.json"
    trusted.write_bytes(content)
    assert verify(capsys, data_wheel, "--against", trusted)[1]["verdict"] == "verified"
    trusted.write_bytes(content.replace(b'"profile": "default"', b'"profile": "other"'))
    code, report = verify(capsys, data_wheel, "--against", trusted)
    assert code == RuntimeExit.INTEGRITY
    assert "its manifest is not the one" in report["findings"][0]["message"]


def test_a_flipped_byte_anywhere_in_a_wheel_is_found_against_its_sums(data_wheel, tmp_path, capsys):
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(sums_of(data_wheel))
    image = data_wheel.read_bytes()
    wrong = tmp_path / data_wheel.name
    drawn = random.Random(3)
    for at in {0, len(image) - 1, *(drawn.randrange(len(image)) for _ in range(300))}:
        damaged = bytearray(image)
        damaged[at] ^= drawn.randrange(1, 256)
        wrong.write_bytes(damaged)
        assert verify(capsys, wrong, "--against", sums)[0] == RuntimeExit.INTEGRITY, f"byte {at}"


def test_a_changed_sbom_is_found_by_the_wheels_own_record(data_wheel, tmp_path, capsys):
    wrong = tmp_path / data_wheel.name
    with zipfile.ZipFile(data_wheel) as old, zipfile.ZipFile(wrong, "w") as new:
        (sbom,) = [name for name in old.namelist() if "/sboms/" in name]
        for name in old.namelist():
            content = bytearray(old.read(name))
            if name == sbom:
                content[len(content) // 2] ^= 1
            new.writestr(name, bytes(content))
    code, report = verify(capsys, wrong)
    assert code == RuntimeExit.INTEGRITY
    assert any(sbom in finding["place"] for finding in report["findings"])


def test_a_wheel_that_the_sums_do_not_list_is_refused(data_wheel, runtime_wheel, tmp_path, capsys):
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(sums_of(runtime_wheel))
    code, report = verify(capsys, data_wheel, "--against", sums)
    assert code == RuntimeExit.INTEGRITY
    assert "is not in" in report["findings"][0]["message"]


def rewritten(wheel, folder, change):
    """The wheel with changed files and a RECORD of them: what one does who knows the format."""
    from humming_runtime.verify.wheel_record import record_digest

    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    record = next(name for name in files if name.endswith("/RECORD"))
    rows = [
        f"{name},{record_digest(content)},{len(content)}\n"
        for name, content in files.items()
        if name != record
    ]
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    path = folder / wheel.name
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def change_manifest(**values):
    def change(files):
        name = f"{PACKAGE}/manifest.json"
        raw = json.loads(files[name])
        for key, value in values.items():
            (raw if key in raw else raw["kernels"][0])[key] = value
        files[name] = json.dumps(raw).encode()

    return change


def swap_cubin(files):
    """Another cubin with a manifest that agrees in size and sum."""
    name = next(name for name in files if name.endswith(".cubin"))
    files[name] = files[name].replace(b"-arch sm_90a", b"-arch sm_80 ")
    digest = hashlib.sha256(files[name]).hexdigest()
    change_manifest(sha256=digest)(files)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (change_manifest(sha256="0" * 64), RuntimeExit.INTEGRITY, "manifest: "),
        (change_manifest(size_bytes=1), RuntimeExit.INTEGRITY, "manifest: 1 bytes"),
        (change_manifest(parameter_bytes=8), RuntimeExit.INTEGRITY, "parameter bytes"),
        (change_manifest(toolchain="Build y"), RuntimeExit.INTEGRITY, "toolchain"),
        (change_manifest(file="../x.cubin"), RuntimeExit.INTEGRITY, "outside of its folder"),
        (change_manifest(kernels="x"), RuntimeExit.INTEGRITY, "manifest.json"),
        (change_manifest(contract="0" * 16), RuntimeExit.CONTRACT, "this runtime has"),
        (swap_cubin, RuntimeExit.INTEGRITY, "target sm_80, the manifest says sm_90a"),
        (
            lambda files: files.update({f"{PACKAGE}/cubins/x.cubin": b""}),
            RuntimeExit.INTEGRITY,
            "is in no manifest",
        ),
        (
            lambda files: files.pop(f"{PACKAGE}/manifest.json"),
            RuntimeExit.INTEGRITY,
            "manifest.json",
        ),
    ],
)
def test_each_link_below_the_record_is_checked(data_wheel, tmp_path, capsys, change, code, message):
    found, report = verify(capsys, rewritten(data_wheel, tmp_path, change))
    assert found == code
    assert any(message in f"{f['place']} {f['message']}" for f in report["findings"])


def test_options_that_do_not_fit_are_refused(data_wheel, tmp_path, capsys):
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("hello\n")
    for arguments in (
        ["--key", str(nonsense)],
        ["--against", str(nonsense)],
        ["--against", str(tmp_path / "missing")],
    ):
        assert main(["verify", str(data_wheel), *arguments]) == RuntimeExit.USAGE
    assert main(["verify", str(tmp_path / "missing.whl")]) == RuntimeExit.USAGE
    assert "--key: a bundle is what is signed" in capsys.readouterr().err


@pytest.fixture
def site(tmp_path, data_wheel, runtime_wheel):
    """An environment with both wheels. Returns (its humming, its kernel package)."""
    venv.create(tmp_path / "e", with_pip=True)
    python = tmp_path / "e/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, runtime_wheel, data_wheel], check=True)
    (packages,) = (tmp_path / "e/lib").glob("python3*/site-packages")
    return tmp_path / "e/bin/humming", packages / PACKAGE


def test_what_is_installed_is_checked_file_by_file(site, tmp_path):
    program, package = site
    trusted = tmp_path / "trusted.json"
    trusted.write_bytes((package / "manifest.json").read_bytes())
    command = [program, "verify", "installed"]

    def run(*more):
        return subprocess.run([*command, *more], check=False, capture_output=True, text=True)

    alone = run()
    assert (alone.returncode, "integrity only" in alone.stdout) == (0, True)
    assert run("--against", trusted).stdout.startswith("installed: verified")
    (cubin,) = (package / "cubins").iterdir()
    good = cubin.read_bytes()
    cubin.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    result = run()
    assert result.returncode == RuntimeExit.INTEGRITY
    assert result.stdout.count(cubin.name) == 2  # RECORD and manifest
    cubin.write_bytes(good)
    (package / "more.py").write_text("")
    assert "more.py: is in no manifest" in run().stdout
