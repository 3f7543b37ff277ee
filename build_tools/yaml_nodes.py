"""YAML with a place for every value: nothing is converted behind the author's back.

`NodeReader` walks the composed node tree (PyYAML keeps line and column of every node), collects
all faults and returns harmless values in place of faulty ones; the caller raises when `faults` is
not empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from build_tools import name_glob
from build_tools.errors import Fault, did_you_mean

_STR_TAG = "tag:yaml.org,2002:str"
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_READS_AS = {"bool": "a boolean", "float": "a float", "int": "an integer", "null": "nothing"}


class NodeReader:
    """Typed access to one file. `shown` is how the file is named in faults."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.faults: list[Fault] = []

    def root(self, path: Path) -> Node | None:
        """The document; None (and a fault) where the file is no YAML."""
        try:
            node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = (
                self.shown if mark is None else f"{self.shown}:{mark.line + 1}:{mark.column + 1}"
            )
            self.faults.append(Fault(where, f"not YAML: {error.problem or error.context}"))
            return None
        except OSError as error:
            self.faults.append(Fault(self.shown, (error.strerror or str(error)).lower()))
            return None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            self.faults.append(Fault(self.shown, f"not YAML: {' '.join(str(error).split())}"))
            return None
        if node is None:
            self.faults.append(Fault(f"{self.shown}:1:1", "empty file"))
        return node

    def place(self, node: Node) -> str:
        """`file:line:column` of a node."""
        return f"{self.shown}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def fault(self, node: Node, message: str, hint: str | None = None) -> None:
        """Remember that `node` is wrong."""
        self.faults.append(Fault(self.place(node), message, hint))

    def entries(self, node: Node) -> list[tuple[str, Node, Node]]:
        """(key, key node, value node) of a mapping; duplicate keys are faults."""
        if not isinstance(node, MappingNode):
            self.fault(node, f"expected a mapping, found {_shown(node)}")
            return []
        found: dict[str, tuple[str, Node, Node]] = {}
        for key_node, value in node.value:
            key = self.text(key_node)
            if key in found:
                first = found[key][1].start_mark.line + 1
                self.fault(key_node, f"duplicate key {key!r} (first on line {first})")
            elif key:
                found[key] = (key, key_node, value)
        return list(found.values())

    def fields(
        self, node: Node, required: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, Node]:
        """A mapping with a fixed set of keys; unknown and missing ones are faults."""
        known = (*required, *optional)
        out: dict[str, Node] = {}
        for key, key_node, value in self.entries(node):
            if key in known:
                out[key] = value
            else:
                self.fault(
                    key_node,
                    f"unknown key {key!r} (known: {', '.join(known)}){did_you_mean(key, known)}",
                )
        missing = [key for key in required if key not in out]
        if missing and isinstance(node, MappingNode):
            self.fault(node, f"missing key {', '.join(repr(key) for key in missing)}")
        return out

    def items(self, node: Node) -> list[Node]:
        """The nodes of a list."""
        if not isinstance(node, SequenceNode):
            self.fault(node, f"expected a list, found {_shown(node)}")
            return []
        return list(node.value)

    def text(self, node: Node) -> str:
        """A string. A bare word that YAML reads as something else (`no`, `8.0`) is a fault."""
        if not isinstance(node, ScalarNode):
            self.fault(node, f"expected text, found {_shown(node)}")
            return ""
        if node.tag != _STR_TAG:
            kind = node.tag.rpartition(":")[2]
            reads_as = _READS_AS.get(kind, f"a {kind}")
            self.fault(
                node,
                f"YAML reads {node.value!r} as {reads_as}, not as text",
                hint=f'write "{node.value}" with quotes',
            )
            return ""
        if not node.value:
            self.fault(node, "empty text")
        return str(node.value)

    def word(self, node: Node, known: Sequence[str], what: str) -> str:
        """A string out of `known`."""
        value = self.text(node)
        if value and value not in known:
            near = did_you_mean(value, known)
            self.fault(node, f"unknown {what} {value!r} (known: {', '.join(known)}){near}")
        return value

    def words(self, node: Node, known: Sequence[str], what: str) -> tuple[str, ...]:
        """A list of words out of `known`, each once."""
        values: list[str] = []
        for item in self.items(node):
            value = self.word(item, known, what)
            if value in values:
                self.fault(item, f"{what} {value!r} is listed twice")
            values.append(value)
        return tuple(values)

    def texts(self, node: Node) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(self.text(item) for item in self.items(node))

    def pattern(self, node: Node) -> str:
        """A pattern over variant names whose braces are closed."""
        text = self.text(node)
        try:
            name_glob.expand(text)
        except ValueError as error:
            self.fault(node, str(error))
            return "*"
        return text

    def integer(self, node: Node, least: int, most: int) -> int:
        """A decimal integer in [least, most]."""
        text = self._plain(node, _INTEGER, "an integer")
        if text is None:
            return least
        if not least <= int(text) <= most:
            self.fault(node, f"{text} is out of range ({least} to {most})")
            return least
        return int(text)

    def number(self, node: Node, least: float, most: float) -> float:
        """A decimal number in [least, most], without exponent."""
        text = self._plain(node, _NUMBER, "a number")
        if text is None:
            return least
        if not least <= float(text) <= most:
            self.fault(node, f"{text} is out of range ({least:g} to {most:g})")
            return least
        return float(text)

    def _plain(self, node: Node, pattern: re.Pattern[str], what: str) -> str | None:
        """The text of an unquoted scalar that matches `pattern`; None (and a fault) otherwise."""
        if isinstance(node, ScalarNode) and node.style is None and pattern.fullmatch(node.value):
            return str(node.value)
        self.fault(node, f"expected {what}, found {_shown(node)}")
        return None


def _shown(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if isinstance(node, ScalarNode) and node.style is None and not node.value:
        return "nothing"
    return repr(node.value)
