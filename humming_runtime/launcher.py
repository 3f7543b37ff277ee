"""One kernel with its constant arguments, ready to be launched again and again.

The extension does this without the interpreter in the way (native/launch.c); where it is not
installed, or HUMMING_PURE_PYTHON is set, Python does the same. Both give the driver the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from humming_runtime.contract.arguments import offsets
from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.driver import Driver, Function
from humming_runtime.launch_counter import LaunchCounter
from humming_runtime.launch_slot import LaunchSlot
from humming_runtime.tensor_map import TensorMap

PURE_VARIABLE = "HUMMING_PURE_PYTHON"
_OFFSETS = offsets()
_PATCHED = ("activation", "activation_stride", "output", "output_stride", "bias")


class Launch(Protocol):
    """Thread-safe; arguments belong to the call alone."""

    def launch(
        self,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        bias: int | None,
        stream: int,
        overlap: bool,
        /,
    ) -> tuple[str, int] | None:
        """Enqueue. Returns the driver's call that failed and its code. Units: addresses, elements.

        bias: None for the template's own. overlap: see Driver.launch.
        """


def extension() -> Any:
    """The module humming_runtime._native, or None."""
    if os.environ.get(PURE_VARIABLE):
        return None
    try:
        from humming_runtime import _native  # noqa: PLC0415  optional
    except ImportError:
        return None
    return _native


class PythonLaunch:
    """By way of ctypes: a slot is taken for the time of a call, so that threads share none."""

    def __init__(
        self,
        make: Callable[[], LaunchSlot],
        driver: Driver,
        counter: LaunchCounter,
        *,
        can_overlap: bool,
    ) -> None:
        self._make = make
        self._count = counter.add
        self._launch = driver.launch
        self._can_overlap = can_overlap
        self._idle: list[LaunchSlot] = []

    def launch(
        self,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        bias: int | None,
        stream: int,
        overlap: bool,
        /,
    ) -> None:
        """See Launch. Raises: DriverError."""
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = self._make()
        slot.patch(activation, activation_stride, output, output_stride, bias)
        self._launch(slot.prepared, stream, overlap=overlap and self._can_overlap)
        self._idle.append(slot)
        self._count()


def make_launch(
    driver: Driver,
    function: Function,
    shape: LaunchShape,
    template: bytes,
    activations: TensorMap | None,
    counter: LaunchCounter,
    *,
    can_overlap: bool,
) -> Launch:
    """template: the argument struct, all that does not change. activations: see LaunchSlot."""
    native = extension()
    if native is None:
        return PythonLaunch(
            lambda: LaunchSlot(driver, function, shape, template, activations),
            driver,
            counter,
            can_overlap=can_overlap,
        )
    at = [_OFFSETS[name] for name in _PATCHED]
    at.append(-1 if activations is None else _OFFSETS["activation_map"])
    launch: Launch = native.Launch(
        driver.launch_addresses,
        (function.handle, function.context),
        (shape.grid, shape.threads, shape.shared_bytes, shape.cluster, can_overlap),
        template,
        tuple(at),
        (0,) * 9 if activations is None else activations.encoding(),
        counter,
        counter.address,
    )
    return launch


class Generation:
    """Counts where every choice of kernels became void; the extension has its own for its calls."""

    def __init__(self) -> None:
        self._native = extension()
        self._value = 0

    @property
    def value(self) -> int:
        value: int = self._value if self._native is None else self._native.generation()
        return value

    def advance(self) -> None:
        if self._native is None:
            self._value += 1
        else:
            self._native.invalidate()


choices = Generation()
"""Of this process: plans of every engine choose again after it advances."""
