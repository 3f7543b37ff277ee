"""Packages in site folders and in HUMMING_CUBIN_PATH; every broken one is named."""

import json
import os
import sys

import fake_packages as fake
import pytest

from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.discover import FaultKind, discover

STANDARD = [place for place in sys.path if "site-packages" not in place]
"""The interpreter's own modules; what this machine has installed is hidden."""


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *STANDARD])
    return folder


def only_fault(found):
    [fault] = found.faults
    return fault


@pytest.mark.usefixtures("site")
def test_nothing_installed_is_no_fault():
    assert discover("").packages == ()
    assert discover("").faults == ()


def test_an_installed_package_is_found_and_its_code_is_not_imported(site):
    place = fake.install(site, [fake.DECODE, fake.PREFILL])
    found = discover("")
    assert found.faults == ()
    [package] = found.packages
    assert package.name == "humming-cubins-sm90-cu13"
    assert package.place == place
    assert [entry.name for entry, _ in package.kernels] == [fake.DECODE, fake.PREFILL]
    assert package.cubin(package.kernels[0][0]).read_bytes().startswith(b"\x7fELF")
    assert "humming_cubins_sm90_cu13" not in sys.modules


def test_several_packages_come_in_the_order_of_their_names(site):
    fake.install(site, [fake.DECODE])
    fake.install(site, [fake.MULTISTAGE], package="humming-cubins-sm80-cu13")
    assert [p.name for p in discover("").packages] == [
        "humming-cubins-sm80-cu13",
        "humming-cubins-sm90-cu13",
    ]


def test_an_editable_installation_is_found_by_its_import_path(site, tmp_path, monkeypatch):
    place = fake.install(site, [fake.DECODE])
    elsewhere = tmp_path / "checkout"
    elsewhere.mkdir()
    place.rename(elsewhere / place.name)
    monkeypatch.setattr(sys, "path", [str(site), str(elsewhere), *STANDARD])
    assert discover("").packages[0].place == elsewhere / place.name
    assert place.name not in sys.modules


def test_a_package_whose_folder_is_gone_is_named(site):
    place = fake.install(site, [fake.DECODE])
    place.rename(site / "elsewhere")
    fault = only_fault(discover(""))
    assert fault.name == "humming-cubins-sm90-cu13"
    assert "its folder is missing" in fault.reason
    assert fault.hint == "pip install --force-reinstall humming-cubins-sm90-cu13"


def test_listed_folders_come_first_and_shadow_the_installed_package(site, tmp_path, monkeypatch):
    installed = fake.install(site, [fake.DECODE])
    mine = fake.write_package(tmp_path / "mine", [fake.PREFILL])
    other = fake.write_package(tmp_path / "other", [fake.MULTISTAGE], package="other")
    monkeypatch.setenv("HUMMING_CUBIN_PATH", os.pathsep.join([str(mine), "", str(other)]))
    found = discover()
    assert [package.place for package in found.packages] == [mine, other]
    fault = only_fault(found)
    assert fault.kind is FaultKind.SHADOWED
    assert str(installed) in fault.reason
    assert str(mine) in fault.reason


def test_the_same_folder_twice_is_one_package(package_folder):
    found = discover(os.pathsep.join([str(package_folder)] * 2))
    assert len(found.packages) == 1
    assert found.faults == ()


def test_a_listed_folder_without_manifest_is_named(tmp_path):
    fault = only_fault(discover(str(tmp_path / "nothing")))
    assert str(tmp_path / "nothing" / "manifest.json") in fault.reason
    assert "no such file" in fault.reason


def test_another_contract_is_refused_with_both_hashes(tmp_path):
    folder = fake.write_package(tmp_path, [fake.DECODE], contract="0123456789abcdef")
    fault = only_fault(discover(str(folder)))
    assert fault.kind is FaultKind.CONTRACT
    assert fault.reason == (
        f"built for contract 0123456789abcdef, this runtime has {contract_hash()}"
    )
    assert fault.hint == "pip install --upgrade humming-aot humming-cubins-sm90-cu13"


def test_a_manifest_of_a_later_contract_may_have_any_keys(package_folder):
    change(package_folder, lambda raw: raw.update(contract="later", kernels=7, new=1))
    assert only_fault(discover(str(package_folder))).kind is FaultKind.CONTRACT


def change(folder, edit):
    path = folder / "manifest.json"
    raw = json.loads(path.read_text())
    edit(raw)
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda raw: raw.update(schema_version=99), "manifest schema 99"),
        (lambda raw: raw.pop("kernels"), "kernels"),
        (lambda raw: raw.pop("contract"), "contract"),
        (lambda raw: raw.update(kernels=["a"]), "not a manifest"),
        (lambda raw: raw.update(kernels=3), "int"),
        (lambda raw: raw.update(surprise=1), "surprise"),
        (lambda raw: raw.update(cuda="new"), "cuda is 'new', no release like 13.0"),
        (lambda raw: raw.update(package=None), "package is None, no str"),
        (lambda raw: raw["kernels"][0].update(file=3), "file is 3, no str"),
        (lambda raw: raw["kernels"][0].update(size_bytes="3"), "size_bytes is '3', no int"),
        (lambda raw: raw["kernels"][0].update(cost={"fixed_us": 1}), "missing 6"),
        (lambda raw: raw["kernels"][0].update(name="dense"), "1 segments"),
        (lambda raw: raw["kernels"][0].pop("sha256"), "sha256"),
        (lambda raw: raw["kernels"][0].update(file="../x.cubin"), "outside of the package"),
        (lambda raw: raw["kernels"][0].update(file="/etc/passwd"), "outside of the package"),
        (lambda raw: raw["kernels"][0].update(file="cubins/none"), "cubins/none: no such file"),
        (lambda raw: raw["kernels"][0].update(size_bytes=7), "the manifest says 7"),
    ],
)
def test_a_broken_manifest_is_named_with_what_is_wrong(package_folder, edit, message):
    change(package_folder, edit)
    found = discover(str(package_folder))
    assert found.packages == ()
    fault = only_fault(found)
    assert fault.kind is FaultKind.BROKEN
    assert message in fault.reason


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "\udcff"])
def test_a_truncated_manifest_is_named(package_folder, text):
    path = package_folder / "manifest.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert only_fault(discover(str(package_folder))).kind is FaultKind.BROKEN


def test_truncated_and_missing_cubins_are_named_and_the_package_is_not_used(package_folder):
    cubins = sorted((package_folder / "cubins").iterdir())
    cubins[0].write_bytes(b"")
    cubins[1].unlink()
    found = discover(str(package_folder))
    assert found.packages == ()
    fault = only_fault(found)
    assert f"{cubins[0].name}: 0 bytes" in fault.reason
    assert f"{cubins[1].name}: no such file" in fault.reason


def test_a_fault_of_one_package_leaves_the_others(site, tmp_path):
    fake.install(site, [fake.DECODE])
    broken = tmp_path / "broken"
    broken.mkdir()
    found = discover(str(broken))
    assert [package.name for package in found.packages] == ["humming-cubins-sm90-cu13"]
    assert len(found.faults) == 1
