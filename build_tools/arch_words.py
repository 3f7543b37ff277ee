"""What the user may write after --arch -> rows of the arch table.

`sm_90 sm90 90 9.0` and a target form that exists (`sm_90a`, `9.0a`) all mean sm_90; lists are
split by `,` `;` or space; `all` is every row. Nothing is dropped: an unknown word, an empty one or
`+PTX` is a fault with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from build_tools.errors import Fault, UsageError, did_you_mean
from build_tools.spec_values import Arch

_SEPARATOR = re.compile(r"\s*[,;]\s*|\s+")
_NUMBER = re.compile(r"(?:sm_?|compute_)?(\d{2,3})([a-z]?)")
_DOTTED = re.compile(r"(\d{1,2})\.(\d)([a-z]?)")


def parse_archs(words: Sequence[str], table: Sequence[Arch]) -> tuple[Arch, ...]:
    """Rows for `words`, each once, by capability. Raises: UsageError with every fault."""
    faults: list[Fault] = []
    found: list[Arch] = []
    for word in (part for text in words for part in _SEPARATOR.split(text.strip())):
        if word == "all":
            found += table
            continue
        result = _parse_word(word, table)
        if isinstance(result, Arch):
            found.append(result)
        else:
            faults.append(Fault("--arch", result))
    if faults:
        raise UsageError(faults)
    return tuple(sorted(set(found), key=lambda arch: arch.capability))


def _parse_word(word: str, table: Sequence[Arch]) -> Arch | str:
    """The row, or what is wrong with the word."""
    if not word:
        return "empty word in the list of archs"
    if "ptx" in word.lower():
        return (
            f"{word!r} asks for PTX, which is not built: it is no safe fall-back for older drivers"
        )
    match = _NUMBER.fullmatch(word.lower())
    if match is not None:
        number, suffix = match[1], match[2]
    else:
        dotted = _DOTTED.fullmatch(word.lower())
        if dotted is None:
            return _unknown(word, table)
        number, suffix = dotted[1] + dotted[2], dotted[3]
    arch = next((row for row in table if row.name == f"sm_{number}"), None)
    if arch is None:
        return _unknown(word, table)
    if suffix and f"{arch.name}{suffix}" not in arch.forms:
        forms = ", ".join(arch.forms)
        return (
            f"{word!r}: target {arch.name}{suffix} does not exist (targets of {arch.name}: {forms})"
        )
    return arch


def _unknown(word: str, table: Sequence[Arch]) -> str:
    known = [row.name for row in table]
    near = did_you_mean(word, [*known, "all"])
    return f"unknown arch {word!r} (known: {', '.join(known)}, all){near}"
