"""PTX text -> one kernel: registers, memory symbols and a flat list of instructions.

Scopes `{ }` of inline assembly may declare registers and labels again; every register gets a place
of its own, every label the index of the instruction that follows it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field


class PtxError(Exception):
    """Text that the parser or the translator does not understand."""


@dataclass(frozen=True)
class Register:
    """index: place in a warp's list. bits: 1 for a predicate. name: as written."""

    index: int
    bits: int
    name: str


@dataclass(frozen=True)
class Immediate:
    """An integer, or the bits of a float (float_bits 32 or 64)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Special:
    """A special register: `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """A variable of a memory space (.param, .shared, .local) and an offset in bytes."""

    name: str
    space: str
    offset: int = 0


@dataclass(frozen=True)
class Label:
    """target: index into Kernel.instructions."""

    name: str
    target: int


@dataclass(frozen=True)
class Vector:
    """{a, b}."""

    items: tuple[object, ...]


@dataclass(frozen=True)
class Address:
    """[base + offset], with the coordinates of a tensor copy: [base, {x, y}]."""

    base: object
    offset: int = 0
    coordinates: tuple[object, ...] = ()


@dataclass(frozen=True)
class Pair:
    """a | b: two destinations."""

    first: object
    second: object


@dataclass(frozen=True)
class Negated:
    """!p."""

    predicate: object


class _Sink:
    def __repr__(self) -> str:
        return "_"


SINK = _Sink()
"""`_`: a result that nobody wants."""


@dataclass(frozen=True)
class Instruction:
    """guard: predicate register or None. parts: words of the opcode (`add`, `s32`)."""

    line: int
    text: str
    guard: Register | None
    guard_negated: bool
    parts: tuple[str, ...]
    operands: tuple[object, ...]

    @property
    def opcode(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Variable:
    """A symbol of a memory space. size_bytes 0: extern, sized by the launch. initial: of .global
    and .const.
    """

    name: str
    space: str
    alignment: int
    size_bytes: int
    initial: bytes = b""


@dataclass
class Kernel:
    """One `.entry`. registers: bits of each by index."""

    name: str
    target: str
    instructions: list[Instruction] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
_VARIABLE = re.compile(
    r"\.(?P<space>param|shared|local|extern\s+\.shared|global|const)\s*(?:\.align\s+(?P<align>\d+)\s*)?"
    r"(?:\.ptr[^,]*)?\.(?P<type>[bsuf]\d+)\s+(?P<name>[\w$]+)\s*(?:\[(?P<count>\d*)\])?"
)
_INITIAL = re.compile(r"\s*=\s*(?:\{(?P<items>[^}]*)\}|(?P<one>[^;]+))")
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.DOTALL)
_GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s+")
_RANGE = re.compile(r"([\w$%]+)<(\d+)>$")
_TARGET = re.compile(r"\.target\s+(\w+)")
_SPECIALS = re.compile(
    r"%(?:n?tid|n?ctaid|cluster_n?ctaid|n?clusterid)\.[xyz]$|%laneid$|%n?warpid$|%cluster_n?ctarank$"
    r"|%lanemask_\w+$|%clock(?:64|_hi)?$|%globaltimer\w*$|%(?:total|dynamic)_smem_size$|%(?:n?sm|grid)id$"
)


@dataclass
class _Scope:
    parent: _Scope | None
    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)  # prefix -> (bits, count)
    labels: dict[str, int] = field(default_factory=dict)


def parse(text: str, name: str | None = None) -> Kernel:
    """The entry `name`, or the only one. Raises: PtxError."""
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    entries = [e for e in _ENTRY.finditer(text) if name is None or e[1] == name]
    if len(entries) != 1:
        raise PtxError(f"{len(entries)} kernels {name or ''} in the text, expected 1")
    (entry,) = entries
    target = _TARGET.search(text)
    kernel = Kernel(entry[1], target[1] if target else "")
    first = next(_ENTRY.finditer(text)).start()
    for found in _VARIABLE.finditer(text[:first]):
        _declare(kernel, found, _INITIAL.match(text, found.end()))
    for found in _VARIABLE.finditer(entry[2]):
        _declare(kernel, found)
    _Body(kernel, text, entry.end()).read()
    return kernel


def _declare(kernel: Kernel, found: re.Match[str], given: re.Match[str] | None = None) -> None:
    space = found["space"].split(".")[-1].strip()
    element = int(found["type"][1:]) // 8
    count = found["count"]
    size = element if count is None else element * int(count or 0)
    alignment = int(found["align"] or element)
    initial = b""
    if space in ("global", "const"):
        words = [] if given is None else _split_commas(given["items"] or given["one"])
        values = [immediate(word) for word in words]
        if None in values:
            raise PtxError(f"{found[0]}: an initial value is no number")
        wrap = (1 << element * 8) - 1
        initial = b"".join((v.value & wrap).to_bytes(element, "little") for v in values if v)
        initial = initial.ljust(size, b"\0")
    kernel.variables[found["name"]] = Variable(found["name"], space, alignment, size, initial)


class _Body:
    def __init__(self, kernel: Kernel, text: str, start: int) -> None:
        self.kernel = kernel
        self.text = text
        self.start = start
        self.pending: list[tuple[int, str, _Scope]] = []

    def read(self) -> None:
        self._split()
        for line, statement, scope in self.pending:
            try:
                self.kernel.instructions.append(self._instruction(line, statement, scope))
            except PtxError as error:
                raise PtxError(f"line {line}: {statement}: {error}") from None

    def _split(self) -> None:
        text, at = self.text, self.start
        scope = _Scope(None)
        while True:
            while text[at].isspace() or text[at] == ";":
                at += 1
            if text[at] == "{":
                scope, at = _Scope(scope), at + 1
                continue
            if text[at] == "}":
                at += 1
                if scope.parent is None:
                    return
                scope = scope.parent
                continue
            label = _LABEL.match(text, at)
            if label is not None:
                scope.labels[label[1]] = len(self.pending)
                at = label.end()
                continue
            line = text.count("\n", 0, at) + 1
            if text.startswith((".loc ", ".loc\t", ".file"), at):
                at = text.index("\n", at)
                continue
            end = text.index(";", at)
            statement, at = " ".join(text[at:end].split()), end + 1
            self._statement(line, statement, scope)

    def _statement(self, line: int, statement: str, scope: _Scope) -> None:
        if not statement.startswith("."):
            self.pending.append((line, statement, scope))
            return
        register = _REG.match(statement)
        if register is not None:
            bits = 1 if register[1] == "pred" else int(re.sub(r"\D", "", register[1]))
            for name in register[2].split(","):
                span = _RANGE.match(name.strip())
                if span is not None:
                    scope.ranges[span[1]] = (bits, int(span[2]))
                else:
                    scope.registers[name.strip()] = self._new_register(name.strip(), bits)
        elif statement.startswith(".pragma"):
            pass
        else:
            found = _VARIABLE.match(statement)
            if found is None:
                raise PtxError(f"line {line}: {statement}: unknown directive")
            _declare(self.kernel, found)

    def _new_register(self, name: str, bits: int) -> Register:
        register = Register(len(self.kernel.registers), bits, name)
        self.kernel.registers.append(register)
        return register

    def _lookup(self, name: str, scope: _Scope | None) -> object | None:
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            if name in scope.labels:
                return Label(name, scope.labels[name])
            prefix = name.rstrip("0123456789")
            if prefix in scope.ranges and prefix != name:
                bits, count = scope.ranges[prefix]
                if int(name[len(prefix) :]) < count:
                    scope.registers[name] = self._new_register(name, bits)
                    return scope.registers[name]
            scope = scope.parent
        return None

    def _instruction(self, line: int, statement: str, scope: _Scope) -> Instruction:
        rest, guard, negated = statement, None, False
        found = _GUARD.match(rest)
        if found is not None:
            guard = self._lookup(found[2], scope)
            negated = found[1] == "!"
            if not isinstance(guard, Register):
                raise PtxError(f"unknown predicate {found[2]}")
            rest = rest[found.end() :]
        opcode, _, operands = rest.partition(" ")
        parsed = tuple(self._operand(word, scope) for word in _split_commas(operands))
        return Instruction(line, statement, guard, negated, tuple(opcode.split(".")), parsed)

    def _operand(self, word: str, scope: _Scope) -> object:
        if word == "_":
            return SINK
        if word.startswith("{"):
            return Vector(tuple(self._operand(w, scope) for w in _split_commas(word[1:-1])))
        if word.startswith("["):
            base, *coordinates = _split_commas(word[1:-1])
            vector = self._operand(coordinates[0], scope) if coordinates else Vector(())
            return self._address(base, scope, vector.items)
        if word.startswith("!"):
            return Negated(self._operand(word[1:].strip(), scope))
        if "|" in word:
            first, second = (self._operand(w.strip(), scope) for w in word.split("|"))
            return Pair(first, second)
        value = immediate(word)
        if value is not None:
            return value
        if _SPECIALS.match(word):
            return Special(word[1:])
        known = self._lookup(word, scope)
        if known is not None:
            return known
        name, _, offset = word.partition("+")
        variable = self.kernel.variables.get(name.strip())
        if variable is not None:
            return Symbol(variable.name, variable.space, int(offset or 0))
        raise PtxError(f"unknown operand {word!r}")

    def _address(self, text: str, scope: _Scope, coordinates: tuple[object, ...]) -> Address:
        found = re.match(r"(.*?)\s*(?:\+\s*(-?\w+))?$", text)
        base = self._operand(found[1].strip(), scope)
        offset = int(found[2], 0) if found[2] else 0
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name, base.space), base.offset + offset
        return Address(base, offset, coordinates)


def immediate(word: str) -> Immediate | None:
    """`12`, `-1`, `0x3f`, `0f3F800000`, `0d...`; None for another word."""
    if word == "WARP_SZ":
        return Immediate(32)
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", word):
        return Immediate(int(f"0x{word[2:]}", 0), 32)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", word):
        return Immediate(int(f"0x{word[2:]}", 0), 64)
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|0[bB][01]+|\d+)U?", word):
        digits = word.rstrip("U")
        base = 8 if re.fullmatch(r"-?0\d+", digits) else 0
        return Immediate(int(digits, base))
    if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", word):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(word)))[0], 64)
    return None


def _split_commas(text: str) -> list[str]:
    """At commas outside of braces and brackets."""
    out, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            out.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*out, last] if last else out
