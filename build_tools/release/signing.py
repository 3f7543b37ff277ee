"""Sign a statement with a key on disk; offline, through securesystemslib."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.dsse import Envelope as SignedEnvelope
from securesystemslib.signer import CryptoSigner

from build_tools.errors import UsageError
from build_tools.file_writes import disk_error
from humming_runtime.verify.dsse_envelope import PAYLOAD_TYPE, Envelope

_HINT = "openssl genpkey -algorithm ed25519 -out private.pem"


def read_signer(path: Path, password: str | None = None) -> CryptoSigner:
    """A private key in PEM form (PKCS#8; Ed25519, ECDSA or RSA). Raises: UsageError, DiskError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise disk_error(path, error) from error
    try:
        key = load_pem_private_key(content, None if password is None else password.encode())
        return CryptoSigner(key)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        message = f"{path} is no usable private key in PEM form ({error})"
        raise UsageError.of("--sign", message, _HINT) from error


def sign(statement: bytes, signer: CryptoSigner | None) -> Envelope:
    """An envelope of the statement; without a signer it has no signature."""
    if signer is None:
        return Envelope(statement)
    envelope = SignedEnvelope(statement, PAYLOAD_TYPE, {})
    signature = envelope.sign(signer)
    return Envelope(statement, ((signature.keyid, bytes.fromhex(signature.signature)),))
