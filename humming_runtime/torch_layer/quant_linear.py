"""A linear layer over packed weights, for inference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from humming_runtime.errors import UsageError
from humming_runtime.torch_layer import binding
from humming_runtime.torch_layer.checkpoints import Scheme
from humming_runtime.torch_layer.dtypes import exact_cast
from humming_runtime.torch_layer.linear_plan import LinearPlan, gemm, inputs_of
from humming_runtime.torch_layer.packed_weight import PART_NAMES, PackedWeight, empty_packed
from humming_runtime.torch_layer.packing import pack
from humming_runtime.torch_layer.weight_format import WeightFormat


class QuantLinear(nn.Module):
    """y = x B + bias.

    Buffers: weight and, where the format has them, weight_scale, weight_zero, channel_scale, bias.
    The state dict carries format, layout versions and size as a tensor of text (`_extra_state`);
    loading checks it before a buffer is touched. Loading writes in place, so captured graphs see
    the new weights. Devices change as for any module; the dtype is that of the weights and stays.
    """

    weight: torch.Tensor
    weight_scale: torch.Tensor | None
    weight_zero: torch.Tensor | None
    channel_scale: torch.Tensor | None
    bias: torch.Tensor | None

    def __init__(self, packed: PackedWeight, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.form, self.config = packed.form, packed.config
        self.in_features, self.out_features = self.k, self.n = packed.k, packed.n
        self._plan: LinearPlan | None = None
        for name in PART_NAMES:
            self.register_buffer(name, getattr(packed, name))
        if bias is not None:
            if tuple(bias.shape) != (packed.n,):
                raise UsageError(f"bias: shape {tuple(bias.shape)}, expected ({packed.n},)")
            bias = exact_cast(bias.detach(), self.form.activation_dtype, "bias").to(packed.device)
        self.register_buffer("bias", bias)

    @classmethod
    def empty(
        cls,
        form: WeightFormat,
        in_features: int,
        out_features: int,
        *,
        bias: bool = False,
        device: torch.device | str = "meta",
    ) -> QuantLinear:
        """Uninitialised buffers, for load_state_dict."""
        layer = cls(empty_packed(form, out_features, in_features, device))
        if bias:
            layer.bias = torch.empty(out_features, dtype=form.activation_dtype, device=device)
        return layer

    @classmethod
    def from_checkpoint_tensors(
        cls,
        tensors: Mapping[str, torch.Tensor],
        scheme: Scheme,
        activation: torch.dtype,
        device: torch.device | str = "cpu",
        *,
        place: str = "tensors",
    ) -> QuantLinear:
        """tensors: of one module, by names without its prefix (`qweight`, `scales`, `bias`, ...).

        Raises: CheckpointError that begins with `place`, ExactnessError.
        """
        return cls(pack(scheme.source(tensors, place), activation, device), tensors.get("bias"))

    @property
    def packed(self) -> PackedWeight:
        """The weights as they are now; shares the buffers."""
        parts = {name: getattr(self, name) for name in PART_NAMES}
        return PackedWeight(self.form, self.out_features, self.in_features, **parts)

    def forward(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Shapes: x (..., in_features) -> (..., out_features)."""
        if is_compiling():
            return gemm(inputs_of(x, self, self.bias), out)
        return self._bound()(x, self.bias, out)

    def _bound(self) -> LinearPlan:
        """The plan of the buffers as they are; another one where one of them was replaced."""
        plan = self._plan
        if plan is not None:
            buffers = self._buffers
            weight, scale, zero, channel = plan.parts
            if (
                weight is buffers["weight"]
                and scale is buffers["weight_scale"]
                and zero is buffers["weight_zero"]
                and channel is buffers["channel_scale"]
                and plan.plans is binding.plans()
            ):
                return plan
        plan = self._plan = LinearPlan(self.packed)
        return plan

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    def prepare(self, sizes: Iterable[int]) -> None:
        """Choose and load kernels for these m: before a graph is captured, or to fail early."""
        self._bound().prepare(sizes)

    def extra_repr(self) -> str:
        bias = self.bias is not None
        return f"{self.in_features}, {self.out_features}, bias={bias}, {self.config}"

    def get_extra_state(self) -> torch.Tensor:
        return _as_tensor(self._description())

    def set_extra_state(self, state: Any) -> None:
        """Nothing to set: _load_from_state_dict has compared it."""

    def _description(self) -> str:
        return f"{self.config} n={self.out_features} k={self.in_features}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        stored = state_dict.get(f"{prefix}_extra_state")
        if stored is not None:
            text = bytes(stored.tolist()).decode()
            WeightFormat.parse(text.partition(" ")[0])
            if text != self._description():
                raise UsageError(
                    f"{prefix or 'layer'}: state dict holds {text}, layer is {self._description()}"
                )
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _apply(
        self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
    ) -> QuantLinear:
        dtype = self.form.activation_dtype
        wanted = fn(torch.empty(0, dtype=dtype, device=self.weight.device)).dtype
        if wanted != dtype:
            raise UsageError(
                f"QuantLinear {self.config}: cannot become {wanted}, its weights are packed for "
                f"{dtype}; load the checkpoint with {wanted}"
            )

        def keep_dtype(tensor: torch.Tensor) -> torch.Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(keep_dtype, recurse)  # type: ignore[no-untyped-call]
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.form.check_layouts()


def _as_tensor(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)
