"""Ours, the JIT peer and torch (cuBLAS) in one run: the table in results/.

    python -m tests.bench.side_by_side -o tests/bench/results/w4a16_g128_h200
        kernels: installed or in HUMMING_CUBIN_PATH; peer: on the import path

For each cell the three are timed one after the other, with rests in between: an H200 throttles on
power within 50 ms of large products. Ratios are of one run; results are checked against fp32 first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from humming_runtime.measure.cold_timing import copies_for, graph_us
from humming_runtime.measure.random_layer import clones, dequantized, random_packed
from humming_runtime.measure.tune import parse_format
from humming_runtime.torch_layer import LinearPlan, PackedWeight, matmul
from tests.bench.machine import machine_facts
from tests.bench.peer_layer import PeerLayer
from tests.bench.read_bandwidth import read_bandwidth_gbps
from tests.bench.shapes import ROWS, SHAPES

_REST_SECONDS = 0.15
_REST_FROM = 1e10  # m * n * k
_ROUNDS = 3
_CHECKED_ROWS = 64
_WORST_ERROR = {torch.float16: 1e-3, torch.bfloat16: 8e-3}


@dataclass
class Cell:
    """One shape; times in microseconds, None where it was not measured."""

    n: int
    k: int
    m: int
    ours: float
    kernel: str
    cublas: float
    peer: float | None = None
    peer_first_ms: float | None = None


def timed(calls: list[Callable[[], object]], work: float) -> float:
    if work > _REST_FROM:
        time.sleep(_REST_SECONDS)
    return graph_us(calls)


def check(x: torch.Tensor, packed: PackedWeight, out: torch.Tensor) -> None:
    """Raises: SystemExit where a result is wrong; the output was poisoned before."""
    rows = min(_CHECKED_ROWS, x.shape[0])
    out.fill_(float("nan"))
    matmul(x, packed, out=out)
    wanted = x[-rows:].float() @ dequantized(packed)
    error = ((out[-rows:].float() - wanted).norm() / wanted.norm()).item()
    if not (error < _WORST_ERROR[x.dtype] and bool(torch.isfinite(out).all())):
        raise SystemExit(
            f"wrong result: n {packed.n} k {packed.k} m {x.shape[0]}, error {error:.2e}"
        )


def measure_shape(n: int, k: int, form_text: str, with_peer: bool) -> list[Cell]:
    """All rows of one layer shape."""
    form = parse_format(form_text)
    dtype = form.activation_dtype
    packed = random_packed(form, n, k)
    layers = clones(packed, copies_for(packed.size_bytes, 1))
    plain = [torch.randn(n, k, device="cuda", dtype=dtype) for _ in range(copies_for(n * k * 2, 1))]
    peer = PeerLayer(n, k, dtype, len(layers)) if with_peer else None
    return [_measure_cell(layers, plain, peer, m) for m in ROWS]


def _measure_cell(
    layers: list[PackedWeight], plain: list[torch.Tensor], peer: PeerLayer | None, m: int
) -> Cell:
    packed = layers[0]
    n, k, dtype = packed.n, packed.k, packed.form.activation_dtype
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    check(x, packed, out)
    first_ms = None if peer is None else round(peer.first_call_ms(x), 1)
    copies = copies_for(packed.size_bytes, m)
    contenders: dict[str, list[Callable[[], object]]] = {
        "ours": [partial(matmul, x, layer, out=out) for layer in layers[:copies]],
        "cublas": [
            partial(torch.mm, x, weight.t(), out=out)
            for weight in plain[: copies_for(n * k * 2, m)]
        ],
    }
    if peer is not None:
        contenders["peer"] = peer.calls(x, copies)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(_ROUNDS):
        for name, calls in contenders.items():
            times[name].append(timed(calls, float(m) * n * k))
    median = {name: round(statistics.median(values), 2) for name, values in times.items()}
    kernel = _kernel(packed, m)
    cell = Cell(n, k, m, median["ours"], kernel, median["cublas"], median.get("peer"), first_ms)
    print(_line(cell), flush=True)
    return cell


def _line(cell: Cell) -> str:
    peer = "" if cell.peer is None else f"  peer {cell.peer:8.2f} x{cell.peer / cell.ours:.2f}"
    return (
        f"{cell.n:6d} x {cell.k:5d} m {cell.m:5d}  ours {cell.ours:8.2f}  "
        f"cublas {cell.cublas:8.2f} x{cell.cublas / cell.ours:.2f}{peer}  "
        f"{'_'.join(cell.kernel.split('_')[6:10])}"
    )


def _kernel(packed: PackedWeight, m: int) -> str:
    """Name of the variant that ran, as the engine decided."""
    return LinearPlan(packed).kernel(m)


def facts(form: str) -> dict[str, object]:
    """Where and when."""
    return {
        "format": form,
        **machine_facts(),
        "read_gbps": round(read_bandwidth_gbps()),
        "method": "cold L2, CUDA graph over copies, median of replays, three rounds in turn",
    }


def to_markdown(head: dict[str, object], cells: list[Cell]) -> str:
    lines = [f"# {head['format']} on {head['device']}", ""]
    lines += [
        f"- {name}: {value}" for name, value in head.items() if name not in ("format", "device")
    ]
    lines += ["", "Microseconds; ratios are peer / ours and cuBLAS fp16 / ours.", ""]
    lines += ["| n x k | m | ours | cuBLAS | ratio | peer | ratio | kernel |", "|" + "---|" * 8]
    for cell in cells:
        peer = "-" if cell.peer is None else f"{cell.peer:.1f}"
        ratio = "-" if cell.peer is None else f"{cell.peer / cell.ours:.2f}"
        kernel = "_".join(cell.kernel.split("_")[6:10])
        lines.append(
            f"| {cell.n} x {cell.k} | {cell.m} | {cell.ours:.1f} | {cell.cublas:.1f} | "
            f"{cell.cublas / cell.ours:.2f} | {peer} | {ratio} | {kernel} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", default="f16_u4_g128f16")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many")
    parser.add_argument("-o", type=Path, required=True, help="path without suffix")
    arguments = parser.parse_args()
    head = facts(arguments.format)
    cells: list[Cell] = []
    for n, k in SHAPES[: arguments.shapes]:
        cells += measure_shape(n, k, arguments.format, not arguments.no_peer)
        torch.cuda.empty_cache()
        record = {**head, "cells": [asdict(cell) for cell in cells]}
        arguments.o.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
        arguments.o.with_suffix(".md").write_text(to_markdown(head, cells))


if __name__ == "__main__":
    main()
