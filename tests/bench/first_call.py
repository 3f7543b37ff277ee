"""First call in a fresh process: ours and, where it is on the import path, the peer's.

    python -m tests.bench.first_call [--peer] [-o FILE]

Counted from after `import torch` and the creation of the CUDA context: every such program has them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 5
N, K, M = 8192, 8192, 16
_CHILD = [sys.executable, "-m", "tests.bench.first_call", "--child"]


def ours_ms() -> dict[str, float]:
    """Import, then discover, resolve, load and launch."""
    import torch

    torch.zeros(1, device="cuda")
    x = torch.randn(M, K, device="cuda", dtype=torch.float16)
    start = time.perf_counter()
    from humming_runtime.torch_layer import matmul

    imported = time.perf_counter()
    from humming_runtime.measure.random_layer import random_packed
    from humming_runtime.measure.tune import parse_format

    packed = random_packed(parse_format("f16_u4_g128f16"), N, K)
    torch.cuda.synchronize()
    called = time.perf_counter()
    matmul(x, packed)
    torch.cuda.synchronize()
    end = time.perf_counter()
    matmul(x, packed)
    torch.cuda.synchronize()
    second = time.perf_counter()
    return {
        "import_ms": (imported - start) * 1e3,
        "first_call_ms": (end - called) * 1e3,
        "second_call_ms": (second - end) * 1e3,
    }


def peer_ms() -> dict[str, float]:
    """The peer's first call, its cache as it is (the caller gives it an empty one)."""
    import torch

    torch.zeros(1, device="cuda")
    x = torch.randn(M, K, device="cuda", dtype=torch.float16)
    start = time.perf_counter()
    from tests.bench.peer_layer import PeerLayer

    layer = PeerLayer(N, K, torch.float16, 1)
    torch.cuda.synchronize()
    called = time.perf_counter()
    layer.first_call_ms(x)
    return {
        "prepare_ms": (called - start) * 1e3,
        "first_call_ms": (time.perf_counter() - called) * 1e3,
    }


def medians(who: str, runs: int) -> dict[str, float]:
    """Median of each figure over fresh processes."""
    results = []
    for _ in range(runs):
        child = subprocess.run([*_CHILD, who], capture_output=True, text=True, check=True)
        results.append(json.loads(child.stdout.splitlines()[-1]))
    return {key: round(statistics.median(r[key] for r in results), 2) for key in results[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", choices=("ours", "peer"), help=argparse.SUPPRESS)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("-o", type=Path)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(ours_ms() if arguments.child == "ours" else peer_ms()))
        return
    from tests.bench.machine import machine_facts

    found = {**machine_facts(), "shape": f"m {M} n {N} k {K}", "ours": medians("ours", RUNS)}
    if arguments.peer:
        found["peer"] = medians("peer", 1)
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.o is not None:
        arguments.o.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
