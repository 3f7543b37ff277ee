"""A plan of 50,000 kernels takes seconds and a bounded amount of memory.

Seconds are of the CPU: other tests share the machine.
"""

from __future__ import annotations

import re
import subprocess
import sys

KERNELS = 50_000
SECONDS = 10
BYTES = 1e9
FAMILY = """family: dense_a16_integers
op: dense
activations: [f16, bf16]
weights: [{weights}]
layout: frag16
scales: [{scales}]
zero_points: [none, integer, float]
tiles:
  hopper:
    prefill:
{tiles}"""
WEIGHTS = [f"u{bits}" for bits in (1, 2, 3, 5, 6, 7)]  # u8 has a family of its own beside this one
SCALES = [
    "ch",
    *(f"g{size}" for size in (16, 32, 64, 128)),
    *(f"g{size}{word}" for size in (16, 32, 64, 128) for word in ("f32", "e4m3", "e8m0", "e5m2")),
]
TILES = [
    f"t{m}x{n}x128_w8_s{stages}"
    for m in range(8, 128, 8)
    for n in (64, 128)
    for stages in (6, 4, 2)
    if (n == 128 or stages > 2)
]
MEASURED = """
import resource, sys, time
from build_tools.cli import main
code = main(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(time.process_time(), peak, file=sys.stderr)
sys.exit(code)
"""


def test_fifty_thousand_variants_are_planned_within_the_limits(sources):
    (sources / "specs/dense_a16_integers.yaml").write_text(
        FAMILY.format(
            weights=", ".join(WEIGHTS),
            scales=", ".join(SCALES),
            tiles="".join(f"      - {tile}\n" for tile in TILES),
        )
    )
    profiles = sources / "specs/profiles.yaml"
    profiles.write_text(
        re.sub(r"select:\n(      - .*\n)+", 'select: ["*"]\n', profiles.read_text())
    )
    for table in (sources / "specs/tuning").glob("*.json"):
        table.unlink()
    command = ["--source", str(sources), "--arch", "sm_90", "--profile", "full", "--list"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) >= KERNELS
    seconds, peak = map(float, done.stderr.split()[-2:])
    assert seconds < SECONDS
    assert peak < BYTES
