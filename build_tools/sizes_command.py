"""`humming-build sizes WHEEL`: where the bytes of a kernel wheel are."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from build_tools.command_options import FILE
from build_tools.errors import UsageError
from build_tools.file_writes import disk_error
from build_tools.wheel_sizes import GROUPINGS, group_sizes, kernel_sizes
from humming_runtime.verify.file_tree import ZIP_FAULTS


@click.command()
@click.argument("wheel", type=FILE)
@click.option(
    "--by", "grouping", type=click.Choice(list(GROUPINGS)), default="format", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def sizes(wheel: Path, grouping: str, as_json: bool) -> None:
    """Show kernels, cubin bytes and bytes in the wheel by group, the largest first."""
    try:
        content = wheel.read_bytes()
    except OSError as error:
        raise disk_error(wheel, error) from error
    try:
        rows = group_sizes(kernel_sizes(content), grouping)
    except ZIP_FAULTS as error:
        raise UsageError.of(str(wheel), f"is no kernel wheel ({error})") from error
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    width = max((len(row.group) for row in rows), default=0)
    click.echo(f"{'group':{width}}  kernels  cubins MB  in wheel MB  share")
    total = sum(row.compressed_bytes for row in rows)
    for row in rows:
        share = row.compressed_bytes / total
        click.echo(
            f"{row.group:{width}}  {row.kernels:7}  {row.cubin_bytes / 1e6:9.2f}  "
            f"{row.compressed_bytes / 1e6:11.2f}  {share:5.0%}"
        )
    click.echo(f"{wheel.name}: {len(content) / 1e6:.2f} MB")
