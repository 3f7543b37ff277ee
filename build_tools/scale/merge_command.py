"""`humming-build merge SHARD...`: the folders of all shards to the wheel of each arch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from build_tools import invocation
from build_tools.command_options import FOLDER, notes_options, output_option
from build_tools.folders import WorkFolder
from build_tools.ninja_run import locked
from build_tools.pipeline import finish_wheel
from build_tools.report import Notes
from build_tools.scale.merge import gather, merged_kernels, require_whole
from build_tools.scale.shard_folder import ShardFolder, read_shard
from build_tools.tuning_tables import tables_of_build
from build_tools.wheel import WheelResult, require_epoch


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="SHARD...", type=FOLDER)
@click.option("--source", type=FOLDER, help="Folder with specs/, as in the build.")
@click.option(
    "--work", type=FOLDER, default=Path("build/merge"), show_default=True, help="Folder for cubins."
)
@output_option
@notes_options
def merge(
    folders: tuple[Path, ...],
    source: Path | None,
    work: Path,
    output: Path,
    verbose: bool,
    quiet: bool,
) -> None:
    """Join the shards of a build into wheels with the bytes that one machine would have made.

    Holes, duplicates, damaged cubins, and shards of different builds or compilers are refused.
    """
    notes = Notes(-1 if quiet else int(verbose))
    require_epoch()
    by_arch: dict[str, list[ShardFolder]] = {}
    for folder in folders:
        shard = read_shard(folder)
        by_arch.setdefault(shard.facts.arch, []).append(shard)
    for arch in sorted(by_arch):
        shards = sorted(by_arch[arch], key=lambda one: one.facts.index)
        wheel = _merge_arch(arch, shards, source, work, output)
        notes.say(
            f"{arch}: {len(shards)} shards merged\n"
            f"  wheel: {wheel.path} ({wheel.size_bytes / 1e6:.2f} MB)\n  sha256: {wheel.sha256}"
        )


def _merge_arch(
    arch: str, shards: Sequence[ShardFolder], source: Path | None, work: Path, output: Path
) -> WheelResult:
    kernels = merged_kernels(shards)
    first = next((shard for shard in shards if shard.manifest.kernels), shards[0])
    profile = first.manifest.profile
    selection = invocation.Selection((arch,), profile, first.facts.select)
    planned = invocation.plan(selection, source)
    (plan,) = planned.plans
    require_whole(kernels, [item.name for item in plan.build], arch)
    manifest = replace(
        first.manifest,
        kernels=kernels,
        tuning=tables_of_build(planned.tables(), plan.arch, [item.variant for item in plan.build]),
    )
    folder = WorkFolder(work / arch)
    with locked(folder, lambda: None):
        gather(shards, folder)
        compiler = first.facts.compiler_sha256
        return finish_wheel(folder, manifest, compiler, planned.budgets(), output)
