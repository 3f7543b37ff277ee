"""CycloneDX SBOM of a kernel wheel (PEP 770): the wheel, its compiler, the sources as one digest.

Not one component per kernel: the manifest lists them, and its digest is here. Imported where a
wheel is written only, as the library takes a tenth of a second to load.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from humming_runtime.contract.manifest import Manifest, to_json

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "humming-aot.sbom")
_COMPILER = "cuda-compiler"


def wheel_sbom(manifest: Manifest, file_name: str, compiler_sha256: str, epoch: int) -> str:
    """JSON text, the same for the same arguments. compiler_sha256: of the compiler's programs."""
    content = to_json(manifest).encode()
    wheel = Component(
        name=manifest.package,
        version=manifest.version,
        type=ComponentType.LIBRARY,
        bom_ref=file_name,
        purl=PackageURL("pypi", None, manifest.package, manifest.version, {"file_name": file_name}),
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        properties=wheel_properties(manifest, content),
    )
    compiler = compiler_component(manifest, compiler_sha256)
    bom = new_bom(wheel, epoch, [content.decode(), compiler_sha256])
    bom.components.add(compiler)
    bom.register_dependency(wheel, [compiler])
    return sbom_text(bom)


def new_bom(root: Component, epoch: int, unlike: Sequence[str]) -> Bom:
    """What is the same for equal `unlike` and epoch; no clock and no chance."""
    return Bom(
        serial_number=uuid.uuid5(_NAMESPACE, "\n".join((*unlike, str(epoch)))),
        metadata=BomMetaData(
            component=root, timestamp=datetime.fromtimestamp(epoch, tz=timezone.utc)
        ),
    )


def sbom_text(bom: Bom) -> str:
    output = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return output.output_as_string(indent=2) + "\n"


def sources_sha256(manifest: Manifest) -> str:
    """One digest of every kernel's rendered source, by kernel name."""
    digest = hashlib.sha256()
    for entry in manifest.kernels:
        digest.update(f"{entry.name} {entry.source_sha256}\n".encode())
    return digest.hexdigest()


def wheel_properties(manifest: Manifest, content: bytes) -> list[Property]:
    """content: the manifest's file."""
    return _properties(
        {
            "arch": manifest.arch,
            "contract": manifest.contract,
            "kernels": str(len(manifest.kernels)),
            "manifest-sha256": hashlib.sha256(content).hexdigest(),
            "profile": manifest.profile,
            "sources-sha256": sources_sha256(manifest),
        }
    )


def compiler_component(manifest: Manifest, programs_sha256: str | None) -> Component:
    """NVIDIA's compiler, as the cubins' own notes name it; it is used, not shipped.

    programs_sha256: None where it is not known, as for a wheel of somebody else.
    """
    facts = {"engine": manifest.engine, "toolchain": manifest.toolchain}
    if programs_sha256 is not None:
        facts["programs-sha256"] = programs_sha256
    return Component(
        name=_COMPILER,
        version=manifest.cuda,
        type=ComponentType.APPLICATION,
        scope=ComponentScope.EXCLUDED,
        bom_ref=f"{_COMPILER}@{manifest.cuda} {manifest.toolchain} {manifest.engine}",
        properties=_properties(facts),
    )


def _properties(facts: dict[str, str]) -> list[Property]:
    return [Property(name=f"humming:{key}", value=value) for key, value in facts.items()]
