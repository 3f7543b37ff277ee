"""What the specs cover, as the Markdown table of docs/formats.md.

python -m build_tools.coverage_table            # prints it
python -m build_tools.coverage_table --write    # puts it into the document
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click

from build_tools.folders import find_sources
from build_tools.plan import make_plan
from build_tools.spec_load import load_specs
from build_tools.spec_values import Specs
from humming_runtime.contract.variant_name import Variant

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
BEGIN, END = "<!-- coverage: python -m build_tools.coverage_table --write -->", "<!-- end -->"
_ARCH = "sm_90"
_USUAL, _EVERY = "default", "full"

Coverage = dict[str, dict[str, frozenset[str]]]
"""activation -> weight -> scale schemes, a scheme of the activation's dtype without that word."""


def coverage_table(specs: Specs) -> str:
    """Weights with the same coverage share a row. Archs differ in the activations alone."""
    usual, every = (_coverage(specs, profile) for profile in (_USUAL, _EVERY))
    rows: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for weight in dict.fromkeys(w for by_weight in every.values() for w in by_weight):
        activations = [word for word in every if weight in every[word]]
        schemes = every[activations[-1]][weight]
        built = usual.get(activations[-1], {}).get(weight, frozenset())
        row = ", ".join(activations), _shown(built), _shown(schemes - built)
        rows[row].append(weight)
    lines = ["| weights | activations | default wheel | `full` adds |", "|---|---|---|---|"]
    lines += [f"| {' '.join(weights)} | {' | '.join(row)} |" for row, weights in rows.items()]
    return "\n".join(lines)


def document_with(text: str, table: str) -> str:
    """The document with its table replaced. Raises: ValueError where it has no place for one."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} ... {END} in the document")
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def _coverage(specs: Specs, profile: str) -> Coverage:
    (arch,) = (arch for arch in specs.archs if arch.name == _ARCH)
    (plan,) = make_plan(specs, [arch], profile)
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for item in plan.build:
        variant = item.variant
        if variant.target == arch.target and variant.tier == arch.tier:
            found[variant.activation][variant.weight].add(_scheme(variant))
    order = sorted(found, reverse=True)  # f16 before bf16
    return {word: {w: frozenset(s) for w, s in found[word].items()} for word in order}


def _scheme(variant: Variant) -> str:
    text = str(variant.scale)
    return text.removesuffix(variant.activation) if variant.scale.granularity == "g" else text


def _shown(schemes: frozenset[str]) -> str:
    return " ".join(sorted(schemes, key=_order)) or "-"


def _order(scheme: str) -> tuple[bool, int, str]:
    digits = "".join(c for c in scheme[1:4] if c.isdigit())
    return scheme.startswith("ch"), int(digits or 0), scheme


@click.command(help=__doc__)
@click.option("--write", is_flag=True, help="Put the table into the document.")
def main(write: bool) -> None:
    table = coverage_table(load_specs(find_sources(None).specs))
    if write:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(document_with(text, table), encoding="utf-8")
    else:
        click.echo(table)


if __name__ == "__main__":
    main()
