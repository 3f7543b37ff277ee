"""The signature link: securesystemslib checks it (extra `verify`). Offline; keys are PEM files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from humming_runtime.errors import UsageError
from humming_runtime.verify.dsse_envelope import PAYLOAD_TYPE, Envelope

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

LIBRARY_HINT = "pip install 'humming-aot[verify]'"


class NoSignatureLibraryError(Exception):
    """securesystemslib or its cryptography is not installed."""


def read_public_keys(paths: Sequence[Path]) -> list[SSlibKey]:
    """PEM files with a public key (Ed25519, ECDSA, RSA).

    Raises: UsageError for a file that is none; NoSignatureLibraryError.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  an extra
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_public_key,
        )
        from securesystemslib.signer import SSlibKey  # noqa: PLC0415
    except ImportError as error:
        raise NoSignatureLibraryError(str(error)) from error
    keys = []
    for path in paths:
        try:
            keys.append(SSlibKey.from_crypto(load_pem_public_key(path.read_bytes())))
        except OSError as error:
            raise UsageError(f"--key: {path}: {(error.strerror or str(error)).lower()}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            hint = "openssl pkey -in private.pem -pubout -out public.pem"
            raise UsageError(f"--key: {path} is no public key in PEM form", hint) from error
    return keys


def signature_faults(envelope: Envelope, keys: Sequence[SSlibKey]) -> list[str]:
    """What is wrong: each signature must be by one of the keys, and there must be one."""
    from securesystemslib.dsse import Envelope as SignedEnvelope  # noqa: PLC0415  an extra
    from securesystemslib.exceptions import (  # noqa: PLC0415
        UnverifiedSignatureError,
        VerificationError,
    )
    from securesystemslib.signer import Signature  # noqa: PLC0415

    if not envelope.signatures:
        return ["is not signed"]
    pae = SignedEnvelope(envelope.payload, PAYLOAD_TYPE, {}).pae()
    by_id = {key.keyid: key for key in keys}
    faults = []
    for keyid, value in envelope.signatures:
        key = by_id.get(keyid)
        if key is None:
            faults.append(f"is signed by key {keyid}, which was not given")
            continue
        try:
            key.verify_signature(Signature(keyid, value.hex()), pae)
        except (UnverifiedSignatureError, VerificationError):
            faults.append(f"has a wrong signature (key {keyid})")
    return faults
