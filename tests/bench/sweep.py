"""Time every launch (kernel x split of k x CTAs an SM) of one format: input of fit_costs.py.

python -m tests.bench.sweep --format f16_u4_g128f16 -o sweep.json      (kernels: HUMMING_CUBIN_PATH)
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from humming_runtime import selection
from humming_runtime.contract.variant_name import ScaleScheme
from humming_runtime.engine import Engine
from humming_runtime.problem import Device, Problem
from humming_runtime.resolve import Accepted, Decision
from humming_runtime.torch_layer import PackedWeight, WeightFormat, matmul
from humming_runtime.torch_layer.binding import plans_of, use_plans
from tests.bench.cold_timing import copies_for, graph_us
from tests.bench.random_layer import clones, random_packed
from tests.bench.shapes import SHAPES

MORE_SHAPES = ((5120, 2048), (1024, 8192), (16384, 2048), (2880, 2880))
ROWS = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512),
    *(768, 1024, 1536, 2048, 4096, 8192),
)
REPLAYS = 7
_REST_SECONDS, _REST_FROM = 0.04, 2e10


class FixedEngine(Engine):
    """Every call runs the launch that is set."""

    fixed: Accepted

    def set_launch(self, accepted: Accepted) -> None:
        self.fixed = accepted
        self.force = accepted.entry.name  # plans choose again

    def resolve(self, problem: Problem, device: Device) -> Decision:
        del device
        return Decision(problem, self.fixed, (), (), forced=True)


def launches(engine: Engine, problem: Problem, device: Device) -> Iterator[Accepted]:
    """Every launch of every kernel that could be the best; far too small tiles are left out."""
    for package in engine.installed.packages:
        for entry in package.manifest.kernels:
            variant = entry.variant
            if (variant.format, variant.tier) != (problem.format, "hopper"):
                continue
            if variant.schedule == "prefill" and not _plausible(variant.tile_m, problem.m):
                continue
            choices = selection.candidates(variant, entry.cost, problem, device)
            if isinstance(choices, str):
                continue
            for choice in choices:
                yield Accepted(package, entry, variant, choice.shape, choice.predicted_us)


def _plausible(tile_m: int, m: int) -> bool:
    if m >= 1024:
        return tile_m >= 128
    return tile_m <= max(64, 2 * m) and m <= 16 * tile_m


def measure(engine: FixedEngine, layers: list[PackedWeight], m: int) -> list[dict[str, object]]:
    """One row a launch."""
    first = layers[0]
    form = first.form
    dtype = form.activation_dtype
    x = torch.randn(m, first.k, device="cuda", dtype=dtype)
    out = torch.empty(m, first.n, device="cuda", dtype=dtype)
    problem = Problem(
        "dense", form.activation, form.weight, form.scale, form.layout, m, first.n, first.k
    )
    used = layers[: copies_for(first.size_bytes, m)]
    rows = []
    for accepted in launches(engine, problem, engine.device(0)):
        engine.set_launch(accepted)
        if m * first.n * first.k > _REST_FROM:
            time.sleep(_REST_SECONDS)
        us = graph_us([lambda layer=layer: matmul(x, layer, out=out) for layer in used], REPLAYS)
        size = {"m": m, "n": first.n, "k": first.k}
        rows.append({"variant": accepted.entry.name, "us": us, **size, **asdict(accepted.shape)})
    return rows


def parse_format(text: str) -> WeightFormat:
    """`f16_u4_g128zf16` -> the format in the current layouts."""
    activation, weight, scale = text.split("_")
    return WeightFormat(activation, ScaleScheme.parse(scale), weight)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", default="f16_u4_g128f16")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="values of m")
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    engine = FixedEngine()
    rows = []
    with use_plans(plans_of(engine)):
        for n, k in (*SHAPES, *MORE_SHAPES):
            packed = random_packed(parse_format(arguments.format), n, k)
            layers = clones(packed, copies_for(packed.size_bytes, 1))
            for m in arguments.rows:
                rows += measure(engine, layers, m)
            print(f"{n} x {k}: {len(rows)} launches", flush=True)
    arguments.o.write_text(json.dumps(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
