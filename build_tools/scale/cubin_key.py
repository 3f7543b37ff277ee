"""The key of a compilation, known before it runs: everything that decides the cubin's bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from build_tools.folders import kernel_path
from build_tools.ninja_file import NVCC_FLAGS, gencode
from build_tools.plan import Planned
from build_tools.source_hash import included_files
from build_tools.toolchain import Toolchain

_SCHEMA = "2"
"""Changes when a key or an object gets another meaning."""


def cubin_key(planned: Planned, sources: Mapping[str, str], toolchain: Toolchain) -> str:
    """sha256 in hexadecimal. sources: rendered files by path in the work folder.

    Folders, the host compiler and the clock are not in it: they do not change a cubin.
    """
    digest = hashlib.sha256()
    target = planned.variant.target
    flags = (*NVCC_FLAGS, gencode(target))
    facts = (_SCHEMA, toolchain.engine, toolchain.digest, planned.name, target, *flags)
    for text in facts:
        digest.update(f"{len(text)} {text}\n".encode())
    for path in sorted(included_files(kernel_path(planned.name), sources)):
        text = sources[path]
        digest.update(f"{path} {len(text)} {text}\n".encode())
    return digest.hexdigest()


def cubin_keys(
    planned: Sequence[Planned], sources: Mapping[str, str], toolchain: Toolchain
) -> dict[str, str]:
    """Keys by variant name."""
    return {item.name: cubin_key(item, sources, toolchain) for item in planned}
