"""What the memory gives to a kernel that only reads."""

from __future__ import annotations

import torch

from humming_runtime.measure.cold_timing import graph_us


def read_bandwidth_gbps() -> float:
    """A sum over 2 GiB, the median of replays; 10^9 bytes a second."""
    source = torch.ones(1 << 29, dtype=torch.float32, device="cuda")
    return source.numel() * 4 / graph_us([source.sum] * 4) / 1e3
