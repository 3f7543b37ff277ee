"""A stand-in for nvrtc_compile.py; beside the library lie `facts.json` and `product`.

FAKE_NVRTC=error makes compilations fail. Each one adds its source's name to `calls`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(sys.argv[1]).parent


def value_of(option):
    return Path(sys.argv[sys.argv.index(option) + 1])


def main():
    if sys.argv[2:] == ["--version"]:
        sys.stdout.write((HERE / "facts.json").read_text())
        return
    source = Path(sys.argv[-1])
    with (HERE / "calls").open("a") as calls:
        calls.write(source.stem + "\n")
    if os.environ.get("FAKE_NVRTC") == "error":
        sys.stdout.write("x.cu(1): error: expected a declaration\n")
        sys.exit(2)
    value_of("-MF").write_text(f"{value_of('-MT')}: {source}\n")
    value_of("-o").write_bytes((HERE / "product").read_bytes())


main()
