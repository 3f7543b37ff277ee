"""Identity of a kernel's source, whatever the target: its text and every header it includes."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping

from build_tools.folders import kernel_path
from build_tools.plan import Planned

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_ANY_TARGET = "target"


def source_sha256(planned: Planned, sources: Mapping[str, str]) -> str:
    """Hash of what nvcc reads for a variant, the same for every target of one source.

    sources: rendered files by path in the work folder.
    """
    first = kernel_path(planned.name)
    token = planned.variant.target.replace("_", "")
    digest = hashlib.sha256()
    for path in sorted(included_files(first, sources)):
        is_kernel = path == first
        text = sources[path].replace(token, _ANY_TARGET) if is_kernel else sources[path]
        name = _ANY_TARGET if is_kernel else path
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()


def included_files(first: str, sources: Mapping[str, str]) -> set[str]:
    """Paths of a rendered file and of all that it includes."""
    found: set[str] = set()
    waiting = [first]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            folder = posixpath.dirname(path)
            waiting += [
                posixpath.normpath(posixpath.join(folder, name))
                for name in _INCLUDE.findall(sources[path])
            ]
    return found
