"""Installed kernel packages -> manifests. One that cannot be used is a named fault, not ignored.

Packages are found by the entry-point group `humming.cubins` (name = arch, value = import package)
and in the folders that HUMMING_CUBIN_PATH lists, which come first. Nothing of a package is imported
or executed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from importlib import metadata, util
from pathlib import Path, PurePosixPath

from humming_runtime.contract.fingerprint import contract_hash
from humming_runtime.contract.manifest import KernelEntry, Manifest, ManifestError, from_json
from humming_runtime.contract.variant_name import Variant
from humming_runtime.errors import ContractError, HummingError, PackageError

ENTRY_POINT_GROUP = "humming.cubins"
PATH_VARIABLE = "HUMMING_CUBIN_PATH"
MANIFEST_FILE = "manifest.json"
_SHOWN_FILES = 3
_MANIFEST_TEXTS = ("contract", "package", "version", "arch", "cuda", "engine", "profile")


@dataclass(frozen=True)
class Package:
    """One usable kernel package. `place` is its folder."""

    manifest: Manifest
    place: Path

    @property
    def name(self) -> str:
        return self.manifest.package

    @cached_property
    def kernels(self) -> tuple[tuple[KernelEntry, Variant], ...]:
        """Every kernel with its name parsed."""
        return tuple((entry, entry.variant) for entry in self.manifest.kernels)

    def cubin(self, entry: KernelEntry) -> Path:
        return self.place / entry.file


class FaultKind(Enum):
    """Why a package is not used."""

    BROKEN = "broken"
    CONTRACT = "contract"
    SHADOWED = "shadowed"


@dataclass(frozen=True)
class PackageFault:
    """A package that was found and is not used."""

    name: str
    reason: str
    hint: str | None = None
    kind: FaultKind = FaultKind.BROKEN

    def __str__(self) -> str:
        line = f"{self.name}: {self.reason}"
        return line if self.hint is None else f"{line}\n  hint: {self.hint}"


@dataclass(frozen=True)
class Installed:
    """What this environment has: packages of HUMMING_CUBIN_PATH, then the installed by name."""

    packages: tuple[Package, ...] = ()
    faults: tuple[PackageFault, ...] = ()


def discover(search_path: str | None = None) -> Installed:
    """Read every manifest. search_path: folders in place of HUMMING_CUBIN_PATH's."""
    packages: dict[str, Package] = {}
    faults: list[PackageFault] = []
    listed = os.environ.get(PATH_VARIABLE, "") if search_path is None else search_path
    for name, place in (*_listed_folders(listed), *sorted(_entry_point_folders(), key=str)):
        result = read_package(name, place)
        if isinstance(result, PackageFault):
            faults.append(result)
            continue
        first = packages.setdefault(result.name, result)
        if first.place.resolve() != result.place.resolve():
            faults.append(_shadowed(result, first))
    return Installed(tuple(packages.values()), tuple(faults))


def read_package(name: str, place: Path | None) -> Package | PackageFault:
    """Read one folder with a manifest of this runtime's contract; or say what is wrong with it."""
    try:
        return _read(name, place)
    except HummingError as error:
        kind = FaultKind.CONTRACT if isinstance(error, ContractError) else FaultKind.BROKEN
        return PackageFault(name, error.message, error.hint, kind)


def _read(name: str, place: Path | None) -> Package:
    repair = f"pip install --force-reinstall {name}"
    if place is None:
        raise PackageError("the installed files are incomplete, its folder is missing", repair)
    path = place / MANIFEST_FILE
    try:
        text = path.read_text(encoding="utf-8")
        _check_contract(text)
        manifest = from_json(text, str(path))
        _check_types(manifest)
    except OSError as error:
        raise PackageError(f"{path}: {(error.strerror or str(error)).lower()}", repair) from error
    except (ManifestError, UnicodeDecodeError) as error:
        raise PackageError(str(error), repair) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise PackageError(f"{path}: not a manifest ({error})", repair) from error
    package = Package(manifest, place)
    _check_files(package, repair)
    return package


def _check_contract(text: str) -> None:
    """First of all: the other keys of another contract may be anything. Raises: ContractError."""
    raw = json.loads(text)
    theirs = raw.get("contract") if isinstance(raw, dict) else None
    ours = contract_hash()
    if isinstance(theirs, str) and theirs != ours:
        reason = f"built for contract {theirs}, this runtime has {ours}"
        raise ContractError(reason, f"pip install --upgrade humming-aot {raw.get('package', '')}")


def _check_types(manifest: Manifest) -> None:
    """Of what this runtime reads before anything is loaded. Raises: TypeError, ValueError."""
    places: list[tuple[object, tuple[str, ...], type]] = [(manifest, _MANIFEST_TEXTS, str)]
    for entry in manifest.kernels:
        places += [(entry, ("file", "sha256"), str), (entry, ("size_bytes",), int)]
    for owner, keys, kind in places:
        for key in keys:
            value = getattr(owner, key)
            if not isinstance(value, kind):
                raise TypeError(f"{key} is {value!r}, no {kind.__name__}")
    if not re.fullmatch(r"\d+\.\d+", manifest.cuda):
        raise ValueError(f"cuda is {manifest.cuda!r}, no release like 13.0")


def _check_files(package: Package, repair: str) -> None:
    """Is every cubin there in its size? Contents are checked when one is loaded."""
    wrong = []
    for entry in package.manifest.kernels:
        relative = PurePosixPath(entry.file)
        if relative.is_absolute() or ".." in relative.parts:
            wrong.append(f"{entry.file} lies outside of the package")
            continue
        try:
            size = package.cubin(entry).stat().st_size
        except OSError as error:
            wrong.append(f"{entry.file}: {(error.strerror or str(error)).lower()}")
            continue
        if size != entry.size_bytes:
            wrong.append(f"{entry.file}: {size} bytes, the manifest says {entry.size_bytes}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN_FILES} more" if len(wrong) > _SHOWN_FILES else ""
        raise PackageError(f"{package.place}: {'; '.join(wrong[:_SHOWN_FILES])}{more}", repair)


def _shadowed(later: Package, first: Package) -> PackageFault:
    reason = f"{later.place} is not used, {first.place} has the same package and comes first"
    return PackageFault(later.name, reason, kind=FaultKind.SHADOWED)


def _listed_folders(listed: str) -> Iterator[tuple[str, Path]]:
    for folder in listed.split(os.pathsep):
        if folder:
            yield folder, Path(folder)


def _entry_point_folders() -> Iterator[tuple[str, Path | None]]:
    """Folder of every entry point; a name that is twice on sys.path counts once, as for imports."""
    seen: set[tuple[str, str]] = set()
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        distribution = point.dist
        name = point.value if distribution is None else distribution.metadata["Name"]
        if (name, point.value) in seen:
            continue
        seen.add((name, point.value))
        yield name, _folder(point.value, distribution)


def _folder(module: str, distribution: metadata.Distribution | None) -> Path | None:
    """Beside the distribution's metadata; elsewhere for an editable installation."""
    if not module.isidentifier():
        return None  # a dotted name could not be found without importing its parent
    if distribution is not None:
        folder = Path(str(distribution.locate_file(module)))
        if folder.is_dir():
            return folder
    spec = util.find_spec(module)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None
