"""Shards -> the wheel that one machine would have built, or every reason why they are not that."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from build_tools.errors import Fault, ShardError
from build_tools.file_writes import disk_error
from build_tools.folders import WorkFolder
from build_tools.scale.shard_folder import ShardFolder
from humming_runtime.contract.manifest import KernelEntry

_SAME_FACTS = ("count", "select", "plan_sha256", "compiler_sha256")
_SAME_MANIFEST = ("contract", "package", "version", "cuda", "toolchain", "engine", "profile")


def merged_kernels(shards: Sequence[ShardFolder]) -> tuple[KernelEntry, ...]:
    """Every kernel by name, of shards of one arch.

    Raises: ShardError for holes, duplicates, and shards of different builds.
    """
    faults = [*_differences(shards), *_holes(shards), *_duplicates(shards)]
    if faults:
        raise ShardError(faults)
    entries = [entry for shard in shards for entry in shard.manifest.kernels]
    return tuple(sorted(entries, key=lambda entry: entry.name))


def require_whole(kernels: Sequence[KernelEntry], planned: Sequence[str], arch: str) -> None:
    """Raises: ShardError where the kernels are not those of the plan of this checkout's specs."""
    have, wanted = {entry.name for entry in kernels}, set(planned)
    faults = [Fault(arch, f"{name} is planned and in no shard") for name in sorted(wanted - have)]
    faults += [
        Fault(arch, f"{name} is in a shard and not planned") for name in sorted(have - wanted)
    ]
    if faults:
        raise ShardError(faults)


def gather(shards: Sequence[ShardFolder], work: WorkFolder) -> None:
    """Copy every cubin into one work folder. Raises: DiskError."""
    try:
        shutil.rmtree(work.root / "cubins", ignore_errors=True)
        for shard in shards:
            for entry in shard.manifest.kernels:
                target = work.root / entry.file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(shard.path / entry.file, target)
    except OSError as error:
        raise disk_error(Path(str(error.filename or work.root)), error) from error


def _differences(shards: Sequence[ShardFolder]) -> list[Fault]:
    first = next((shard for shard in shards if shard.manifest.kernels), shards[0])
    faults = []
    for shard in shards:
        for key in (*_SAME_FACTS, *_SAME_MANIFEST):
            if key == "toolchain" and not shard.manifest.kernels:
                continue  # read from cubins
            own, other = _value(shard, key), _value(first, key)
            if own != other:
                message = f"{key} is {own}, {first.path} has {other}"
                faults.append(Fault(str(shard.path), message, "build all shards from one checkout"))
    return faults


def _value(shard: ShardFolder, key: str) -> object:
    return getattr(shard.facts if key in _SAME_FACTS else shard.manifest, key)


def _holes(shards: Sequence[ShardFolder]) -> list[Fault]:
    facts = shards[0].facts
    found = Counter(shard.facts.index for shard in shards)
    missing = [index for index in range(1, facts.count + 1) if index not in found]
    faults = [
        Fault(
            facts.arch, f"shard {index}/{facts.count} is missing", f"--shard {index}/{facts.count}"
        )
        for index in missing
    ]
    for index in sorted(index for index, number in found.items() if number > 1):
        places = ", ".join(str(s.path) for s in shards if s.facts.index == index)
        faults.append(Fault(facts.arch, f"shard {index}/{facts.count} is there twice ({places})"))
    return faults


def _duplicates(shards: Sequence[ShardFolder]) -> list[Fault]:
    """A kernel in two different shards."""
    first: dict[str, ShardFolder] = {}
    faults = []
    for shard in shards:
        for entry in shard.manifest.kernels:
            other = first.setdefault(entry.name, shard)
            if other.facts.index != shard.facts.index:
                faults.append(Fault(str(shard.path), f"{entry.name} is in {other.path} as well"))
    return faults
