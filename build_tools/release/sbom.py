"""CycloneDX SBOM of a release: wheels, the compiler, the kernels' sources as one digest.

Not one component per kernel: a manifest lists them, and its digest is here.
"""

from __future__ import annotations

from collections.abc import Sequence

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from packageurl import PackageURL

from build_tools.release.release_files import ReleaseWheel
from build_tools.wheel_sbom import compiler_component, new_bom, sbom_text, wheel_properties


def make_sbom(name: str, version: str, wheels: Sequence[ReleaseWheel], epoch: int) -> str:
    """JSON text, the same for the same wheels and time."""
    root = Component(
        name=name, version=version, type=ComponentType.APPLICATION, bom_ref=f"{name}@{version}"
    )
    components: dict[str, Component] = {}
    bom = new_bom(root, epoch, [name, version, *(wheel.sha256 for wheel in wheels)])
    for wheel in wheels:
        component = components.setdefault(wheel.file_name, _wheel(wheel))
        used: list[Component] = []
        if wheel.manifest is not None:
            compiler = compiler_component(wheel.manifest, None)
            used.append(components.setdefault(str(compiler.bom_ref.value), compiler))
        bom.register_dependency(component, used)
    for component in components.values():
        bom.components.add(component)
    bom.register_dependency(root, [components[wheel.file_name] for wheel in wheels])
    return sbom_text(bom)


def _wheel(wheel: ReleaseWheel) -> Component:
    manifest = wheel.manifest
    return Component(
        name=wheel.project,
        version=wheel.version,
        type=ComponentType.LIBRARY,
        bom_ref=wheel.file_name,
        purl=PackageURL("pypi", None, wheel.project, wheel.version, {"file_name": wheel.file_name}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel.sha256)],
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        properties=[] if manifest is None else wheel_properties(manifest, wheel.manifest_content),
    )
