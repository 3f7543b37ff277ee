"""`humming-build`: specs to wheels. Options are the contract that scripts rely on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from build_tools import __version__, invocation
from build_tools.command_options import (
    machine_options,
    notes_options,
    output_option,
    selection_options,
)
from build_tools.errors import BuildError, UsageError, did_you_mean
from build_tools.pipeline import STAGES
from build_tools.plan import ArchPlan, require_work
from build_tools.release.bundle_command import bundle
from build_tools.release.wheel_variants_command import wheel_variants_command
from build_tools.report import Notes
from build_tools.scale.merge_command import merge
from build_tools.scale.rebuild_check_command import rebuild_check
from build_tools.scale.shards import parse_shard
from build_tools.sizes_command import sizes
from humming_runtime.contract.exit_codes import BuildExit

_EXIT_CODES = """\b
Exit codes: 0 ok, 1 bug, 2 usage, 3 spec, 4 nothing to build, 5 toolchain,
6 compile, 7 spill, 8 cubin mismatch, 9 disk, 10 over budget, 11 shards,
12 not reproduced, 130 interrupted."""


@click.group(
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]",
)
@selection_options
@click.option(
    "--until",
    type=click.Choice(STAGES),
    default="wheel",
    show_default=True,
    help="Last stage to run.",
)
@click.option("--list", "listing", is_flag=True, help="Print variant names, one a line, and stop.")
@click.option("--why", metavar="NAME", help="Say why a variant is built or not, and stop.")
@click.option("--shard", metavar="I/N", help="Build part I of N; `humming-build merge` joins them.")
@machine_options
@output_option
@notes_options
@click.version_option(__version__, prog_name="humming-build")
@click.pass_context
def command(  # the options of the contract
    context: click.Context,
    archs: tuple[str, ...],
    profile: str,
    select: tuple[str, ...],
    source: Path | None,
    until: str,
    listing: bool,
    why: str | None,
    shard: str | None,
    jobs: int | None,
    engine: str,
    nvcc: Path | None,
    launcher: str | None,
    work: Path,
    store: str | None,
    output: Path,
    verbose: bool,
    quiet: bool,
) -> None:
    """Build wheels of quantized-GEMM kernels from specs, one per architecture."""
    if context.invoked_subcommand is not None:
        _require_no_options(context)
        return
    notes = Notes(-1 if quiet else int(verbose))
    part = None if shard is None else parse_shard(shard)
    planned = invocation.plan(invocation.Selection(archs, profile, select), source)
    if why is not None:
        click.echo("\n".join(_reasons(planned.plans, why)))
        return
    require_work(planned.plans, select)
    if listing:
        click.echo("\n".join(item.name for plan in planned.plans for item in plan.build))
        return
    for plan in planned.plans:
        counts = f"{len(plan.build)} variants, {len(plan.skipped)} skipped"
        notes.say(f"{plan.arch.name}: profile {profile}, {counts}")
    if until == "plan":
        return
    machine = invocation.Machine(jobs, nvcc, work, output, store, part, engine, launcher)
    invocation.build(planned, machine, until, notes)


command.add_command(bundle)
command.add_command(merge)
command.add_command(rebuild_check)
command.add_command(sizes)
command.add_command(wheel_variants_command)


def _require_no_options(context: click.Context) -> None:
    """Options before a command would be dropped. Raises: UsageError."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        name = context.invoked_subcommand
        message = f"options of {name} come after it (found {', '.join(given)})"
        raise UsageError.of(str(name), message, f"humming-build {name} --help")


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
