"""Decision -> kernel handle: the file is checked before the driver sees it, once per device."""

from __future__ import annotations

import threading

from humming_runtime.cubin_file import read_cubin
from humming_runtime.driver import Driver, Function
from humming_runtime.errors import CaptureError, DriverError
from humming_runtime.problem import Device
from humming_runtime.resolve import Accepted, package_for


class Loader:
    """Loaded kernels by (file hash, device). Thread-safe; a failed load leaves nothing behind."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._functions: dict[tuple[str, int], Function] = {}

    def loaded(self, accepted: Accepted, device: Device) -> Function | None:
        """The handle if it is loaded; no lock, no driver call."""
        return self._functions.get((accepted.entry.sha256, device.ordinal))

    def load(self, accepted: Accepted, device: Device, stream: int | None = None) -> Function:
        """Load at first use. stream: refuse while it is captured (0 is the default stream).

        Raises: IntegrityError, CaptureError, DriverError.
        """
        known = self.loaded(accepted, device)
        if known is not None:
            return known
        if stream is not None and self._driver.is_capturing(stream, device.ordinal):
            message = f"{accepted.entry.name}: not loaded yet, and the stream is being captured"
            raise CaptureError(message, "call prepare() with these m before the capture")
        with self._lock:
            known = self.loaded(accepted, device)
            if known is None:
                known = self._load(accepted, device)
                self._functions[accepted.entry.sha256, device.ordinal] = known
            return known

    def _load(self, accepted: Accepted, device: Device) -> Function:
        image = read_cubin(accepted.package.cubin(accepted.entry), accepted.entry)
        try:
            return self._driver.load(image, accepted.variant.symbol, device)
        except DriverError as error:
            message = f"{_context(accepted, device, self._driver)}: {error.message}"
            hint = error.hint or f"pip install --force-reinstall {package_for(device)}"
            raise DriverError(message, error.code, hint) from error


def _context(accepted: Accepted, device: Device, driver: Driver) -> str:
    """What was loaded where: all that a report needs."""
    major, minor = driver.version()
    capability = ".".join(str(part) for part in device.capability)
    manifest = accepted.package.manifest
    return (
        f"{accepted.entry.name} (target {accepted.variant.target}, CUDA {manifest.cuda}, "
        f"{manifest.package} {manifest.version}) on device {device.ordinal} ({device.name}, "
        f"capability {capability}, driver for CUDA {major}.{minor})"
    )
