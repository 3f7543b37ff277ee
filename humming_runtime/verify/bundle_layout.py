"""Names inside a bundle: the build side writes them, the verifier expects them.

Under one root folder: SHA256SUMS (every file but itself and the provenance), provenance.dsse.json
(signed statement about SHA256SUMS and the wheels, and how they were made), bundle.json (version,
contract, archs, time of the entries), sbom.cdx.json, install.sh, verify.pyz, LICENSE, and folders:
wheels, simple (static index), requirements (with hashes, by arch) and manifests.
"""

from __future__ import annotations

from humming_runtime.verify.sums import SUMS_FILE

PROVENANCE_FILE = "provenance.dsse.json"
FACTS_FILE = "bundle.json"
SBOM_FILE = "sbom.cdx.json"
INSTALL_FILE = "install.sh"
VERIFIER_FILE = "verify.pyz"
WHEELS, INDEX, REQUIREMENTS, MANIFESTS = "wheels", "simple", "requirements", "manifests"
NOT_IN_SUMS = frozenset({SUMS_FILE, PROVENANCE_FILE})
SCHEMA_VERSION = 1
_PROGRAMS = frozenset({INSTALL_FILE, VERIFIER_FILE})


def file_mode(name: str) -> int:
    """Permissions of a file of a bundle."""
    return 0o755 if name in _PROGRAMS else 0o644
