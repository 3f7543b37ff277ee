"""A store of finished cubins saves compilations and never decides a build."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from fake_build import ARCHS, REAL_CUBIN, ROOT, SPECS, VARIANT
from hypothesis import given
from hypothesis import strategies as st

from build_tools.cli import main
from build_tools.plan import make_plan
from build_tools.render import render_sources
from build_tools.scale.cubin_key import cubin_key
from build_tools.scale.cubin_object import ObjectFacts, ObjectFault, pack, unpack
from build_tools.toolchain import Toolchain

TOOLCHAIN = Toolchain("nvcc", (13, 0), "Build x", "g++", "here", "0" * 64)
FACTS = ObjectFacts("k" * 64, VARIANT, "", 0, 0, 12, ("src/a.cuh",))


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def stored_build(build, store):
    return lambda *more: build("--store", str(store), *more)


@pytest.fixture
def elsewhere(options, tmp_path, store):
    """The same build with the same store in another work folder."""

    def run(*more):
        folders = ["--work", str(tmp_path / "other"), "-o", str(tmp_path / "other-dist")]
        return main([*options, *folders, "--select", VARIANT, "--store", str(store), *more])

    return run


def objects(store):
    return [path for path in store.rglob("*") if path.is_file()]


def test_a_second_machine_compiles_nothing(stored_build, elsewhere, compiled, tmp_path, capsys):
    assert stored_build() == 0
    assert compiled() == [VARIANT]
    capsys.readouterr()
    assert elsewhere() == 0
    assert "0 built, 1 from the store, 0 reused" in capsys.readouterr().err
    assert compiled() == [VARIANT]
    first, second = (
        (tmp_path / work / "sm_90/cubins" / f"{VARIANT}.cubin").read_bytes()
        for work in ("work", "other")
    )
    assert first == second == REAL_CUBIN.read_bytes()
    assert elsewhere() == 0
    assert "0 built, 1 reused" in capsys.readouterr().err
    assert not list((tmp_path / "other/sm_90/fetched").iterdir())


def test_what_came_from_a_store_is_rebuilt_when_a_header_changes(
    stored_build, elsewhere, sources, compiled
):
    assert stored_build("-q") == elsewhere("-q") == 0
    header = sources / "templates/components/gemm/hopper_decode.cuh"
    header.write_text(header.read_text() + "// changed\n")
    assert elsewhere("-q") == 0
    assert compiled() == [VARIANT, VARIANT]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def swap(path):
    head, _, cubin = path.read_bytes().partition(b"\n")
    path.write_bytes(head.replace(b"t8x64x1024", b"t8x32x1024") + b"\n" + cubin)


def empty(path):
    path.write_bytes(b"")


def no_cubin(path):
    """An object that agrees with itself and holds no cubin."""
    facts, _ = unpack(path.read_bytes(), path.name, VARIANT)
    import hashlib

    image = b"hello"
    digest = hashlib.sha256(image).hexdigest()
    path.write_bytes(pack(replace(facts, sha256=digest, size_bytes=len(image)), image))


@pytest.mark.parametrize("change", [truncate, damage, swap, empty, no_cubin])
def test_a_wrong_object_is_refused_compiled_and_replaced(
    stored_build, elsewhere, store, compiled, capsys, change
):
    assert stored_build("-q") == 0
    (path,) = objects(store)
    good = path.read_bytes()
    change(path)
    assert elsewhere() == 0
    assert "1 objects refused" in capsys.readouterr().err
    assert compiled() == [VARIANT, VARIANT]
    assert unpack(path.read_bytes(), path.name, VARIANT)[1] == unpack(good, path.name, VARIANT)[1]


def test_a_cubin_that_is_not_what_was_planned_is_not_stored(build, store):
    other = VARIANT.replace("decode_t8x64x1024_w8r4_s4", "prefill_t64x64x128_w8_s6")
    assert build("-q", "--store", str(store), select=other) == 8
    assert objects(store) == []


def test_what_was_finished_before_a_failure_is_stored(stored_build, store, monkeypatch):
    other = VARIANT.replace("decode_t8x64x1024_w8r4_s4", "prefill_t64x64x128_w8_s6")
    assert stored_build("-q", "--select", other) == 8
    assert len(objects(store)) == 1
    monkeypatch.setenv("FAKE_NVCC", "error")
    assert stored_build("-q", "--select", other) == 6


def test_a_store_that_cannot_be_reached_costs_a_note_and_no_build(build, capsys, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert build("--store", "s3://bucket/prefix") == 0
    text = capsys.readouterr().err
    assert text.count("store s3://bucket/prefix: not used any more in this run") == 1
    assert "http://127.0.0.1:9/bucket" in text, "it was asked"
    assert "1 built" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_named(build, store):
    store.mkdir(mode=0o500)
    assert build("--store", str(store / "inner")) == 9


def test_a_server_without_encryption_has_to_be_meant(build, capsys, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert build("--store", "s3://bucket/prefix") == 2
    assert "hint: AWS_ALLOW_HTTP=true" in capsys.readouterr().err


def test_an_unknown_kind_of_store_is_a_usage_error(build, capsys):
    assert build("--store", "nosuch://x") == 2
    assert "hint: a folder, or s3://bucket/prefix" in capsys.readouterr().err


def test_a_store_can_come_from_the_environment(build, store, monkeypatch):
    monkeypatch.setenv("HUMMING_STORE", str(store))
    assert build("-q") == 0
    assert len(objects(store)) == 1


def keys_of(sources, toolchain=TOOLCHAIN):
    plan = make_plan(SPECS, [ARCHS["sm_90"]], "default")[0]
    item = next(one for one in plan.build if one.name == VARIANT)
    return cubin_key(item, sources, toolchain)


def test_a_key_covers_source_headers_and_compiler_and_nothing_else():
    plan = make_plan(SPECS, [ARCHS["sm_90"]], "default")[0]
    sources = render_sources(ROOT / "templates", plan.build)
    key = keys_of(sources)
    assert (
        keys_of(dict(sources), replace(TOOLCHAIN, compiler="/elsewhere", host_compiler="c")) == key
    )
    other = {**sources, "src/components/gemm/multistage.cuh": "// not included\n"}
    assert keys_of(other) == key
    header = "src/components/gemm/hopper_decode.cuh"
    kernel = f"src/kernels/{VARIANT}.cu"
    assert keys_of({**sources, header: sources[header] + " "}) != key
    assert keys_of({**sources, kernel: sources[kernel] + " "}) != key
    assert keys_of(sources, replace(TOOLCHAIN, digest="1" * 64)) != key
    assert keys_of(sources, replace(TOOLCHAIN, engine="nvrtc")) != key


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_an_object_round_trips(cubin, other):
    import hashlib

    facts = replace(FACTS, sha256=hashlib.sha256(cubin).hexdigest(), size_bytes=len(cubin))
    assert unpack(pack(facts, cubin), FACTS.key, VARIANT) == (facts, cubin)
    if other != cubin:
        with pytest.raises(ObjectFault):
            unpack(pack(facts, other), FACTS.key, VARIANT)
    for wrong in (("x", VARIANT), (FACTS.key, "x")):
        with pytest.raises(ObjectFault):
            unpack(pack(facts, cubin), *wrong)
    head = json.loads(pack(facts, cubin).split(b"\n")[0])
    with pytest.raises(ObjectFault):
        unpack(json.dumps({**head, "more": 1}).encode() + b"\n" + cubin, FACTS.key, VARIANT)
