"""Many kernels against the reference, or one kernel with faults."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from build_tools import name_glob
from build_tools.plan import make_plan
from build_tools.spec_load import load_specs
from humming_runtime.contract.launch_shape import decode_k_share
from humming_runtime.contract.variant_name import Variant

from .cases import FAULTS, Case, run
from .compile import compile_ptx
from .faults import faults_of

ROOT = Path(__file__).resolve().parents[2]
ARCHS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  a command prints


def variants(profile: str, patterns: list[str]) -> list[str]:
    """Names of the variants that a profile builds for an arch of every tier that is emulated."""
    specs = load_specs(ROOT / "specs")
    archs = [arch for arch in specs.archs if arch.name in ARCHS]
    names = [item.name for plan in make_plan(specs, archs, profile) for item in plan.build]
    return [n for n in names if not patterns or any(name_glob.matches(p, n) for p in patterns)]


def cases_of(name: str, count: int, seed: int) -> Iterator[Case]:
    """Odd sizes for one kernel, the same for the same seed."""
    variant = Variant.parse(name)
    source = random.Random(f"{name} {seed}")
    yield _longest(variant, source, seed)
    for place in range(1, count):
        decode = variant.schedule == "decode"
        split = source.choice((1, 2, 4)) if variant.schedule != "multistage" else 1
        if variant.schedule == "prefill" and place % 2 == 0:
            split = 1
        m = source.randint(1, min(variant.tile_m, 40)) if decode else source.randint(1, 48)
        n = 8 * source.randint(1, max(2, variant.tile_n // 4))
        k = 8 * source.randint(1, 160) + (128 * split if split > 1 else 0)
        if variant.schedule == "decode":
            split = split if decode_k_share(k, split) * (split - 1) < k else 1
        elif split > -(-k // variant.tile_k):
            split = 1
        yield Case(
            name, m, n, k, split_k=split, ctas=source.choice((2, 4, 8)), bias=source.random() < 0.5,
            tensor_scale=source.choice((None, 0.5)), seed=source.choice((None, place + seed)),
        )  # fmt: skip


def _longest(variant: Variant, source: random.Random, seed: int) -> Case:
    """A size at which every ring wraps, and a decode CTA makes two tiles and more.

    The last step of a multistage kernel reads the stage that the epilogue writes first.
    """
    decode = variant.schedule == "decode"
    m = min(variant.tile_m, source.randint(3, 24))
    n = 2 * variant.tile_n + 8 if decode else 8 * source.randint(1, variant.tile_n // 8)
    steps = {"decode": 2, "prefill": variant.stages + 4, "multistage": variant.stages}
    k = steps[variant.schedule] * variant.tile_k + 8 * source.randint(1, 7)
    stages = 2 if decode else None
    return Case(str(variant), m, n, k, ctas=1, stages=stages, bias=True, seed=seed)


def _check(arguments: tuple[str, int, int]) -> tuple[str, float, list[str]]:
    name, count, seed = arguments
    start, faults = time.perf_counter(), []
    for case in cases_of(name, count, seed):
        try:
            fault = run(case)
        except FAULTS as error:
            fault = str(error)
        if fault is not None:
            faults.append(f"{case} seed {case.seed}: {fault}")
    return name, time.perf_counter() - start, faults


def check_kernels(names: list[str], count: int, seed: int, jobs: int) -> int:
    """Prints a line a kernel. Returns: how many are wrong."""
    wrong = 0
    work = [(name, count, seed) for name in names]
    with get_context("spawn").Pool(jobs) as pool:
        for name, seconds, faults in pool.imap_unordered(_check, work):
            wrong += bool(faults)
            _say(f"{'WRONG' if faults else 'right'} {seconds:6.1f} s  {name}")
            for fault in faults:
                _say(f"      {fault}")
    _say(f"{len(names) - wrong} of {len(names)} kernels are right")
    return wrong


def check_faults(name: str, count: int, seed: int) -> int:
    """Leave out one synchronisation at a time. Returns: how many nobody notices."""
    unnoticed = 0
    for fault in faults_of(compile_ptx(Variant.parse(name))):
        said = None
        for case in cases_of(name, count, seed):
            try:
                said = run(case, fault.ptx)
            except FAULTS as error:
                said = str(error)
            if said is not None:
                break
        unnoticed += said is None
        _say(f"line {fault.line} `{fault.text}` left out: {said or 'NOT NOTICED'}")
    _say(f"{unnoticed} not noticed")
    return unnoticed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="name patterns of variants, as --select has")
    parser.add_argument("--all", action="store_true", help="every kernel of the profile")
    parser.add_argument("--profile", default="full")
    parser.add_argument("--faults", action="store_true", help="leave synchronisation out instead")
    parser.add_argument("--cases", type=int, default=3, help="sizes a kernel (default 3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    given = parser.parse_args()
    if not given.patterns and not given.all:
        parser.error("name kernels, or --all")
    names = variants(given.profile, given.patterns)
    if not names:
        parser.error("no kernel of the profile matches")
    if given.faults:
        return int(sum(check_faults(name, given.cases, given.seed) for name in names) > 0)
    return int(check_kernels(names, given.cases, given.seed, given.jobs) > 0)
