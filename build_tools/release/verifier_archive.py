"""verify.pyz: the verifier and what it imports, in one file that python3 alone runs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import humming_runtime

_ROOT = Path(humming_runtime.__file__).parent
_MODULES = (
    "__init__.py",
    "errors.py",
    "discover.py",
    "cubin_file.py",
    "contract/*.py",
    "verify/*.py",
)
_MAIN = "import sys\nfrom humming_runtime.verify.command import main\nsys.exit(main())\n"
_SHEBANG = b"#!/usr/bin/env python3\n"
_TIME = (1980, 1, 1, 0, 0, 0)


def verifier_archive() -> bytes:
    """Stored, not deflated: equal bytes under every Python."""
    files = {"__main__.py": _MAIN.encode()}
    for pattern in _MODULES:
        for path in sorted(_ROOT.glob(pattern)):
            name = f"{_ROOT.name}/{path.relative_to(_ROOT).as_posix()}"
            files[name] = path.read_bytes()
    out = io.BytesIO()
    out.write(_SHEBANG)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return out.getvalue()
