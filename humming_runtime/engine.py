"""What one process holds: installed packages, driver, loaded kernels, decisions, counters."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, OrderedDict

from humming_runtime.discover import Installed, discover
from humming_runtime.driver import Driver, PreparedLaunch
from humming_runtime.load import Loader
from humming_runtime.problem import Device, Problem
from humming_runtime.resolve import Accepted, Decision, resolve

FORCE_VARIABLE = "HUMMING_FORCE"
MOST_DECISIONS = 4096
_logger = logging.getLogger("humming")


class Engine:
    """Owner of everything that outlives a call. CUDA is first touched by device() or a launch.

    force: name of the variant that every call must run; HUMMING_FORCE sets it from outside.
    """

    def __init__(
        self,
        installed: Installed | None = None,
        driver: Driver | None = None,
        force: str | None = None,
    ) -> None:
        self.installed = discover() if installed is None else installed
        self.force = force or os.environ.get(FORCE_VARIABLE) or None
        self.launches: Counter[str] = Counter()
        self._driver = driver
        self._loader: Loader | None = None
        self._lock = threading.Lock()
        self._devices: dict[int, Device] = {}
        self._decisions: OrderedDict[tuple[Problem, int, str | None], Decision] = OrderedDict()
        for fault in self.installed.faults:
            _logger.warning("kernel package %s is not used: %s", fault.name, fault.reason)

    @property
    def driver(self) -> Driver:
        """The driver, opened at first use. Raises: NoDeviceError."""
        if self._driver is None:
            with self._lock:
                self._driver = self._driver or Driver()
        return self._driver

    @property
    def loader(self) -> Loader:
        if self._loader is None:
            driver = self.driver
            with self._lock:
                self._loader = self._loader or Loader(driver)
        return self._loader

    def device(self, ordinal: int) -> Device:
        """Facts of a device, read once."""
        known = self._devices.get(ordinal)
        return known or self._devices.setdefault(ordinal, self.driver.device(ordinal))

    def resolve(self, problem: Problem, device: Device) -> Decision:
        """The decision for a problem, taken once and logged once. Raises: NoKernelError."""
        key = problem, device.ordinal, self.force
        known = self._decisions.get(key)
        if known is not None:
            return known
        decision = resolve(problem, device, self.installed.packages, self.force)
        self._decisions[key] = decision
        while len(self._decisions) > MOST_DECISIONS:
            self._decisions.popitem(last=False)
        _log(decision, device)
        return decision

    def launch(self, accepted: Accepted, prepared: PreparedLaunch, stream: int) -> None:
        self.driver.launch(prepared, stream)
        self.launches[accepted.entry.name] += 1


_process_lock = threading.Lock()
_process_engine: Engine | None = None


def process_engine() -> Engine:
    """The engine that calls without one of their own share, made at first use."""
    global _process_engine  # noqa: PLW0603  one per process by its meaning
    if _process_engine is None:
        with _process_lock:
            _process_engine = _process_engine or Engine()
    return _process_engine


def _log(decision: Decision, device: Device) -> None:
    problem, chosen = decision.problem, decision.chosen
    _logger.info(
        "%s %s m=%d n=%d k=%d on device %d: %s (grid %d, split %d%s)",
        problem.op,
        problem.format,
        problem.m,
        problem.n,
        problem.k,
        device.ordinal,
        chosen.entry.name,
        chosen.shape.grid,
        chosen.shape.split_k,
        ", forced" if decision.forced else "",
    )
