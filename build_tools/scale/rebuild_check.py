"""Is a published wheel what its sources make? Kernels built again, and compared byte by byte."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from build_tools.errors import Fault
from build_tools.file_writes import sha256_file
from build_tools.release.kernel_wheel import KernelWheel
from humming_runtime.contract.manifest import KernelEntry, Manifest

_SBOM_HINT = "SOURCE_DATE_EPOCH of its build, its compiler; the same cyclonedx-python-lib"


def sample_of(names: Sequence[str], count: int, seed: str) -> tuple[str, ...]:
    """`count` names or all of them; the same for the same seed, by name."""
    chosen = random.Random(seed).sample(sorted(names), min(count, len(names)))  # noqa: S311
    return tuple(sorted(chosen))


def kernel_differences(published: Manifest, rebuilt: Manifest) -> list[Fault]:
    """Every kernel of `rebuilt` against the one of that name, and the facts of the builds."""
    own = {entry.name: entry for entry in rebuilt.kernels}
    hint = _hint(published, rebuilt)
    return [
        Fault(entry.name, message, hint)
        for entry in published.kernels
        if entry.name in own
        for message in _entry_differences(entry, own[entry.name])
    ]


def archive_differences(published: KernelWheel, rebuilt: Path) -> list[Fault]:
    """Whole files: which of their members differ, or that only the archive itself does."""
    if sha256_file(published.path) == sha256_file(rebuilt):
        return []
    place = published.path.name
    ours, theirs = _contents(rebuilt), _contents(published.path)
    names = sorted(name for name in ours.keys() | theirs if ours.get(name) != theirs.get(name))
    if not names:
        hint = "SOURCE_DATE_EPOCH of its build; the same versions of zlib and hatchling"
        return [Fault(place, "equal files in another archive: times or compression differ", hint)]
    return [
        Fault(place, f"{name} differs", _SBOM_HINT if "/sboms/" in name else None) for name in names
    ]


def _entry_differences(published: KernelEntry, rebuilt: KernelEntry) -> list[str]:
    """The sources decide, so they come first: other sources make other code."""
    if published.source_sha256 != rebuilt.source_sha256:
        return [f"its source was {published.source_sha256}, here it is {rebuilt.source_sha256}"]
    if published.sha256 != rebuilt.sha256:
        return [f"its cubin is {published.sha256}, the rebuilt one {rebuilt.sha256}"]
    return []


def _hint(published: Manifest, rebuilt: Manifest) -> str:
    for what in ("version", "contract", "engine", "cuda", "toolchain"):
        theirs, ours = getattr(published, what), getattr(rebuilt, what)
        if theirs != ours:
            return f"its {what} is {theirs!r}, here it is {ours!r}"
    return "the same compiler says that it is; was the wheel changed after its build?"


def _contents(path: Path) -> Mapping[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
