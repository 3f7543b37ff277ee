"""A static PEP 503 index: any web server, or none, hands out its pages as they are."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

_PAGE = """\
<!DOCTYPE html>
<html>
  <head>
    <meta name="pypi:repository-version" content="1.0">
    <title>{title}</title>
  </head>
  <body>
{links}
  </body>
</html>
"""


@dataclass(frozen=True)
class IndexedFile:
    """A file in the folder of `simple/`. name: relative to it, `x.whl` or `wheels/x.whl`."""

    name: str
    sha256: str
    requires_python: str | None = None


def project_page(project: str, files: Sequence[IndexedFile]) -> str:
    """`simple/<project>/index.html`: links with their hashes, in the order of names."""
    links = [_link(file) for file in sorted(files, key=lambda file: file.name)]
    return _PAGE.format(title=html.escape(project), links="\n".join(links))


def root_page(projects: Sequence[str]) -> str:
    """`simple/index.html`."""
    links = [f'    <a href="{quote(name)}/">{html.escape(name)}</a><br>' for name in projects]
    return _PAGE.format(title="Simple index", links="\n".join(links))


def _link(file: IndexedFile) -> str:
    address = f"../../{quote(file.name)}#sha256={file.sha256}"
    python = (
        ""
        if file.requires_python is None
        else f' data-requires-python="{html.escape(file.requires_python)}"'
    )
    return f'    <a href="{address}"{python}>{html.escape(file.name.split("/")[-1])}</a><br>'
