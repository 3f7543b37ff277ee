"""NVRTC of CUDA 12: where it is, what it is, and whether it can do what is asked.

It is looked for in the packages of this environment alone: nvidia/cuda_nvrtc/lib/libnvrtc.so.12.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from build_tools.errors import Fault, ToolchainError
from build_tools.file_writes import sha256_file
from build_tools.spec_values import Arch
from build_tools.toolchain import NVRTC_PROGRAM, Toolchain

INSTALL_HINT = "pip install 'humming-aot[nvrtc]'"
LAST_CAPABILITY = (9, 0)
"""Later GPUs get the wheels that nvcc of CUDA 13 builds."""
_LIBRARY = Path("nvidia", "cuda_nvrtc", "lib", "libnvrtc.so.12")
_PROBE_SECONDS = 60


def find_nvrtc(archs: Sequence[Arch]) -> Toolchain:
    """Locate and check. Raises: ToolchainError with every fault."""
    path = _locate()
    release, known = _probe(path)
    _require_archs(path, release, known, archs)
    version = f"release {release[0]}.{release[1]}"
    return Toolchain(str(path), release, version, "", str(path.parent), _digest(path), "nvrtc")


def _locate() -> Path:
    folders = dict.fromkeys(sysconfig.get_paths()[key] for key in ("purelib", "platlib"))
    found = next((path for path in (Path(f) / _LIBRARY for f in folders) if path.is_file()), None)
    if found is None:
        where = f"looked for {_LIBRARY} in this environment's packages"
        raise ToolchainError.of("nvrtc", f"not found ({where})", INSTALL_HINT)
    return found


def _probe(path: Path) -> tuple[tuple[int, int], frozenset[int]]:
    """Release and numbers of archs, asked in a process of its own."""
    argv = [sys.executable, "-I", "-S", str(NVRTC_PROGRAM), str(path), "--version"]
    try:
        result = subprocess.run(
            argv, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        facts = json.loads(result.stdout)
        major, minor = facts["release"]
        return (int(major), int(minor)), frozenset(map(int, facts["archs"]))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError.of(str(path), f"does not load ({error})", INSTALL_HINT) from error
    except (ValueError, KeyError, TypeError) as error:
        said = result.stderr.strip() or f"exit code {result.returncode}, no message"
        raise ToolchainError.of(str(path), f"does not load ({said})", INSTALL_HINT) from error


def _require_archs(
    path: Path, release: tuple[int, int], known: frozenset[int], archs: Sequence[Arch]
) -> None:
    cuda = f"{release[0]}.{release[1]}"
    limit = "{}.{}".format(*LAST_CAPABILITY)
    faults = []
    for arch in archs:
        if arch.capability > LAST_CAPABILITY:
            message = f"is not built with NVRTC, whose archs end at capability {limit}"
            faults.append(Fault(arch.name, message, "--engine nvcc"))
        elif arch.min_cuda > release or int(arch.name.removeprefix("sm_")) not in known:
            message = f"is not known to {path} (CUDA {cuda})"
            faults.append(Fault(arch.name, message, "--engine nvcc"))
    if faults:
        raise ToolchainError(faults)


def _digest(path: Path) -> str:
    """Of the library, its built-in headers, and the program that translates options."""
    digest = hashlib.sha256()
    builtins = sorted(path.parent.glob("libnvrtc-builtins.so.*"))
    for part in (path, *builtins, NVRTC_PROGRAM):
        digest.update(f"{part.name} {sha256_file(part)}\n".encode())
    return digest.hexdigest()
