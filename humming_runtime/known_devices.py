"""A device that is not here: facts of a capability, to explain decisions without a GPU."""

from __future__ import annotations

import re

from humming_runtime.contract.targets import Capability
from humming_runtime.errors import UsageError
from humming_runtime.problem import Device

# capability -> (name of a common device, SMs, most shared memory of a CTA, shared memory of an SM,
# peak of device memory in 10^9 bytes a second)
_FACTS: dict[Capability, tuple[str, int, int, int, int]] = {
    (7, 5): ("T4", 40, 65536, 65536, 320),
    (8, 0): ("A100", 108, 166912, 167936, 2039),
    (8, 6): ("A40", 84, 101376, 102400, 696),
    (8, 7): ("Orin", 16, 166912, 167936, 205),
    (8, 8): ("capability 8.8", 84, 101376, 102400, 0),
    (8, 9): ("L40S", 142, 101376, 102400, 864),
    (9, 0): ("H200", 132, 232448, 233472, 4814),
    (10, 0): ("B200", 148, 232448, 233472, 8000),
    (10, 3): ("B300", 148, 232448, 233472, 8000),
    (11, 0): ("Thor", 20, 232448, 233472, 273),
    (12, 0): ("RTX PRO 6000", 188, 101376, 102400, 1792),
    (12, 1): ("GB10", 48, 101376, 102400, 273),
}

ASSUMED_ORDINAL = -1
KNOWN_CAPABILITIES = tuple(_FACTS)


def parse_capability(text: str) -> Capability:
    """`9.0`, also `90` and `sm_90`. Raises: UsageError."""
    match = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)", text.strip().lower())
    if match is None:
        raise UsageError(f"capability: {text!r} is none; examples: 8.6, 9.0, 12.0")
    return int(match[1]), int(match[2])


def assumed_device(capability: Capability, sm_count: int | None = None) -> Device:
    """A device as it is commonly sold. Raises: UsageError for a capability that is not known."""
    facts = _FACTS.get(capability)
    if facts is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in _FACTS)
        shown = f"{capability[0]}.{capability[1]}"
        raise UsageError(f"capability: no device of {shown} is known (known: {known})")
    name, typical_sms, limit, per_sm, memory_gbps = facts
    return Device(
        ordinal=ASSUMED_ORDINAL,
        name=f"assumed {name}",
        capability=capability,
        sm_count=typical_sms if sm_count is None else sm_count,
        shared_limit_bytes=limit,
        shared_per_sm_bytes=per_sm,
        memory_gbps=memory_gbps,
    )
