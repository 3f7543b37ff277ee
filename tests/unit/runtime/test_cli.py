"""`humming doctor | list | explain`: output and exit codes, without a GPU."""

import json
import subprocess
import sys

import fake_packages as fake
import pytest
from stub_cuda import StubCuda

from humming_runtime import cli, doctor
from humming_runtime.contract.exit_codes import RuntimeExit
from humming_runtime.discover import discover
from humming_runtime.driver import Driver
from humming_runtime.errors import NoDeviceError

EXPLAIN = ["explain", "--n", "4096", "--k", "4096", "--m"]


@pytest.fixture(autouse=True)
def no_driver(monkeypatch):
    """No machine that runs these tests lends its GPU to them."""

    def missing(*_):
        raise NoDeviceError("libcuda.so.1: not found", "nvidia-smi")

    monkeypatch.setattr(cli, "Driver", missing)
    monkeypatch.setattr(doctor.examine, "__defaults__", (missing,))


@pytest.fixture
def on_path(package_folder, monkeypatch):
    monkeypatch.setenv("HUMMING_CUBIN_PATH", str(package_folder))
    return package_folder


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def report(installed, capabilities):
    return doctor.examine(installed, lambda: Driver(StubCuda(capabilities)))


def test_doctor_without_a_driver_says_so_and_still_lists_packages(on_path, capsys):
    code, out, err = run(capsys, "doctor")
    assert code == RuntimeExit.NO_DRIVER_OR_DEVICE
    assert "libcuda.so.1: not found" in out
    assert f"humming-cubins-sm90-cu13 0.1.0: 5 kernels, CUDA 13.0, {on_path}" in out
    assert err == ""


@pytest.mark.usefixtures("on_path")
def test_doctor_json_is_the_only_thing_on_stdout(capsys):
    code, out, _ = run(capsys, "doctor", "--json")
    found = json.loads(out)
    assert found["exit_code"] == code == 11
    assert found["driver_cuda"] is None
    assert found["packages"][0]["validated_on"] == ["9.0"]
    assert found["coverage"] == []


def test_doctor_is_content_where_every_device_has_kernels(installed):
    found = report(installed, ((9, 0),))
    assert found.exit_code is RuntimeExit.OK
    lines = {line.format: line for line in found.coverage}
    assert lines["f16_u4_g128f16"].kernels == 2  # the test target does not count
    assert lines["f16_u4_g128f16"].validated_here == 2
    text = doctor.as_text(found)
    assert "driver    CUDA 13.0" in text
    assert "device 0  Stub GPU, capability 9.0, 132 SMs" in text
    assert json.dumps(doctor.as_json(found))


def test_doctor_names_the_package_that_a_device_lacks(installed):
    found = report(installed, ((9, 0), (8, 6)))
    assert found.exit_code is RuntimeExit.KERNELS_MISSING
    assert "hint: pip install humming-cubins-sm86-cu13" in doctor.as_text(found)
    assert {line.kernels for line in found.coverage if line.device == 1} == {0}


def test_doctor_counts_a_package_of_another_contract_as_missing(tmp_path, package_folder):
    old = fake.write_package(tmp_path / "old", [fake.MULTISTAGE], package="old", contract="x")
    found = report(discover(f"{package_folder}:{old}"), ((9, 0),))
    assert found.exit_code is RuntimeExit.KERNELS_MISSING
    assert "built for contract x" in doctor.as_text(found)


def test_doctor_names_packages_that_are_too_new_for_the_driver(installed, monkeypatch):
    monkeypatch.setattr(Driver, "version", lambda _: (12, 4))
    found = report(installed, ((9, 0),))
    assert found.exit_code is RuntimeExit.KERNELS_MISSING
    assert "humming-cubins-sm90-cu13: built with a newer CUDA" in doctor.as_text(found)
    assert "hint: pip install humming-cubins-sm90-cu12" in doctor.as_text(found)
    assert doctor.as_json(found)["packages_too_new_for_driver"] == ["humming-cubins-sm90-cu13"]


def test_doctor_is_content_with_an_older_driver_and_its_package(
    tmp_path, package_folder, monkeypatch
):
    monkeypatch.setattr(Driver, "version", lambda _: (12, 4))
    name = "humming-cubins-sm90-cu12"
    old = fake.write_package(tmp_path / "old", [fake.DECODE], package=name, cuda="12.9")
    found = report(discover(f"{package_folder}:{old}"), ((9, 0),))
    assert found.exit_code is RuntimeExit.OK
    assert {line.format: line.kernels for line in found.coverage}["f16_u4_g128f16"] == 1


def test_doctor_counts_a_kernel_of_two_packages_once(tmp_path, package_folder):
    name = "humming-cubins-sm90-cu12"
    old = fake.write_package(tmp_path / "old", [fake.DECODE], package=name, cuda="12.9")
    found = report(discover(f"{package_folder}:{old}"), ((9, 0),))
    assert {line.format: line.kernels for line in found.coverage}["f16_u4_g128f16"] == 2


def test_doctor_without_devices_shows_what_hides_them(installed, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = report(installed, ())
    assert found.exit_code is RuntimeExit.NO_DRIVER_OR_DEVICE
    assert "CUDA_VISIBLE_DEVICES is ''" in doctor.as_text(found)


@pytest.mark.usefixtures("on_path")
def test_list_shows_families_and_marks_test_targets(capsys):
    code, out, err = run(capsys, "list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == [
        "op", "format", "layout", "target", "kernel", "count", "validated", "package",
    ]  # fmt: skip
    assert len(out.splitlines()) == 6
    assert "ampere-multistage (test)" in out


@pytest.mark.usefixtures("on_path")
def test_list_names_and_json(capsys):
    names = run(capsys, "list", "--names")[1].splitlines()
    assert names == sorted(names)
    assert fake.DECODE in names
    found = json.loads(run(capsys, "list", "--json")[1])
    [package] = found["packages"]
    assert [kernel["name"] for kernel in package["kernels"]] == names
    assert found["faults"] == []


def test_list_of_nothing_and_of_a_broken_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HUMMING_CUBIN_PATH", str(tmp_path))
    code, out, err = run(capsys, "list")
    assert code == RuntimeExit.KERNELS_MISSING
    assert out == "no kernel package is installed\n"
    assert "manifest.json: no such file" in err


@pytest.mark.usefixtures("on_path")
def test_explain_shows_the_choice_and_every_other_kernel(capsys):
    arguments = [*EXPLAIN, "8", "--format", "f16_u4_g128f16", "--capability", "9.0"]
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert f"chosen: {fake.DECODE} (humming-cubins-sm90-cu13)" in out
    for name in (fake.PREFILL, fake.TEST_TARGET, fake.CHANNEL, fake.PREFILL_ZERO):
        assert name in out
    found = json.loads(run(capsys, *arguments, "--json")[1])
    assert found["chosen"]["name"] == fake.DECODE
    assert [other["name"] for other in found["others"]] == [fake.PREFILL]
    assert len(found["rejected"]) == 3
    assert found["device"]["capability"] == "9.0"


@pytest.mark.usefixtures("on_path")
def test_explain_of_a_miss_gives_reasons_near_formats_and_the_package(capsys):
    code, out, err = run(
        capsys, *EXPLAIN, "8", "--format", "f16_u4_g128zf16", "--capability", "8.6"
    )
    assert code == RuntimeExit.KERNELS_MISSING
    assert "scale is g128f16, wanted g128zf16" in out
    assert "no kernel takes it on assumed A40, capability 8.6" in err
    assert "formats that come near: f16_u4_g128f16" in err
    assert "hint: pip install humming-cubins-sm86-cu13" in err


@pytest.mark.usefixtures("on_path")
def test_explain_obeys_force_and_the_number_of_sms(capsys):
    base = [*EXPLAIN, "8", "--format", "f16_u4_g128f16", "--capability", "sm_90", "--json"]
    found = json.loads(run(capsys, *base, "--force", fake.TEST_TARGET, "--sms", "78")[1])
    assert found["chosen"]["name"] == fake.TEST_TARGET
    assert found["device"]["sm_count"] == 78


def test_explain_without_a_device_points_to_the_option(capsys):
    code, out, err = run(capsys, *EXPLAIN, "8", "--format", "f16_u4_g128f16")
    assert (code, out) == (RuntimeExit.NO_DRIVER_OR_DEVICE, "")
    assert "hint: humming explain --capability 9.0" in err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--format", "f16_u4"], "'f16_u4' is not activation_weight_scale"),
        (["--format", "f17_u4_g128f16"], "'f17' is no activation dtype (known: f16, bf16"),
        (["--format", "f16_u4_x128"], "'x128' is no scale scheme"),
        (["--capability", "nine"], "'nine' is none; examples: 8.6"),
        (["--capability", "6.1"], "no device of 6.1 is known (known: 7.5"),
        (["--op", "sparse"], "op: 'sparse' is none (known: dense"),
        (["--m", "0"], "m: must be positive (0)"),
    ],
)
def test_a_wrong_word_is_a_usage_error_without_traceback(capsys, changes, message):
    words = {"--format": "f16_u4_g128f16", "--capability": "9.0", "--m": "8"}
    words[changes[0]] = changes[1]
    code, out, err = run(
        capsys, "explain", "--n", "8", "--k", "8", *(w for pair in words.items() for w in pair)
    )
    assert (code, out) == (RuntimeExit.USAGE, "")
    assert message in err
    assert err.startswith("humming: ")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["explain", "--m", "8"]])
def test_an_incomplete_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        cli.main(arguments)
    assert error.value.code == RuntimeExit.USAGE
    assert "usage: humming" in capsys.readouterr().err


def test_the_command_runs_as_a_module(on_path):
    done = subprocess.run(
        [sys.executable, "-m", "humming_runtime.cli", "list", "--names"],
        env={"HUMMING_CUBIN_PATH": str(on_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert fake.DECODE in done.stdout.splitlines()
