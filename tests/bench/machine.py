"""Where and when a figure was measured."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import torch

_DRIVER = Path("/proc/driver/nvidia/version")


def machine_facts() -> dict[str, object]:
    """Device, driver release, torch and date: every file in results/ carries them."""
    return {
        "device": torch.cuda.get_device_name(0),
        "driver": driver_release(_DRIVER.read_text(encoding="utf-8")),
        "torch": torch.__version__,
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
    }


def driver_release(text: str) -> str:
    """`580.159.04` of the kernel module's own line."""
    found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", text)
    return found[0] if found else text.partition("\n")[0]
