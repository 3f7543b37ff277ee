"""The stages of one arch in order: render, ninja, cubins, manifest, wheel."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from build_tools import compile_edge
from build_tools.facts import BuiltKernel, collect_facts
from build_tools.file_writes import write_current, write_if_changed
from build_tools.folders import Sources, WorkFolder, kernel_path, read_license
from build_tools.html_report.page import write_page
from build_tools.jobs import plan_jobs, this_machine
from build_tools.manifest_write import make_manifest
from build_tools.ninja_file import Programs, ninja_text
from build_tools.ninja_run import (
    Compiled,
    changed_since,
    locked,
    remove_stale,
    run_ninja,
    stamps,
)
from build_tools.plan import ArchPlan, Planned
from build_tools.render import render_sources, write_sources
from build_tools.report import CompileProgress, Notes, summary
from build_tools.scale.compile_times import CompileTimes
from build_tools.scale.cubin_key import cubin_keys
from build_tools.scale.cubin_store import CubinStore, Wanted
from build_tools.scale.shard_folder import shard_facts, write_shard
from build_tools.scale.shards import Shard, shard_of
from build_tools.source_hash import included_files
from build_tools.spec_budgets import Budgets
from build_tools.toolchain import Toolchain
from build_tools.validation import Validated
from build_tools.wheel import WheelResult, build_wheel
from build_tools.wheel_sizes import require_budget
from humming_runtime.contract.manifest import Manifest, to_json
from humming_runtime.contract.tuning import TuningTable

STAGES = ("plan", "render", "ninja", "cubins", "wheel")


@dataclass(frozen=True)
class ShardRequest:
    """Which part of each plan. select: patterns of the whole build."""

    shard: Shard
    times: CompileTimes
    select: tuple[str, ...]


@dataclass(frozen=True)
class BuildRequest:
    """What does not depend on the arch; an arch's work folder is `<work>/<arch>`."""

    sources: Sources
    toolchain: Toolchain | None  # None where no stage compiles
    records: tuple[Validated, ...]
    tables: tuple[TuningTable, ...]
    known: frozenset[str]  # every variant that the specs name, whatever the profile
    budgets: Budgets
    shards: ShardRequest | None
    until: str
    store: CubinStore | None
    jobs: int | None
    launcher: tuple[str, ...]  # words before each compiler call
    work: Path
    output: Path  # folder for wheels


def build_arch(request: BuildRequest, whole: ArchPlan, notes: Notes) -> WheelResult | None:
    """Run the stages up to `request.until`. Raises: BuildError of the stage that fails."""
    started = time.monotonic()
    shards = request.shards
    plan = whole if shards is None else shard_of(whole, shards.shard, shards.times)
    work = WorkFolder(request.work / plan.arch.name)
    with locked(
        work, lambda: notes.say(f"{plan.arch.name}: waiting for another build in {work.root}")
    ) as lock:
        sources = render_sources(request.sources.templates, plan.build)
        written = write_sources(work, sources)
        notes.detail(f"{plan.arch.name}: {len(sources)} sources, {written} written")
        if request.until == "render" or request.toolchain is None:
            notes.say(f"{plan.arch.name}: {len(plan.build)} sources rendered in {work.source}")
            return None
        keys = cubin_keys(plan.build, sources, request.toolchain)
        write_current(work.edge_script, Path(compile_edge.__file__).read_text(encoding="utf-8"))
        write_if_changed(work.ninja_file, _ninja_text(plan, keys, request.toolchain))
        if request.until == "ninja":
            notes.say(f"{plan.arch.name}: {work.ninja_file} has {len(plan.build)} edges")
            return None
        compiled, kernels = _compile(work, plan, request, _wanted(plan, keys, sources), lock, notes)
        manifest = make_manifest(
            plan, kernels, sources, request.toolchain, request.records, request.tables
        )
        write_if_changed(work.manifest, to_json(manifest))
        wheel = None
        if request.until == "wheel" and shards is not None:
            compiler = request.toolchain.digest
            facts = shard_facts(whole, shards.shard, shards.select, compiler)
            path = write_shard(work, manifest, facts, request.output)
            notes.say(f"{plan.arch.name}: shard {shards.shard} in {path}")
        elif request.until == "wheel":
            compiler = request.toolchain.digest
            wheel = finish_wheel(work, manifest, compiler, request.budgets, request.output)
        page = write_page(work, manifest, compiled, kernels)
        notes.say(summary(plan, compiled, kernels, wheel, page, time.monotonic() - started))
        return wheel


def finish_wheel(
    work: WorkFolder, manifest: Manifest, compiler_sha256: str, budgets: Budgets, output: Path
) -> WheelResult:
    """The wheel of a work folder with all cubins. Raises: BudgetError, DiskError."""
    check = partial(require_budget, budgets, manifest.profile)
    return build_wheel(work, manifest, compiler_sha256, output, read_license(), check)


def _compile(
    work: WorkFolder,
    plan: ArchPlan,
    request: BuildRequest,
    wanted: Sequence[Wanted],
    lock: int,
    notes: Notes,
) -> tuple[Compiled, tuple[BuiltKernel, ...]]:
    """What the store has is taken, the rest compiled and stored, what else fails or not."""
    removed = remove_stale(work, request.known)
    if removed:
        notes.detail(f"{plan.arch.name}: {removed} stale outputs removed")
    store = request.store
    fetched = frozenset[str]() if store is None else store.fetch(work, wanted)
    count = plan_jobs(this_machine(), request.jobs)
    progress = CompileProgress(plan.arch.name, notes)
    before = stamps(work, plan.build)
    try:
        run_ninja(work, plan.build, count, progress, lock, request.launcher)
    finally:
        progress.close()
        changed = changed_since(work, plan.build, before)
        if store is not None:
            stored = store.publish(work, wanted, changed - fetched)
            notes.detail(f"{plan.arch.name}: {stored} cubins stored in {store.place}")
    compiled = Compiled.of(plan.build, changed, fetched)
    return compiled, collect_facts(work, plan.build)


def _wanted(
    plan: ArchPlan, keys: Mapping[str, str], sources: Mapping[str, str]
) -> tuple[Wanted, ...]:
    """Compilations of a plan, as a store knows them."""
    wanted = []
    for item in plan.build:
        source = kernel_path(item.name)
        headers = tuple(sorted(included_files(source, sources) - {source}))
        wanted.append(Wanted(item, keys[item.name], headers))
    return tuple(wanted)


def _ninja_text(plan: ArchPlan, keys: Mapping[str, str], toolchain: Toolchain) -> str:
    programs = Programs(
        python=sys.executable,
        compiler=toolchain.command,
    )
    return ninja_text(_slowest_first(plan.build), keys, programs)


def _slowest_first(planned: Sequence[Planned]) -> list[Planned]:
    """Big tiles take longest; the last jobs of a run should be short ones."""
    return sorted(planned, key=lambda p: (-p.variant.tile_m * p.variant.tile_n, p.name))
