"""`humming-build`: specs to wheels. Options are the contract that scripts rely on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from build_tools import __version__
from build_tools.arch_words import parse_archs
from build_tools.errors import BuildError, InterruptedBuildError, UsageError, did_you_mean
from build_tools.folders import find_sources
from build_tools.pipeline import STAGES, BuildRequest, build_arch
from build_tools.plan import ArchPlan, make_plan, require_work
from build_tools.report import Notes
from build_tools.spec_load import every_variant, load_specs
from build_tools.toolchain import find_toolchain
from build_tools.tuning_tables import read_tuning
from build_tools.validation import read_validated
from build_tools.wheel import require_epoch
from humming_runtime.contract.exit_codes import BuildExit

_EXIT_CODES = """\b
Exit codes: 0 ok, 1 bug, 2 usage, 3 spec, 4 nothing to build, 5 toolchain,
6 compile, 7 spill, 8 cubin mismatch, 9 disk, 130 interrupted."""


@click.command(epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="WORD",
    help="sm_90, sm90, 90, 9.0, sm_90a, all; lists by `,` `;` or space; repeatable.  "
    "[default: sm_90]",
)
@click.option(
    "--profile", default="default", show_default=True, help="quick, default, full or proof."
)
@click.option(
    "--select", multiple=True, metavar="GLOB", help="Only variants that match; repeatable."
)
@click.option(
    "--until",
    type=click.Choice(STAGES),
    default="wheel",
    show_default=True,
    help="Last stage to run.",
)
@click.option("--list", "listing", is_flag=True, help="Print variant names, one a line, and stop.")
@click.option("--why", metavar="NAME", help="Say why a variant is built or not, and stop.")
@click.option(
    "-j", "jobs", type=click.IntRange(min=1), help="Compilers at once.  [default: by machine]"
)
@click.option(
    "--nvcc",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Compiler.  [default: this environment's packages, CUDA_HOME, PATH]",
)
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist"),
    show_default=True,
    help="Folder for wheels.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build"),
    show_default=True,
    help="Folder for sources, cubins and logs.",
)
@click.option(
    "--source",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder with specs/ and templates/.  [default: the checkout's or the installed ones]",
)
@click.option("-v", "--verbose", is_flag=True, help="Say more.")
@click.option("-q", "--quiet", is_flag=True, help="Say only what is wrong.")
@click.version_option(__version__, prog_name="humming-build")
def command(  # the options of the contract
    archs: tuple[str, ...],
    profile: str,
    select: tuple[str, ...],
    until: str,
    listing: bool,
    why: str | None,
    jobs: int | None,
    nvcc: Path | None,
    output: Path,
    work: Path,
    source: Path | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Build wheels of quantized-GEMM kernels from specs, one per architecture."""
    notes = Notes(-1 if quiet else int(verbose))
    sources = find_sources(source)
    specs = load_specs(sources.specs)
    chosen = parse_archs(archs or ("sm_90",), specs.archs)
    plans = make_plan(specs, chosen, profile, select)
    if why is not None:
        click.echo("\n".join(_reasons(plans, why)))
        return
    require_work(plans, select)
    if listing:
        click.echo("\n".join(item.name for plan in plans for item in plan.build))
        return
    for plan in plans:
        counts = f"{len(plan.build)} variants, {len(plan.skipped)} skipped"
        notes.say(f"{plan.arch.name}: profile {profile}, {counts}")
    if until == "plan":
        return
    require_epoch()
    toolchain = None
    if until != "render":
        cache = work / "toolchain.json"
        toolchain = find_toolchain(nvcc, [plan.arch for plan in plans], cache)
        notes.detail(f"nvcc: {toolchain.nvcc} (CUDA {toolchain.cuda})")
    records = read_validated(sources.specs)
    every = every_variant(specs)
    tables = read_tuning(sources.specs, every)
    known = frozenset(str(variant) for variant in every)
    request = BuildRequest(sources, toolchain, records, tables, known, until, jobs, work, output)
    _build_all(request, plans, notes)


def _build_all(request: BuildRequest, plans: Sequence[ArchPlan], notes: Notes) -> None:
    """Every arch is tried; then the first failure decides the exit code."""
    failures: list[BuildError] = []
    for plan in plans:
        try:
            build_arch(request, plan, notes)
        except InterruptedBuildError:
            raise
        except BuildError as error:
            failures.append(error)
            if len(plans) > 1:
                notes.say(f"{plan.arch.name}: failed")
    if failures:
        kind = type(failures[0])
        raise kind([fault for failure in failures for fault in failure.faults])


def _reasons(plans: Sequence[ArchPlan], name: str) -> list[str]:
    """One line an arch that knows the name. Raises: UsageError where none does."""
    lines = []
    known: list[str] = []
    for plan in plans:
        for item in plan.build:
            known.append(item.name)
            if item.name == name:
                lines.append(
                    f"{plan.arch.name}: built (family {item.family}, profile {plan.profile})"
                )
        for skipped in plan.skipped:
            known.append(skipped.name)
            if skipped.name == name:
                lines.append(f"{plan.arch.name}: not built: {skipped.reason}")
    if not lines:
        archs = ", ".join(plan.arch.name for plan in plans)
        message = f"no variant {name!r} in any family for {archs}{did_you_mean(name, known)}"
        raise UsageError.of("--why", message, "humming-build --list --profile full")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: one exit code per cause; a user's mistake shows no traceback, a bug does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays what it is
            signal.signal(number, signal.default_int_handler)
    try:
        command.main(args=argv, prog_name="humming-build", standalone_mode=False)
    except BuildError as error:
        click.echo(f"humming-build: {error}", err=True)
        return int(error.exit_code)
    except click.UsageError as error:
        error.show()
        return int(BuildExit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("humming-build: interrupted", err=True)
        return int(BuildExit.INTERRUPTED)
    except click.exceptions.Exit as error:
        return error.exit_code
    return int(BuildExit.OK)


if __name__ == "__main__":
    sys.exit(main())
