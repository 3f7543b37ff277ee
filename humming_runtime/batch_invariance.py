"""Batch-invariant mode: a row's result has the same bits whatever rows it is computed with.

Every kernel adds fp32 sums in an order that its launch fixes, without atomics. What is left is to
take launches of one order for all m of a layer: which one, this module decides from the layer's
shape alone. Decode kernels have the orders that suit few rows; more rows than they hold are
computed in blocks of rows, one launch each.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from humming_runtime import selection
from humming_runtime.contract import launch_shape
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.contract.variant_name import Variant
from humming_runtime.launcher import Launch
from humming_runtime.problem import Device, Problem
from humming_runtime.resolve import Accepted, Distance, Rejected, Shortlist, Survey

VARIABLE = "HUMMING_BATCH_INVARIANT"
REFERENCE_ROWS = (1, 2, 4, 8, 16)
"""Few rows decide: serving engines spend their time there."""
_ELEMENT_BYTES = 2


def k_order(variant: Variant, shape: LaunchShape) -> str | None:
    """In which order a launch adds up k, in words; None where that depends on m."""
    if variant.schedule == "decode":
        return f"decode with {variant.warps} warps, k split in {shape.split_k}"
    if variant.schedule == "prefill":
        if shape.split_k > 1:
            return None  # which tiles are split depends on how many there are
        return f"prefill with {launch_shape.prefill_k_groups(variant)} groups along k"
    return f"multistage with {launch_shape.multistage_warps_k(variant)} warps along k"


def chosen_order(problem: Problem, device: Device, kernels: Shortlist) -> str | None:
    """The order that loses least to the free choice at its worst of REFERENCE_ROWS.

    None where no kernel takes the layer.
    """
    times: dict[str, dict[int, float]] = defaultdict(dict)
    for m in REFERENCE_ROWS:
        for order, accepted in _by_order(replace(problem, m=m), device, kernels).items():
            times[order][m] = accepted[0].predicted_us
    for of in times.values():  # more rows than it holds: in blocks
        most = max(of)
        of |= {m: -(-m // most) * of[most] for m in REFERENCE_ROWS if m > most}
    every = [of for of in times.values() if len(of) == len(REFERENCE_ROWS)]
    best = {m: min(of[m] for of in every) for m in REFERENCE_ROWS if every}

    def losses(order: str) -> tuple[float, float]:
        ratios = [times[order][m] / us for m, us in best.items()]
        return max(ratios), sum(ratios)

    whole = sorted(order for order, of in times.items() if of in every)
    return min(whole, key=losses, default=None)


def restricted(problem: Problem, device: Device, kernels: Shortlist, order: str) -> Survey:
    """Every kernel judged; those that add in another order are rejected."""
    accepted = _by_order(problem, device, kernels).get(order, [])
    taken = {one.entry.name for one in accepted}
    rejected = [
        Rejected(entry.name, package.name, f"batch-invariant mode takes {order}", Distance.ORDER)
        for package, entry, _ in kernels.kernels
        if entry.name not in taken
    ]
    return Survey(tuple(accepted), (*rejected, *kernels.rejected))


def most_rows(problem: Problem, device: Device, kernels: Shortlist, order: str) -> int | None:
    """Rows that one launch of that order takes at most: a power of two; None without a limit."""
    if not order.startswith("decode"):
        return None
    rows = REFERENCE_ROWS[-1]
    while rows > 1 and order not in _by_order(replace(problem, m=rows), device, kernels):
        rows //= 2
    return rows


def _by_order(problem: Problem, device: Device, kernels: Shortlist) -> dict[str, list[Accepted]]:
    """Of each kernel its fastest launch of each order; the fastest kernel first."""
    found: dict[str, list[Accepted]] = defaultdict(list)
    for package, entry, variant in kernels.kernels:
        choices = selection.candidates(variant, entry.cost, problem, device)
        if isinstance(choices, str):
            continue
        seen: set[str] = set()
        for choice in choices:
            order = k_order(variant, choice.shape)
            if order is not None and order not in seen:
                seen.add(order)
                accepted = Accepted(package, entry, variant, choice.shape, choice.predicted_us)
                found[order].append(accepted)
    for accepted_of in found.values():
        accepted_of.sort(key=lambda one: (one.predicted_us, one.entry.name))
    return found


class RowBlocks:
    """A launch of `count` blocks of `rows` rows, and of what is left."""

    def __init__(self, block: Launch, rows: int, count: int, rest: Launch | None) -> None:
        self._launches = [block] * count
        if rest is not None:
            self._launches.append(rest)
        self._rows = rows

    def launch(
        self,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        bias: int | None,
        stream: int,
        overlap: bool,
        /,
    ) -> tuple[str, int] | None:
        """See launcher.Launch."""
        for place, one in enumerate(self._launches):
            start = place * self._rows * _ELEMENT_BYTES
            failed = one.launch(
                activation + start * activation_stride,
                activation_stride,
                output + start * output_stride,
                output_stride,
                bias,
                stream,
                overlap,
            )
            if failed is not None:
                return failed
        return None
