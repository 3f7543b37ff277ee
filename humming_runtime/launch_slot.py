"""One launch of a plan laid out in memory: what changes from call to call is patched in place."""

from __future__ import annotations

from humming_runtime.contract.launch_shape import LaunchShape
from humming_runtime.driver import Driver, Function
from humming_runtime.prepared_launch import PreparedLaunch
from humming_runtime.tensor_map import MapEncoder, TensorMap


class LaunchSlot:
    """A prepared launch and the fields that a call patches. Used by one thread at a time.

    activations: their tensor map where the schedule uses one; address and stride are the call's.
    """

    def __init__(
        self,
        driver: Driver,
        function: Function,
        shape: LaunchShape,
        template: bytes,
        activations: TensorMap | None,
    ) -> None:
        self.prepared = PreparedLaunch(function, shape, template)
        self._activation = self.prepared.field("activation")
        self._activation_stride = self.prepared.field("activation_stride")
        self._output = self.prepared.field("output")
        self._output_stride = self.prepared.field("output_stride")
        self._bias = self.prepared.field("bias")
        self._own_bias = self._bias.value
        self._encoded = (0, 0)
        self._encoder: MapEncoder | None = None
        if activations is not None:
            target = self.prepared.field_address("activation_map")
            self._encoder = MapEncoder(driver, activations, target)

    def patch(
        self,
        activation: int,
        activation_stride: int,
        output: int,
        output_stride: int,
        bias: int | None,
    ) -> None:
        """Arguments of the next launch. Units: addresses, strides in elements."""
        self._activation.value = activation
        self._activation_stride.value = activation_stride
        self._output.value = output
        self._output_stride.value = output_stride
        self._bias.value = self._own_bias if bias is None else bias
        if self._encoder is not None and self._encoded != (activation, activation_stride):
            self._encoder.encode(activation, activation_stride * 2)
            self._encoded = (activation, activation_stride)
