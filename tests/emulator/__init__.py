"""Runs the PTX of CUDA kernels on the CPU, slowly and with checks (docs/emulator.md)."""

from . import instructions_arithmetic, instructions_matrix, instructions_memory, instructions_sync
from .machine import DeadlockError, EmulationError, Launch, Machine
from .memory import GlobalMemory
from .ptx_text import PtxError, parse
from .translate import translate

__all__ = [
    "DeadlockError",
    "EmulationError",
    "GlobalMemory",
    "Launch",
    "Machine",
    "PtxError",
    "instructions_arithmetic",
    "instructions_matrix",
    "instructions_memory",
    "instructions_sync",
    "parse",
    "translate",
]
