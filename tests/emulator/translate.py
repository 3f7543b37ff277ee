"""A parsed kernel -> Python functions, one for each straight run of instructions.

A register holds one numpy vector of 32 lanes, unsigned integers of its width (bool: predicates).
Vectors are never changed in place, so moves share them. Every run exists twice: for a full warp,
and with a mask of lanes, where results are merged with the old values.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .accumulators import check_accumulators
from .memory import MODULE_BASE
from .ptx_text import (
    SINK,
    Address,
    Immediate,
    Instruction,
    Kernel,
    Label,
    Negated,
    PtxError,
    Register,
    Special,
    Symbol,
)

Origins = dict[str, list[tuple[int, Instruction]]]
LANES = 32
RESERVED_SHARED_BYTES = 1024
"""sm_90 keeps the first KiB of a CTA's shared memory."""
_TYPE = re.compile(r"([subf])(8|16|32|64)$")


@dataclass(frozen=True)
class Formula:
    """An instruction that is one expression: `template` with {0}, {1}, ... for its sources."""

    template: str
    result: str
    sources: tuple[str, ...]


FORMULAS: dict[str, Formula] = {}
HANDLERS: dict[str, Callable[[Emitter, Instruction], None]] = {}
BLOCKING: dict[str, Callable[[Layout, Instruction], Callable]] = {}
NAMES: dict[str, object] = {"np": np, "where": np.where}
"""What generated code may call."""


def formula(opcode: str, template: str, result: str, *sources: str) -> None:
    """Add an instruction. Types: u8..s64, b8..b64, f32, f64, pred; 16-bit floats are b16 bits."""
    FORMULAS[opcode] = Formula(template, result, sources)


def named(function):
    """Decorator: generated code and formulas may call it."""
    NAMES[function.__name__] = function
    return function


def handler(*heads: str):
    """Decorator: emits code for every opcode that starts with one of these words."""

    def add(function):
        for head in heads:
            HANDLERS[head] = function
        return function

    return add


def blocking(*heads: str):
    """Decorator: (layout, instruction) -> f(fragment) that returns why it waits, or None."""

    def add(function):
        for head in heads:
            BLOCKING[head] = function
        return function

    return add


def number_type(name: str) -> tuple[np.dtype, int]:
    """(numpy type, bits) of a PTX type; 16-bit floats are bits."""
    if name in ("f16", "bf16"):
        return np.dtype(np.uint16), 16
    if name in ("f16x2", "bf16x2"):
        return np.dtype(np.uint32), 32
    if name == "pred":
        return np.dtype(bool), 1
    found = _TYPE.match(name)
    if found is None:
        raise PtxError(f"unknown type .{name}")
    kind = {"b": "u", "s": "i"}.get(found[1], found[1])
    bits = int(found[2])
    return np.dtype(f"{kind}{bits // 8}"), bits


class Layout:
    """Where variables lie: offsets in parameters, in the CTA's shared memory, in local memory."""

    def __init__(self, kernel: Kernel) -> None:
        self.offsets: dict[str, int] = {}
        ends = {"param": 0, "shared": RESERVED_SHARED_BYTES, "local": 0, "module": MODULE_BASE}
        dynamic = []
        for variable in kernel.variables.values():
            if variable.space == "shared" and variable.size_bytes == 0:
                dynamic.append(variable)
                continue
            space = "module" if variable.space in ("global", "const") else variable.space
            start = -(-ends[space] // variable.alignment) * variable.alignment
            self.offsets[variable.name] = start
            ends[space] = start + variable.size_bytes
        alignment = max([16, *(variable.alignment for variable in dynamic)])
        self.dynamic_start = -(-ends["shared"] // alignment) * alignment
        for variable in dynamic:
            self.offsets[variable.name] = self.dynamic_start
        self.parameter_bytes = ends["param"]
        self.local_bytes = -(-ends["local"] // 16) * 16
        self.static_end = ends["shared"]
        self.module_bytes = ends["module"] - MODULE_BASE

    def address(self, symbol: Symbol) -> int:
        return self.offsets[symbol.name] + symbol.offset


class Emitter:
    """Writes the lines of one instruction, for a full warp (mask None) or for lanes `mask`."""

    def __init__(self, layout: Layout, names: dict[str, object]) -> None:
        self.layout = layout
        self.names = names
        self.lines: list[str] = []
        self.mask: str | None = None
        self._constants: dict[tuple[int, str], str] = {}
        self._temporaries = 0

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def temporary(self, expression: str) -> str:
        """Name of a local that holds the value."""
        self._temporaries += 1
        name = f"t{self._temporaries}"
        self.emit(f"{name} = {expression}")
        return name

    def bind(self, value: object, hint: str) -> str:
        """Name of an object for generated code."""
        name = f"{hint}_{len(self.names)}"
        self.names[name] = value
        return name

    def constant(self, value: int, dtype: np.dtype) -> str:
        """Name of a vector of equal values; `value` as bits of floats."""
        key = value, dtype.str
        if key not in self._constants:
            if dtype.kind == "b":
                vector = np.full(LANES, value != 0)
            else:
                bits = np.dtype(f"u{dtype.itemsize}")
                wrapped = value & ((1 << dtype.itemsize * 8) - 1)
                vector = np.full(LANES, wrapped, bits).view(dtype)
            vector.flags.writeable = False
            self._constants[key] = self.bind(vector, "c")
        return self._constants[key]

    def read(self, operand: object, type_name: str) -> str:
        """Expression of a vector of that type."""
        dtype, bits = number_type(type_name)
        if isinstance(operand, Register):
            return self._read_register(operand, dtype, bits)
        if isinstance(operand, Immediate):
            value = operand.value
            if operand.float_bits == 64 and dtype == np.float32:
                value = int(
                    np.uint64(value).reshape(1).view(np.float64).astype(np.float32).view("u4")[0]
                )
            elif not operand.float_bits and dtype.kind == "f":
                value = int(np.array([value], dtype).view(f"u{bits // 8}")[0])
            return self.constant(value, dtype)
        if isinstance(operand, Special):
            value = f"w.special[{operand.name!r}]"
            return value if bits == 32 else f"{value}.astype(np.{dtype.name})"
        if isinstance(operand, Symbol):
            return self.constant(self.layout.address(operand), dtype)
        if isinstance(operand, Negated):
            return f"~({self.read(operand.predicate, 'pred')})"
        raise PtxError(f"{operand!r} is no source of type .{type_name}")

    def _read_register(self, register: Register, dtype: np.dtype, bits: int) -> str:
        place = f"R[{register.index}]"
        if bits == 1 or register.bits == 1:
            if bits != register.bits:
                raise PtxError(f"{register.name}: a predicate is no number")
            return place
        if bits > register.bits:
            raise PtxError(f"{register.name} has {register.bits} bits, fewer than the type")
        if bits < register.bits:
            place = f"{place}.astype(np.uint{bits})"
        return place if dtype.kind == "u" else f"{place}.view(np.{dtype.name})"

    def write(self, operand: object, expression: str, type_name: str) -> None:
        """Store a vector of that type; wider registers get it extended by its sign."""
        if operand is SINK:
            self.emit(expression)
            return
        if not isinstance(operand, Register):
            raise PtxError(f"{operand!r} is no destination")
        dtype, bits = number_type(type_name)
        if (bits == 1) != (operand.bits == 1) or bits > operand.bits:
            raise PtxError(f"{operand.name} ({operand.bits} bits) takes no .{type_name}")
        if bits > 1:
            if bits < operand.bits:
                if dtype.kind == "f":
                    expression, dtype = f"({expression}).view(np.uint{bits})", np.dtype("u1")
                kind = "int" if dtype.kind == "i" else "uint"
                expression = f"({expression}).astype(np.{kind}{operand.bits})"
            if dtype.kind != "u":
                expression = f"({expression}).view(np.uint{operand.bits})"
        place = f"R[{operand.index}]"
        if self.mask is None:
            self.emit(f"{place} = {expression}")
        else:
            self.emit(f"{place} = where({self.mask}, {expression}, {place})")

    def address(self, operand: object) -> tuple[str, str | None, int | None]:
        """(vector, space of a symbol or None, value where it is a constant)."""
        if not isinstance(operand, Address):
            raise PtxError(f"{operand!r} is no address")
        base, offset = operand.base, operand.offset
        if isinstance(base, Symbol):
            value = self.layout.address(base) + offset
            return self.constant(value, np.dtype(np.uint64)), base.space, value
        if isinstance(base, Register):
            dtype = np.dtype(f"u{base.bits // 8}")
            place = f"R[{base.index}]"
            return (f"{place} + {self.constant(offset, dtype)}" if offset else place), None, None
        if isinstance(base, Immediate):
            value = base.value + offset
            return self.constant(value, np.dtype(np.uint64)), None, value
        raise PtxError(f"{base!r} is no base of an address")


@dataclass
class Segment:
    """Straight instructions, then at most one branch; or one instruction that may wait.

    guard: register index of the branch's or the waiting instruction's predicate, or None.
    """

    first: Instruction
    code: Code | None = None
    waiting: Callable | None = None
    aligned: bool = False
    guard: int | None = None
    guard_negated: bool = False
    target: int | None = None  # segment of a branch
    exits: bool = False


class Code:
    """Straight instructions as functions f(warp, registers, mask), compiled at first use.

    What does not translate shows at once. origins: generated file -> (line, instruction), sorted.
    """

    def __init__(self, run: list[Instruction], emitter: Emitter, origins: Origins) -> None:
        self._run, self._emitter, self._origins = run, emitter, origins
        self._full_text = self._text(None)
        self._full: Callable | None = None
        self._masked: Callable | None = None

    @property
    def full(self) -> Callable:
        """For all 32 lanes."""
        if self._full is None:
            self._full = self._compiled(*self._full_text)
        return self._full

    @property
    def masked(self) -> Callable:
        """For some lanes."""
        if self._masked is None:
            self._masked = self._compiled(*self._text("m"))
        return self._masked

    def _text(self, mask: str | None) -> tuple[str, list[tuple[int, Instruction]]]:
        lines, origins = ["def run(w, R, m):"], []
        for instruction in self._run:
            origins.append((len(lines) + 1, instruction))
            _try(instruction, lambda i=instruction: _emit(self._emitter, i, mask))
            lines.extend("  " + line for line in self._emitter.lines)
            self._emitter.lines.clear()
        return "\n".join([*lines, "  return"]), origins

    def _compiled(self, text: str, origins: list[tuple[int, Instruction]]) -> Callable:
        file_name = f"<ptx {len(self._origins)}>"
        self._origins[file_name] = origins
        exec(compile(text, file_name, "exec"), self._emitter.names)
        return self._emitter.names["run"]


@dataclass
class Program:
    """A translated kernel. origins: see Code."""

    kernel: Kernel
    layout: Layout
    segments: list[Segment]
    origins: Origins

    def instruction_at(self, file_name: str, line: int) -> Instruction | None:
        """Of a line of generated code; None for another file."""
        known = self.origins.get(file_name, [])
        at = bisect_right([start for start, _ in known], line) - 1
        return known[at][1] if at >= 0 else None


def _head(instruction: Instruction, table: dict) -> str | None:
    """Longest entry of `table` that the opcode starts with."""
    parts = instruction.parts
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if name in table:
            return name
    return None


def _is_aligned(instruction: Instruction) -> bool:
    parts = instruction.parts
    whole = ("aligned" in parts and parts[0] != "barrier") or parts[:2] == ("bar", "sync")
    return whole or "sync" in parts or parts[:2] == ("barrier", "cluster")


def translate(kernel: Kernel) -> Program:
    """Raises: PtxError that names the instruction which is not known, or which is at fault."""
    check_accumulators(kernel)
    layout = Layout(kernel)
    names = dict(NAMES)
    emitter = Emitter(layout, names)
    instructions = kernel.instructions
    leaders = _leaders(instructions)
    order = sorted(leaders)
    number = {start: i for i, start in enumerate(order)}
    origins: Origins = {}
    segments: list[Segment] = []
    for place, start in enumerate(order):
        end = order[place + 1] if place + 1 < len(order) else len(instructions)
        segments.append(_segment(instructions[start:end], number, emitter, origins))
    return Program(kernel, layout, segments, origins)


def _leaders(instructions: list[Instruction]) -> set[int]:
    leaders = {0}
    for at, instruction in enumerate(instructions):
        if instruction.parts[0] == "bra":
            (label,) = instruction.operands
            if not isinstance(label, Label):
                raise PtxError(f"line {instruction.line}: {instruction.text}: unknown label")
            leaders |= {label.target, at + 1}
        elif instruction.parts[0] in ("ret", "exit"):
            leaders.add(at + 1)
        elif _head(instruction, BLOCKING) is not None:
            leaders |= {at, at + 1}
    leaders.discard(len(instructions))
    return leaders


def _segment(
    run: list[Instruction], number: dict[int, int], emitter: Emitter, origins: Origins
) -> Segment:
    segment = Segment(run[0])
    segment.aligned = any(_is_aligned(i) for i in run)
    first, last = run[0], run[-1]
    head = _head(first, BLOCKING)
    if head is not None:
        segment.waiting = _try(first, lambda: BLOCKING[head](emitter.layout, first))
        _set_guard(segment, first)
        return segment
    if last.parts[0] in ("bra", "ret", "exit"):
        run = run[:-1]
        _set_guard(segment, last)
        segment.exits = last.parts[0] != "bra"
        if not segment.exits:
            segment.target = number.get(last.operands[0].target, len(number))
    if run:
        segment.code = Code(run, emitter, origins)
    return segment


def _set_guard(segment: Segment, instruction: Instruction) -> None:
    if instruction.guard is not None:
        segment.guard = instruction.guard.index
        segment.guard_negated = instruction.guard_negated


def _try(instruction: Instruction, action):
    try:
        return action()
    except PtxError as error:
        raise PtxError(f"line {instruction.line}: {instruction.text}: {error}") from None


def _emit(emitter: Emitter, instruction: Instruction, mask: str | None) -> None:
    emitter.mask = mask
    guard = instruction.guard
    if guard is not None:
        condition = f"R[{guard.index}]"
        if instruction.guard_negated:
            condition = f"~{condition}"
        emitter.mask = emitter.temporary(condition if mask is None else f"{mask} & {condition}")
    known = FORMULAS.get(instruction.opcode)
    if known is not None:
        _emit_formula(emitter, instruction, known)
        return
    head = _head(instruction, HANDLERS)
    if head is None:
        raise PtxError("unknown instruction (tests/emulator/instructions_*.py hold the known ones)")
    HANDLERS[head](emitter, instruction)


def _emit_formula(emitter: Emitter, instruction: Instruction, known: Formula) -> None:
    destination, *sources = instruction.operands
    if len(sources) != len(known.sources):
        raise PtxError(f"{len(sources)} sources, expected {len(known.sources)}")
    values = [emitter.read(s, t) for s, t in zip(sources, known.sources, strict=True)]
    emitter.write(destination, known.template.format(*values), known.result)
