"""CycloneDX SBOM of a release: wheels, the compiler, the kernels' sources as one digest.

Not one component per kernel: a manifest lists them, and its digest is here.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from build_tools.release.release_files import ReleaseWheel
from humming_runtime.contract.manifest import Manifest

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "humming-aot.sbom")
_COMPILER = "cuda-compiler"


def sources_sha256(manifest: Manifest) -> str:
    """One digest of every kernel's rendered source, by kernel name."""
    digest = hashlib.sha256()
    for entry in manifest.kernels:
        digest.update(f"{entry.name} {entry.source_sha256}\n".encode())
    return digest.hexdigest()


def make_sbom(name: str, version: str, wheels: Sequence[ReleaseWheel], epoch: int) -> str:
    """JSON text, the same for the same wheels and time."""
    root = Component(
        name=name, version=version, type=ComponentType.APPLICATION, bom_ref=f"{name}@{version}"
    )
    components: dict[str, Component] = {}
    bom = Bom(
        serial_number=uuid.uuid5(
            _NAMESPACE, "\n".join((name, version, *(w.sha256 for w in wheels)))
        ),
        metadata=BomMetaData(
            component=root, timestamp=datetime.fromtimestamp(epoch, tz=timezone.utc)
        ),
    )
    for wheel in wheels:
        component = components.setdefault(wheel.file_name, _wheel(wheel))
        used: list[Component] = []
        if wheel.manifest is not None:
            compiler = _compiler(wheel.manifest)
            used.append(components.setdefault(str(compiler.bom_ref.value), compiler))
        bom.register_dependency(component, used)
    for component in components.values():
        bom.components.add(component)
    bom.register_dependency(root, [components[wheel.file_name] for wheel in wheels])
    output = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return output.output_as_string(indent=2) + "\n"


def _wheel(wheel: ReleaseWheel) -> Component:
    properties = []
    if wheel.manifest is not None:
        facts = {
            "arch": wheel.manifest.arch,
            "contract": wheel.manifest.contract,
            "kernels": str(len(wheel.manifest.kernels)),
            "manifest-sha256": hashlib.sha256(wheel.manifest_content).hexdigest(),
            "profile": wheel.manifest.profile,
            "sources-sha256": sources_sha256(wheel.manifest),
        }
        properties = [Property(name=f"humming:{key}", value=facts[key]) for key in facts]
    return Component(
        name=wheel.project,
        version=wheel.version,
        type=ComponentType.LIBRARY,
        bom_ref=wheel.file_name,
        purl=PackageURL("pypi", None, wheel.project, wheel.version, {"file_name": wheel.file_name}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel.sha256)],
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        properties=properties,
    )


def _compiler(manifest: Manifest) -> Component:
    """NVIDIA's compiler, as the cubins' own notes name it; it is used, not shipped."""
    return Component(
        name=_COMPILER,
        version=manifest.cuda,
        type=ComponentType.APPLICATION,
        bom_ref=f"{_COMPILER}@{manifest.cuda} {manifest.toolchain} {manifest.engine}",
        properties=[
            Property(name="humming:engine", value=manifest.engine),
            Property(name="humming:toolchain", value=manifest.toolchain),
        ],
    )
