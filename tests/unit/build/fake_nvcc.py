"""A stand-in for nvcc: a copy of this file with a first line that names an interpreter.

Beside the copy lie `include/`, `release` (a text) and `product` (the bytes of every cubin).
FAKE_NVCC says how it behaves: good, named (a cubin has its source's symbol), slow, error, killed,
spill, serialised, no output, truncated, full disk. Each compilation adds its source's name to
`calls`.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAYS = {
    "error": "x.cu(1): error: expected a declaration",
    "full disk": "fatal error: cannot write x.ii: No space left on device",
    "spill": "    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads",
    "serialised": "ptxas info : (C7510) Potential Performance Loss: wgmma is serialized",
}


def value_of(option):
    return Path(sys.argv[sys.argv.index(option) + 1])


def included(source):
    """The source and every file that it includes."""
    seen, waiting = [], [source]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.append(path)
            names = re.findall('#include "(.+)"', path.read_text())
            waiting += [Path(os.path.normpath(path.parent / name)) for name in names]
    return seen


def with_symbol(image, symbol):
    """Only one as long as the product's own."""
    own = re.search(rb"\0(dense_\w+)\0", image)[1]
    return image.replace(own, symbol) if len(own) == len(symbol) else image


def compile_kernel(mode):
    out, source = value_of("-o"), Path(sys.argv[-1])
    with (HERE / "calls").open("a") as calls:
        calls.write(source.stem + "\n")
    files = " ".join(map(str, included(source)))
    value_of("-MF").write_text(f"{value_of('-MT')}: {files}\n")
    image = (HERE / "product").read_bytes()
    if mode == "named":
        image = with_symbol(image, source.stem.replace("-", "__").encode())
    if mode == "slow":
        out.write_bytes(image[:100])
        time.sleep(float(os.environ.get("FAKE_NVCC_SECONDS", "60")))
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode in SAYS:
        sys.stdout.write(SAYS[mode] + "\n")
    if mode in ("error", "full disk"):
        sys.exit(2)
    if mode != "no output":
        out.write_bytes(image[:5000] if mode == "truncated" else image)


def main():
    if "--version" in sys.argv:
        release = (HERE / "release").read_text()
        sys.stdout.write(f"Cuda compilation tools, release {release}, V13.0.88\nBuild fake\n")
    elif "--dryrun" in sys.argv:
        sys.stdout.write(f'#$ _HERE_={HERE}\n#$ INCLUDES="-I{HERE / "include"}"  \n')
    elif "-MF" in sys.argv:
        compile_kernel(os.environ.get("FAKE_NVCC", "good"))
    elif os.environ.get("FAKE_NVCC_TRIAL"):  # the trial compilation of the search
        sys.stdout.write(os.environ["FAKE_NVCC_TRIAL"] + "\n")
        sys.exit(1)
    else:
        value_of("-o").write_bytes(b"cubin")


main()
