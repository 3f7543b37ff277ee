"""Argument struct, layouts, targets, manifest and exit codes are what both sides rely on."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import jsonschema
import pytest

from build_tools.spec_load import load_specs
from humming_runtime.contract import arguments, exit_codes, fingerprint, layouts, manifest, targets
from humming_runtime.contract.arguments import FieldKind

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads(
    (ROOT / "humming_runtime/contract/manifest.schema.json").read_text(encoding="utf-8")
)
NAME = "dense_f16_u4_f16_ch_frag16_hopper-decode_t8x32x1024_w8r2_s6_sm90a"
COST = manifest.Cost(1.0, 2.0, 3.0, 4.0, 0.5, 6.0, 7.0)
ENTRY = manifest.KernelEntry(
    NAME, f"cubins/{NAME}.cubin", "0" * 64, 10, 32, 0, 768, 0, "1" * 64, COST, ("9.0",), "sm_90a"
)
MANIFEST = manifest.Manifest(
    fingerprint.contract_hash(),
    "humming-cubins-sm90-cu13",
    "0.1",
    "sm_90",
    "13.0",
    "b",
    "nvcc",
    "p",
    (ENTRY,),
)


def test_fields_are_aligned_and_do_not_overlap():
    at = arguments.offsets()
    end = 0
    for field in arguments.GEMM_FIELDS:
        alignment = 64 if field.kind is FieldKind.TENSOR_MAP else field.kind.size_bytes
        assert at[field.name] % alignment == 0
        assert at[field.name] >= end
        end = at[field.name] + field.kind.size_bytes
    assert arguments.struct_size_bytes(maps=True) % 64 == 0
    assert arguments.struct_size_bytes(maps=True) - end < 64
    assert arguments.struct_size_bytes(maps=False) == at["activation_map"]


def test_kinds_stand_in_the_order_of_the_contract():
    kinds = [field.kind for field in arguments.GEMM_FIELDS]
    assert kinds == sorted(kinds, key=list(FieldKind).index)


def test_packing_touches_only_the_named_fields():
    buffer = bytearray(b"\xff" * arguments.struct_size_bytes(maps=True))
    arguments.pack_into(buffer, {"m": 5})
    at = arguments.offsets()["m"]
    assert buffer[at : at + 4] == b"\x05\0\0\0"
    assert set(buffer[:at] + buffer[at + 4 :]) == {0xFF}


@pytest.mark.parametrize(("name", "value"), [("m", b"x" * 128), ("weight_map", b"short")])
def test_a_value_of_the_wrong_kind_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        arguments.pack_into(bytearray(arguments.struct_size_bytes(maps=True)), {name: value})


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_bit_of_a_packed_weight_belongs_to_one_code(bits):
    n, k = 32, 192
    seen = set()
    for i, j in itertools.product(range(n), range(k)):
        places = layouts.frag16_places(i, j, k, bits)
        assert tuple(place.width for place in places) == layouts.planes(bits)
        for place in places:
            seen |= {(place.word, place.bit + at) for at in range(place.width)}
    assert len(seen) == n * k * bits
    assert max(word for word, _ in seen) * 4 + 4 == layouts.packed_weight_bytes(n, k, bits)


def test_planes_are_powers_of_two_that_add_up():
    for bits in range(1, 9):
        assert sum(layouts.planes(bits)) == bits
    assert layouts.planes(7) == (4, 2, 1)


def test_every_scale_has_a_place_of_its_own():
    n, groups = 48, 6
    places = {layouts.rows16_place(i, g, groups) for i in range(n) for g in range(groups)}
    assert places == set(range(n * groups))


@pytest.mark.parametrize(
    ("k", "group", "wanted"), [(80, 64, 2), (80, 128, 1), (7168, 32, 224), (8, None, 1)]
)
def test_stored_groups_cover_whole_steps_of_128(k, group, wanted):
    assert layouts.stored_groups(k, group) == wanted


def test_tiers_of_capabilities_are_those_of_the_arch_table():
    for arch in load_specs(ROOT / "specs").archs:
        assert targets.tier_of(arch.capability) == arch.tier
        assert targets.incompatibility(arch.target, arch.capability) is None


CAPABILITIES = [
    (7, 5),
    (8, 0),
    (8, 6),
    (8, 7),
    (8, 9),
    (9, 0),
    (10, 0),
    (10, 3),
    (11, 0),
    (12, 0),
    (12, 1),
]
LOADS = {
    "sm_75": {(7, 5)},
    "sm_80": {(8, 0), (8, 6), (8, 9)},
    "sm_87": {(8, 7)},
    "sm_89": {(8, 9)},
    "sm_90": {(9, 0)},
    "sm_90a": {(9, 0)},
    "sm_100": {(10, 0), (10, 3)},
    "sm_100a": {(10, 0)},
    "sm_100f": {(10, 0), (10, 3)},
    "sm_103f": {(10, 3)},
    "sm_110f": {(11, 0)},
    "sm_120": {(12, 0), (12, 1)},
    "sm_120a": {(12, 0)},
    "sm_120f": {(12, 0), (12, 1)},
    "sm_121f": {(12, 1)},
}


@pytest.mark.parametrize(("target", "device"), list(itertools.product(LOADS, CAPABILITIES)))
def test_targets_load_where_nvidia_says(target, device):
    assert (targets.incompatibility(target, device) is None) == (device in LOADS[target])


def test_a_manifest_survives_its_json_and_follows_the_schema():
    text = manifest.to_json(MANIFEST)
    assert manifest.from_json(text, "here") == MANIFEST
    jsonschema.validate(json.loads(text), SCHEMA)


def test_the_schema_describes_every_key_of_the_dataclasses():
    kernel = SCHEMA["properties"]["kernels"]["items"]
    cost = kernel["properties"]["cost"]["oneOf"][1]
    for schema, kind in (
        (SCHEMA, manifest.Manifest),
        (kernel, manifest.KernelEntry),
        (cost, manifest.Cost),
    ):
        names = {field.name for field in dataclasses.fields(kind)}
        assert set(schema["properties"]) == set(schema["required"]) == names
        assert all("description" in value for value in schema["properties"].values())


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 2}', '{"schema_version": 3}'])
def test_a_manifest_that_is_none_is_refused_with_its_place(text):
    with pytest.raises(manifest.ManifestError, match="here"):
        manifest.from_json(text, "here")


@pytest.mark.parametrize("codes", [exit_codes.BuildExit, exit_codes.RuntimeExit])
def test_exit_codes_are_unique(codes):
    assert len({int(code) for code in codes}) == len(codes.__members__)


def test_the_contract_hash_depends_on_each_part(monkeypatch):
    hashes = {fingerprint.contract_hash()}
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "GEMM_FIELDS", arguments.GEMM_FIELDS[:-1])
        hashes.add(fingerprint.contract_hash())
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "LAYOUT_VERSIONS", {"frag16": 2, "rows16": 1})
        hashes.add(fingerprint.contract_hash())
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "SCHEMA_VERSION", 99)
        hashes.add(fingerprint.contract_hash())
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "SCHEDULE_VERSIONS", {"decode": 2})
        hashes.add(fingerprint.contract_hash())
    assert len(hashes) == 5
