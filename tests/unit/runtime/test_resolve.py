"""Which kernel takes which problem on which device; every miss says why and what would help."""

from dataclasses import replace
from pathlib import Path

import fake_packages as fake
import pytest

from humming_runtime import selection
from humming_runtime.contract.variant_name import ScaleScheme
from humming_runtime.discover import Package
from humming_runtime.errors import NoKernelError
from humming_runtime.known_devices import KNOWN_CAPABILITIES, assumed_device
from humming_runtime.problem import Problem
from humming_runtime.resolve import Distance, resolve, survey

# Written out, not computed: what NVIDIA's compatibility rules say (shared/design facts).
RUNS_ON = {
    "sm_75": {"7.5"},
    "sm_80": {"8.0", "8.6", "8.8", "8.9"},
    "sm_86": {"8.6", "8.8", "8.9"},
    "sm_87": {"8.7"},
    "sm_88": {"8.8", "8.9"},
    "sm_89": {"8.9"},
    "sm_90": {"9.0"},
    "sm_90a": {"9.0"},
    "sm_100": {"10.0", "10.3"},
    "sm_100a": {"10.0"},
    "sm_100f": {"10.0", "10.3"},
    "sm_103": {"10.3"},
    "sm_103a": {"10.3"},
    "sm_103f": {"10.3"},
    "sm_110": {"11.0"},
    "sm_110a": {"11.0"},
    "sm_110f": {"11.0"},
    "sm_120": {"12.0", "12.1"},
    "sm_120a": {"12.0"},
    "sm_120f": {"12.0", "12.1"},
    "sm_121": {"12.1"},
    "sm_121a": {"12.1"},
    "sm_121f": {"12.1"},
}
TIERS = {
    "75": "turing", "80": "ampere", "86": "ampere", "87": "ampere", "88": "ampere", "89": "ada",
    "90": "hopper", "100": "blackwell", "103": "blackwell", "110": "blackwell",
    "120": "blackwellrtx", "121": "blackwellrtx",
}  # fmt: skip


def own_kernel(target, tile="t32x64x64"):
    """A small kernel of the target's own tier, which fits every device."""
    number = target[3:].rstrip("af")
    return (
        f"dense_f16_u4_f16_g128f16_frag16_{TIERS[number]}-multistage_{tile}_w4r1_s2_"
        f"{target.replace('_', '')}"
    )


def package(names, name="humming-cubins-sm90-cu13", costs=None):
    return Package(fake.manifest(names, name, costs=costs), Path("nowhere"))


def problem(m=8, n=4096, k=4096, text="f16_u4_g128f16", op="dense", layout="frag16"):
    activation, weight, scale = text.split("_")
    return Problem(op, activation, weight, ScaleScheme.parse(scale), layout, m, n, k)


@pytest.mark.parametrize("capability", KNOWN_CAPABILITIES, ids=str)
@pytest.mark.parametrize("target", RUNS_ON)
def test_a_kernel_is_taken_exactly_where_its_target_runs(target, capability):
    name = own_kernel(target)
    device = assumed_device(capability)
    shown = f"{capability[0]}.{capability[1]}"
    found = survey(problem(), device, [package([name])])
    if shown in RUNS_ON[target]:
        assert [a.entry.name for a in found.accepted] == [name]
    else:
        assert found.accepted == ()
        [rejected] = found.rejected
        assert rejected.distance is Distance.TARGET
        assert target in rejected.reason
        assert shown in rejected.reason


@pytest.mark.parametrize("capability", KNOWN_CAPABILITIES, ids=str)
def test_of_equal_times_the_most_specific_target_wins(capability, monkeypatch):
    shape = selection.LaunchShape(1, 128, 1, 1, 1024, 2)
    choice = selection.Choice(shape, 5.0)
    monkeypatch.setattr(selection, "candidates", lambda *_: (choice,))
    shown = f"{capability[0]}.{capability[1]}"
    names = [own_kernel(target) for target in RUNS_ON]
    decision = resolve(problem(), assumed_device(capability), [package(names)])
    exact = "sm_" + shown.replace(".", "")
    runs = {target for target, where in RUNS_ON.items() if shown in where}
    preferred = [exact + "a", exact + "f", exact]
    assert decision.chosen.variant.target == next(t for t in preferred if t in runs)
    assert {a.variant.target for a in decision.others} == runs - {decision.chosen.variant.target}


def test_the_least_predicted_time_wins_and_names_break_ties(hopper):
    slow, fast = own_kernel("sm_90a"), own_kernel("sm_90a", "t64x64x64")
    costs = {slow: fake.cost(100.0), fast: fake.cost(1.0)}
    decision = resolve(problem(), hopper, [package([slow, fast], costs=costs)])
    assert decision.chosen.entry.name == fast
    assert decision.chosen.predicted_us < decision.others[0].predicted_us
    equal = resolve(problem(), hopper, [package([slow]), package([slow], "second")])
    assert [equal.chosen.package.name, equal.others[0].package.name] == [
        "humming-cubins-sm90-cu13",
        "second",
    ]


def test_decisions_do_not_depend_on_the_order_of_kernels(hopper):
    names = [fake.DECODE, fake.PREFILL, own_kernel("sm_90a")]
    forward = package(names)
    manifest = replace(forward.manifest, kernels=forward.manifest.kernels[::-1])
    backward = Package(manifest, forward.place)
    for m in (1, 8, 9, 500):
        chosen = [resolve(problem(m), hopper, [p]).chosen.entry.name for p in (forward, backward)]
        assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    ("wanted", "distance", "reason"),
    [
        ({"op": "moe"}, Distance.OP, "op is dense, wanted moe"),
        ({"text": "f16_u8_g128f16"}, Distance.WEIGHT, "weight dtype is u4, wanted u8"),
        ({"text": "bf16_u4_g128f16"}, Distance.ACTIVATION, "activation dtype is f16, wanted bf16"),
        ({"text": "f16_u4_g64f16"}, Distance.SCALE, "scale is g128f16, wanted g64f16"),
        ({"text": "f16_u4_g128zf16"}, Distance.SCALE, "scale is g128f16, wanted g128zf16"),
        ({"layout": "frag32"}, Distance.LAYOUT, "layout is frag16, wanted frag32"),
        ({"m": 9}, Distance.SIZE, "m is 9, the decode schedule holds at most 8 rows"),
    ],
)
def test_each_difference_has_its_reason(hopper, wanted, distance, reason):
    found = survey(problem(**wanted), hopper, [package([fake.DECODE])])
    assert found.accepted == ()
    [rejected] = found.rejected
    assert rejected.distance is distance
    assert reason in rejected.reason


def test_shared_memory_of_the_device_decides_not_its_capability_alone():
    # 163 KB fit on 8.0; 8.6 and 8.9 load the cubin and could not launch it
    name = "dense_f16_u4_f16_g128f16_frag16_ampere-multistage_t128x128x128_w8r2_s4_sm80"
    for capability, fits in (((8, 0), True), ((8, 6), False), ((8, 9), False)):
        found = survey(problem(m=512), assumed_device(capability), [package([name])])
        assert bool(found.accepted) is fits
        if not fits:
            assert "shared memory" in found.rejected[0].reason


def test_a_test_target_runs_only_when_forced(hopper):
    packages = [package([fake.TEST_TARGET])]
    found = survey(problem(), hopper, packages)
    assert found.accepted == ()
    assert "runs only when forced" in found.rejected[0].reason
    decision = resolve(problem(), hopper, packages, force=fake.TEST_TARGET)
    assert decision.chosen.entry.name == fake.TEST_TARGET
    assert decision.forced


def test_force_takes_the_named_variant_and_rejects_the_others(hopper):
    packages = [package([fake.DECODE, fake.PREFILL])]
    assert resolve(problem(), hopper, packages).chosen.entry.name == fake.DECODE
    decision = resolve(problem(), hopper, packages, force=fake.PREFILL)
    assert decision.chosen.entry.name == fake.PREFILL
    assert decision.others == ()
    assert [(r.name, r.reason) for r in decision.rejected] == [
        (fake.DECODE, f"{fake.PREFILL} is forced")
    ]


def test_a_forced_variant_that_cannot_run_is_an_error_with_its_reason(hopper):
    packages = [package([fake.DECODE, fake.PREFILL])]
    with pytest.raises(NoKernelError, match="holds at most 8 rows") as error:
        resolve(problem(m=64), hopper, packages, force=fake.DECODE)
    assert fake.PREFILL not in str(error.value)
    with pytest.raises(NoKernelError, match=r"nonsense: is forced and not installed"):
        resolve(problem(), hopper, packages, force="nonsense")


@pytest.mark.parametrize("capability", KNOWN_CAPABILITIES, ids=str)
def test_without_packages_the_error_names_the_one_that_helps(capability):
    with pytest.raises(NoKernelError) as error:
        resolve(problem(), assumed_device(capability), [])
    number = f"{capability[0]}{capability[1]}"
    assert "no kernel package is installed" in str(error.value)
    assert error.value.hint == f"pip install humming-cubins-sm{number}-cu13"


def test_a_miss_lists_the_nearest_first_and_counts_the_rest(hopper):
    far = [own_kernel(target) for target in RUNS_ON if not target.startswith("sm_90")]
    near = fake.DECODE
    packages = [package([near, *far]), package([fake.MULTISTAGE], "humming-cubins-sm80-cu13")]
    with pytest.raises(NoKernelError) as error:
        resolve(problem(m=64), hopper, packages)
    lines = str(error.value).splitlines()
    assert lines[0] == (
        "dense f16_u4_g128f16 frag16 (m 64, n 4096, k 4096): "
        "no kernel takes it on assumed H200, capability 9.0"
    )
    assert near in lines[1]
    assert len([line for line in lines if " (humming-cubins-" in line]) == 6
    assert "more (humming explain shows all)" in lines[-2]
    assert lines[-1] == "  hint: pip install --upgrade humming-cubins-sm90-cu13"


def test_an_old_device_gets_no_hint_to_a_package_that_does_not_exist(hopper):
    old = replace(hopper, capability=(7, 0), name="V100")
    with pytest.raises(NoKernelError) as error:
        resolve(problem(), old, [package([fake.DECODE])])
    assert error.value.hint is None


def test_a_decision_holds_every_candidate(hopper):
    names = [fake.DECODE, fake.PREFILL, fake.TEST_TARGET, fake.CHANNEL, fake.MULTISTAGE]
    decision = resolve(problem(), hopper, [package(names)])
    held = {decision.chosen.entry.name}
    held |= {a.entry.name for a in decision.others} | {r.name for r in decision.rejected}
    assert held == set(names)
