"""Where everything lies: the sources of kernels, and one arch's work folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from build_tools.errors import UsageError
from build_tools.file_writes import disk_error

_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Sources:
    """The two folders that a build reads."""

    specs: Path
    templates: Path


def find_sources(override: Path | None) -> Sources:
    """--source DIR, else the checkout's, else what the wheel carries; never the current folder.

    Raises: UsageError where a folder is missing.
    """
    checkout = _PACKAGE.parent
    if override is not None:
        root = override
    elif (checkout / "pyproject.toml").is_file():
        root = checkout
    else:
        root = _PACKAGE / "sources"
    found = Sources(root / "specs", root / "templates")
    for folder in (found.specs, found.templates):
        if not folder.is_dir():
            raise UsageError.of("--source", f"{root}: no folder {folder.name!r} there")
    return found


def license_file() -> Path:
    """The licence that every wheel carries: the checkout's, else the installed copy."""
    checkout = _PACKAGE.parent / "LICENSE"
    return checkout if checkout.is_file() else _PACKAGE / "sources" / "LICENSE"


@dataclass(frozen=True)
class WorkFolder:
    """`build/<arch>/`; names under it are relative: outputs do not depend on where it is."""

    root: Path

    @property
    def ninja_file(self) -> Path:
        return self.root / "build.ninja"

    @property
    def edge_script(self) -> Path:
        return self.root / EDGE_SCRIPT

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def report(self) -> Path:
        """What people read about the last build."""
        return self.root / "report.html"

    @property
    def wheel_project(self) -> Path:
        return self.root / "wheel"

    @property
    def wheel_record(self) -> Path:
        return self.root / "wheel.json"

    @property
    def source(self) -> Path:
        return self.root / SOURCE

    def cubin(self, name: str) -> Path:
        return self.root / cubin_path(name)

    def facts(self, name: str) -> Path:
        return self.root / facts_path(name)

    def record(self, name: str) -> Path:
        return self.root / record_path(name)

    def log(self, name: str) -> Path:
        return self.root / log_path(name)

    def failure(self, name: str) -> Path:
        return self.root / failure_path(name)

    def fetched(self, key: str, suffix: str) -> Path:
        """`cubin` or `json` that came from a store, for the edge of that key to take."""
        return self.root / FETCHED / f"{key}.{suffix}"


SOURCE, TEMPORARY, FETCHED = "src", "tmp", "fetched"
EDGE_SCRIPT = "compile_edge.py"
"""A copy in the work folder, so that the time of a checkout never starts a build."""


def kernel_path(name: str) -> str:
    """Rendered source, relative to the work folder."""
    return f"{SOURCE}/kernels/{name}.cu"


def cubin_path(name: str) -> str:
    return f"cubins/{name}.cubin"


def facts_path(name: str) -> str:
    return f"facts/{name}.json"


def record_path(name: str) -> str:
    """What the compilation of a cubin took and spilled."""
    return f"records/{name}.json"


def depfile_path(name: str) -> str:
    return f"{TEMPORARY}/{name}.d"


def log_path(name: str) -> str:
    return f"logs/{name}.log"


def failure_path(name: str) -> str:
    return f"failures/{name}.json"


def read_license() -> str:
    """Raises: DiskError."""
    path = license_file()
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise disk_error(path, error) from error
