"""Wall time of one build by every route: compiler alone, store, cache, farm, lost server.

    python -m tests.bench.compile_routes [--profile quick] [-o FILE]

The farm's two servers are on this very machine: the figures show what each route costs, and not
what more machines would gain. Needs what tests/compile/sccache_farm.py needs.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.compile.sccache_farm import SCCACHE, Farm, missing, running_farm

_FARM_JOBS = "4"


class Routes:
    """Builds of one profile in fresh work folders, all of which have to give the same wheel."""

    def __init__(self, root: Path, profile: str) -> None:
        self._root = root
        self._profile = profile
        self._count = 0
        self.digests: set[str] = set()
        self.kernels = 0

    def seconds(
        self,
        *more: str,
        environment: dict[str, str] | None = None,
        meanwhile: Callable[[Path], None] | None = None,
    ) -> float:
        """meanwhile: called with the folder of records while the build runs."""
        self._count += 1
        folder = self._root / str(self._count)
        folders = ["--work", str(folder / "work"), "-o", str(folder / "dist")]
        command = [sys.executable, "-m", "build_tools.cli", "--profile", self._profile, "-q"]
        start = time.perf_counter()
        build = subprocess.Popen([*command, *folders, *more], env=environment)
        if meanwhile is not None:
            meanwhile(folder / "work" / "sm_90" / "records")
        if build.wait() != 0:
            raise SystemExit(f"a build failed: {' '.join(more)}")
        took = time.perf_counter() - start
        wheel = next((folder / "dist").glob("*.whl"))
        self.digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
        self.kernels = len(list((folder / "work/sm_90/cubins").iterdir()))
        shutil.rmtree(folder)
        return round(took, 1)


def measure(root: Path, profile: str) -> dict[str, object]:
    routes = Routes(root, profile)
    found: dict[str, object] = {"nvcc": routes.seconds()}
    store = ("--store", str(root / "store"))
    found["folder store, empty"] = routes.seconds(*store)
    found["folder store, full"] = routes.seconds(*store)
    local = {
        **os.environ,
        "SCCACHE_DIR": str(root / "sccache"),
        "SCCACHE_CONF": os.devnull,
        "SCCACHE_SERVER_PORT": "4339",
    }
    launcher = ("--launcher", "sccache")
    found["sccache, empty"] = routes.seconds(*launcher, environment=local)
    found["sccache, full, another folder"] = routes.seconds(*launcher, environment=local)
    command = [str(SCCACHE), "--stop-server"]
    subprocess.run(command, env=local, check=False, capture_output=True)
    (root / "farm").mkdir()
    with running_farm(root / "farm") as farm:
        many = (*launcher, "-j", _FARM_JOBS)
        found["sccache-dist, first, sends its compiler"] = routes.seconds(
            *many, environment=farm.environment
        )
        farm.forget()
        found["sccache-dist"] = routes.seconds(*many, environment=farm.environment)
        found["compilations by server"] = sorted(farm.distributed().values())
        farm.forget()
        found["sccache-dist, a server killed"] = routes.seconds(
            *many,
            environment=farm.environment,
            meanwhile=lambda records: _kill_after_a_third(farm, records, routes.kernels),
        )
        found["compilations by server after the kill"] = sorted(farm.distributed().values())
        found["compilations that failed there and were done here"] = farm.stats()["dist_errors"]
    if len(routes.digests) != 1:
        raise SystemExit("the routes made different wheels")
    return {
        "kernels": routes.kernels,
        "seconds": found,
        "wheel sha256, of every route": routes.digests.pop(),
    }


def _kill_after_a_third(farm: Farm, records: Path, kernels: int) -> None:
    while len(list(records.glob("*.json"))) < kernels / 3:
        time.sleep(0.05)
    farm.kill_server(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="quick")
    parser.add_argument("-o", type=Path)
    arguments = parser.parse_args()
    lacking = missing()
    if lacking is not None:
        raise SystemExit(lacking)
    with tempfile.TemporaryDirectory() as folder:
        result = {
            "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
            "cores": len(os.sched_getaffinity(0)),
            "profile": arguments.profile,
            **measure(Path(folder), arguments.profile),
        }
    text = json.dumps(result, indent=2) + "\n"
    print(text)
    if arguments.o is not None:
        arguments.o.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
