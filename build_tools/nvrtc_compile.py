"""NVRTC in nvcc's place: takes the options that edges give nvcc, and behaves as nvcc does.

Runs alone (`python -I -S nvrtc_compile.py LIBRARY ...`): it uses only the standard library.

    nvrtc_compile.py LIBRARY --version
    nvrtc_compile.py LIBRARY -cubin -std=... -O3 -Werror all-warnings -Xptxas -v -gencode=...
        -MD -MT TARGET -MF DEPFILE -o OUTPUT SOURCE

`--version` prints one line of JSON: the release, and the archs that the library compiles for.
Exit codes: 0 ok, 1 no usable library, 2 a compilation or a file that failed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_WARNING = re.compile(r"\bwarning\b", re.IGNORECASE)
_GENCODE = re.compile(r"arch=compute_(\d+[af]?),code=sm_\1")
_HEADERS = {
    "cstdint": """#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
""",
}
"""Standard headers that kernels include: NVRTC has none. Types are those of glibc on 64 bits."""


class NvrtcError(Exception):
    """A call of the library failed."""


class Nvrtc:
    """The calls of libnvrtc. Raises: OSError where it cannot be opened, NvrtcError."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def release(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def archs(self) -> list[int]:
        """Numbers of base targets: 75, 80, ..."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def compile(self, text: bytes, name: str, options: list[str]) -> tuple[bytes | None, str]:
        """A cubin, None where the compilation failed, and what the compiler says."""
        with self._program(text, name) as program:
            words = (ctypes.c_char_p * len(options))(*(word.encode() for word in options))
            code = self._library.nvrtcCompileProgram(program, len(options), words)
            log = self._bytes("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if code:
                return None, log or f"error: nvrtcCompileProgram: {self._text(code)}"
            return self._bytes("CUBIN", program), log

    @contextlib.contextmanager
    def _program(self, text: bytes, name: str) -> Iterator[ctypes.c_void_p]:
        program = ctypes.c_void_p()
        count = len(_HEADERS)
        texts = (ctypes.c_char_p * count)(*(header.encode() for header in _HEADERS.values()))
        names = (ctypes.c_char_p * count)(*(header.encode() for header in _HEADERS))
        at = ctypes.byref(program)
        self._call("nvrtcCreateProgram", at, text, name.encode(), count, texts, names)
        try:
            yield program
        finally:
            self._library.nvrtcDestroyProgram(at)

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise NvrtcError(f"{name}: {self._text(code)}")

    def _text(self, code: int) -> str:
        return str(self._library.nvrtcGetErrorString(code).decode())


def nvrtc_options(given: argparse.Namespace) -> list[str]:
    """nvcc's options in NVRTC's words. Raises: ValueError for a target that is not real."""
    match = _GENCODE.fullmatch(given.gencode)
    if match is None:
        raise ValueError(f"-gencode={given.gencode}: no cubin of one target")
    return [
        f"--gpu-architecture=sm_{match[1]}",
        f"--std={given.std}",
        *(f"--ptxas-options={word}" for word in given.ptxas),
        "--device-as-default-execution-space",  # lambdas are device code, as for nvcc
        f"--include-path={Path(given.source).parent}",
    ]


def included_files(source: Path) -> list[str]:
    r"""The source and every file that it includes by `#include "..."`, in the order found."""
    found: list[str] = []
    waiting = [os.path.normpath(source)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.append(path)
            names = _INCLUDE.findall(Path(path).read_text(encoding="utf-8"))
            waiting += [os.path.normpath(Path(path).parent / name) for name in names]
    return found


def compile_source(library: Nvrtc, given: argparse.Namespace) -> int:
    """Write the cubin and the depfile, print the log. Returns the exit code."""
    source = Path(given.source)
    files = included_files(source)
    options = nvrtc_options(given)
    cubin, log = library.compile(source.read_bytes(), given.source, options)
    sys.stdout.write(log)
    if cubin is None:
        return 2
    if given.warnings == "all-warnings" and _WARNING.search(log):
        sys.stdout.write("\nerror: warnings are errors\n")
        return 2
    Path(given.depfile).write_text(f"{given.target}: {' '.join(files)}\n", encoding="utf-8")
    Path(given.output).write_bytes(cubin)
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """The options that edges give; another one is an error, never dropped."""
    parser = argparse.ArgumentParser(description="NVRTC in nvcc's place.", allow_abbrev=False)
    parser.add_argument("-cubin", action="store_true", required=True)
    parser.add_argument("-std", required=True)
    parser.add_argument("-O3", action="store_true")  # what NVRTC does by itself
    parser.add_argument("-Werror", dest="warnings", choices=["all-warnings"])
    parser.add_argument("-Xptxas", dest="ptxas", action="append", default=[])
    parser.add_argument("-gencode", required=True)
    parser.add_argument("-MD", action="store_true")
    parser.add_argument("-MT", dest="target", required=True)
    parser.add_argument("-MF", dest="depfile", required=True)
    parser.add_argument("-o", dest="output", required=True)
    parser.add_argument("source")
    words: list[str] = []
    for word in argv:  # argparse takes the `-v` of `-Xptxas -v` for an option
        if words and words[-1] == "-Xptxas":
            words[-1] = f"-Xptxas={word}"
        else:
            words.append(word)
    return parser.parse_args(words)


def main(argv: list[str]) -> int:
    path, *rest = argv
    try:
        library = Nvrtc(path)
        if rest == ["--version"]:
            facts = {"release": library.release(), "archs": library.archs()}
            sys.stdout.write(json.dumps(facts) + "\n")
            return 0
    except (OSError, AttributeError, NvrtcError) as error:
        sys.stderr.write(f"error: {path}: {error}\n")
        return 1
    try:
        return compile_source(library, parse(rest))
    except OSError as error:
        sys.stderr.write(f"error: {error.filename}: {error.strerror}\n")
    except (ValueError, NvrtcError) as error:
        sys.stderr.write(f"error: {error}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
