"""Records of kernels that ran and were right: `specs/validated/*.json`, written by the GPU tests.

{"capability": "9.0", "device": "...", "driver": "...", "date": "2026-12-01",
 "engine": "nvcc", "sources": {"<variant>": "<source_sha256>", ...}}

engine: the compiler of the code that ran; a record without one is of nvcc's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build_tools.errors import Fault, SpecError
from humming_runtime.contract.manifest import ENGINES
from humming_runtime.contract.variant_name import Variant, VariantNameError

FOLDER = "validated"
_KEYS = {"capability": str, "device": str, "driver": str, "date": str, "sources": dict}


@dataclass(frozen=True)
class Validated:
    """One source that was proven as one target on one capability, as one engine compiles it."""

    source_sha256: str
    target: str
    capability: str
    engine: str = "nvcc"


def read_validated(specs: Path) -> tuple[Validated, ...]:
    """Every record, sorted. Raises: SpecError with every fault."""
    faults: list[Fault] = []
    found: set[tuple[str, str, str, str]] = set()
    for path in sorted((specs / FOLDER).glob("*.json")):
        place = f"{specs.name}/{FOLDER}/{path.name}"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            faults.append(Fault(place, f"not JSON: {error}"))
            continue
        has = raw if isinstance(raw, dict) else {}
        wrong = [key for key, kind in _KEYS.items() if not isinstance(has.get(key), kind)]
        if wrong:
            faults.append(Fault(place, f"keys missing or of another kind: {', '.join(wrong)}"))
            continue
        engine = raw.get("engine", "nvcc")
        if engine not in ENGINES:
            faults.append(Fault(place, f"engine {engine!r}, none of {', '.join(ENGINES)}"))
            continue
        for name, digest in raw["sources"].items():
            try:
                found.add((str(digest), Variant.parse(name).target, raw["capability"], engine))
            except VariantNameError as error:
                faults.append(Fault(place, str(error)))
    if faults:
        raise SpecError(faults)
    return tuple(Validated(*record) for record in sorted(found))


def validated_on(records: Sequence[Validated], digest: str, target: str) -> tuple[str, ...]:
    """Capabilities that ran this source built for this target."""
    same = {r.capability for r in records if r.source_sha256 == digest and r.target == target}
    return tuple(sorted(same))


def validated_as(records: Sequence[Validated], digest: str, target: str) -> str | None:
    """Another target that this source was proven for."""
    others = sorted(r.target for r in records if r.source_sha256 == digest and r.target != target)
    return others[0] if others else None
