"""Patterns over variant names: shell globs with alternatives, `dense_{f16,bf16}_*_t64x*`.

One language for `--select`, profiles, exceptions, spills and costs.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import cache


def expand(pattern: str) -> tuple[str, ...]:
    """Every alternative of the braces in `pattern`, in order; braces nest.

    Raises: ValueError for a brace without its partner.
    """
    start = pattern.find("{")
    if start < 0:
        if "}" in pattern:
            raise ValueError(f"'}}' without '{{' in {pattern!r}")
        return (pattern,)
    depth, parts, part_start = 0, [], start + 1
    for at in range(start, len(pattern)):
        char = pattern[at]
        if char == "{":
            depth += 1
        elif char == "," and depth == 1:
            parts.append(pattern[part_start:at])
            part_start = at + 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                parts.append(pattern[part_start:at])
                head, tail = pattern[:start], pattern[at + 1 :]
                return tuple(text for part in parts for text in expand(head + part + tail))
    raise ValueError(f"'{{' without '}}' in {pattern!r}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(text) for text in expand(pattern)))


def matches(pattern: str, name: str) -> bool:
    """Does `pattern` match the whole of `name`?"""
    return _compiled(pattern).match(name) is not None


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Does one of `patterns` match `name`?"""
    return any(matches(pattern, name) for pattern in patterns)
