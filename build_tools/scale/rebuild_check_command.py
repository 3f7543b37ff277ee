"""`humming-build rebuild-check WHEEL`: build kernels of a wheel again and compare."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from build_tools import invocation
from build_tools.command_options import FILE, FOLDER, notes_options
from build_tools.errors import NotReproducedError, UsageError
from build_tools.file_writes import disk_error, sha256_file
from build_tools.folders import WorkFolder
from build_tools.release.kernel_wheel import KernelWheel, KernelWheelError, open_kernel_wheel
from build_tools.report import Notes
from build_tools.scale.rebuild_check import archive_differences, kernel_differences, sample_of
from humming_runtime.contract.manifest import from_json

_SAMPLE = 8


@click.command("rebuild-check")
@click.argument("wheel", type=FILE)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=_SAMPLE,
    show_default=True,
    help="How many kernels, drawn by the wheel's own hash.",
)
@click.option("--all", "everything", is_flag=True, help="All kernels and the wheel's own bytes.")
@click.option("--source", type=FOLDER, help="Folder with specs/ and templates/ of the wheel.")
@click.option("--nvcc", type=FILE, help="Compiler, as in the build.")
@click.option("-j", "jobs", type=click.IntRange(min=1), help="Compilers at once.")
@click.option(
    "--work",
    type=FOLDER,
    default=Path("build/rebuild-check"),
    show_default=True,
    help="Folder for cubins; what is there of an earlier check is removed.",
)
@notes_options
def rebuild_check(
    wheel: Path,
    sample: int,
    everything: bool,
    source: Path | None,
    nvcc: Path | None,
    jobs: int | None,
    work: Path,
    verbose: bool,
    quiet: bool,
) -> None:
    """Build kernels of WHEEL again from this checkout and compare them byte by byte.

    Exit code 12 and every difference where one is found.
    """
    notes = Notes(-1 if quiet else int(verbose))
    published = _open(wheel)
    names = [entry.name for entry in published.manifest.kernels]
    chosen = tuple(names) if everything else sample_of(names, sample, sha256_file(wheel))
    engine = published.manifest.engine
    machine = invocation.Machine(jobs, nvcc, work / "build", work / "dist", None, engine=engine)
    until = "wheel" if everything else "cubins"
    _remove(work, machine)
    results = _rebuild(published, chosen, source, machine, until, notes)
    folder = WorkFolder(machine.work / published.manifest.arch)
    rebuilt = from_json(folder.manifest.read_text(encoding="utf-8"), str(folder.manifest))
    faults = kernel_differences(published.manifest, rebuilt)
    if not faults:
        faults = [fault for path in results for fault in archive_differences(published, path)]
    if faults:
        raise NotReproducedError(faults)
    what = "the wheel and all of its" if everything else f"{len(chosen)} of {len(names)}"
    notes.say(f"{wheel.name}: {what} kernels have the same bytes")


def _open(wheel: Path) -> KernelWheel:
    try:
        return open_kernel_wheel(wheel)
    except KernelWheelError as error:
        raise UsageError.of(str(wheel), str(error)) from error


def _remove(work: Path, machine: invocation.Machine) -> None:
    """Only what a check makes: `work` may be any folder of the user."""
    try:
        for folder in (machine.work, machine.output):
            if folder.exists():
                shutil.rmtree(folder)
    except OSError as error:
        raise disk_error(work, error) from error


def _rebuild(
    published: KernelWheel,
    names: tuple[str, ...],
    source: Path | None,
    machine: invocation.Machine,
    until: str,
    notes: Notes,
) -> list[Path]:
    manifest = published.manifest
    whole = invocation.plan(invocation.Selection((manifest.arch,), manifest.profile, ()), source)
    have = {item.name for plan in whole.plans for item in plan.build}
    missing = [name for name in names if name not in have]
    if missing:
        message = f"{missing[0]} is not in profile {manifest.profile!r} of these specs"
        hint = f"check out the sources of version {manifest.version}"
        raise NotReproducedError.of(published.path.name, message, hint)
    selection = invocation.Selection((manifest.arch,), manifest.profile, names)
    planned = invocation.plan(selection, source)
    return [result.path for result in invocation.build(planned, machine, until, notes)]
