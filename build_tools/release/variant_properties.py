"""Which `nvidia :: sm_arch` words a kernel wheel carries, and which wheel a GPU then gets.

The provider (nvidia-variant-provider 0.0.2; tested with the one in uv 0.13) offers a GPU of
capability M.m the words `Mm_real`, ..., `M0_real` in this order: its own minor, then every lower
one. Wheels compare by cuda_version_lower_bound, then by their best word, then by label. So:

- A wheel carries the word of its own arch alone. Each GPU has its own wheel's word first; where
  that wheel is missing it comes down to the next lower minor, which is how base cubins run
  (sm_80 on 8.6 and 8.9). More words would only let a wheel tie with the GPU's own one.
- There is no `90a_real`. 9.0 is the only capability of its major, so sm_90a is `90_real`. Kernels
  of an `a` target alone get no word that is offered to another capability (`100_real` reaches
  10.3): such a wheel is refused.
- A family target has the words of the family's members: sm_100f is `100_real` and `103_real`.
- The provider does not know that 8.7 is a Tegra part. An index with sm_80 or sm_86 and without
  sm_87 gives 8.7 a wheel that does not load there, and so does sm_87 without sm_88 or sm_89. No
  word says this: `routes` tells, and the whole set of archs has no such GPU.

    arch   75 80 86 87 88 89 90 100 103 110 120 121     word = NN_real
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from humming_runtime.contract.targets import Capability, incompatibility, target_capability

# The capabilities of specs/archs.yaml (tested).
CAPABILITIES: tuple[Capability, ...] = (
    *((7, 5), (8, 0), (8, 6), (8, 7), (8, 8), (8, 9), (9, 0)),
    *((10, 0), (10, 3), (11, 0), (12, 0), (12, 1)),
)


class NoWordError(ValueError):
    """Kernels that no word describes; the text says why."""


@dataclass(frozen=True)
class Route:
    """The wheel that an installer takes for a GPU, None where no word matches."""

    capability: Capability
    label: str | None
    loads: bool  # does any kernel of it run there


def sm_arch_words(arch: str, targets: Sequence[str]) -> tuple[str, ...]:
    """`sm_90`, (`sm_90a`,) -> (`90_real`,), in lexical order. Raises: NoWordError."""
    own = target_capability(arch)
    if not _loads(targets, own):
        reasons = "; ".join(filter(None, (incompatibility(target, own) for target in targets)))
        raise NoWordError(f"no kernel for {arch}: {reasons}")
    family = [target for target in targets if target.endswith("f")]
    members = {own} | {item for item in CAPABILITIES if _loads(family, item)}
    if all(target.endswith("a") for target in targets):
        for other in CAPABILITIES:
            if _word(own) in offered_words(other) and not _loads(targets, other):
                raise NoWordError(
                    f"kernels of {', '.join(targets)} alone, {_word(own)} is offered to "
                    f"{shown(other)} as well, which cannot load them"
                )
    return tuple(sorted(_word(member) for member in members))


def offered_words(device: Capability) -> tuple[str, ...]:
    """What the provider offers a GPU, best first: (8, 6) -> 86_real, 85_real, ..., 80_real."""
    major, minor = device
    return tuple(_word((major, lower)) for lower in range(minor, -1, -1))


def routes(
    words: Mapping[str, Sequence[str]], targets: Mapping[str, Sequence[str]]
) -> tuple[Route, ...]:
    """For every capability that has an arch: label -> words, label -> targets."""
    found = []
    for device in CAPABILITIES:
        label = _chosen(words, device)
        loads = label is not None and _loads(targets[label], device)
        found.append(Route(device, label, loads))
    return tuple(found)


def shown(device: Capability) -> str:
    """(9, 0) -> `9.0`."""
    return f"{device[0]}.{device[1]}"


def _chosen(words: Mapping[str, Sequence[str]], device: Capability) -> str | None:
    for word in offered_words(device):
        labels = sorted(label for label, own in words.items() if word in own)
        if labels:
            return labels[0]
    return None


def _loads(targets: Iterable[str], device: Capability) -> bool:
    return any(incompatibility(target, device) is None for target in targets)


def _word(capability: Capability) -> str:
    return f"{capability[0]}{capability[1]}_real"
