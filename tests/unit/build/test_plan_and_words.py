"""What a command line asks for becomes a sorted plan, or a fault that names what is known."""

from __future__ import annotations

import pytest
from fake_build import ROOT, VARIANT

from build_tools import name_glob
from build_tools.arch_words import parse_archs
from build_tools.cli import main
from build_tools.errors import NothingToBuildError, UsageError
from build_tools.jobs import Machine, plan_jobs
from build_tools.limits import limit_reason
from build_tools.plan import make_plan, require_work
from build_tools.spec_load import load_specs
from humming_runtime.contract.variant_name import Variant

SPECS = load_specs(ROOT / "specs")
ARCHS = {arch.name: arch for arch in SPECS.archs}


@pytest.mark.parametrize("word", ["sm_90", "sm90", "90", "9.0", "sm_90a", "9.0a", "SM_90"])
def test_every_form_of_an_arch_is_known(word):
    assert [arch.name for arch in parse_archs([word], SPECS.archs)] == ["sm_90"]


@pytest.mark.parametrize("text", ["8.0,9.0", "9.0;8.0", "80 90", "8.0, sm_90 "])
def test_lists_are_split_and_sorted(text):
    assert [arch.name for arch in parse_archs([text], SPECS.archs)] == ["sm_80", "sm_90"]


def test_all_is_every_arch():
    assert parse_archs(["all"], SPECS.archs) == SPECS.archs
    assert len(SPECS.archs) == 12


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("8.0a", "does not exist"),
        ("8.0+PTX", "PTX"),
        ("", "empty"),
        ("9.0,,8.0", "empty"),
        ("sm_91", "known: sm_75"),
        ("hopper", "unknown arch 'hopper'"),
        ("al", "did you mean 'all'"),
    ],
)
def test_a_word_that_is_no_arch_is_never_dropped(word, reason):
    with pytest.raises(UsageError, match=reason.replace("+", r"\+")):
        parse_archs([word], SPECS.archs)


@pytest.mark.parametrize("profile", ["quick", "default", "full", "proof"])
@pytest.mark.parametrize("arch", sorted(ARCHS))
def test_every_profile_builds_something_for_every_arch_in_order(profile, arch):
    (plan,) = make_plan(SPECS, [ARCHS[arch]], profile)
    names = [item.name for item in plan.build]
    assert names
    assert names == sorted(set(names))
    assert not set(names) & {skipped.name for skipped in plan.skipped}
    assert all(skipped.reason for skipped in plan.skipped)


def test_turing_has_no_bf16_and_says_why():
    (plan,) = make_plan(SPECS, [ARCHS["sm_75"]], "full")
    assert not [item for item in plan.build if item.variant.activation == "bf16"]
    reasons = {s.reason.partition(" (")[0] for s in plan.skipped if "_bf16_" in s.name}
    assert reasons == {"turing's matrix instruction takes fp16 only"}


def test_proof_builds_every_tier_for_hopper():
    (plan,) = make_plan(SPECS, [ARCHS["sm_90"]], "proof")
    tiers = {item.variant.tier for item in plan.build}
    assert tiers == {"turing", "ampere", "ada", "hopper", "blackwell", "blackwell_rtx"}
    assert {item.variant.target for item in plan.build} == {"sm_90a"}


def test_the_default_profile_covers_every_format_and_its_kernels_have_costs():
    (plan,) = make_plan(SPECS, [ARCHS["sm_90"]], "default")
    formats = {item.variant.format for item in plan.build}
    assert {variant for variant in formats if "_u4_" in variant} == {
        f"{word}_u4_{scale}"
        for word in ("f16", "bf16")
        for scale in (
            *(f"g{size}{zero}{word}" for size in (32, 64, 128) for zero in ("", "z")),
            *("ch", "chz"),
        )
    }
    for word in ("f16", "bf16"):  # checkpoints in fp8, MXFP4, NVFP4, GPTQ of 2, 3 and 8 bits
        wanted = ("e4m3_ch", "e4m3_g128f32", "e2m1_g32e8m0", "e2m1_g16e4m3", f"u3_g128z{word}")
        assert {f"{word}_{one}" for one in wanted} <= formats
    assert all(item.cost is not None for item in plan.build)


def test_a_cubin_for_163_kb_is_not_planned_for_99_kb():
    name = "dense_f16_u4_f16_ch_frag16_ampere-multistage_t128x128x64_w8r1_s6_{}"
    assert limit_reason(Variant.parse(name.format("sm80")), ARCHS["sm_80"]) is None
    reason = limit_reason(Variant.parse(name.format("sm86")), ARCHS["sm_86"])
    assert reason is not None
    assert "allows 101376" in reason


def test_an_empty_selection_names_arch_and_pattern():
    plans = make_plan(SPECS, [ARCHS["sm_90"]], "default", ["*nothing*"])
    with pytest.raises(NothingToBuildError, match=r"sm_90: .*'\*nothing\*'"):
        require_work(plans, ["*nothing*"])


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [("a{b,c}d", ("abd", "acd")), ("{a,b{c,d}}", ("a", "bc", "bd")), ("x", ("x",))],
)
def test_braces_are_alternatives(pattern, texts):
    assert name_glob.expand(pattern) == texts


@pytest.mark.parametrize(
    ("machine", "wanted", "jobs"),
    [
        (Machine(8, None, None, None), None, 8),
        (Machine(8, 900 << 20, None, None), None, 3),
        (Machine(8, None, 2.0, None), None, 2),
        (Machine(8, None, None, 100 << 20), None, 1),
        (Machine(8, 300 << 20, 1.0, None), 5, 5),
    ],
)
def test_jobs_follow_cores_memory_and_cgroup_unless_asked(machine, wanted, jobs):
    assert plan_jobs(machine, wanted) == jobs


def test_list_prints_names_alone(capsys):
    assert main(["--arch", "all", "--profile", "quick", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(str(Variant.parse(line)) == line for line in lines)
    assert {Variant.parse(line).target for line in lines} >= {"sm_75", "sm_90a", "sm_121"}


def test_why_gives_the_reason(capsys):
    assert main(["--profile", "quick", "--why", VARIANT]) == 0
    assert "not in profile 'quick'" in capsys.readouterr().out
    assert main(["--why", VARIANT]) == 0
    assert "built (family dense_a16_w4" in capsys.readouterr().out
    assert main(["--why", VARIANT.replace("t8x64", "t8x65")]) == 2
    assert "did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--arch", "sm_91"], 2, "unknown arch"),
        (["--profile", "fast"], 2, "known: quick"),
        (["--until", "link"], 2, "plan"),
        (["--nonsense"], 2, "--nonsense"),
        (["-j", "0"], 2, "-j"),
        (["--select", "*{*"], 2, "without"),
        (["--select", "nothing"], 4, "no variant"),
        (["--nvcc", "missing"], 5, "is no program"),
        (["--source", "missing"], 2, "no folder"),
    ],
)
def test_a_users_mistake_has_its_exit_code_and_no_traceback(arguments, code, text, capsys):
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error


def test_a_bug_shows_its_traceback(monkeypatch):
    def broken(_folder):
        raise RuntimeError("a bug")

    monkeypatch.setattr("build_tools.invocation.load_specs", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["--list"])
