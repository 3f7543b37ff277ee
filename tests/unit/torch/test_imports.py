"""The core works without torch; the torch part touches no device when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import humming_runtime


def python(code: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(Path(humming_runtime.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


def test_the_core_imports_without_torch():
    code = (
        "import importlib, pkgutil, sys, humming_runtime\n"
        "sys.modules['torch'] = None\n"
        "for module in pkgutil.iter_modules(humming_runtime.__path__, 'humming_runtime.'):\n"
        "    if 'torch_layer' not in module.name and '__main__' not in module.name:\n"
        "        importlib.import_module(module.name)\n"
        "print('done')"
    )
    assert python(code) == "done"


def test_importing_the_torch_part_opens_neither_the_driver_nor_a_context():
    code = (
        "import sys, humming_runtime.torch_layer, torch\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(torch.cuda.is_initialized(), 'libcuda.so' in maps, 'safetensors' in sys.modules)"
    )
    assert python(code) == "False False False"
