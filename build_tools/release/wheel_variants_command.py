"""`humming-build variants`: kernel wheels to an index from which an installer picks by the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from build_tools.release.variant_properties import Route, shown
from build_tools.release.wheel_variants import VariantIndex, write_variant_index


@click.command("variants", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "wheels", nargs=-1, required=True, metavar="WHEEL...", type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist/variants"),
    show_default=True,
    help="Folder for the index; kernel wheels stay where they are.",
)
def wheel_variants_command(wheels: tuple[Path, ...], output: Path) -> None:
    """Write wheel variants (PEP 825, preview) of kernel wheels, with a static index.

    WHEEL: humming_cubins_sm90_cu13-0.1.0-py3-none-any.whl, as many archs as there are.
    """
    index = write_variant_index(wheels, output)
    for line in _summary(index):
        click.echo(line)
    for line in _warnings(index.routes):
        click.echo(f"humming-build: {line}", err=True)


def _summary(index: VariantIndex) -> Iterator[str]:
    for wheel in index.wheels:
        words = ", ".join(wheel.variant.sm_arch)
        size_mb = wheel.size_bytes / 1e6
        yield f"{wheel.path.name}: {words}, {size_mb:.1f} MB, sha256 {wheel.sha256}"
        devices = [shown(r.capability) for r in index.routes if r.label == wheel.variant.label]
        yield f"  for capabilities {', '.join(devices)}"
    without = [shown(route.capability) for route in index.routes if route.label is None]
    if without:
        yield f"no wheel for capabilities {', '.join(without)}"
    yield f"index: {index.simple}"


def _warnings(routes: Sequence[Route]) -> Iterator[str]:
    for route in routes:
        if route.label is not None and not route.loads:
            arch = f"sm_{shown(route.capability).replace('.', '')}"
            yield (
                f"{route.label}: a GPU of capability {shown(route.capability)} would get this "
                f"wheel and not load it\n  hint: humming-build --arch {arch}, then name its "
                f"wheel as well"
            )
