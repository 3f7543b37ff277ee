"""One object of the store: a cubin with what its compilation took, in a form that checks itself.

A line of JSON (key, name, sha256, size_bytes, spill_bytes, milliseconds, headers), then the cubin.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

_FIELDS = {
    "key": str,
    "name": str,
    "sha256": str,
    "size_bytes": int,
    "spill_bytes": int,
    "milliseconds": int,
    "headers": list,
}


class ObjectFault(Exception):  # noqa: N818  a fault of data, not of the program
    """The bytes are not the object that was asked for."""


@dataclass(frozen=True)
class ObjectFacts:
    """headers: files that the source includes, relative to the work folder."""

    key: str
    name: str
    sha256: str
    size_bytes: int
    spill_bytes: int
    milliseconds: int
    headers: tuple[str, ...]


def pack(facts: ObjectFacts, cubin: bytes) -> bytes:
    return json.dumps(asdict(facts), sort_keys=True).encode() + b"\n" + cubin


def unpack(content: bytes, key: str, name: str) -> tuple[ObjectFacts, bytes]:
    """Raises: ObjectFault for a truncated, damaged or swapped object."""
    head, _, cubin = content.partition(b"\n")
    try:
        raw = json.loads(head)
        wrong = [word for word, kind in _FIELDS.items() if not isinstance(raw.get(word), kind)]
    except (ValueError, AttributeError) as error:
        raise ObjectFault("has no header") from error
    if wrong or set(raw) != set(_FIELDS):
        raise ObjectFault("has another header")
    facts = ObjectFacts(**{**raw, "headers": tuple(str(path) for path in raw["headers"])})
    if (facts.key, facts.name) != (key, name):
        raise ObjectFault(f"is of {facts.name} (key {facts.key[:16]})")
    if len(cubin) != facts.size_bytes:
        raise ObjectFault(f"has {len(cubin)} of {facts.size_bytes} bytes")
    if hashlib.sha256(cubin).hexdigest() != facts.sha256:
        raise ObjectFault("has another sha256 than it says")
    return facts, cubin
