"""What one shard leaves for the merge: `<output>/sm_90-shard-2-of-4/`, whole or not at all.

shard.json     which shard of which plan, by which compiler
manifest.json  of its kernels
cubins/
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from build_tools.errors import Fault, ShardError
from build_tools.file_writes import disk_error, write_whole
from build_tools.folders import WorkFolder
from build_tools.plan import ArchPlan
from build_tools.scale.shards import Shard, plan_sha256
from humming_runtime.contract.manifest import Manifest, to_json
from humming_runtime.verify.file_tree import FolderTree
from humming_runtime.verify.findings import Report
from humming_runtime.verify.kernel_files import MANIFEST_FILE, check_kernel_files

SHARD_FILE = "shard.json"
_KINDS = {
    "arch": str,
    "index": int,
    "count": int,
    "select": list,
    "plan_sha256": str,
    "compiler_sha256": str,
}


@dataclass(frozen=True)
class ShardFacts:
    """compiler_sha256: digest of the compiler's programs; equal in all shards of a build."""

    arch: str
    index: int
    count: int
    select: tuple[str, ...]  # patterns of the build
    plan_sha256: str
    compiler_sha256: str


@dataclass(frozen=True)
class ShardFolder:
    """A shard that was read and verified."""

    path: Path
    facts: ShardFacts
    manifest: Manifest


def shard_facts(
    whole: ArchPlan, shard: Shard, select: Sequence[str], compiler_sha256: str
) -> ShardFacts:
    """whole: the plan that the shard is a part of."""
    return ShardFacts(
        whole.arch.name,
        shard.index,
        shard.count,
        tuple(select),
        plan_sha256(whole),
        compiler_sha256,
    )


def shard_folder_name(arch: str, shard: Shard) -> str:
    return f"{arch}-shard-{shard.index}-of-{shard.count}"


def write_shard(work: WorkFolder, manifest: Manifest, facts: ShardFacts, output: Path) -> Path:
    """A folder under another name until it is whole. Raises: DiskError."""
    path = output / shard_folder_name(facts.arch, Shard(facts.index, facts.count))
    staging = path.with_name(f".{path.name}.tmp")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        for entry in manifest.kernels:
            target = staging / entry.file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(work.root / entry.file, target)
        write_whole(staging / MANIFEST_FILE, to_json(manifest).encode())
        text = json.dumps(asdict(facts), indent=2, sort_keys=True) + "\n"
        write_whole(staging / SHARD_FILE, text.encode())
        shutil.rmtree(path, ignore_errors=True)
        staging.rename(path)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise disk_error(path, error) from error
    return path


def read_shard(path: Path) -> ShardFolder:
    """Raises: ShardError with everything that is wrong, down to each cubin's ELF."""
    place = path / SHARD_FILE
    try:
        raw = json.loads(place.read_text(encoding="utf-8"))
        wrong = [key for key, kind in _KINDS.items() if not isinstance(raw.get(key), kind)]
    except (OSError, ValueError, AttributeError) as error:
        raise ShardError([Fault(str(place), f"cannot be read ({error})")]) from error
    if wrong or set(raw) != set(_KINDS):
        raise ShardError([Fault(str(place), f"other keys than {', '.join(_KINDS)}")])
    report = Report(str(path))
    tree = FolderTree(path)
    files = check_kernel_files(_Without(tree, SHARD_FILE), str(path), report)
    if report.findings or files is None:
        raise ShardError([Fault(one.place, one.message) for one in report.findings])
    facts = ShardFacts(**{**raw, "select": tuple(map(str, raw["select"]))})
    return ShardFolder(path, facts, files.manifest)


class _Without:
    """A tree less one file."""

    def __init__(self, tree: FolderTree, name: str) -> None:
        self.names = lambda: (other for other in tree.names() if other != name)
        self.read = tree.read
