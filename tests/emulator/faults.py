"""Kernels with one synchronisation left out, to see whether the emulator notices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TRY_WAIT = r"mbarrier\.try_wait\S+ (\w+), \[%r\d+\], %r\d+;"
LEFT_OUT = {
    r"bar\.sync\s+[^;]*;": "",
    r"bar\.warp\.sync\s+[^;]*;": "",
    r"barrier\.cluster\.arrive\S*;\s*barrier\.cluster\.wait\S*;": "",
    TRY_WAIT: r"setp.eq.u32 \1, 0, 0;",
    r"mbarrier\.arrive\.shared\S+ _, \[%r\d+\];": "",
    r"cp\.async\.wait_group \d+;": "",
    r"cp\.async\.mbarrier\.arrive\S* \[%r\d+\];": "",
    r"wgmma\.wait_group\S* \d+;": "",
    r"griddepcontrol\.wait;": "",
}
"""Pattern -> what takes its place."""


@dataclass(frozen=True)
class Fault:
    """line: of the PTX that is changed; text: what stood there."""

    line: int
    text: str
    ptx: str


def faults_of(ptx: str) -> Iterator[Fault]:
    """Every single synchronisation left out once."""
    for pattern, replacement in LEFT_OUT.items():
        for found in re.finditer(pattern, ptx):
            changed = ptx[: found.start()] + found.expand(replacement) + ptx[found.end() :]
            yield Fault(ptx.count("\n", 0, found.start()) + 1, found[0].split("\n")[0], changed)
