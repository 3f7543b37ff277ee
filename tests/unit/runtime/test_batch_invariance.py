"""Batch-invariant mode: one order of sums for all m of a layer; calls in blocks of rows."""

from __future__ import annotations

from pathlib import Path

import fake_packages as fake
import pytest

from build_tools.plan import make_plan
from build_tools.spec_load import load_specs
from humming_runtime.batch_invariance import RowBlocks, k_order
from humming_runtime.contract import launch_shape
from humming_runtime.contract.variant_name import ScaleScheme, Variant
from humming_runtime.discover import discover
from humming_runtime.driver import Driver
from humming_runtime.engine import Engine
from humming_runtime.gemm_plan import GemmPlan, WeightOperands
from humming_runtime.known_devices import assumed_device
from humming_runtime.problem import Problem

SPECS = load_specs(Path(__file__).resolve().parents[3] / "specs")
FORMAT = "*_u4_*_g128f16_*"
SHAPES = [(4096, 4096), (14336, 4096), (4096, 14336), (2112, 7168), (576, 320), (28672, 8192)]
ROWS = [*range(1, 34), 64, 100, 257, 1024, 8192]


@pytest.fixture(scope="module", params=["sm_90", "sm_80", "sm_89"])
def arch(request):
    return next(a for a in SPECS.archs if a.name == request.param)


@pytest.fixture(scope="module")
def kernels(arch, tmp_path_factory):
    """The default wheel's kernels of one format, with their costs. Returns the installed set."""
    (plan,) = make_plan(SPECS, [arch], "default", [FORMAT])
    costs = {item.name: item.cost for item in plan.build}
    folder = fake.write_package(tmp_path_factory.mktemp(arch.name), list(costs), costs=costs)
    return discover(str(folder))


def problem(m, n, k):
    return Problem("dense", "f16", "u4", ScaleScheme.parse("g128f16"), "frag16", m, n, k)


def order_of(decision):
    return k_order(decision.chosen.variant, decision.chosen.shape)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_every_m_of_a_layer_adds_in_one_order(kernels, arch, n, k):
    engine, device = Engine(kernels, batch_invariant=True), assumed_device(arch.capability)
    decisions = {m: engine.resolve(problem(m, n, k), device) for m in ROWS}
    assert len({order_of(decision) for decision in decisions.values()}) == 1
    assert None not in map(order_of, decisions.values())
    for m, decision in decisions.items():
        limit = decision.rows_at_once
        assert limit is None or decision.chosen.variant.tile_m >= min(m, limit)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_few_rows_lose_little_to_the_free_choice_by_the_cost_model(kernels, arch, n, k):
    device = assumed_device(arch.capability)
    free, invariant = Engine(kernels), Engine(kernels, batch_invariant=True)
    for m in (1, 2, 4, 8, 16):
        asked = problem(m, n, k)
        best = free.resolve(asked, device).chosen.predicted_us
        decision = invariant.resolve(asked, device)
        blocks = -(-m // (decision.rows_at_once or m))
        assert blocks * decision.chosen.predicted_us <= 1.25 * best


def test_orders_tell_what_changes_sums_and_nothing_else():
    def order(name, split=1):
        variant = Variant.parse(f"dense_f16_u4_f16_g128f16_frag16_{name}")
        if variant.schedule == "decode":
            shape = launch_shape.decode_shape(variant, (4, 512, 8192), split, 64, 200_000)
        else:
            shape = launch_shape.tiled_shape(variant, 4, 512, split)
        return k_order(variant, shape)

    small, large = (
        "hopper-decode_t8x32x1024_w8r2_s6_sm90a",
        "hopper-decode_t16x64x1024_w8r4_s4_sm90a",
    )
    assert order(small) == order(large)
    assert order(small) != order(small, split=2)
    assert order(small) != order("hopper-decode_t8x32x2048_w16r2_s4_sm90a")
    wide = "hopper-prefill_t64x128x128_w8_s4_sm90a"
    assert order(wide) == order("hopper-prefill_t16x128x128_w8_s8_sm90a")
    assert order(wide) != order("hopper-prefill_t64x64x128_w8_s6_sm90a")
    assert order(wide, split=2) is None
    four = "ampere-multistage_t64x128x64_w4r2_s3_sm80"
    assert order(four) == order("ampere-multistage_t128x128x64_w8r1_s3_sm80")
    assert order(four) != order("ampere-multistage_t16x32x256_w4r2_s4_sm80")


def test_the_mode_comes_from_the_environment_and_is_off_by_default(kernels, monkeypatch):
    assert not Engine(kernels).batch_invariant
    for value, wanted in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("HUMMING_BATCH_INVARIANT", value)
        assert Engine(kernels).batch_invariant is wanted
    assert not Engine(kernels, batch_invariant=False).batch_invariant


def test_the_explanation_names_the_order(kernels, arch):
    engine, device = Engine(kernels, batch_invariant=True), assumed_device(arch.capability)
    survey = engine.explain(problem(8, 4096, 4096), device)
    assert len({k_order(one.variant, one.shape) for one in survey.accepted}) == 1
    reasons = {rejected.reason for rejected in survey.rejected}
    assert any("batch-invariant mode takes" in reason for reason in reasons)


def test_a_forced_kernel_comes_before_the_mode(kernels, arch):
    name = max(entry.name for package in kernels.packages for entry, _ in package.kernels)
    engine = Engine(kernels, force=name, batch_invariant=True)
    decision = engine.resolve(problem(4, 4096, 4096), assumed_device(arch.capability))
    assert decision.chosen.entry.name == name
    assert decision.rows_at_once is None


class Recorder:
    def __init__(self, fails=None):
        self.calls, self.fails = [], fails

    def launch(self, *arguments):
        self.calls.append(arguments)
        return self.fails if len(self.calls) == 2 else None


def test_blocks_of_rows_follow_each_other_and_a_failure_ends_them():
    block, rest = Recorder(), Recorder()
    given = (4096, 100, 8192, 200, None, 7, True)
    assert RowBlocks(block, 16, 2, rest).launch(*given) is None
    tail = (None, 7, True)
    assert block.calls == [
        (4096, 100, 8192, 200, *tail),
        (4096 + 3200, 100, 8192 + 6400, 200, *tail),
    ]
    assert rest.calls == [(4096 + 6400, 100, 8192 + 12800, 200, *tail)]
    failing, never = Recorder(("cuLaunchKernelEx", 700)), Recorder()
    assert RowBlocks(failing, 16, 2, never).launch(*given) == ("cuLaunchKernelEx", 700)
    assert never.calls == []


def test_a_plan_launches_more_rows_than_a_kernel_holds_in_blocks(tmp_path, stub, launcher):
    folder = fake.write_package(tmp_path / "kernels", [fake.DECODE])
    engine = Engine(discover(str(folder)), Driver(stub), batch_invariant=True)
    operands = WeightOperands(
        "dense", "f16", "u4", ScaleScheme.parse("g128f16"), "frag16", 512, 1024, 8,
        weight=0x1_0000_0000, weight_scale=0x2_0000_0000,
    )  # fmt: skip
    plan = GemmPlan(operands, 0, engine)
    plan.launch(20, 0x7F00_0000_0000, 1024, 0x7F10_0000_0000, 512, 0)
    assert engine.launches() == {fake.DECODE: 3}  # 8 + 8 + 4 rows
