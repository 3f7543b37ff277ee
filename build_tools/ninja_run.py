"""Run ninja in a work folder: progress while it works, failures by variant when it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ninja

from build_tools.compile_edge import LAUNCHER_VARIABLE
from build_tools.errors import (
    EDGE_CAUSES,
    BuildError,
    CompileError,
    DiskError,
    Fault,
    InterruptedBuildError,
    SpillError,
)
from build_tools.file_writes import disk_error
from build_tools.folders import WorkFolder
from build_tools.plan import Planned

_STATUS = "@@%f/%t@@"
_CAUSES: dict[str, type[BuildError]] = {
    "compile": CompileError,
    "spill": SpillError,
    "disk": DiskError,
}
_KEEP_GOING = ("-k", "0")
_LAST_LINES = 5

Report = Callable[[int, int], None]
"""Called with (finished, all) edges of this run."""


@dataclass(frozen=True)
class Compiled:
    """Names of the variants that this run compiled, took from a store, and had already."""

    built: tuple[str, ...]
    fetched: tuple[str, ...]
    reused: tuple[str, ...]

    @classmethod
    def of(
        cls, planned: Sequence[Planned], changed: frozenset[str], fetched: frozenset[str]
    ) -> Compiled:
        """In the order of the plan."""
        names = [item.name for item in planned]
        return cls(
            tuple(name for name in names if name in changed - fetched),
            tuple(name for name in names if name in changed & fetched),
            tuple(name for name in names if name not in changed),
        )


@contextlib.contextmanager
def locked(work: WorkFolder, waiting: Callable[[], None]) -> Iterator[int]:
    """One build at a time in a folder. Raises: DiskError.

    Yields the lock's descriptor for the processes that write there: it goes with the last one.
    """
    try:
        work.root.mkdir(parents=True, exist_ok=True)
        stream = work.lock.open("w")
    except OSError as error:
        raise disk_error(work.root, error) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream.fileno()


def remove_stale(work: WorkFolder, known: frozenset[str]) -> int:
    """Delete outputs of variants that no spec names any more. Returns how many."""
    stale = [path for path in (work.root / "cubins").glob("*.cubin") if path.stem not in known]
    for path in stale:
        for other in (work.record, work.facts, work.log, work.failure):
            other(path.stem).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return len(stale)


def run_ninja(
    work: WorkFolder,
    planned: Sequence[Planned],
    jobs: int,
    report: Report,
    lock: int,
    launcher: Sequence[str],
) -> None:
    """Build what is out of date. lock: descriptor that ninja and its compilers keep open.

    launcher: words before each compiler call. The edges take them from their environment: they
    change no cubin, so they are in no command of ninja's.

    Raises: CompileError, SpillError, DiskError with a fault per variant; InterruptedBuildError.
    """
    if not planned:
        return  # a shard may be empty, and ninja refuses a file without targets
    for item in planned:
        work.failure(item.name).unlink(missing_ok=True)
    code, last_lines = _execute(work.root, jobs, report, lock, launcher)
    if code:
        raise _failure(work, planned, last_lines)


Stamps = dict[str, "tuple[int, int] | None"]


def stamps(work: WorkFolder, planned: Sequence[Planned]) -> Stamps:
    """What tells whether a cubin was written again, by name."""
    return {item.name: _stamp(work.cubin(item.name)) for item in planned}


def changed_since(work: WorkFolder, planned: Sequence[Planned], before: Stamps) -> frozenset[str]:
    """Names of cubins that are there and were written since."""
    after = stamps(work, planned)
    return frozenset(n for n, stamp in after.items() if stamp is not None and stamp != before[n])


def _execute(
    root: Path, jobs: int, report: Report, lock: int, launcher: Sequence[str]
) -> tuple[int, list[str]]:
    """Returns the exit code and the last lines of ninja that were no status."""
    argv = [str(Path(ninja.BIN_DIR) / "ninja"), "-j", str(jobs), *_KEEP_GOING]
    launched = {LAUNCHER_VARIABLE: shlex.join(launcher)}
    environment = {**os.environ, "NINJA_STATUS": _STATUS, **launched}
    process = subprocess.Popen(
        argv,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        pass_fds=(lock,),
    )
    other: list[str] = []
    try:
        for line in process.stdout or ():
            mark, _, rest = line.partition("@@")
            if mark == "" and "@@" in rest:
                finished, _, total = rest.partition("@@")[0].partition("/")
                report(int(finished), int(total))
            else:
                other.append(line.rstrip())
        return process.wait(), other[-_LAST_LINES:]
    except BaseException as error:
        _stop(process)
        if isinstance(error, KeyboardInterrupt):
            raise InterruptedBuildError.of(
                "build", "interrupted; what was finished is kept"
            ) from error
        raise


def _stop(process: subprocess.Popen[str]) -> None:
    """Let ninja and its edges end by themselves: each edge kills its own compiler."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    process.wait()


def _failure(work: WorkFolder, planned: Sequence[Planned], last_lines: Sequence[str]) -> BuildError:
    """One error with a fault per variant; the most upstream cause decides its class."""
    faults: list[Fault] = []
    causes: set[type[BuildError]] = set()
    for item in planned:
        try:
            record = json.loads(work.failure(item.name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        causes.add(_CAUSES.get(record["cause"], CompileError))
        faults.append(Fault(item.name, record["message"]))
    if not faults:
        return CompileError.of("ninja", "; ".join(last_lines) or "failed without a message")
    cause = next(kind for kind in EDGE_CAUSES if kind in causes)
    return cause(faults)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino
