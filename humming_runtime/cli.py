"""`humming doctor | list | explain | verify | tune`: data on stdout, faults on stderr.

Only `tune` writes, and only the file that it is told.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from humming_runtime import doctor, explanation, listing
from humming_runtime.contract.exit_codes import RuntimeExit
from humming_runtime.contract.layouts import FRAG16
from humming_runtime.discover import Installed, discover
from humming_runtime.driver import Driver
from humming_runtime.errors import HummingError, NoDeviceError, UsageError
from humming_runtime.known_devices import assumed_device, parse_capability
from humming_runtime.problem import Device
from humming_runtime.resolve import refusal, survey
from humming_runtime.tuning import read_override, tables_for
from humming_runtime.verify import command as verify_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: contract/exit_codes.py."""
    given = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], RuntimeExit] = given.run
    try:
        return int(run(given))
    except HummingError as error:
        sys.stderr.write(f"humming: {error}\n")
        return int(error.exit_code)


def _doctor(given: argparse.Namespace) -> RuntimeExit:
    report = doctor.examine(discover())
    _show(doctor.as_json(report) if given.json else doctor.as_text(report))
    return report.exit_code


def _list(given: argparse.Namespace) -> RuntimeExit:
    installed = discover()
    if given.json:
        _show(listing.as_json(installed))
    elif given.names:
        _show(listing.names(installed))
    else:
        _show(listing.as_text(installed))
    _warn(installed)
    return RuntimeExit.OK if installed.packages else RuntimeExit.KERNELS_MISSING


def _explain(given: argparse.Namespace) -> RuntimeExit:
    shape = (given.m, given.n, given.k)
    problem = explanation.parse_problem(shape, given.format, given.op, given.layout)
    device = _device(given)
    installed = discover()
    shipped = [table for package in installed.packages for table in package.manifest.tuning]
    tables = tables_for(device, shipped, read_override())
    found = survey(problem, device, installed.packages, given.force, tables)
    if given.json:
        _show(explanation.as_json(problem, device, found))
    else:
        _show(explanation.as_text(problem, device, found))
    _warn(installed)
    if found.accepted:
        return RuntimeExit.OK
    error = refusal(problem, device, installed.packages, found, given.force)
    sys.stderr.write(f"humming: {error.message.splitlines()[0]}\n")
    near = explanation.near_formats(problem, installed.packages)
    if near and problem.format not in near:
        sys.stderr.write(f"  installed formats that come near: {', '.join(near)}\n")
    if error.hint is not None:
        sys.stderr.write(f"  hint: {error.hint}\n")
    return RuntimeExit.KERNELS_MISSING


def _tune(given: argparse.Namespace) -> RuntimeExit:
    try:
        from humming_runtime.measure import tune  # noqa: PLC0415  torch is for this command alone
    except ImportError as error:
        raise UsageError(f"tune: needs torch ({error})", "pip install torch") from error
    if given.output.exists() and not given.force:
        raise UsageError(f"-o: {given.output} exists", "humming tune --force ...")
    table = tune.tune(given.format, given.shape, given.rows or tune.ROWS, given.device)
    tune.write_table(table, given.output, replace=given.force)
    sys.stderr.write(f"humming: export HUMMING_TUNING={given.output}\n")
    return RuntimeExit.OK


def _shape(text: str) -> tuple[int, int]:
    n, _, k = text.partition(",")
    if not (n.isdecimal() and k.isdecimal() and int(n) and int(k)):
        raise argparse.ArgumentTypeError(f"{text!r} is not N,K (example: 4096,14336)")
    return int(n), int(k)


def _rows(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def _device(given: argparse.Namespace) -> Device:
    if given.capability is not None:
        return assumed_device(parse_capability(given.capability), given.sms)
    try:
        return Driver().device(given.device)
    except NoDeviceError as error:
        raise NoDeviceError(error.message, "humming explain --capability 9.0 ...") from error


def _warn(installed: Installed) -> None:
    for fault in installed.faults:
        sys.stderr.write(f"humming: {fault}\n")


def _show(what: str | dict[str, Any]) -> None:
    text = what if isinstance(what, str) else json.dumps(what, indent=2, sort_keys=True)
    sys.stdout.write(f"{text}\n" if text else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="humming", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("doctor", help="driver, devices, packages and what they cover")
    command.add_argument("--json", action="store_true", help="for scripts")
    command.set_defaults(run=_doctor)
    command = commands.add_parser("list", help="installed kernels by op and format")
    command.add_argument("--json", action="store_true", help="every kernel, for scripts")
    command.add_argument("--names", action="store_true", help="variant names, one a line")
    command.set_defaults(run=_list)
    command = commands.add_parser("explain", help="which kernel a problem gets, and why")
    for name in ("--m", "--n", "--k"):
        command.add_argument(name, type=int, required=True)
    command.add_argument("--format", required=True, help="f16_u4_g128f16")
    command.add_argument("--op", default="dense")
    command.add_argument("--layout", default=FRAG16)
    command.add_argument("--device", type=int, default=0, help="ordinal; default 0")
    command.add_argument("--capability", help="a device that need not be here: 9.0")
    command.add_argument("--sms", type=int, help="its number of SMs")
    command.add_argument("--force", metavar="NAME", help="variant that must run")
    command.add_argument("--json", action="store_true", help="for scripts")
    command.set_defaults(run=_explain)
    command = commands.add_parser("verify", help="a bundle, a wheel, or what is installed")
    verify_command.add_arguments(command)
    command.set_defaults(run=verify_command.verify)
    command = commands.add_parser("tune", help="measure launches on this GPU, write a table")
    command.add_argument("-o", dest="output", type=Path, required=True, metavar="FILE")
    command.add_argument("--shape", type=_shape, nargs="+", required=True, metavar="N,K")
    command.add_argument("--format", nargs="+", default=["f16_u4_g128f16"], metavar="FORMAT")
    command.add_argument("--rows", type=_rows, nargs="+", metavar="M", help="default: 1 to 8192")
    command.add_argument("--device", type=int, default=0, help="ordinal; default 0")
    command.add_argument("--force", action="store_true", help="replace the file")
    command.set_defaults(run=_tune)
    return parser


if __name__ == "__main__":
    sys.exit(main())
