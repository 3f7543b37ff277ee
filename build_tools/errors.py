"""What a stage reports: its faults in one exception, one class and one exit code per cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from humming_runtime.contract.exit_codes import BuildExit


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: `place: message`, then at most one hint with a command."""

    place: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        line = f"{self.place}: {self.message}"
        return line if self.hint is None else f"{line}\n  hint: {self.hint}"


class BuildError(Exception):
    """Every fault of a stage. Subclasses name the cause and what the process returns."""

    exit_code: ClassVar[BuildExit] = BuildExit.BUG

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)

    @classmethod
    def of(cls, place: str, message: str, hint: str | None = None) -> BuildError:
        """The exception of one fault."""
        return cls([Fault(place, message, hint)])


class UsageError(BuildError):
    """The command line asks for something that does not exist."""

    exit_code = BuildExit.USAGE


class SpecError(BuildError):
    """A spec or template is wrong."""

    exit_code = BuildExit.SPEC


class NothingToBuildError(BuildError):
    """The selection is empty."""

    exit_code = BuildExit.NOTHING_TO_BUILD


class ToolchainError(BuildError):
    """No compiler, or one that cannot do what is asked."""

    exit_code = BuildExit.TOOLCHAIN


class CompileError(BuildError):
    """The compiler refused a source, or was killed."""

    exit_code = BuildExit.COMPILE


class SpillError(BuildError):
    """Registers are spilled to memory where the spec does not allow it."""

    exit_code = BuildExit.SPILL


class CubinMismatchError(BuildError):
    """A cubin is not what the plan asked for."""

    exit_code = BuildExit.CUBIN_MISMATCH


class DiskError(BuildError):
    """A file could not be read or written whole."""

    exit_code = BuildExit.DISK


class BudgetError(BuildError):
    """A wheel or a group of kernels is larger than the spec allows."""

    exit_code = BuildExit.BUDGET


class ShardError(BuildError):
    """Shards that are not the whole of one build."""

    exit_code = BuildExit.SHARDS


class NotReproducedError(BuildError):
    """Building a wheel again made other bytes."""

    exit_code = BuildExit.NOT_REPRODUCED


class InterruptedBuildError(BuildError):
    """Ctrl-C or SIGTERM."""

    exit_code = BuildExit.INTERRUPTED


# The most upstream cause decides the exit code where edges fail for different reasons.
EDGE_CAUSES: tuple[type[BuildError], ...] = (
    DiskError,
    CompileError,
    SpillError,
    CubinMismatchError,
)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
