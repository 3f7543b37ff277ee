"""Run by test_strictness.py in a process of its own: traps first, then the work that argv names.

argv: place of the packages, trap folder, what to do.
"""

import os
import sys

FORBIDDEN = (
    "socket.",
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.system",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "shutil.",
    "tempfile.",
    "urllib.Request",
    "http.client.",
)
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class TrapError(BaseException):
    """Not an Exception: nothing on the way may swallow it."""


def trap(event, arguments):
    # The interpreter itself tries to keep compiled modules; a read-only tree refuses that.
    if any("__pycache__" in str(argument) for argument in arguments):
        return
    if event.startswith(FORBIDDEN):
        raise TrapError(f"{event} {arguments}")
    if event == "open":
        path, mode, flags = arguments
        if flags & WRITE_FLAGS or (isinstance(mode, str) and set(mode) & set("wax+")):
            raise TrapError(f"open {path} {mode} {flags}")


def launch_on_stub():
    """discover, resolve, load, launch; and the command line."""
    from stub_cuda import StubCuda

    from humming_runtime import cli
    from humming_runtime.contract.variant_name import ScaleScheme
    from humming_runtime.discover import discover
    from humming_runtime.driver import Driver
    from humming_runtime.engine import Engine
    from humming_runtime.gemm_plan import GemmPlan, WeightOperands

    stub = StubCuda()
    installed = discover()
    assert not installed.faults, installed.faults
    scale = ScaleScheme.parse("g128f16")
    operands = WeightOperands(
        op="dense", activation="f16", weight_dtype="u4", scale=scale, layout="frag16", n=4096,
        k=4096, groups=32, weight=1 << 32, weight_scale=2 << 32,
    )  # fmt: skip
    plan = GemmPlan(operands, 0, Engine(installed, Driver(stub)))
    for m in (1, 8, 64, 500):
        plan.launch(m, 3 << 32, 4096, 4 << 32, 4096, 7)
    assert len(stub.launches) == 4
    problem = ["--m", "8", "--n", "4096", "--k", "4096", "--format", "f16_u4_g128f16"]
    assert cli.main(["list"]) == 0
    assert cli.main(["explain", *problem, "--capability", "9.0", "--json"]) == 0
    assert cli.main(["doctor", "--json"]) in (0, 11)


def spring(name):
    """Do what a trap is for."""
    import shutil
    import socket
    import subprocess
    import tempfile
    from pathlib import Path

    deeds = {
        "socket": lambda: socket.socket().connect(("127.0.0.1", 9)),
        "lookup": lambda: socket.getaddrinfo("example.com", 80),
        "popen": lambda: subprocess.run(["nvcc", "--version"], check=False),
        "system": lambda: os.system("nvcc --version"),
        "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "fork": os.fork,
        "write": lambda: Path("x").write_text("x"),
        "append": lambda: os.open("x", os.O_APPEND | os.O_WRONLY),
        "mkdir": Path("x").mkdir,
        "remove": Path("x").unlink,
        "rename": lambda: Path("x").rename("y"),
        "temporary": tempfile.TemporaryFile,
        "copy": lambda: shutil.copy("x", "y"),
    }
    try:
        deeds[name]()
    except TrapError as error:
        sys.stdout.write(f"trapped: {error}\n")
    else:
        raise AssertionError(f"{name}: no trap")


def main():
    what = sys.argv[1]
    import ctypes  # noqa: F401  the interpreter's own modules come before the traps
    import importlib.metadata  # noqa: F401

    sys.addaudithook(trap)
    if what == "launch":
        launch_on_stub()
    else:
        spring(what)


if __name__ == "__main__":
    main()
