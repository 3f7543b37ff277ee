"""The stages of one arch in order: render, ninja, cubins, manifest, wheel."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build_tools import __file__ as package_file
from build_tools.errors import DiskError
from build_tools.facts import BuiltKernel, collect_facts
from build_tools.file_writes import write_if_changed
from build_tools.folders import Sources, WorkFolder, license_file
from build_tools.jobs import plan_jobs, this_machine
from build_tools.manifest_write import make_manifest
from build_tools.ninja_file import Programs, ninja_text
from build_tools.ninja_run import Compiled, locked, remove_stale, run_ninja
from build_tools.plan import ArchPlan, Planned
from build_tools.render import render_sources, write_sources
from build_tools.report import CompileProgress, Notes, summary
from build_tools.toolchain import Toolchain
from build_tools.validation import Validated
from build_tools.wheel import WheelResult, build_wheel
from humming_runtime.contract.manifest import to_json
from humming_runtime.contract.tuning import TuningTable

STAGES = ("plan", "render", "ninja", "cubins", "wheel")


@dataclass(frozen=True)
class BuildRequest:
    """What does not depend on the arch; an arch's work folder is `<work>/<arch>`."""

    sources: Sources
    toolchain: Toolchain | None  # None where no stage compiles
    records: tuple[Validated, ...]
    tables: tuple[TuningTable, ...]
    known: frozenset[str]  # every variant that the specs name, whatever the profile
    until: str
    jobs: int | None
    work: Path
    output: Path  # folder for wheels


def build_arch(request: BuildRequest, plan: ArchPlan, notes: Notes) -> WheelResult | None:
    """Run the stages up to `request.until`. Raises: BuildError of the stage that fails."""
    started = time.monotonic()
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
        write_if_changed(work.ninja_file, _ninja_text(plan, request.toolchain))
        if request.until == "ninja":
            notes.say(f"{plan.arch.name}: {work.ninja_file} has {len(plan.build)} edges")
            return None
        compiled, kernels = _compile(work, plan, request, lock, notes)
        manifest = make_manifest(
            plan, kernels, sources, request.toolchain, request.records, request.tables
        )
        write_if_changed(work.manifest, to_json(manifest))
        wheel = None
        if request.until == "wheel":
            license_text = _license()
            wheel = build_wheel(work, manifest, request.output, license_text)
        notes.say(summary(plan, compiled, kernels, wheel, time.monotonic() - started))
        return wheel


def _compile(
    work: WorkFolder, plan: ArchPlan, request: BuildRequest, lock: int, notes: Notes
) -> tuple[Compiled, tuple[BuiltKernel, ...]]:
    removed = remove_stale(work, request.known)
    if removed:
        notes.detail(f"{plan.arch.name}: {removed} stale outputs removed")
    count = plan_jobs(this_machine(), request.jobs)
    progress = CompileProgress(plan.arch.name, notes)
    try:
        compiled = run_ninja(work, plan.build, count, progress, lock)
    finally:
        progress.close()
    return compiled, collect_facts(work, plan.build)


def _ninja_text(plan: ArchPlan, toolchain: Toolchain) -> str:
    programs = Programs(
        python=sys.executable,
        edge_script=str(Path(package_file).with_name("compile_edge.py").resolve()),
        nvcc=str(Path(toolchain.nvcc).resolve()),
        host_compiler=toolchain.host_compiler,
        digest=toolchain.digest,
    )
    return ninja_text(_slowest_first(plan.build), programs)


def _slowest_first(planned: Sequence[Planned]) -> list[Planned]:
    """Big tiles take longest; the last jobs of a run should be short ones."""
    return sorted(planned, key=lambda p: (-p.variant.tile_m * p.variant.tile_n, p.name))


def _license() -> str:
    path = license_file()
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DiskError.of(str(path), (error.strerror or str(error)).lower()) from error
