"""Parts of a plan: the same on every machine, balanced, and joined only if they are one build."""

from __future__ import annotations

import json
import shutil

import pytest
from fake_build import ARCHS, SPECS, VARIANT
from hypothesis import given
from hypothesis import strategies as st

from build_tools.cli import main
from build_tools.errors import SpecError, UsageError
from build_tools.plan import make_plan
from build_tools.scale.compile_times import CompileTimes, measured_times, read_compile_times
from build_tools.scale.shards import Shard, deal, parse_shard, plan_sha256, shard_of
from humming_runtime.contract.tuning import tile_of
from humming_runtime.contract.variant_name import Variant

(PLAN,) = make_plan(SPECS, [ARCHS["sm_90"]], "default", ())
TILES = sorted({tile_of(item.variant) for item in PLAN.build})


@given(
    count=st.integers(1, 40),
    milliseconds=st.lists(st.floats(1, 1e5), min_size=len(TILES), max_size=len(TILES)),
    seed=st.randoms(use_true_random=False),
)
def test_shards_are_a_partition_that_is_balanced_and_knows_no_order(count, milliseconds, seed):
    times = CompileTimes(dict(zip(TILES, milliseconds, strict=True)))
    hands = deal(PLAN.build, count, times)
    names = [item.name for hand in hands for item in hand]
    assert sorted(names) == sorted(item.name for item in PLAN.build)
    assert len(set(names)) == len(names)
    loads = [sum(times.estimate_ms(item.variant) for item in hand) for hand in hands]
    longest = max(times.estimate_ms(item.variant) for item in PLAN.build)
    assert max(loads) - min(loads) <= longest * (1 + 1e-9)
    mixed = list(PLAN.build)
    seed.shuffle(mixed)
    assert deal(mixed, count, times) == hands


def test_more_shards_than_kernels_leave_some_empty():
    hands = deal(PLAN.build[:2], 3, CompileTimes({}))
    assert [len(hand) for hand in hands] == [1, 1, 0]


def test_a_shard_says_where_the_other_kernels_are():
    times = CompileTimes({})
    parts = [shard_of(PLAN, Shard(index, 3), times) for index in (1, 2, 3)]
    (other,) = [s for s in parts[0].skipped if s.name == parts[1].build[0].name]
    assert other.reason == "in shard 2/3"
    assert len({plan_sha256(part) for part in (PLAN, *parts)}) == 4


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/0", "1/2/3", "a/b", "-1/2", "1/99999"])
def test_words_that_are_no_shard_are_refused(text):
    with pytest.raises(UsageError, match="is no shard"):
        parse_shard(text)


def test_a_tile_that_was_never_built_takes_its_schedules_mean():
    variant = Variant.parse(VARIANT)
    schedule = tile_of(variant).split("_")[0]
    assert CompileTimes({f"{schedule}_a": 10.0, f"{schedule}_b": 30.0}).estimate_ms(variant) == 20
    assert CompileTimes({"other_a": 7.0}).estimate_ms(variant) == 7
    assert CompileTimes({}).estimate_ms(variant) == 1000


def test_stored_times_are_of_tiles_that_exist(sources):
    times = read_compile_times(sources / "specs").by_tile
    assert set(TILES) <= set(times)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "'milliseconds' is missing"),
        ('{"milliseconds": {"a": "b", "c": 0}}', "'a' has no positive number"),
    ],
)
def test_a_broken_table_of_times_is_a_fault_of_the_spec(tmp_path, text, said):
    (tmp_path / "compile_times.json").write_text(text)
    with pytest.raises(SpecError, match=said):
        read_compile_times(tmp_path)


def test_times_are_means_over_the_records_of_a_tile(tmp_path):
    other = VARIANT.replace("_ch_", "_chz_")
    for name, milliseconds in ((VARIANT, 100), (other, 301)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"milliseconds": milliseconds}))
    assert measured_times(sorted(tmp_path.iterdir())) == {tile_of(Variant.parse(VARIANT)): 200}


# --- merging, with the stand-in: one variant compiles, so shard 1/2 has it and 2/2 is empty


@pytest.fixture
def shards(build, tmp_path):
    """Folders of both shards of a build of one kernel."""
    assert build("-q", "--shard", "1/2") == 0
    assert build("-q", "--shard", "2/2") == 0
    dist = tmp_path / "dist"
    return [dist / "sm_90-shard-1-of-2", dist / "sm_90-shard-2-of-2"]


@pytest.fixture
def merge(sources, tmp_path):
    def run(*folders):
        folders_of_merge = ["--work", str(tmp_path / "merge"), "-o", str(tmp_path / "merged")]
        options = ["--source", str(sources), *folders_of_merge]
        return main(["merge", *options, *map(str, folders)])

    return run


def edit(path, **changes):
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | changes))


def test_merged_shards_are_the_wheel_of_one_machine(build, merge, shards, tmp_path):
    assert merge(*reversed(shards)) == 0
    assert build("-q") == 0
    (one,) = (tmp_path / "dist").glob("*.whl")
    assert (tmp_path / "merged" / one.name).read_bytes() == one.read_bytes()


def test_a_shard_that_is_built_again_replaces_the_old_one(build, shards):
    (shards[0] / "left").touch()
    assert build("-q", "--shard", "1/2") == 0
    assert not (shards[0] / "left").exists()


def refused(merge, tmp_path, capsys, *folders):
    assert merge(*folders) == 11
    assert not list((tmp_path / "merged").glob("*"))
    return capsys.readouterr().err


def test_holes_are_refused(merge, shards, tmp_path, capsys):
    assert "shard 2/2 is missing" in refused(merge, tmp_path, capsys, shards[0])
    assert "shard 1/2 is missing" in refused(merge, tmp_path, capsys, shards[1])


def test_a_shard_given_twice_is_refused(merge, shards, tmp_path, capsys):
    error = refused(merge, tmp_path, capsys, *shards, shutil.copytree(shards[0], tmp_path / "a"))
    assert "shard 1/2 is there twice" in error


def test_a_kernel_in_two_shards_is_refused(merge, shards, tmp_path, capsys):
    shutil.rmtree(shards[1])
    shutil.copytree(shards[0], shards[1])
    edit(shards[1] / "shard.json", index=2)
    assert f"{VARIANT} is in " in refused(merge, tmp_path, capsys, *shards)


@pytest.mark.parametrize("key", ["compiler_sha256", "plan_sha256"])
def test_shards_of_another_compiler_or_plan_are_refused(merge, shards, tmp_path, capsys, key):
    edit(shards[1] / "shard.json", **{key: "0" * 64})
    assert f"{key} is {'0' * 64}" in refused(merge, tmp_path, capsys, *shards)


def test_shards_of_another_release_of_cuda_are_refused(merge, shards, tmp_path, capsys):
    edit(shards[1] / "manifest.json", cuda="13.1")
    assert "cuda is 13.1" in refused(merge, tmp_path, capsys, *shards)


def test_a_damaged_cubin_is_refused(merge, shards, tmp_path, capsys):
    (cubin,) = (shards[0] / "cubins").iterdir()
    content = bytearray(cubin.read_bytes())
    content[len(content) // 2] ^= 1
    cubin.write_bytes(content)
    assert VARIANT in refused(merge, tmp_path, capsys, *shards)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_folder_that_is_no_shard_is_refused(merge, shards, tmp_path, capsys, text):
    (shards[0] / "shard.json").write_text(text)
    assert "shard.json" in refused(merge, tmp_path, capsys, *shards)


def test_kernels_that_the_specs_do_not_plan_are_refused(merge, shards, tmp_path, capsys):
    for folder in shards:
        edit(folder / "shard.json", select=[VARIANT.replace("_ch_", "_chz_")])
    error = refused(merge, tmp_path, capsys, *shards)
    assert f"{VARIANT} is in a shard and not planned" in error
    assert "is planned and in no shard" in error
