"""A fresh process from its first import to a checked kernel in memory, without a driver.

    PYTHONPATH=FOLDER python -m tests.bench.first_kernel

Prints milliseconds of each part as JSON. FOLDER: where a kernel wheel is installed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

N, K, M = 8192, 8192, 16


def main() -> None:
    start = time.perf_counter()
    from humming_runtime import discover as module
    from humming_runtime.contract.variant_name import ScaleScheme
    from humming_runtime.cubin_file import read_cubin
    from humming_runtime.known_devices import assumed_device
    from humming_runtime.problem import Problem
    from humming_runtime.resolve import resolve

    imported = time.perf_counter()
    parts = {"manifest": 0.0, "file_check": 0.0}

    def timed(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed_call(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                parts[part] += time.perf_counter() - begin

        return timed_call

    module.from_json = timed("manifest", module.from_json)
    module._check_files = timed("file_check", module._check_files)
    begin = time.perf_counter()
    installed = module.discover("")
    discovered = time.perf_counter()
    scale = ScaleScheme.parse("g128f16")
    problem = Problem("dense", "f16", "u4", scale, "frag16", M, N, K)
    chosen = resolve(problem, assumed_device((9, 0)), installed.packages).chosen
    resolved = time.perf_counter()
    read_cubin(chosen.package.cubin(chosen.entry), chosen.entry)
    end = time.perf_counter()
    seconds = {
        "import": imported - start,
        "discover": discovered - begin,
        "of_which_manifest": parts["manifest"],
        "of_which_file_check": parts["file_check"],
        "resolve": resolved - discovered,
        "read": end - resolved,
        "total": end - start,
    }
    print(json.dumps({f"{name}_ms": value * 1e3 for name, value in seconds.items()}))


if __name__ == "__main__":
    main()
