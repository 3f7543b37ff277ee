"""Record that every kernel of some packages ran right: specs/validated/*.json.

    python tests/gpu/validation_record.py --capability 9.0 --device "NVIDIA H200" \
        --driver 580.159.04 -o specs/validated/h200.json FOLDER...

Run it after tests/gpu has passed with HUMMING_CUBIN_PATH set to each FOLDER: the tests force every
kernel. Manifests copy the records whose source is still the same.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
from pathlib import Path

from humming_runtime.contract.manifest import from_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("capability", "device", "driver"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("-o", type=Path, required=True)
    parser.add_argument("folders", type=Path, nargs="+")
    arguments = parser.parse_args()
    sources, engines = {}, set()
    for folder in arguments.folders:
        path = folder / "manifest.json"
        manifest = from_json(path.read_text(encoding="utf-8"), str(path))
        engines.add(manifest.engine)
        for kernel in manifest.kernels:
            sources[kernel.name] = kernel.source_sha256
    if len(engines) != 1:
        parser.error(f"one engine a record (found {', '.join(sorted(engines))})")
    record = {
        "capability": arguments.capability,
        "device": arguments.device,
        "driver": arguments.driver,
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "engine": engines.pop(),
        "sources": sources,
    }
    arguments.o.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, sort_keys=True)
    arguments.o.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
