"""The release workflow builds every part of every arch, and publishes only what was tested."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from build_tools.nvrtc_toolchain import LAST_CAPABILITY
from build_tools.scale.shards import parse_shard
from build_tools.spec_load import load_specs

ROOT = Path(__file__).resolve().parents[2]
JOBS = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())["jobs"]


def commands(job):
    return "\n".join(step.get("run", "") for step in JOBS[job]["steps"])


def test_every_arch_and_every_shard_is_built():
    matrix = JOBS["kernels"]["strategy"]["matrix"]
    assert matrix["arch"] == [arch.name for arch in load_specs(ROOT / "specs").archs]
    (count,) = [
        parse_shard(word.replace("${{ matrix.shard }}", "1")).count
        for word in commands("kernels").replace("${{ matrix.shard }}", "1").split()
        if "/" in word and word[0].isdigit()
    ]
    assert matrix["shard"] == list(range(1, count + 1))


def test_all_builds_of_one_release_have_one_time():
    for job in ("kernels", "kernels-cuda12", "merge", "runtime", "bundle"):
        assert "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)" in commands(job)


@pytest.mark.parametrize(
    ("job", "after"),
    [
        ("kernels", "test"),
        ("merge", "kernels"),
        ("install", "merge"),
        ("install", "kernels-cuda12"),
        ("bundle", "install"),
        ("attest", "bundle"),
        ("publish", "attest"),
    ],
)
def test_a_job_waits_for_the_one_before(job, after):
    needs = JOBS[job]["needs"]
    assert after in ([needs] if isinstance(needs, str) else needs)


def artifacts(job, action):
    """Patterns or names of what a job puts up or takes down."""
    parts = [step["with"] for step in JOBS[job]["steps"] if action in step.get("uses", "")]
    return [part.get("pattern") or part.get("name") for part in parts]


def test_shards_are_never_published():
    for job in ("install", "bundle", "publish"):
        assert artifacts(job, "download-artifact") == ["wheels-*"]
    assert artifacts("attest", "download-artifact") == ["wheels-*", "bundle"]
    assert artifacts("merge", "download-artifact") == ["shard-*"]
    for job in ("merge", "runtime", "kernels-cuda12"):
        assert fnmatch(*artifacts(job, "upload-artifact"), "wheels-*")
    assert fnmatch(*artifacts("kernels", "upload-artifact"), "shard-*")


def test_cuda_12_wheels_are_built_for_every_arch_that_nvrtc_can():
    archs = load_specs(ROOT / "specs").archs
    words = [a.name for a in archs if a.capability <= LAST_CAPABILITY and a.min_cuda < (13, 0)]
    assert f'--arch "{",".join(words)}"' in commands("kernels-cuda12")


def test_only_tags_are_signed_and_published_and_no_other_job_may_sign():
    for job, content in JOBS.items():
        signs = content.get("permissions", {}).get("id-token") == "write"
        assert signs == (job in ("attest", "publish"))
        assert ("refs/tags/v" in content.get("if", "")) == signs
