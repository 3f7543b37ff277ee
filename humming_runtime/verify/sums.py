"""SHA256SUMS as `sha256sum` writes it, read so strictly that no byte is without meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping

from humming_runtime.verify.file_tree import unsafe_name

SUMS_FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


class SumsError(ValueError):
    """The text is no list of sums in canonical form."""


def write_sums(digests: Mapping[str, str]) -> str:
    """digests: sha256 in hexadecimal by name. One line a file, by name."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_sums(text: str) -> dict[str, str]:
    """Digests by name. Raises: SumsError for anything that write_sums would not write."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n")[:-1], 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise SumsError(f"line {number} is not `sha256  name`")
        digest, name = match[1], match[2]
        reason = unsafe_name(name)
        if reason is not None:
            raise SumsError(f"line {number}: {name} {reason}")
        if name in found:
            raise SumsError(f"line {number}: {name} is listed twice")
        found[name] = digest
    if write_sums(found) != text:
        raise SumsError("lines are not sorted, or the last one does not end")
    if not found:
        raise SumsError("no file is listed")
    return found
