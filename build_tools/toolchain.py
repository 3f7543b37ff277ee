"""NVIDIA's compiler: where it is, what it is, and whether it can do what is asked.

Order: --nvcc, the packages of this environment (nvidia/cu13), CUDA_HOME, PATH.
The other engine is found in `nvrtc_toolchain.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from build_tools.errors import Fault, ToolchainError
from build_tools.file_writes import sha256_file, write_if_changed
from build_tools.spec_values import Arch

NVRTC_PROGRAM = Path(__file__).with_name("nvrtc_compile.py").resolve()
INSTALL_HINT = "pip install 'humming-aot[nvcc]'"
_HOST_COMPILERS = ("g++", "clang++")
_HOST_HINT = "apt-get install g++"
_HEADERS = ("cuda_runtime.h", "crt/host_config.h")
"""What nvcc includes by itself; the kernels need no other header of CUDA."""
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_HERE = re.compile(r"^#\$ _HERE_=(.+)$", re.MULTILINE)
_INCLUDE = re.compile(r'"-I([^"]+)"|-I([^"\s]+)')
_PROBE_SECONDS = 60
_TRIAL_LINES = 3


@dataclass(frozen=True)
class Toolchain:
    """One usable compiler: nvcc, or NVRTC's library."""

    compiler: str
    release: tuple[int, int]
    version: str  # the line `Build ...` of nvcc --version
    host_compiler: str
    home: str  # folder of the compiler's programs
    digest: str  # of its programs: another release never passes for it
    engine: str = "nvcc"

    @property
    def cuda(self) -> str:
        return f"{self.release[0]}.{self.release[1]}"

    @property
    def command(self) -> tuple[str, ...]:
        """Words of a compilation before its flags."""
        path = str(Path(self.compiler).resolve())
        if self.engine == "nvrtc":
            return (sys.executable, "-I", "-S", str(NVRTC_PROGRAM), path)
        return (path, "-ccbin", self.host_compiler)


def find_toolchain(nvcc: Path | None, archs: Sequence[Arch], cache: Path | None) -> Toolchain:
    """Locate and check. cache: file that spares the probe while nvcc is the same file.

    Raises: ToolchainError with every fault.
    """
    path = _locate(nvcc)
    found = _read_cache(cache, path)
    if found is None:
        found = _probe(path)
        if cache is not None:
            stamp = _stamp([path, *_programs(Path(found.home))])
            record = {"stamp": stamp, "toolchain": asdict(found)}
            write_if_changed(cache, json.dumps(record, indent=2, sort_keys=True) + "\n")
    _require_archs(found, archs)
    return found


def _locate(nvcc: Path | None) -> Path:
    if nvcc is not None:
        if not os.access(nvcc, os.X_OK):
            raise ToolchainError.of("--nvcc", f"{nvcc} is no program", INSTALL_HINT)
        return nvcc.absolute()
    candidates = [
        Path(folder) / "nvidia" / "cu13" / "bin" / "nvcc"
        for folder in dict.fromkeys(sysconfig.get_paths()[key] for key in ("purelib", "platlib"))
    ]
    home = os.environ.get("CUDA_HOME")
    if home:
        candidates.append(Path(home) / "bin" / "nvcc")
    on_path = shutil.which("nvcc")
    if on_path:
        candidates.append(Path(on_path))
    found = next((path for path in candidates if os.access(path, os.X_OK)), None)
    if found is None:
        where = "looked in this environment's packages, CUDA_HOME and PATH"
        raise ToolchainError.of("nvcc", f"not found ({where})", INSTALL_HINT)
    return found


def _probe(path: Path) -> Toolchain:
    text = _output([str(path), "--version"])
    match = _RELEASE.search(text)
    if match is None:
        raise ToolchainError.of(str(path), "is no nvcc: --version names no release", INSTALL_HINT)
    dry_run = _output([str(path), "--dryrun", "-x", "cu", "-E", os.devnull])
    faults = _header_faults(path, dry_run)
    host = next((name for name in _HOST_COMPILERS if shutil.which(name)), None)
    if host is None:
        message = f"no C++ compiler on PATH (looked for {', '.join(_HOST_COMPILERS)})"
        faults.append(Fault("host compiler", f"{message}; nvcc preprocesses with it", _HOST_HINT))
    if faults:
        raise ToolchainError(faults)
    _require_trial(path, host or "")
    build = next((line for line in text.splitlines() if line.startswith("Build ")), match[0])
    here = _HERE.search(dry_run)
    home = Path(here[1]) if here else path.resolve().parent
    release = int(match[1]), int(match[2])
    return Toolchain(str(path), release, build, host or "", str(home), _digest(home))


def _header_faults(path: Path, dry_run: str) -> list[Fault]:
    """Missing headers by name. nvcc's own dry run says where it looks."""
    folders = [Path(quoted or bare) for quoted, bare in _INCLUDE.findall(dry_run)]
    return [
        Fault(str(path), f"header {name} is missing beside it", INSTALL_HINT)
        for name in _HEADERS
        if not any((folder / name).is_file() for folder in folders)
    ]


def _require_trial(path: Path, host_compiler: str) -> None:
    """Compile an empty kernel: a missing program, parts of different releases and a host compiler
    that nvcc refuses show here once, and not for every variant.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "trial.cu", Path(folder) / "trial.cubin"
        source.write_text('extern "C" __global__ void trial() {}\n', encoding="utf-8")
        argv = [str(path), "-cubin", "-ccbin", host_compiler, "-o", str(cubin), str(source)]
        said = _output(argv, folder)
        if not cubin.is_file() or cubin.stat().st_size == 0:
            lines = said.replace(f"{folder}/", "").strip().splitlines()[:_TRIAL_LINES]
            message = "; ".join(lines) or "no cubin and no message"
            raise ToolchainError.of(
                str(path), f"cannot compile an empty kernel: {message}", INSTALL_HINT
            )


def _require_archs(found: Toolchain, archs: Sequence[Arch]) -> None:
    faults = []
    for arch in archs:
        if arch.min_cuda > found.release:
            needed = ".".join(str(part) for part in arch.min_cuda)
            message = f"needs CUDA {needed} or newer, {found.compiler} is {found.cuda}"
            faults.append(Fault(arch.name, message, INSTALL_HINT))
    if faults:
        raise ToolchainError(faults)


def _output(argv: list[str], temporary: str | None = None) -> str:
    try:
        result = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
            env=None if temporary is None else {**os.environ, "TMPDIR": temporary},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError.of(argv[0], f"does not run ({error})", INSTALL_HINT) from error
    return result.stdout + result.stderr


def _programs(home: Path) -> list[Path]:
    """nvcc's own programs: what decides the code that comes out."""
    names = ("nvcc", "cudafe++", "ptxas", "fatbinary", "nvcc.profile", "../nvvm/bin/cicc")
    return [home / name for name in names if (home / name).is_file()]


def _digest(home: Path) -> str:
    digest = hashlib.sha256()
    for program in _programs(home):
        digest.update(f"{program.name} {sha256_file(program)}\n".encode())
    return digest.hexdigest()


def _stamp(programs: Sequence[Path]) -> list[list[str | int]]:
    """Names, sizes and times of programs, and the PATH that the host compiler comes from."""
    facts: list[list[str | int]] = [["PATH", os.environ.get("PATH", "")]]
    for program in programs:
        status = program.stat()
        facts.append([str(program), status.st_size, status.st_mtime_ns])
    return facts


def _read_cache(cache: Path | None, path: Path) -> Toolchain | None:
    """The toolchain of an earlier probe, if every program is still the same file."""
    try:
        record = json.loads(cache.read_text(encoding="utf-8")) if cache is not None else None
        if record is None:
            return None
        fields = record["toolchain"]
        known = Toolchain(**{**fields, "release": tuple(fields["release"])})
        same = record["stamp"] == _stamp([path, *_programs(Path(known.home))])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if same else None
