"""torch's current stream."""

from __future__ import annotations

import torch


def current_stream(device: torch.device) -> int:
    """Handle of torch's current stream of that device; no Python object is made for it."""
    index = torch.cuda.current_device() if device.index is None else device.index
    stream: int = torch._C._cuda_getCurrentRawStream(index)  # noqa: SLF001  no public name
    return stream
