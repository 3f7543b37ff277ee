"""One class per cause. Messages say where, what, the value and the limit; `hint` is a command."""

from __future__ import annotations

from typing import ClassVar

from humming_runtime.contract.exit_codes import RuntimeExit


class HummingError(Exception):
    """Base of every error that a user can cause or meet."""

    exit_code: ClassVar[RuntimeExit] = RuntimeExit.BUG

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")
        self.message = message
        self.hint = hint


class UsageError(HummingError):
    """An argument that no kernel could take."""

    exit_code = RuntimeExit.USAGE


class CaptureError(HummingError):
    """A kernel would have to be loaded while a CUDA graph is captured."""

    exit_code = RuntimeExit.USAGE


class NoKernelError(HummingError):
    """No installed kernel takes the problem; the message lists the nearest, each with a reason."""

    exit_code = RuntimeExit.KERNELS_MISSING


class NoDeviceError(HummingError):
    """No driver, or no device."""

    exit_code = RuntimeExit.NO_DRIVER_OR_DEVICE


class DriverError(HummingError):
    """A call of the driver failed. `code` is the CUresult."""

    exit_code = RuntimeExit.NO_DRIVER_OR_DEVICE

    def __init__(self, message: str, code: int, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.code = code


class PackageError(HummingError):
    """A kernel package is incomplete: no manifest, files missing or of another size."""

    exit_code = RuntimeExit.INTEGRITY


class IntegrityError(HummingError):
    """A cubin is not the file that its manifest describes."""

    exit_code = RuntimeExit.INTEGRITY


class ContractError(HummingError):
    """A kernel package was built for another runtime."""

    exit_code = RuntimeExit.CONTRACT
