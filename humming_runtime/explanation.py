"""Why a problem gets its kernel: every candidate with its time or its reason."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from humming_runtime.contract.layouts import FRAG16
from humming_runtime.contract.variant_name import (
    ACTIVATIONS,
    OPS,
    ScaleScheme,
    VariantNameError,
)
from humming_runtime.discover import Package
from humming_runtime.errors import UsageError
from humming_runtime.problem import Device, Problem
from humming_runtime.resolve import Accepted, Survey, expectation

_FORMAT_PARTS = 3
SHOWN = 12
"""Candidates of each kind in the text; JSON has all."""


def parse_problem(
    shape: tuple[int, int, int], format_text: str, op: str = "dense", layout: str = FRAG16
) -> Problem:
    """shape: (m, n, k). format_text: `f16_u4_g128f16`. Raises: UsageError."""
    parts = format_text.split("_")
    example = "example: f16_u4_g128f16"
    if len(parts) != _FORMAT_PARTS:
        raise UsageError(f"format: {format_text!r} is not activation_weight_scale; {example}")
    activation, weight, scale = parts
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UsageError(f"format: {activation!r} is no activation dtype (known: {known})")
    if op not in OPS:
        raise UsageError(f"op: {op!r} is none (known: {', '.join(OPS)})")
    try:
        scheme = ScaleScheme.parse(scale)
    except VariantNameError as error:
        raise UsageError(f"format: {error}") from error
    m, n, k = shape
    for name, value in (("m", m), ("n", n), ("k", k)):
        if value < 1:
            raise UsageError(f"{name}: must be positive ({value})")
    return Problem(op, activation, weight, scheme, layout, m, n, k)


def near_formats(problem: Problem, packages: Iterable[Package]) -> tuple[str, ...]:
    """Installed formats whose words resemble the wanted one, the nearest first."""
    known = {variant.format for package in packages for _, variant in package.kernels}
    return tuple(difflib.get_close_matches(problem.format, sorted(known), n=3, cutoff=0.6))


def as_json(problem: Problem, device: Device, found: Survey) -> dict[str, Any]:
    accepted = [_accepted_json(one) for one in found.accepted]
    return {
        "problem": {
            "op": problem.op,
            "format": problem.format,
            "layout": problem.layout,
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
        },
        "device": {**asdict(device), "capability": ".".join(map(str, device.capability))},
        "chosen": accepted[0] if accepted else None,
        "others": accepted[1:],
        "rejected": [
            {"name": one.name, "package": one.package, "reason": one.reason}
            for one in found.rejected
        ],
    }


def as_text(problem: Problem, device: Device, found: Survey) -> str:
    """The choice with its launch, slower candidates by time, rejected ones the nearest first."""
    major, minor = device.capability
    size = f"m {problem.m}, n {problem.n}, k {problem.k}"
    where = f"{device.name}, capability {major}.{minor}, {device.sm_count} SMs"
    lines = [f"{problem.op} {problem.format} {problem.layout} ({size}) on {where}"]
    if found.accepted:
        lines += _chosen_lines(found.accepted[0])
        others = [f"  {a.predicted_us:8.1f} us  {a.entry.name}" for a in found.accepted[1:]]
        lines += _section("slower", others)
    rejected = [f"  {one.name} ({one.package}): {one.reason}" for one in found.rejected]
    lines += _section("rejected", rejected)
    return "\n".join(lines)


def _chosen_lines(chosen: Accepted) -> list[str]:
    shape = chosen.shape
    validated = ", ".join(chosen.entry.validated_on) or "no device yet"
    launch = (
        f"grid {shape.grid}, {shape.threads} threads, cluster {shape.cluster}, "
        f"split k {shape.split_k}, {shape.stages} stages, {shape.shared_bytes} shared bytes"
    )
    return [
        f"chosen: {chosen.entry.name} ({chosen.package.name})",
        f"  {expectation(chosen)}; {launch}; validated on {validated}",
    ]


def _section(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  and {len(lines) - SHOWN} more (--json shows all)"] if len(lines) > SHOWN else []
    return [f"{title}:", *lines[:SHOWN], *more]


def _accepted_json(accepted: Accepted) -> dict[str, Any]:
    return {
        "name": accepted.entry.name,
        "package": accepted.package.name,
        "predicted_us": accepted.predicted_us,
        "measured": None if accepted.measured is None else asdict(accepted.measured),
        "launch": asdict(accepted.shape),
        "validated_on": list(accepted.entry.validated_on),
        "validated_as": accepted.entry.validated_as,
    }
