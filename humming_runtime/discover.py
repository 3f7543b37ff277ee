"""Installed kernel packages -> manifests. One that cannot be used is a named fault, not ignored.

Packages are found by the entry-point group `humming.cubins` (name = arch, value = import package)
and in the folders that HUMMING_CUBIN_PATH lists. Nothing of a package is imported or executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.manifest import KernelEntry, Manifest, ManifestError, from_json

ENTRY_POINT_GROUP = "humming.cubins"
PATH_VARIABLE = "HUMMING_CUBIN_PATH"
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True)
class Package:
    """One usable kernel package. `place` is its folder."""

    manifest: Manifest
    place: Path

    @property
    def name(self) -> str:
        return self.manifest.package

    def cubin(self, entry: KernelEntry) -> Path:
        return self.place / entry.file


@dataclass(frozen=True)
class PackageFault:
    """A package that was found and cannot be used."""

    name: str
    reason: str
    hint: str | None = None
    is_contract: bool = False


@dataclass(frozen=True)
class Installed:
    """What this environment has, packages in the order of their names."""

    packages: tuple[Package, ...] = ()
    faults: tuple[PackageFault, ...] = field(default=())


def discover(search_path: str | None = None) -> Installed:
    """Read every manifest. search_path: folders in place of HUMMING_CUBIN_PATH's."""
    packages: list[Package] = []
    faults: list[PackageFault] = []
    listed = os.environ.get(PATH_VARIABLE, "") if search_path is None else search_path
    for name, place in (*_listed_folders(listed), *_entry_point_folders()):
        result = read_package(name, place)
        if isinstance(result, Package):
            packages.append(result)
        else:
            faults.append(result)
    packages.sort(key=lambda p: (p.name, str(p.place)))
    return Installed(tuple(packages), tuple(faults))


def read_package(name: str, place: Path | None) -> Package | PackageFault:
    """Read one folder with a manifest of this runtime's contract; or say what is wrong with it."""
    if place is None:
        return PackageFault(
            name, "the installed files are incomplete", f"pip install --force-reinstall {name}"
        )
    path = place / MANIFEST_FILE
    try:
        manifest = from_json(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        return PackageFault(name, f"{path}: {(error.strerror or str(error)).lower()}")
    except (ManifestError, UnicodeDecodeError) as error:
        return PackageFault(name, str(error))
    ours = contract_hash()
    if manifest.contract != ours:
        reason = f"built for contract {manifest.contract}, this runtime has {ours}"
        hint = f"pip install --upgrade humming-aot {manifest.package}"
        return PackageFault(manifest.package, reason, hint, is_contract=True)
    return Package(manifest, place)


def _listed_folders(listed: str) -> Iterator[tuple[str, Path]]:
    for folder in listed.split(os.pathsep):
        if folder:
            yield folder, Path(folder)


def _entry_point_folders() -> Iterator[tuple[str, Path | None]]:
    """Folder of every entry point, from the distribution's own record of files."""
    seen: set[tuple[str, str]] = set()
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        distribution = point.dist
        name = point.value if distribution is None else distribution.metadata["Name"]
        if (name, point.value) in seen or distribution is None:
            continue  # twice on sys.path: the first one counts, as for imports
        seen.add((name, point.value))
        folder = Path(str(distribution.locate_file(point.value.replace(".", "/"))))
        yield name, folder if folder.is_dir() else None
