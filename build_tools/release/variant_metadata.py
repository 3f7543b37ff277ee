"""What a variant wheel says about itself: variant.json, its index's JSON, and core metadata.

Source: PEP 825 (format) and PEP 850 (providers), drafts of 2026; the schema is PEP 850's 0.2.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from humming_runtime.contract.manifest import Manifest

DISTRIBUTION = "humming-cubins"
FILE_STEM = "humming_cubins"
VARIANT_FILE = "variant.json"
SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_NAMESPACE = "nvidia"
_PACKAGE = re.compile(rf"{DISTRIBUTION}-([0-9a-z]+-[0-9a-z]+)")
# uv has this provider built in and knows it by these two texts.
_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}

_DESCRIPTION = """\
# {distribution}

{count} quantized-GEMM kernels (cubins) for NVIDIA {arch}, compiled with CUDA {cuda}: variant
`{label}`. The files are those of `{package}` {version}; `humming-aot` finds them by their entry
point (contract `{contract}`). An installer that knows wheel variants picks the one for your GPU:

    uv pip install --preview-features wheel-variants humming-aot {distribution}
    humming list
"""


@dataclass(frozen=True)
class Variant:
    """A label and its properties."""

    label: str
    sm_arch: tuple[str, ...]
    cuda: str  # least version of the driver's CUDA: the first of the major, `13.0`

    def properties(self) -> dict[str, dict[str, list[str]]]:
        features = {"cuda_version_lower_bound": [self.cuda], "sm_arch": sorted(self.sm_arch)}
        return {_NAMESPACE: features}


def label_of(manifest: Manifest) -> str:
    """`humming-cubins-sm90-cu13` -> `sm90_cu13`. Raises: ValueError for another name."""
    match = _PACKAGE.fullmatch(manifest.package)
    if match is None:
        raise ValueError(f"package {manifest.package!r} is not {DISTRIBUTION}-ARCH-CUDA")
    return match[1].replace("-", "_")


def variants_json(variants: Sequence[Variant]) -> str:
    """variant.json of one, `NAME-VERSION-variants.json` of all: equal variants, equal bytes."""
    content = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": {variant.label: variant.properties() for variant in variants},
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def core_metadata(original: str, manifest: Manifest, label: str) -> str:
    """METADATA of the wheel under its new name, and what it then tells its reader."""
    headers, _, _ = original.partition("\n\n")
    lines = [
        f"Name: {DISTRIBUTION}" if line.startswith("Name: ") else line
        for line in headers.splitlines()
    ]
    description = _DESCRIPTION.format(
        distribution=DISTRIBUTION,
        count=len(manifest.kernels),
        arch=manifest.arch,
        cuda=manifest.cuda,
        label=label,
        package=manifest.package,
        version=manifest.version,
        contract=manifest.contract,
    )
    return "\n".join(lines) + "\n\n" + description
