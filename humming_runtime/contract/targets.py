"""Which compute capability runs a cubin of which target (facts of NVIDIA's binary compatibility).

Base `sm_XY` runs on the same major and minor >= Y, but not across desktop and Tegra parts
(8.7 and 11.0 need their own). `a` runs on exactly that capability, `f` on its family.
Source: CUDA programming guide, binary compatibility; checked with nvcc 13.0.
"""

from __future__ import annotations

import re

Capability = tuple[int, int]

_TEGRA: frozenset[Capability] = frozenset({(8, 7), (11, 0)})
_FAMILY: dict[str, tuple[Capability, ...]] = {
    "sm_100f": ((10, 0), (10, 3)),
    "sm_103f": ((10, 3),),
    "sm_110f": ((11, 0),),
    "sm_120f": ((12, 0), (12, 1)),
    "sm_121f": ((12, 1),),
}
_TARGET = re.compile(r"sm_(\d+)(\d)([af]?)")


def target_capability(target: str) -> Capability:
    """Capability that `target` names. Raises: ValueError for a text that is no target."""
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ValueError(f"{target!r} is no target; examples: sm_80, sm_90a, sm_100f")
    return int(match[1]), int(match[2])


def incompatibility(target: str, device: Capability) -> str | None:
    """Why a cubin built for `target` cannot be loaded on `device`; None if it can."""
    capability = target_capability(target)
    shown = f"{device[0]}.{device[1]}"
    if target.endswith("a"):
        if device != capability:
            return f"target {target} runs on capability {capability[0]}.{capability[1]} only, device is {shown}"
        return None
    if target.endswith("f"):
        family = _FAMILY.get(target, (capability,))
        if device not in family:
            names = ", ".join(f"{a}.{b}" for a, b in family)
            return f"target {target} runs on capabilities {names} only, device is {shown}"
        return None
    if device[0] != capability[0] or device[1] < capability[1]:
        return f"target {target} runs on capability {capability[0]}.x from {capability[0]}.{capability[1]}, device is {shown}"
    if device != capability and (device in _TEGRA or capability in _TEGRA):
        return f"target {target} does not cross between desktop and Tegra parts, device is {shown}"
    return None


def specificity(target: str) -> tuple[int, int]:
    """Preference among loadable targets: exact `a`, then family `f`, then the nearest lower base."""
    rank = {"a": 2, "f": 1}.get(target[-1], 0)
    return rank, target_capability(target)[1]


def tier_of(capability: Capability) -> str:
    """The instruction tier that a capability's own kernels use."""
    major, minor = capability
    if capability == (8, 9):
        return "ada"
    by_major = {
        7: "turing",
        8: "ampere",
        9: "hopper",
        10: "blackwell",
        11: "blackwell",
        12: "blackwell_rtx",
    }
    if major not in by_major or (major == 7 and minor < 5):
        raise ValueError(f"no tier for capability {major}.{minor} (from 7.5 on)")
    return by_major[major]


def is_test_target(tier: str, target: str) -> bool:
    """Was a kernel of one tier built for a target of another, to prove it there? It runs only when forced."""
    return tier != tier_of(target_capability(target))
