"""What one process holds: installed packages, driver, loaded kernels, decisions, counters."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace

from humming_runtime import batch_invariance, launcher
from humming_runtime.contract.tuning import TuningTable
from humming_runtime.discover import Installed, discover
from humming_runtime.driver import Driver
from humming_runtime.launch_counter import LaunchCounter
from humming_runtime.load import Loader
from humming_runtime.problem import Device, Problem
from humming_runtime.resolve import (
    Decision,
    Shortlist,
    Survey,
    decide,
    expectation,
    judge,
    refusal,
    shortlist,
)
from humming_runtime.tuning import read_override, tables_for

FORCE_VARIABLE = "HUMMING_FORCE"
MOST_DECISIONS = 4096
_logger = logging.getLogger("humming")


class Engine:
    """Owner of everything that outlives a call. CUDA is first touched by device() or a launch.

    force: name of the variant that every call must run; HUMMING_FORCE sets it from outside.
    batch_invariant: see batch_invariance.py; None: as HUMMING_BATCH_INVARIANT=1 says.
    """

    def __init__(
        self,
        installed: Installed | None = None,
        driver: Driver | None = None,
        force: str | None = None,
        *,
        batch_invariant: bool | None = None,
    ) -> None:
        self.installed = discover() if installed is None else installed
        self.generation = 0
        self._force = force or os.environ.get(FORCE_VARIABLE) or None
        if batch_invariant is None:
            batch_invariant = os.environ.get(batch_invariance.VARIABLE, "0") not in ("", "0")
        self.batch_invariant = batch_invariant
        self._driver = driver
        self._loader: Loader | None = None
        self._lock = threading.Lock()
        self._devices: dict[int, Device] = {}
        self._counters: dict[str, LaunchCounter] = {}
        self._decisions: dict[tuple[Problem, Device, str | None], Decision] = {}
        self._tables: dict[Device, tuple[TuningTable, ...]] = {}
        self._shortlists: dict[tuple[object, ...], Shortlist] = {}
        self._logged: set[tuple[object, ...]] = set()
        for fault in self.installed.faults:
            _logger.warning("kernel package is not used: %s", fault)

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

    @property
    def force(self) -> str | None:
        """Name of the variant that every call must run; None for the free choice."""
        return self._force

    @force.setter
    def force(self, name: str | None) -> None:
        with self._lock:
            self._force = name
            self._decisions.clear()
            self._shortlists.clear()
            self.generation += 1  # plans choose again
            launcher.choices.advance()

    def device(self, ordinal: int) -> Device:
        """Facts of a device, read once."""
        known = self._devices.get(ordinal)
        return known or self._devices.setdefault(ordinal, self.driver.device(ordinal))

    def resolve(self, problem: Problem, device: Device, force: str | None = None) -> Decision:
        """The decision for a problem, taken once and logged once.

        force: name of the variant that must run, in place of the engine's. Raises: NoKernelError.
        """
        key = problem, device, force
        known = self._decisions.get(key)
        if known is not None:
            return known
        generation, force = self.generation, force or self._force
        kernels = self._shortlist(problem, device, force)
        if self.batch_invariant and force is None:
            decision = self._invariant_decision(problem, device, kernels)
        else:
            packages, tables = self.installed.packages, self.tables(device)
            decision = decide(problem, device, packages, kernels, force, tables)
        with self._lock:
            if generation == self.generation:
                self._decisions[key] = decision
            while len(self._decisions) > MOST_DECISIONS:
                self._decisions.pop(next(iter(self._decisions)))
        self._log(decision, device)
        return decision

    def explain(self, problem: Problem, device: Device) -> Survey:
        """Every kernel judged: what would run, best first, and what would not with its reason."""
        kernels = self._shortlist(problem, device, self._force)
        if self.batch_invariant and self._force is None:
            order = batch_invariance.chosen_order(problem, device, kernels)
            if order is not None:
                return batch_invariance.restricted(problem, device, kernels, order)
        return judge(problem, device, kernels, self.tables(device))

    def _invariant_decision(self, problem: Problem, device: Device, kernels: Shortlist) -> Decision:
        """Of the one order of this layer. Raises: NoKernelError."""
        order = batch_invariance.chosen_order(problem, device, kernels)
        packages = self.installed.packages
        if order is None:
            return decide(problem, device, packages, kernels)  # which raises
        limit = batch_invariance.most_rows(problem, device, kernels, order)
        asked = problem
        if limit is not None and problem.m > limit:
            asked = replace(problem, m=limit)
        found = batch_invariance.restricted(asked, device, kernels, order)
        if not found.accepted:
            raise refusal(problem, device, packages, found)
        chosen, *others = found.accepted
        return Decision(problem, chosen, tuple(others), found.rejected, rows_at_once=limit)

    def tables(self, device: Device) -> tuple[TuningTable, ...]:
        """Measured choices for a device. Raises: UsageError for what HUMMING_TUNING names."""
        known = self._tables.get(device)
        if known is None:
            shipped = [t for package in self.installed.packages for t in package.manifest.tuning]
            known = self._tables.setdefault(device, tables_for(device, shipped, read_override()))
        return known

    def counter(self, name: str) -> LaunchCounter:
        """Launches of one variant."""
        return self._counters.get(name) or self._counters.setdefault(name, LaunchCounter())

    def launches(self) -> dict[str, int]:
        """Launches so far by variant name, sorted."""
        return {name: counter.value for name, counter in sorted(self._counters.items())}

    def _shortlist(self, problem: Problem, device: Device, force: str | None) -> Shortlist:
        """Judged once for each format; there are as many as the packages have, and few more."""
        key = problem.op, problem.format, problem.layout, device, force
        known = self._shortlists.get(key)
        if known is None:
            known = shortlist(problem, device, self.installed.packages, force)
            if len(self._shortlists) < MOST_DECISIONS:
                self._shortlists[key] = known
        return known

    def _log(self, decision: Decision, device: Device) -> None:
        """Once for each kernel that a layer shape gets, with the m that first led to it."""
        problem, chosen = decision.problem, decision.chosen
        key = problem.op, problem.format, problem.n, problem.k, device.ordinal, chosen.entry.name
        with self._lock:
            if key in self._logged or len(self._logged) >= MOST_DECISIONS:
                return
            self._logged.add(key)
        _logger.info(
            "%s %s n %d k %d on device %d, from m %d: %s (split %d, %s%s)",
            problem.op,
            problem.format,
            problem.n,
            problem.k,
            device.ordinal,
            problem.m,
            chosen.entry.name,
            chosen.shape.split_k,
            expectation(chosen),
            ", forced" if decision.forced else "",
        )


_process_lock = threading.Lock()
_process_engine: Engine | None = None


def process_engine() -> Engine:
    """The engine that calls without one of their own share, made at first use."""
    global _process_engine  # noqa: PLW0603  one per process by its meaning
    if _process_engine is None:
        with _process_lock:
            _process_engine = _process_engine or Engine()
    return _process_engine
