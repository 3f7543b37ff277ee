"""Exit codes of both commands: one number per cause."""

from __future__ import annotations

from enum import IntEnum


class BuildExit(IntEnum):
    """`humming-build`."""

    OK = 0
    BUG = 1
    USAGE = 2
    SPEC = 3
    NOTHING_TO_BUILD = 4
    TOOLCHAIN = 5
    COMPILE = 6
    SPILL = 7
    CUBIN_MISMATCH = 8
    DISK = 9
    BUDGET = 10
    SHARDS = 11
    NOT_REPRODUCED = 12
    INTERRUPTED = 130


class RuntimeExit(IntEnum):
    """`humming` (doctor, list, verify)."""

    OK = 0
    BUG = 1
    USAGE = 2
    KERNELS_MISSING = 10
    NO_DRIVER_OR_DEVICE = 11
    INTEGRITY = 20
    SIGNATURE = 21
    CONTRACT = 22
    SIGNATURE_UNCHECKED = 23
