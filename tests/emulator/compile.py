"""A variant of the project, or CUDA text -> PTX, with the project's own templates and flags."""

from __future__ import annotations

import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from build_tools.folders import kernel_path
from build_tools.ninja_file import NVCC_FLAGS
from build_tools.plan import Planned
from build_tools.render import render_sources
from build_tools.toolchain import find_toolchain
from humming_runtime.contract.variant_name import Variant

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
_OF_CUBINS = ("-cubin", "-Xptxas", "-v")


def flags_for(target: str) -> list[str]:
    """Flags of a build, for PTX in place of a cubin."""
    number = target.removeprefix("sm_")
    common = [flag for flag in NVCC_FLAGS if flag not in _OF_CUBINS]
    return ["-ptx", *common, f"-gencode=arch=compute_{number},code=compute_{number}"]


@lru_cache
def _command() -> tuple[str, ...]:
    return find_toolchain(None, [], None).command


def compile_text(
    source: str, target: str, name: str = "kernel.cu", folder: Path | None = None
) -> str:
    """CUDA text -> PTX. folder: where includes are relative to. Raises: RuntimeError."""
    with tempfile.TemporaryDirectory() as temporary:
        place = (folder or Path(temporary)) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source, encoding="utf-8")
        out = Path(temporary) / "kernel.ptx"
        command = [*_command(), *flags_for(target), "-o", str(out), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"nvcc: {done.stderr[:2000]}")
        return out.read_text(encoding="utf-8")


@lru_cache(maxsize=256)
def compile_ptx(variant: Variant, templates: Path = TEMPLATES) -> str:
    """PTX of a variant, rendered into a temporary folder."""
    sources = render_sources(templates, [Planned(variant, "emulator", None, None)])
    with tempfile.TemporaryDirectory() as temporary:
        for path, text in sources.items():
            place = Path(temporary) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        kernel = kernel_path(str(variant))
        return compile_text(sources[kernel], variant.target, kernel, Path(temporary))
