"""One compilation, as ninja runs it: a cubin appears whole, checked and renamed, or not at all.

Runs alone (`python -I -S compile_edge.py ...`): it uses only the standard library and starts fast.
nvcc writes to a temporary folder of its own, so an orphan of a killed run never touches an output,
and nvcc's exit code 0 on a full disk is not believed. Working directory: the arch's work folder.

    compile_edge.py NAME OUTPUT SPILL_BYTES DEPFILE LOG RECORD FAILURE KEY -- NVCC ... SOURCE

Where `fetched/KEY.cubin` and `.json` lie, put there from a store, they are taken in nvcc's place.
HUMMING_LAUNCHER, words as a shell splits them, is what nvcc is run by (a compiler cache, a farm).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_ELF = struct.Struct("<4sB11xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_SERIALISED = re.compile(r"\(C75\d\d\)[^\n]*")
_INTERRUPTED = 130
FETCHED = Path("fetched")
LAUNCHER_VARIABLE = "HUMMING_LAUNCHER"


class EdgeError(Exception):
    """cause: `compile`, `spill` or `disk`."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Edge:
    """What one call builds; paths are relative to the work folder."""

    name: str
    output: Path
    allowed_spill_bytes: int
    depfile: Path
    log: Path
    record: Path
    failure: Path
    key: str
    command: tuple[str, ...]


def run(edge: Edge) -> int:
    """Returns the exit code; a failure leaves its cause in `edge.failure`."""
    temporary = Path("tmp") / f"{edge.name}.{os.getpid()}"
    started, started_at = time.monotonic(), time.time()
    try:
        for folder in (
            temporary,
            *(p.parent for p in (edge.output, edge.log, edge.record, edge.failure)),
        ):
            folder.mkdir(parents=True, exist_ok=True)
        edge.failure.unlink(missing_ok=True)
        product = temporary / "out.cubin"
        facts = _take_fetched(edge, product)
        if facts is None:
            log = _compile(edge, temporary)
            edge.log.write_text(log, encoding="utf-8")
            spill_bytes = check_log(log, edge.allowed_spill_bytes)
            milliseconds = round((time.monotonic() - started) * 1e3)
            facts = {
                "key": edge.key,
                "milliseconds": milliseconds,
                "spill_bytes": spill_bytes,
                "started": round(started_at, 3),
            }
        check_whole(product)
        record = temporary / "record.json"
        record.write_text(json.dumps(facts), encoding="utf-8")
        record.replace(edge.record)
        product.replace(edge.output)
    except EdgeError as error:
        _fail(edge, error.cause, str(error))
        return 1
    except OSError as error:
        _fail(
            edge,
            "disk",
            f"{error.filename or edge.output}: {(error.strerror or str(error)).lower()}",
        )
        return 1
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return 0


def _take_fetched(edge: Edge, product: Path) -> dict[str, object] | None:
    """Move what a store had to the product, with its depfile. Returns its record, or None.

    Raises: EdgeError where it spills more than the spec allows today.
    """
    cubin, record = (FETCHED / f"{edge.key}.{suffix}" for suffix in ("cubin", "json"))
    try:
        facts: dict[str, object] = json.loads(record.read_text(encoding="utf-8"))
        cubin.replace(product)
        record.unlink()
    except FileNotFoundError:
        return None
    headers = facts.pop("headers")
    if not isinstance(headers, list):
        return None
    files = " ".join([edge.command[-1], *headers])
    edge.depfile.write_text(f"{edge.output}: {files}\n", encoding="utf-8")
    check_spill(int(str(facts["spill_bytes"])), edge.allowed_spill_bytes)
    edge.log.write_text("from the store\n", encoding="utf-8")
    return facts


def _compile(edge: Edge, temporary: Path) -> str:
    """Run nvcc in a process group of its own. Returns its output. Raises: EdgeError."""
    *command, source = edge.command
    depfile = ["-MD", "-MT", str(edge.output), "-MF", str(edge.depfile)]
    launcher = shlex.split(os.environ.get(LAUNCHER_VARIABLE, ""))
    argv = [*launcher, *command, *depfile, "-o", str(temporary / "out.cubin"), source]
    environment = dict(os.environ)
    if not launcher:  # its server may outlive this edge, and would keep a folder that is gone
        environment["TMPDIR"] = str(temporary.resolve())
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )

    def stop(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(temporary, ignore_errors=True)
        os._exit(_INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    log, _ = process.communicate()
    if process.returncode < 0:
        raise EdgeError("compile", f"nvcc was killed by signal {-process.returncode}")
    if process.returncode:
        edge.log.write_text(log, encoding="utf-8")
        raise EdgeError("disk" if "No space left" in log else "compile", _shortened(log))
    return log


def check_log(log: str, allowed_spill_bytes: int) -> int:
    """Spilled bytes, stores and loads together. Raises: EdgeError."""
    serialised = _SERIALISED.search(log)
    if serialised is not None:
        raise EdgeError("compile", f"ptxas serialises wgmma: {serialised[0]}")
    spilled = sum(int(store) + int(load) for store, load in _SPILLS.findall(log))
    check_spill(spilled, allowed_spill_bytes)
    return spilled


def check_spill(spilled: int, allowed_spill_bytes: int) -> None:
    """Raises: EdgeError."""
    if spilled > allowed_spill_bytes:
        limit = f"limit {allowed_spill_bytes}"
        raise EdgeError("spill", f"registers spill {spilled} bytes to local memory ({limit})")


def check_whole(path: Path) -> None:
    """Does every part of the ELF lie inside the file? Raises: EdgeError."""
    try:
        image = path.read_bytes()
    except FileNotFoundError as error:
        raise EdgeError("compile", "nvcc ended well and wrote no cubin") from error
    if not _is_whole(image):
        message = f"nvcc wrote a truncated cubin ({len(image)} bytes); is the disk full?"
        if os.environ.get(LAUNCHER_VARIABLE):
            message += " The launcher's cache may keep such a cubin: clear it"
        raise EdgeError("disk", message)


def _is_whole(image: bytes) -> bool:
    if len(image) < _ELF.size or image[:4] != b"\x7fELF":
        return False
    fields = _ELF.unpack_from(image)
    section_at, section_size, section_count = fields[7], fields[12], fields[13]
    program_at, program_size, program_count = fields[6], fields[10], fields[11]
    if section_count == 0 or section_size != _SECTION.size:
        return False
    if max(
        section_at + section_size * section_count, program_at + program_size * program_count
    ) > len(image):
        return False
    for index in range(section_count):
        _, kind, _, _, at, size, *_ = _SECTION.unpack_from(image, section_at + index * section_size)
        if kind != _NO_BITS and at + size > len(image):
            return False
    return True


def _fail(edge: Edge, cause: str, message: str) -> None:
    """Leave the cause, and no output of an earlier run that could pass for this one's."""
    for path in (edge.output, edge.record):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        edge.failure.write_text(json.dumps({"cause": cause, "message": message}), encoding="utf-8")
    sys.stderr.write(f"{edge.name}: {message}\n")


def _shortened(log: str, most_lines: int = 12) -> str:
    """First lines that say what is wrong."""
    lines = [
        line for line in log.splitlines() if "error" in line.lower() or "fatal" in line.lower()
    ]
    return (
        "\n".join((lines or log.splitlines())[:most_lines]).strip()
        or "nvcc failed without a message"
    )


def main(argv: list[str]) -> int:
    """Parse the fixed order of arguments."""
    end = argv.index("--")
    name, output, allowed, depfile, log, record, failure, key = argv[:end]
    edge = Edge(
        name=name,
        output=Path(output),
        allowed_spill_bytes=int(allowed),
        depfile=Path(depfile),
        log=Path(log),
        record=Path(record),
        failure=Path(failure),
        key=key,
        command=tuple(argv[end + 1 :]),
    )
    return run(edge)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
