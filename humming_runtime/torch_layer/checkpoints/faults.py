"""What can be wrong with a checkpoint, and the checks that every reader shares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from humming_runtime.errors import UsageError

Config = Mapping[str, Any]
Tensors = Mapping[str, torch.Tensor]


class CheckpointError(UsageError):
    """A checkpoint that cannot be read, or whose scheme is not supported."""


def check_names(
    tensors: Tensors, required: Iterable[str], optional: Iterable[str], place: str
) -> None:
    """Raises: CheckpointError for tensors that are missing or that nobody would read."""
    needed, known = set(required), {*required, *optional}
    faults = [f"{name} is missing" for name in sorted(needed - tensors.keys())]
    faults += [f"unexpected tensor {name}" for name in sorted(tensors.keys() - known)]
    if faults:
        raise CheckpointError(f"{place}: {'; '.join(faults)}")


def check_tensor(
    tensors: Tensors, name: str, shape: tuple[int, ...], place: str, *, words: bool = False
) -> torch.Tensor:
    """The tensor of that name. words: packed, so int32. Raises: CheckpointError."""
    tensor = tensors[name]
    if words and tensor.dtype != torch.int32:
        raise CheckpointError(f"{place}: {name} is {tensor.dtype}, expected torch.int32")
    if tuple(tensor.shape) != shape:
        found = tuple(tensor.shape)
        raise CheckpointError(f"{place}: {name} has shape {found}, expected {shape}")
    return tensor


def check_order(tensors: Tensors, name: str, k: int, group_size: int | None, place: str) -> None:
    """Is the group of each k, where it is stored, k // group_size? Raises: CheckpointError."""
    index = tensors.get(name)
    if index is None or index.numel() == 0:
        return
    plain = torch.arange(k, device=index.device) // (group_size or k)
    if tuple(index.shape) != (k,) or not torch.equal(index.long(), plain):
        raise CheckpointError(
            f"{place}: {name} reorders k (act-order, desc_act), which this version does not read; "
            "it comes with the act-order feature"
        )


def groups_along(k: int, group_size: int | None) -> int:
    """Scales along k; the last group may be partial."""
    return 1 if group_size is None else -(-k // group_size)


def config_value(config: Config, key: str, kind: type, place: str, default: Any = None) -> Any:
    """Raises: CheckpointError where the key is missing without a default, or of another type."""
    value = config.get(key, default)
    if value is None:
        raise CheckpointError(f"{place}: quantization_config has no {key!r}")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        shown = f"{value!r}, expected {kind.__name__}"
        raise CheckpointError(f"{place}: quantization_config {key!r} is {shown}")
    return value


def check_bits(bits: int, place: str) -> None:
    if bits != 4:
        raise CheckpointError(f"{place}: {bits}-bit weights, this version reads 4 bits")


def group_size_of(value: int, place: str) -> int | None:
    """-1 means one scale a channel: None."""
    if value == -1:
        return None
    if value < 1:
        raise CheckpointError(f"{place}: group_size is {value}, expected -1 or a positive number")
    return value


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
