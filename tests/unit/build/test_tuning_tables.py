"""Measured choices on their way from the specs into a wheel."""

from __future__ import annotations

import json
import zipfile

import pytest
from fake_build import VARIANT

from build_tools.errors import SpecError
from build_tools.plan import make_plan
from build_tools.spec_load import every_variant, load_specs
from build_tools.tuning_tables import read_tuning, tables_of_build
from humming_runtime.contract.manifest import from_json
from humming_runtime.contract.tuning import tile_of
from humming_runtime.contract.variant_name import Variant


def manifest_of(folder):
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("/manifest.json")]
        return from_json(archive.read(name).decode(), name)


def test_a_wheel_has_the_launches_of_its_tiles_alone(build, tmp_path):
    assert build("-q") == 0
    (table,) = manifest_of(tmp_path / "dist").tuning
    tiles = {launch.tile for shape in table.shapes for launch in shape.launches}
    assert tiles == {tile_of(Variant.parse(VARIANT))}


def test_a_changed_table_makes_another_wheel_and_compiles_nothing(
    build, sources, tmp_path, compiled, capsys
):
    assert build("-q") == 0
    path = sources / "specs/tuning/h200.json"
    raw = json.loads(path.read_text())
    raw["name"] = "other"
    path.write_text(json.dumps(raw))
    assert build() == 0
    assert "nothing to do" not in capsys.readouterr().err
    assert manifest_of(tmp_path / "dist").tuning[0].name == "other"
    assert compiled() == [VARIANT]


def test_every_fault_of_every_table_comes_at_once_with_its_file(build, sources, capsys):
    folder = sources / "specs/tuning"
    raw = json.loads((folder / "h200.json").read_text())
    raw["shapes"][0]["launches"][0] = "1 hopper-decode_t8x32x1024_w8r2_s7 1 1 4 5.0"
    (folder / "a.json").write_text(json.dumps(raw))
    (folder / "b.json").write_text("{")
    raw["shapes"][0]["launches"] = ["2 hopper-decode_t8x32x1024_w8r2_s6 1 1 4 5.0"] * 2
    (folder / "c.json").write_text(json.dumps(raw))
    assert build("-q") == 3
    error = capsys.readouterr().err
    assert "specs/tuning/a.json: tile 'hopper-decode_t8x32x1024_w8r2_s7' is in no spec" in error
    assert "did you mean 'hopper-decode_t8x32x1024_w8r2_s6'" in error
    assert "specs/tuning/b.json: not JSON" in error
    assert "specs/tuning/c.json: shapes[0]: launches are not of rising m" in error


def test_other_archs_get_no_table(sources):
    specs = load_specs(sources / "specs")
    tables = read_tuning(sources / "specs", every_variant(specs))
    archs = [arch for arch in specs.archs if arch.name in ("sm_80", "sm_90")]
    found = {}
    for plan in make_plan(specs, archs, "default", ()):
        variants = [item.variant for item in plan.build]
        found[plan.arch.name] = tables_of_build(tables, plan.arch, variants)
    assert found == {"sm_80": (), "sm_90": tables}


def test_a_folder_without_tables_is_fine(tmp_path):
    assert read_tuning(tmp_path, ()) == ()
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning/x.json").write_bytes(b"\xff")
    with pytest.raises(SpecError, match=r"tuning/x\.json"):
        read_tuning(tmp_path, ())
