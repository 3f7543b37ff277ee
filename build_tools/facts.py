"""Facts of every cubin of a plan, read once a file; one that is not what was planned is removed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from build_tools.cubin import CubinFacts, NotACubinError, mismatches, read_facts
from build_tools.errors import CubinMismatchError, Fault
from build_tools.file_writes import write_if_changed
from build_tools.folders import WorkFolder
from build_tools.plan import Planned

_REBUILD_HINT = "humming-build builds it again on the next run; if it comes back, report it"


@dataclass(frozen=True)
class BuiltKernel:
    """A planned variant, what its file says, and what its compilation took."""

    planned: Planned
    facts: CubinFacts
    spill_bytes: int
    milliseconds: int
    started: float | None = None  # unix time; None where it came from a store


def collect_facts(work: WorkFolder, planned: Sequence[Planned]) -> tuple[BuiltKernel, ...]:
    """In the order of `planned`. Raises: CubinMismatchError with every difference."""
    kernels: list[BuiltKernel] = []
    faults: list[Fault] = []
    for item in planned:
        path = work.cubin(item.name)
        try:
            facts = _facts(work, item.name)
            wrong = mismatches(facts, item)
        except NotACubinError as error:
            wrong = [f"is no cubin ({error})"]
        if wrong:
            faults += [Fault(item.name, text, _REBUILD_HINT) for text in wrong]
            path.unlink()
            continue
        record = json.loads(work.record(item.name).read_text(encoding="utf-8"))
        took = record["spill_bytes"], record["milliseconds"], record.get("started")
        kernels.append(BuiltKernel(item, facts, *took))
    if faults:
        raise CubinMismatchError(faults)
    return tuple(kernels)


def _facts(work: WorkFolder, name: str) -> CubinFacts:
    """Read the ELF, or what was read of the same file (by size and time) before."""
    path, cache = work.cubin(name), work.facts(name)
    status = path.stat()
    stamp = [status.st_size, status.st_mtime_ns]
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
        if known["stamp"] == stamp:
            return _from_json(known["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    facts = read_facts(path.read_bytes())
    write_if_changed(cache, json.dumps({"stamp": stamp, "facts": asdict(facts)}) + "\n")
    return facts


def _from_json(raw: dict[str, Any]) -> CubinFacts:
    tuples = ("symbols", "capability", "parameter_bytes")
    fields: dict[str, Any] = {key: tuple(v) if key in tuples else v for key, v in raw.items()}
    return CubinFacts(**fields)
