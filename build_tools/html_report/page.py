"""What the page shows, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from build_tools.facts import BuiltKernel
from build_tools.file_writes import write_if_changed
from build_tools.folders import WorkFolder
from build_tools.html_report.markup import facts_html, table_html, timeline_html, treemap_html
from build_tools.html_report.shapes import group_tiles, timeline
from build_tools.html_report.tables import (
    coverage_table,
    registers_table,
    slowest_table,
    spilling_text,
)
from build_tools.ninja_run import Compiled
from humming_runtime.contract.manifest import Manifest

_PAGE = Path(__file__).with_name("report.html")


def write_page(
    work: WorkFolder, manifest: Manifest, compiled: Compiled, kernels: Sequence[BuiltKernel]
) -> Path:
    """Returns the file. Raises: DiskError."""
    write_if_changed(work.report, page_text(manifest, compiled, kernels))
    return work.report


def page_text(manifest: Manifest, compiled: Compiled, kernels: Sequence[BuiltKernel]) -> str:
    """The HTML. The same build gives the same text."""
    sections = (
        table_html(coverage_table(kernels)),
        treemap_html(group_tiles(kernels)),
        timeline_html(timeline(kernels)),
        table_html(slowest_table(kernels)),
        table_html(registers_table(kernels)),
    )
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        name=escape(f"{manifest.package} {manifest.version}"),
        facts=facts_html(_facts(manifest, compiled, kernels)),
        sections="\n".join(sections) if kernels else "<p>No kernel is in this build.</p>",
    )


def _facts(
    manifest: Manifest, compiled: Compiled, kernels: Sequence[BuiltKernel]
) -> dict[str, str]:
    total = sum(k.facts.size_bytes for k in kernels)
    built, fetched, reused = map(len, (compiled.built, compiled.fetched, compiled.reused))
    return {
        "Architecture": manifest.arch,
        "Profile": manifest.profile,
        "Kernels": f"{len(kernels)}, {total / 1e6:.2f} MB of cubins",
        "This run": f"{built} built, {fetched} fetched, {reused} reused",
        "Spills": spilling_text(kernels),
        "CUDA": f"{manifest.cuda}, {manifest.engine}",
        "Toolchain": manifest.toolchain,
        "Contract": manifest.contract,
    }
