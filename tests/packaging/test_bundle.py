"""A bundle end to end: packed, verified, tampered with, and installed where no network is."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from build_tools.errors import CubinMismatchError, UsageError
from build_tools.folders import license_file
from build_tools.release.bundle import BundleRequest, write_bundle
from build_tools.release.release_files import read_wheels
from build_tools.release.signing import read_signer
from humming_runtime.cli import main
from humming_runtime.contract.exit_codes import RuntimeExit

KERNEL = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
EPOCH = 1_700_000_000
EVERY_STEP_BYTES = 4001


def write_key(folder, key):
    """PEM files of a private key. Returns (private, public)."""
    private, public = folder / "private.pem", folder / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    spki = PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, spki))
    return private, public


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return write_key(tmp_path_factory.mktemp("keys"), ed25519.Ed25519PrivateKey.generate())


def make(folder, wheels, private=None):
    signer = None if private is None else read_signer(private)
    text = license_file().read_text()
    request = BundleRequest(read_wheels(wheels), text, EPOCH, signer, "a" * 40)
    return write_bundle(request, folder)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory, data_wheel, runtime_wheel, keys):
    return make(tmp_path_factory.mktemp("bundle"), [data_wheel, runtime_wheel], keys[0]).path


@pytest.fixture
def unpacked(bundle, tmp_path):
    with tarfile.open(bundle) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / bundle.stem


def verify(capsys, *arguments):
    """Returns (exit code, report)."""
    code = main(["verify", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out or "{}")


def test_a_signed_bundle_is_verified_down_to_the_elf(bundle, keys, capsys):
    code, report = verify(capsys, bundle, "--key", keys[1])
    assert (code, report["verdict"]) == (0, "verified")
    links = {"signature", "archive", "sums", "record", "manifest", "contract", "cubin sha256"}
    assert set(report["checked"]) == links | {"elf"}


def test_without_a_key_the_report_says_integrity_only(bundle, capsys):
    code, report = verify(capsys, bundle)
    assert (code, report["verdict"]) == (0, "integrity only")
    assert report["notes"] == ["the signature is not checked: no --key is given"]


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)]
)
def test_ecdsa_and_rsa_keys_sign_as_well(tmp_path, data_wheel, runtime_wheel, key, capsys):
    private, public = write_key(tmp_path, key)
    path = make(tmp_path, [data_wheel, runtime_wheel], private).path
    assert verify(capsys, path, "--key", public)[0] == RuntimeExit.OK


def test_a_signature_of_another_key_or_none_is_refused(
    tmp_path, bundle, data_wheel, runtime_wheel, keys, capsys
):
    _, other = write_key(tmp_path, ed25519.Ed25519PrivateKey.generate())
    code, report = verify(capsys, bundle, "--key", other)
    assert code == RuntimeExit.SIGNATURE
    assert "which was not given" in report["findings"][0]["message"]
    unsigned = make(tmp_path, [data_wheel, runtime_wheel]).path
    code, report = verify(capsys, unsigned, "--key", keys[1])
    assert code == RuntimeExit.SIGNATURE
    assert report["findings"][0]["message"] == "is not signed"


def test_a_flipped_byte_anywhere_in_a_bundle_is_found(bundle, keys, tmp_path, capsys):
    """Every entry's header, and a place in each step of the rest."""
    image = bundle.read_bytes()
    with tarfile.open(bundle) as archive:
        headers = [entry.offset for entry in archive]
    drawn = random.Random(len(image))
    places = {offset + drawn.randrange(512) for offset in headers for _ in range(4)}
    places |= {drawn.randrange(at, at + 97) for at in range(0, len(image) - 97, EVERY_STEP_BYTES)}
    places |= {0, len(image) - 1}
    wrong = tmp_path / bundle.name
    for at in sorted(places):
        damaged = bytearray(image)
        damaged[at] ^= drawn.randrange(1, 256)
        wrong.write_bytes(damaged)
        code, _ = verify(capsys, wrong, "--key", keys[1])
        assert code in (RuntimeExit.INTEGRITY, RuntimeExit.SIGNATURE), f"byte {at}"


def test_a_flipped_byte_anywhere_in_the_signed_statement_is_found(unpacked, keys, capsys):
    path = unpacked / "provenance.dsse.json"
    image = path.read_bytes()
    drawn = random.Random(7)
    for at in range(0, len(image), 5):
        damaged = bytearray(image)
        damaged[at] ^= drawn.randrange(1, 256)
        path.write_bytes(damaged)
        code, _ = verify(capsys, unpacked, "--key", keys[1])
        assert code == RuntimeExit.SIGNATURE, f"byte {at}"


def edit_manifest(unpacked, change):
    """Rewrite a wheel and everything after it, as one could who has no key."""
    (path,) = (unpacked / "wheels").glob("humming_cubins*.whl")
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def append_to_cubin(files):
    files[next(name for name in files if name.endswith(".cubin"))] += b"\0"


def add_a_file(files):
    files["humming_cubins_sm90_cu13/sitecustomize.py"] = b"print()\n"


def name_another_sum(files):
    name = "humming_cubins_sm90_cu13/manifest.json"
    files[name] = files[name].replace(b'"sha256": "', b'"sha256": "0', 1)


@pytest.mark.parametrize("change", [append_to_cubin, add_a_file, name_another_sum])
def test_a_changed_wheel_breaks_more_than_one_link(unpacked, keys, capsys, change):
    edit_manifest(unpacked, change)
    code, report = verify(capsys, unpacked, "--key", keys[1])
    assert code == RuntimeExit.INTEGRITY
    assert {"sums", "record"} <= {finding["link"] for finding in report["findings"]}


@pytest.mark.parametrize(
    ("change", "place", "code"),
    [
        (lambda r: (r / "extra.txt").write_text("x"), "extra.txt", RuntimeExit.INTEGRITY),
        (lambda r: (r / "install.sh").unlink(), "install.sh", RuntimeExit.INTEGRITY),
        (lambda r: (r / "SHA256SUMS").unlink(), "SHA256SUMS", RuntimeExit.INTEGRITY),
        (lambda r: (r / "bundle.json").write_text("{}"), "bundle.json", RuntimeExit.INTEGRITY),
        (
            lambda r: (r / "provenance.dsse.json").unlink(),
            "provenance.dsse.json",
            RuntimeExit.SIGNATURE,
        ),
    ],
)
def test_each_missing_or_added_file_is_named(unpacked, keys, capsys, change, place, code):
    change(unpacked)
    found, report = verify(capsys, unpacked, "--key", keys[1])
    assert found == code
    assert place in {finding["place"] for finding in report["findings"]}


def test_new_sums_for_a_changed_file_do_not_pass(unpacked, capsys):
    """SHA256SUMS is a subject of the provenance."""
    (unpacked / "install.sh").write_text("#!/bin/sh\n")
    lines = (unpacked / "SHA256SUMS").read_text().splitlines()
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    new = [f"{digest}  install.sh" if line.endswith("install.sh") else line for line in lines]
    (unpacked / "SHA256SUMS").write_text("\n".join(new) + "\n")
    code, report = verify(capsys, unpacked)
    assert code == RuntimeExit.INTEGRITY
    assert [finding["place"] for finding in report["findings"]] == ["SHA256SUMS"]


def test_what_is_no_bundle_is_refused(tmp_path, capsys):
    path = tmp_path / "x.tar"
    path.write_bytes(b"hello")
    assert verify(capsys, path)[0] == RuntimeExit.INTEGRITY
    assert main(["verify", str(tmp_path / "missing.tar")]) == RuntimeExit.INTEGRITY
    assert main(["verify", str(path), "--against", str(path)]) == RuntimeExit.USAGE
    assert main(["verify", str(path), "--key", str(path)]) == RuntimeExit.USAGE


def test_equal_wheels_give_equal_bytes(tmp_path, bundle, data_wheel, runtime_wheel, keys):
    copies = [Path(shutil.copy(path, tmp_path)) for path in (runtime_wheel, data_wheel)]
    again = make(tmp_path / "other", copies, keys[0]).path
    assert again.read_bytes() == bundle.read_bytes()


def test_the_sbom_is_valid_and_names_wheels_and_compiler(unpacked, data_wheel):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (unpacked / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = {one["name"]: one for one in json.loads(text)["components"]}
    assert set(components) == {"humming-aot", "humming-cubins-sm90-cu13", "cuda-compiler"}
    digest = hashlib.sha256(data_wheel.read_bytes()).hexdigest()
    assert components["humming-cubins-sm90-cu13"]["hashes"][0]["content"] == digest


def test_the_provenance_is_an_in_toto_statement_with_slsa_provenance(unpacked):
    """The field's own library reads it."""
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    envelope = json.loads((unpacked / "provenance.dsse.json").read_text())
    raw = json.loads(b64decode(envelope["payload"]))
    statement = Statement.copy_from_pb(json_format.ParseDict(raw, statement_pb2.Statement()))
    statement.validate()
    json_format.ParseDict(raw["predicate"], provenance_pb2.Provenance())
    subjects = {one["name"]: one["digest"]["sha256"] for one in raw["subject"]}
    sums = hashlib.sha256((unpacked / "SHA256SUMS").read_bytes()).hexdigest()
    assert subjects["SHA256SUMS"] == sums
    assert {"digest": {"gitCommit": "a" * 40}, "name": "revision"} in raw["predicate"][
        "buildDefinition"
    ]["resolvedDependencies"]


def test_sha256sum_itself_checks_the_sums(unpacked):
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], check=True, cwd=unpacked)


def test_the_verifier_inside_needs_python_alone(unpacked, keys):
    command = [sys.executable, "-I", "-S", unpacked / "verify.pyz", unpacked]
    result = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", env={})
    assert "integrity only" in result.stdout
    with_key = subprocess.run(
        [*command, "--key", keys[1]], check=False, capture_output=True, text=True, cwd="/", env={}
    )
    assert with_key.returncode == RuntimeExit.SIGNATURE_UNCHECKED
    assert "pip install 'humming-aot[verify]'" in with_key.stdout


OFFLINE = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/"}


def installed(folder):
    """What an environment says of its kernels."""
    program = folder / "bin" / "humming"
    names = subprocess.run([program, "list", "--names"], check=True, capture_output=True, text=True)
    return program, names.stdout.split()


def test_its_script_installs_by_hash_without_a_network(unpacked, tmp_path):
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    environment = {**OFFLINE, "PIP": f"{place}/bin/python -m pip --quiet"}
    script = unpacked / "install.sh"
    assert os.access(script, os.X_OK)
    subprocess.run([script, "sm_90"], check=True, env=environment, cwd="/")
    program, names = installed(place)
    assert names == [KERNEL]
    against = ["--against", unpacked / "SHA256SUMS"]
    result = subprocess.run(
        [program, "verify", "installed", *against], check=True, capture_output=True, text=True
    )
    assert result.stdout.startswith("installed: verified")


def test_uv_installs_from_its_index_by_hash(unpacked, tmp_path):
    place = tmp_path / "environment"
    venv.create(place, with_pip=False)
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "install", "--quiet", "--offline", "--no-cache", "--no-config"]
    command += ["--python", place / "bin/python", "--require-hashes", "--default-index"]
    command += [(unpacked / "simple").as_uri(), "-r", unpacked / "requirements/sm_90.txt"]
    subprocess.run(command, check=True, env={**OFFLINE, "HOME": str(tmp_path)}, cwd="/")
    assert installed(place)[1] == [KERNEL]


def test_the_script_refuses_a_damaged_bundle_and_an_unknown_arch(unpacked):
    script = unpacked / "install.sh"
    result = subprocess.run(
        [script, "sm_10"], check=False, env=OFFLINE, capture_output=True, text=True
    )
    assert result.returncode == RuntimeExit.USAGE
    assert "known here: all sm_90" in result.stderr
    (wheel,) = (unpacked / "wheels").glob("humming_cubins*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    result = subprocess.run(
        [script, "sm_90"], check=False, env=OFFLINE, capture_output=True, text=True
    )
    assert result.returncode == RuntimeExit.INTEGRITY
    assert "nothing is installed" in result.stderr


def test_wheels_that_do_not_belong_together_are_refused(tmp_path, data_wheel, runtime_wheel):
    for wheels, message in (
        ([data_wheel], "there is no wheel of humming-aot"),
        ([runtime_wheel], "there is no kernel wheel"),
    ):
        with pytest.raises(UsageError, match=message):
            make(tmp_path, wheels)
    damaged = tmp_path / data_wheel.name
    content = io.BytesIO(data_wheel.read_bytes())
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("humming_cubins_sm90_cu13/more.txt", "x")
    damaged.write_bytes(content.getvalue())
    with pytest.raises(CubinMismatchError, match=r"more.txt: is not in RECORD"):
        make(tmp_path, [damaged, runtime_wheel])
