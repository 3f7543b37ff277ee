"""The contract hash: equal on both sides, or the wheel is refused by name."""

from __future__ import annotations

import hashlib
import json

from humming_runtime.contract.arguments import GEMM_FIELDS, offsets, struct_size_bytes
from humming_runtime.contract.launch_shape import SCHEDULE_VERSIONS
from humming_runtime.contract.layouts import LAYOUT_VERSIONS
from humming_runtime.contract.manifest import SCHEMA_VERSION


def contract_hash() -> str:
    """First 16 hexadecimal digits of sha256 over argument struct, layouts, schedules and manifest schema version."""
    at = offsets()
    facts = {
        "arguments": [[f.name, f.kind.value, at[f.name]] for f in GEMM_FIELDS],
        "argument_bytes": [struct_size_bytes(maps=maps) for maps in (False, True)],
        "layouts": LAYOUT_VERSIONS,
        "schedules": SCHEDULE_VERSIONS,
        "manifest": SCHEMA_VERSION,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
