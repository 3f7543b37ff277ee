"""A DSSE envelope with an in-toto statement, read with the standard library; signatures apart.

Source: secure-systems-lab/dsse v1.0.2, in-toto attestation framework v1.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class EnvelopeError(ValueError):
    """Not an envelope in the form that write_envelope gives it."""


@dataclass(frozen=True)
class Envelope:
    """payload: bytes that are signed. signatures: (key id, signature)."""

    payload: bytes
    signatures: tuple[tuple[str, bytes], ...] = ()

    @property
    def statement(self) -> dict[str, Any]:
        """The payload's JSON object. Raises: EnvelopeError."""
        try:
            raw = json.loads(self.payload)
        except ValueError as error:
            raise EnvelopeError(f"payload is not JSON ({error})") from error
        if not isinstance(raw, dict) or raw.get("_type") != STATEMENT_TYPE:
            raise EnvelopeError("payload is no in-toto statement")
        return raw

    def digest_of(self, subject: str) -> str | None:
        """sha256 that the statement has for a subject. Raises: EnvelopeError."""
        subjects = self.statement.get("subject")
        for entry in subjects if isinstance(subjects, list) else ():
            if isinstance(entry, dict) and entry.get("name") == subject:
                digest = entry.get("digest")
                value = digest.get("sha256") if isinstance(digest, dict) else None
                return value if isinstance(value, str) else None
        return None


def write_envelope(envelope: Envelope) -> str:
    raw = {
        "payload": b64encode(envelope.payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": key, "sig": b64encode(signature).decode()}
            for key, signature in envelope.signatures
        ],
    }
    return json.dumps(raw, indent=2, sort_keys=True) + "\n"


def read_envelope(text: str) -> Envelope:
    """Raises: EnvelopeError for anything that write_envelope would not write."""
    try:
        raw = json.loads(text)
        signatures = tuple(
            (str(one["keyid"]), b64decode(one["sig"], validate=True)) for one in raw["signatures"]
        )
        found = Envelope(b64decode(raw["payload"], validate=True), signatures)
    except (ValueError, KeyError, TypeError) as error:
        raise EnvelopeError(f"no DSSE envelope ({error!r})") from error
    if write_envelope(found) != text:
        raise EnvelopeError("not in canonical form")
    return found
