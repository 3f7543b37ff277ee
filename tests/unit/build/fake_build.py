"""Constants and the stand-in for nvcc that builds in tests use."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
REAL_CUBIN = Path(__file__).with_name("dense_bf16_ch_decode_sm90a.cubin")
VARIANT = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
NVCC = """#!{python}
import os, re, sys, time, pathlib
if "--version" in sys.argv:
    print("Cuda compilation tools, release {release}, V13.0.88")
    print("Build fake")
    sys.exit(0)
here = pathlib.Path(__file__).resolve().parent
if "--dryrun" in sys.argv:
    print("#$ _HERE_=" + str(here))
    print('#$ INCLUDES="-I' + str(here / "include") + '"  ')
    sys.exit(0)
mode = os.environ.get("FAKE_NVCC", "good")
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
dep = pathlib.Path(sys.argv[sys.argv.index("-MF") + 1])
source = pathlib.Path(sys.argv[-1])
seen, wait = [], [source]
while wait:
    path = wait.pop()
    if path not in seen:
        seen.append(path)
        wait += [pathlib.Path(os.path.normpath(path.parent / n)) for n in re.findall('#include "(.+)"', path.read_text())]
dep.write_text(sys.argv[sys.argv.index("-MT") + 1] + ": " + " ".join(map(str, seen)) + "\\n")
image = pathlib.Path({cubin!r}).read_bytes()
if mode == "slow":
    out.write_bytes(image[:100])
    time.sleep(60)
if mode == "error":
    print("x.cu(1): error: expected a declaration")
    sys.exit(2)
if mode == "killed":
    os.kill(os.getpid(), 9)
if mode == "spill":
    print("    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads")
if mode == "serialised":
    print("ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized")
if mode == "no output":
    sys.exit(0)
out.write_bytes(image[:5000] if mode == "truncated" else image)
"""

