"""Static files that installers read: a simple index (PEP 503) and requirements with hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from build_tools.release.release_files import ReleaseWheel

_PAGE = (
    "<!DOCTYPE html>\n"
    '<html><head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0">'
    "<title>{title}</title></head><body>\n{links}\n</body></html>\n"
)


def index_pages(wheels: Sequence[ReleaseWheel], folder: str) -> dict[str, str]:
    """Pages by name below the index. folder: of the wheels, relative to a project's page."""
    projects = sorted({wheel.project for wheel in wheels})
    pages = {"index.html": _page("Simple index", [(f"{name}/", name) for name in projects])}
    for project in projects:
        links = [
            (f"{folder}/{wheel.file_name}#sha256={wheel.sha256}", wheel.file_name)
            for wheel in wheels
            if wheel.project == project
        ]
        pages[f"{project}/index.html"] = _page(project, links)
    return pages


def requirements(wheels: Sequence[ReleaseWheel]) -> str:
    """One line a project, with the hash of each of its wheels."""
    lines: Mapping[tuple[str, str], list[str]] = {}
    found = dict(lines)
    for wheel in wheels:
        found.setdefault((wheel.project, wheel.version), []).append(wheel.sha256)
    out = []
    for project, version in sorted(found):
        hashes = [f"--hash=sha256:{digest}" for digest in sorted(found[project, version])]
        out.append(" \\\n    ".join((f"{project}=={version}", *hashes)) + "\n")
    return "".join(out)


def _page(title: str, links: Sequence[tuple[str, str]]) -> str:
    anchors = (f'<a href="{escape(href)}">{escape(text)}</a><br>' for href, text in links)
    return _PAGE.format(title=escape(title), links="\n".join(anchors))
