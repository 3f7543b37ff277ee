"""`humming-build bundle`: build (or take) the wheels of a release and pack them for a site."""

from __future__ import annotations

import re
from pathlib import Path

import click

from build_tools import invocation
from build_tools.command_options import (
    FILE,
    FOLDER,
    machine_options,
    notes_options,
    output_option,
    selection_options,
)
from build_tools.errors import ToolchainError, UsageError
from build_tools.folders import read_license
from build_tools.plan import require_work
from build_tools.report import Notes

_REVISION = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CHECKOUT = Path(__file__).resolve().parents[2]


@click.command()
@selection_options
@machine_options
@click.option(
    "--from",
    "folder",
    type=FOLDER,
    help="Take every wheel of this folder in place of building any.",
)
@click.option(
    "--runtime",
    "runtimes",
    type=FILE,
    multiple=True,
    help="Wheel of the loader; repeatable.  [default: built from the checkout]",
)
@click.option("--sign", "key", type=FILE, help="Private key in PEM form that signs the bundle.")
@click.option("--revision", metavar="COMMIT", help="Commit of the sources, for the provenance.")
@output_option
@notes_options
def bundle(
    archs: tuple[str, ...],
    profile: str,
    select: tuple[str, ...],
    source: Path | None,
    jobs: int | None,
    engine: str,
    nvcc: Path | None,
    launcher: str | None,
    work: Path,
    store: str | None,
    folder: Path | None,
    runtimes: tuple[Path, ...],
    key: Path | None,
    revision: str | None,
    output: Path,
    verbose: bool,
    quiet: bool,
) -> None:
    """Pack wheels, index, hashes, SBOM, provenance and signature in one archive for a site."""
    try:
        from build_tools.release.bundle import (  # noqa: PLC0415  needs the extra
            BundleRequest,
            write_bundle,
        )
        from build_tools.release.release_files import read_wheels, release_epoch  # noqa: PLC0415
        from build_tools.release.runtime_wheels import build_runtime_wheels  # noqa: PLC0415
        from build_tools.release.signing import read_signer  # noqa: PLC0415
    except ImportError as error:
        hint = "pip install 'humming-aot[release]'"
        raise ToolchainError.of("bundle", f"needs a library ({error})", hint) from error
    if revision is not None and not _REVISION.fullmatch(revision):
        raise UsageError.of("--revision", f"{revision!r} is no commit (40 or 64 hex digits)")
    notes = Notes(-1 if quiet else int(verbose))
    signer = None if key is None else read_signer(key)
    if folder is not None:
        if archs or select:
            raise UsageError.of(
                "--from", "takes wheels as they are; --arch and --select build some"
            )
        paths = sorted(folder.glob("*.whl"))
        if not paths:
            raise UsageError.of("--from", f"{folder}: no wheel there")
    else:
        planned = invocation.plan(invocation.Selection(archs, profile, select), source)
        require_work(planned.plans, select)
        machine = invocation.Machine(
            jobs, nvcc, work, output, store, engine=engine, launcher=launcher
        )
        paths = [wheel.path for wheel in invocation.build(planned, machine, "wheel", notes)]
    paths += runtimes
    if folder is None and not runtimes:
        notes.say("runtime: building the loader's wheels")
        paths += build_runtime_wheels(_CHECKOUT, work / "runtime")
    request = BundleRequest(
        wheels=read_wheels(paths),
        license_text=read_license(),
        epoch=release_epoch(),
        signer=signer,
        revision=revision,
    )
    result = write_bundle(request, output)
    signed = f"signed by {result.signed_by}" if result.signed_by else "not signed"
    notes.say(
        f"bundle: {result.path} ({result.size_bytes / 1e6:.2f} MB), {signed}\n"
        f"  sha256: {result.sha256}"
    )
