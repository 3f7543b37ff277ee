"""Host time of one eager call: plan, functional form, out= and module, in bursts on a busy stream.

python -m tests.bench.call_cost [-o FILE.json]        (kernels: HUMMING_CUBIN_PATH)

A figure is wall time of BURST launches and one synchronise, divided by BURST: the median of
BURSTS, in microseconds. The layer is small, so that the GPU is never behind the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from humming_runtime.launcher import extension
from humming_runtime.measure.random_layer import random_packed
from humming_runtime.measure.tune import parse_format
from humming_runtime.torch_layer import LinearPlan, QuantLinear, matmul
from humming_runtime.torch_layer.linear_plan import gemm, inputs_of
from tests.bench.machine import machine_facts

BURST, BURSTS = 200, 50
ROWS = (1, 16)
N, K = 1024, 1024


def call_us(call: Callable[[], object]) -> float:
    """Median over bursts of the wall time of one call."""
    times = []
    for _ in range(BURSTS + 3):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(BURST):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - start) / BURST / 1e3)
    return statistics.median(times[3:])


def measure(m: int) -> dict[str, float]:
    """Microseconds a call of every way in, and of what a call cannot do without."""
    packed = random_packed(parse_format("f16_u4_g128f16"), N, K)
    layer, plan = QuantLinear(packed), LinearPlan(packed)
    x = torch.randn(m, K, device="cuda", dtype=torch.float16)
    out = torch.empty(m, N, device="cuda", dtype=torch.float16)
    dense = torch.empty(K, N, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        return {
            "plan, out=": call_us(lambda: plan(x, None, out)),
            "plan": call_us(lambda: plan(x)),
            "matmul, out=": call_us(lambda: matmul(x, packed, out=out)),
            "matmul": call_us(lambda: matmul(x, packed)),
            "module, out=": call_us(lambda: layer(x, out)),
            "module": call_us(lambda: layer(x)),
            "operator, out=": call_us(lambda: gemm(inputs_of(x, packed, None), out)),
            "operator": call_us(lambda: gemm(inputs_of(x, packed, None))),
            "torch.empty": call_us(lambda: torch.empty((m, N), dtype=x.dtype, device=x.device)),
            "torch.mm, out=": call_us(lambda: torch.mm(x, dense, out=out)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path)
    arguments = parser.parse_args()
    result = {
        **machine_facts(),
        "extension": extension() is not None,
        "us": {f"m {m}": measure(m) for m in ROWS},
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if arguments.o:
        arguments.o.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
