"""Time of a call on weights that no cache holds: the one method of every figure and every table.

R copies of the weights (together more than 4x L2) are used in turn inside one CUDA graph of R
launches; a figure is the median over replays, divided by R.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

L2_MULTIPLE = 4
MOST_COPIES = 64
REPLAYS = 15
_WARM_REPLAYS = 3


def copies_for(weight_bytes: int, m: int) -> int:
    """How many copies of the weights make a replay cold; large m hides the cache."""
    if m > 512:
        return 4
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    return max(4, min(MOST_COPIES, L2_MULTIPLE * l2_bytes // max(weight_bytes, 1) + 1))


def graph_us(calls: Sequence[Callable[[], object]], replays: int = REPLAYS) -> float:
    """Median microseconds of one of `calls`, captured together and replayed."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for call in calls:  # every layer has run before it is captured, as in a server
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
        times = [_replay_us(graph, stream) for _ in range(_WARM_REPLAYS + replays)]
    return statistics.median(times[_WARM_REPLAYS:]) / len(calls)


def _replay_us(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> float:
    start, end = _event(), _event()
    start.record(stream)
    graph.replay()
    end.record(stream)
    stream.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
