"""`humming tune`: measure on this GPU, write a table for HUMMING_TUNING."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from humming_runtime.contract.tuning import (
    TunedLaunch,
    TunedShape,
    TuningTable,
    best_launches,
    table_to_json,
)
from humming_runtime.contract.variant_name import ScaleScheme
from humming_runtime.driver import Driver
from humming_runtime.errors import NoKernelError, UsageError
from humming_runtime.explanation import parse_problem
from humming_runtime.measure.cold_timing import copies_for
from humming_runtime.measure.launch_timing import FixedEngine, time_launches, tuned
from humming_runtime.measure.random_layer import clones, random_packed
from humming_runtime.problem import Device
from humming_runtime.torch_layer.weight_format import WeightFormat

ROWS = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 40, 48, 64, 72, 96, 128, 136, 160, 192, 200, 224),
    *(256, 264, 288, 320, 384, 400, 448, 512, 528, 576, 640, 768, 1024, 1536, 2048, 4096, 8192),
)
"""A little above the height of a tile, where one more row may want another one, as well."""


def tune(
    formats: Sequence[str], shapes: Sequence[tuple[int, int]], rows: Sequence[int], ordinal: int
) -> TuningTable:
    """Time every launch of every format, shape (n, k) and m. Progress goes to stderr.

    Raises: NoDeviceError, UsageError for a format that is none, NoKernelError where no installed
    kernel takes a format.
    """
    device = Driver().device(ordinal)
    forms = [parse_format(text) for text in formats]
    found = []
    for form in forms:
        text = f"{form.activation}_{form.weight}_{form.scale}"
        for n, k in shapes:
            launches = _tune_shape(form, n, k, rows, ordinal)
            if not launches:
                raise NoKernelError(f"{text}: no installed kernel takes n {n}, k {k}")
            found.append(TunedShape("dense", (text,), n, k, launches))
    return table_of(device, "tuned here", found)


def table_of(device: Device, name: str, shapes: Sequence[TunedShape]) -> TuningTable:
    """The table of a device's class, with where and when."""
    major, minor = device.capability
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    return TuningTable(
        name=name,
        capability=f"{major}.{minor}",
        sm_count=device.sm_count,
        memory_gbps=device.memory_gbps,
        measured_on=f"{device.name}, torch {torch.__version__}, {today}",
        shapes=tuple(shapes),
    )


def write_table(table: TuningTable, path: Path, *, replace: bool) -> None:
    """Whole or not at all. Raises: UsageError where the file exists or cannot be written."""
    if path.exists() and not replace:
        raise UsageError(f"-o: {path} exists", "humming tune --force ...")
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(table_to_json(table), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"-o: {path}: {reason}") from error


def parse_format(text: str) -> WeightFormat:
    """`f16_u4_g128zf16` -> the format in the current layouts. Raises: UsageError."""
    problem = parse_problem((1, 16, 64), text)
    return WeightFormat(problem.activation, ScaleScheme.parse(str(problem.scale)), problem.weight)


def _tune_shape(
    form: WeightFormat, n: int, k: int, rows: Sequence[int], ordinal: int
) -> tuple[TunedLaunch, ...]:
    with torch.cuda.device(ordinal):
        packed = random_packed(form, n, k)
        layers = clones(packed, copies_for(packed.size_bytes, 1))
        engine = FixedEngine()
        timed: list[TunedLaunch] = []
        for m in rows:
            timed += [tuned(accepted, m, us) for accepted, us in time_launches(engine, layers, m)]
            best = min((t.us for t in timed if t.m == m), default=0.0)
            sys.stderr.write(f"humming: {form} n {n} k {k} m {m}: {best:.1f} us\n")
    return best_launches(timed)
