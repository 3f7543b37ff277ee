"""Options that commands of humming-build share. Their names are the contract of scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from humming_runtime.contract.manifest import ENGINES

Command = TypeVar("Command", bound=Callable[..., object])

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)

_SELECTION = (
    click.option(
        "--arch",
        "archs",
        multiple=True,
        metavar="WORD",
        help="sm_90, sm90, 90, 9.0, sm_90a, all; lists by `,` `;` or space; repeatable.  "
        "[default: sm_90]",
    ),
    click.option(
        "--profile", default="default", show_default=True, help="quick, default, full or proof."
    ),
    click.option(
        "--select", multiple=True, metavar="GLOB", help="Only variants that match; repeatable."
    ),
    click.option(
        "--source",
        type=FOLDER,
        help="Folder with specs/ and templates/.  [default: the checkout's or the installed ones]",
    ),
)
_MACHINE = (
    click.option(
        "-j", "jobs", type=click.IntRange(min=1), help="Compilers at once.  [default: by machine]"
    ),
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="nvcc",
        show_default=True,
        help="Compiler: nvcc, or NVRTC 12 for drivers below 580 (sm_75 to sm_90).",
    ),
    click.option(
        "--nvcc",
        type=FILE,
        help="Compiler.  [default: this environment's packages, CUDA_HOME, PATH]",
    ),
    click.option(
        "--launcher",
        metavar="COMMAND",
        envvar="HUMMING_LAUNCHER",
        help="Runs each nvcc: a compiler cache or farm, such as sccache.",
    ),
    click.option(
        "--work",
        type=FOLDER,
        default=Path("build"),
        show_default=True,
        help="Folder for sources, cubins and logs.",
    ),
    click.option(
        "--store",
        metavar="DIR|URL",
        envvar="HUMMING_STORE",
        help="Finished cubins to take and to add to: a folder, s3://..., gs://... or az://...",
    ),
)
_OUTPUT = (
    click.option(
        "-o",
        "output",
        type=FOLDER,
        default=Path("dist"),
        show_default=True,
        help="Folder for what is made.",
    ),
)
_NOTES = (
    click.option("-v", "--verbose", is_flag=True, help="Say more."),
    click.option("-q", "--quiet", is_flag=True, help="Say only what is wrong."),
)


def _all_of(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def selection_options(command: Command) -> Command:
    """archs, profile, select, source."""
    return _all_of(_SELECTION, command)


def machine_options(command: Command) -> Command:
    """jobs, engine, nvcc, launcher, work, store."""
    return _all_of(_MACHINE, command)


def output_option(command: Command) -> Command:
    return _all_of(_OUTPUT, command)


def notes_options(command: Command) -> Command:
    """verbose, quiet."""
    return _all_of(_NOTES, command)
