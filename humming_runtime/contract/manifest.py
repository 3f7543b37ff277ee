"""manifest.json of a kernel wheel: frozen values, and the one place that reads and writes them.

The published schema is `manifest.schema.json` beside this file (every key, unit and nullability).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from humming_runtime.contract.tuning import TuningError, TuningTable, table_from_dict, table_to_dict
from humming_runtime.contract.variant_name import Variant, VariantNameError

SCHEMA_VERSION = 3
ENGINES = ("nvcc", "nvrtc")
"""Compilers: the same source gives other code with each."""


class ManifestError(ValueError):
    """A manifest that cannot be trusted: not JSON, another schema version, or a key that is missing."""


@dataclass(frozen=True)
class Cost:
    """Measured cost of a kernel on its own hardware; the runtime predicts with it (docs/selection.md).

    fixed_us: launch, first load, last store. tile_us: start and end of one tile of a CTA. step_us: one ring stage of
    one CTA when memory is not the limit. split_us: exchange of sums where a cluster shares k. shared_step: step of a
    CTA that shares its SM with another, as a ratio. activation_us_per_mb: decode, copying activations to one SM.
    memory_mb_per_us: read bandwidth of the hardware that was measured.
    """

    fixed_us: float
    tile_us: float
    step_us: float
    split_us: float
    shared_step: float
    activation_us_per_mb: float
    memory_mb_per_us: float


@dataclass(frozen=True)
class KernelEntry:
    """One cubin. Everything that the name says is not repeated here."""

    name: str
    file: str  # relative to the manifest, POSIX separators
    sha256: str
    size_bytes: int
    registers: int
    static_shared_bytes: int
    parameter_bytes: int
    spill_bytes: int
    source_sha256: str  # of the rendered source with its headers
    cost: Cost | None = None
    validated_on: tuple[
        str, ...
    ] = ()  # capabilities that ran this very source and target: ("9.0",)
    validated_as: str | None = None  # another target that ran the same source: "sm_90a"

    @cached_property
    def variant(self) -> Variant:
        return Variant.parse(self.name)


@dataclass(frozen=True)
class Manifest:
    """What one kernel wheel holds."""

    contract: str
    package: str  # distribution name
    version: str
    arch: str  # `sm_90`
    cuda: str  # toolkit release, `13.0`
    toolchain: str  # compiler build identification as the ELF has it
    engine: str  # one of ENGINES: which compiler made the cubins
    profile: str
    kernels: tuple[KernelEntry, ...] = field(default=())
    tuning: tuple[TuningTable, ...] = field(default=())
    schema_version: int = SCHEMA_VERSION


def to_json(manifest: Manifest) -> str:
    """Sorted keys, two-space indent, one trailing newline: equal manifests give equal bytes."""
    raw = asdict(replace(manifest, tuning=()))
    raw["tuning"] = [table_to_dict(table) for table in manifest.tuning]
    return json.dumps(raw, indent=2, sort_keys=True) + "\n"


def from_json(text: str, place: str) -> Manifest:
    """Parse; `place` heads every error message. Raises: ManifestError."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ManifestError(f"{place}: not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise ManifestError(f"{place}: not a JSON object")
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ManifestError(
            f"{place}: manifest schema {version!r}, this runtime reads {SCHEMA_VERSION}"
        )
    try:
        kernels = tuple(_kernel(entry) for entry in raw.pop("kernels"))
        tuning = tuple(table_from_dict(table) for table in raw.pop("tuning"))
        manifest = Manifest(kernels=kernels, tuning=tuning, **raw)
    except (KeyError, TypeError, TuningError, VariantNameError) as error:
        raise ManifestError(f"{place}: {error}") from error
    if manifest.engine not in ENGINES:
        raise ManifestError(f"{place}: engine {manifest.engine!r}, none of {', '.join(ENGINES)}")
    return manifest


def _kernel(raw: dict[str, Any]) -> KernelEntry:
    cost = raw.pop("cost", None)
    validated_on = tuple(raw.pop("validated_on", ()))
    entry = KernelEntry(
        cost=None if cost is None else Cost(**cost), validated_on=validated_on, **raw
    )
    Variant.parse(entry.name)
    return entry
