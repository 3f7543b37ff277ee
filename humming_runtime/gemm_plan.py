"""One layer's constant operands bound on one device; a call adds activations, output, stream.

Nothing is shared between launches: arguments go by value, reductions stay inside a cluster.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from humming_runtime.contract.arguments import pack_into, struct_size_bytes
from humming_runtime.contract.variant_name import ScaleScheme, Variant
from humming_runtime.driver import Function, PreparedLaunch
from humming_runtime.engine import Engine
from humming_runtime.errors import UsageError
from humming_runtime.problem import Problem
from humming_runtime.resolve import Accepted
from humming_runtime.tensor_map import (
    activation_map,
    encode,
    scale_map,
    uses_tensor_maps,
    weight_map,
    zero_map,
)

MOST_SIZES = 512
"""Decisions that a plan remembers, by m; the oldest goes first."""
_OVERLAP_FROM = (9, 0)


@dataclass(frozen=True)
class WeightOperands:
    """What a layer keeps: format, size and device addresses (0 = absent).

    Shapes: as in docs/contracts.md. groups: scale groups along k as stored.
    """

    op: str
    activation: str
    weight_dtype: str
    scale: ScaleScheme
    layout: str
    n: int
    k: int
    groups: int
    weight: int
    weight_scale: int = 0
    weight_zero: int = 0
    channel_scale: int = 0
    tensor_scale: int = 0
    bias: int = 0

    def problem(self, m: int) -> Problem:
        return Problem(
            self.op, self.activation, self.weight_dtype, self.scale, self.layout, m, self.n, self.k
        )


@dataclass(frozen=True)
class _Sized:
    """What does not change between calls with one m."""

    accepted: Accepted
    function: Function
    template: bytes


class GemmPlan:
    """Launches one layer on one device. Thread-safe.

    Raises: NoKernelError, IntegrityError, DriverError at the first call of an m; CaptureError where
    that call is inside a stream capture.
    """

    def __init__(self, operands: WeightOperands, ordinal: int, engine: Engine) -> None:
        check_operands(operands)
        self.operands = operands
        self.device = engine.device(ordinal)
        self._engine = engine
        self._sizes: OrderedDict[int, _Sized] = OrderedDict()
        self._can_overlap = self.device.capability >= _OVERLAP_FROM

    def launch(
        self,
        m: int,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        stream: int,
        *,
        overlap: bool = True,
        bias: int | None = None,
    ) -> None:
        """Enqueue C = A B on `stream`; m = 0 does nothing.

        Units: addresses; strides in elements. bias: address in place of the layer's own.
        overlap: see PreparedLaunch.
        """
        if m == 0:
            return
        sized = self._sizes.get(m) or self._add(m, stream)
        variant = sized.accepted.variant
        arguments = bytearray(sized.template)
        values: dict[str, int | bytes] = {
            "activation": activation,
            "activation_stride": activation_stride,
            "output": output,
            "output_stride": output_stride,
        }
        if bias is not None:
            values["bias"] = bias
        if uses_tensor_maps(variant):
            tensor = activation_map(variant, activation, activation_stride, m, self.operands.k)
            values["activation_map"] = encode(self._engine.driver, tensor)
        pack_into(arguments, values)
        prepared = PreparedLaunch(
            sized.function,
            sized.accepted.shape,
            bytes(arguments),
            overlap=overlap and self._can_overlap,
        )
        self._engine.launch(sized.accepted, prepared, stream)

    def prepare(self, sizes: Iterable[int]) -> None:
        """Choose and load the kernels for these m now, so that no later call has to."""
        for m in sizes:
            if m > 0 and m not in self._sizes:
                self._add(m, None)

    def kernel(self, m: int) -> str:
        """Name of the variant that a call with `m` runs."""
        return (self._sizes.get(m) or self._add(m, None)).accepted.entry.name

    def _add(self, m: int, stream: int | None) -> _Sized:
        accepted = self._engine.resolve(self.operands.problem(m), self.device).chosen
        function = self._engine.loader.load(accepted, self.device, stream)
        sized = _Sized(accepted, function, self._template(accepted, m))
        self._sizes[m] = sized
        while len(self._sizes) > MOST_SIZES:
            self._sizes.popitem(last=False)
        return sized

    def _template(self, accepted: Accepted, m: int) -> bytes:
        given, shape = self.operands, accepted.shape
        buffer = bytearray(struct_size_bytes())
        values: dict[str, int | bytes] = {
            "weight": given.weight,
            "weight_scale": given.weight_scale,
            "weight_zero": given.weight_zero,
            "channel_scale": given.channel_scale,
            "tensor_scale": given.tensor_scale,
            "bias": given.bias,
            "m": m,
            "n": given.n,
            "k": given.k,
            "groups": given.groups,
            "group_size": given.scale.group_size or 0,
            "split_k": shape.split_k,
            "whole_tiles": shape.whole_tiles,
            "stages": shape.stages,
        }
        if uses_tensor_maps(accepted.variant):
            values |= self._weight_maps(accepted.variant)
        pack_into(buffer, values)
        return bytes(buffer)

    def _weight_maps(self, variant: Variant) -> dict[str, bytes]:
        given, driver = self.operands, self._engine.driver
        maps = {"weight_map": weight_map(variant, given.weight, given.n, given.k)}
        if variant.scale.group_size is not None:
            maps["scale_map"] = scale_map(variant, given.weight_scale, given.n, given.groups)
            if variant.scale.zero_point:
                maps["zero_map"] = zero_map(variant, given.weight_zero, given.n, given.groups)
        return {name: encode(driver, tensor) for name, tensor in maps.items()}


def check_operands(operands: WeightOperands) -> None:
    """Do the addresses fit the format? Raises: UsageError that names the operand."""
    grouped = operands.scale.group_size is not None
    needed = {
        "weight": True,
        "weight_scale": grouped,
        "weight_zero": bool(operands.scale.zero_point),
    }
    for name, is_needed in needed.items():
        address = getattr(operands, name)
        if is_needed and not address:
            raise UsageError(f"{name}: missing, format {operands.problem(1).format} needs it")
        if address % 16:
            raise UsageError(f"{name}: address is no multiple of 16 bytes ({address:#x})")
    for name in ("n", "k"):
        value = getattr(operands, name)
        if value < 1 or value % 8:
            raise UsageError(f"{name} is {value}, no positive multiple of 8")
