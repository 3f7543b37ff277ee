"""One GEMM of a variant on the emulator: the runtime packs arguments, this runs them.

The runtime's GemmPlan, LaunchSlot and tensor maps do the same as before a real launch; only the
driver is another one: it keeps tensor maps as objects and hands the kernel to a Machine.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch

from humming_runtime.contract import launch_shape
from humming_runtime.contract.launch_shape import LaunchShape, argument_bytes, uses_tensor_maps
from humming_runtime.contract.layouts import stored_groups
from humming_runtime.contract.variant_name import Variant
from humming_runtime.gemm_plan import GemmPlan
from humming_runtime.launch_slot import LaunchSlot
from humming_runtime.problem import Device
from humming_runtime.tensor_map import activation_map
from humming_runtime.weight_operands import WeightOperands

from .compile import compile_ptx
from .machine import Launch, Machine
from .memory import UNWRITTEN, VALID, GlobalMemory
from .ptx_text import parse
from .tensor_copy import DeviceTensor
from .translate import Program, translate

MARGIN = 8
"""Elements before and after each row of activations and output that nothing may touch."""
SHARED_LIMIT_BYTES = {
    75: 64 << 10,
    80: 163 << 10,
    86: 99 << 10,
    87: 163 << 10,
    88: 99 << 10,
    89: 99 << 10,
    120: 99 << 10,
    121: 99 << 10,
}
LARGEST_SHARED_BYTES = 227 << 10
MEMORY_BYTES = 1 << 27  # pages are only taken when they are used
_PROGRAMS: dict[str, Program] = {}


def program_of(text: str) -> Program:
    """Translated once for each text."""
    if text not in _PROGRAMS:
        _PROGRAMS[text] = translate(parse(text))
    return _PROGRAMS[text]


class EmulatedDriver:
    """What the runtime needs of a driver to lay a launch out."""

    def __init__(self) -> None:
        self.maps: dict[bytes, DeviceTensor] = {}

    def device(self, ordinal: int) -> Device:
        return Device(ordinal, "emulator", (9, 0), 132, LARGEST_SHARED_BYTES, 228 << 10)

    def encode_tensor_map(self, arguments) -> None:
        """cuTensorMapEncodeTiled's arguments -> an opaque id of 128 bytes at the target."""
        target, data_type, rank, address, sizes, strides, box, steps, interleave, swizzle, *_ = (
            arguments
        )
        if rank.value != 2 or interleave.value or list(steps) != [1, 1]:
            raise NotImplementedError("tensor maps of this kind")
        tensor = DeviceTensor(
            data_type.value, address.value or 0, *sizes, *strides, *box, swizzle.value
        )
        if tensor.address % 16 or tensor.stride_bytes % 16 or max(tensor.box_x, tensor.box_y) > 256:
            raise ValueError(f"cuTensorMapEncodeTiled refuses {tensor}")
        opaque = f"tensor map {len(self.maps)}".encode().ljust(128, b"\0")
        self.maps[opaque] = tensor
        ctypes.memmove(target.value, opaque, 128)


@dataclass
class Outcome:
    """output: (m, n) in the activation dtype. turns: how often a warp had its turn."""

    output: torch.Tensor
    shape: LaunchShape
    turns: int
    unwritten_reads: int


def shape_for(
    variant: Variant,
    size: tuple[int, int, int],
    split_k: int,
    ctas: int,
    stages: int | None,
    whole_tiles: int,
) -> LaunchShape:
    """The launch that the runtime would choose among, with what is asked for."""
    m, n, _k = size
    capability = int("".join(c for c in variant.target if c.isdigit()))
    limit = SHARED_LIMIT_BYTES.get(capability, LARGEST_SHARED_BYTES)
    chosen = variant if stages is None else replace(variant, stages=stages)
    if variant.schedule == "decode":
        shape = launch_shape.decode_shape(chosen, size, split_k, ctas, limit - 1024)
        if shape is None:
            raise ValueError(f"{size} does not fit into shared memory")
    else:
        shape = launch_shape.tiled_shape(variant, m, n, split_k, whole_tiles)
    if shape.shared_bytes > limit:
        raise ValueError(f"{shape.shared_bytes} bytes of shared memory, limit {limit}")
    return shape


def run_gemm(
    variant: Variant | str,
    x: torch.Tensor,
    packed,
    *,
    bias: torch.Tensor | None = None,
    tensor_scale: float | None = None,
    split_k: int = 1,
    ctas: int = 4,
    stages: int | None = None,
    whole_tiles: int = 0,
    seed: int | None = 0,
    ptx: str | None = None,
    strict_shared: bool = False,
) -> Outcome:
    """x (m, k) times a PackedWeight on the CPU.

    ctas: most CTAs of a decode launch. stages: depth of a decode ring, at most the variant's.
    whole_tiles: prefill with split_k > 1. ptx: text in place of the variant's own.
    Raises: EmulationError for a fault of the kernel.
    """
    if isinstance(variant, str):
        variant = Variant.parse(variant)
    m, k = x.shape
    n = packed.n
    program = program_of(compile_ptx(variant) if ptx is None else ptx)
    shape = shape_for(variant, (m, n, k), split_k, ctas, stages, whole_tiles)
    driver, memory = EmulatedDriver(), GlobalMemory(MEMORY_BYTES)
    operands = _operands(memory, packed, bias, tensor_scale)
    activation, activation_stride = _rows(memory, "activations", m, k, x)
    output, output_stride = _rows(memory, "output", m, n, None)
    engine = SimpleNamespace(driver=driver, device=driver.device)
    plan = GemmPlan(operands, 0, engine)
    accepted = SimpleNamespace(variant=variant, shape=shape)
    tensor = activation_map(variant, 0, k, m, k) if uses_tensor_maps(variant) else None
    function = SimpleNamespace(handle=0, context=0)
    slot = LaunchSlot(driver, function, shape, plan._template(accepted, m), tensor)
    slot.patch(activation, activation_stride, output, output_stride, None)
    late = ()
    if variant.schedule in ("decode", "prefill"):
        row_bytes = activation_stride * 2
        late = tuple((activation + row * row_bytes, k * 2) for row in range(m))
    launch = Launch(
        parameters=slot.prepared.arguments(argument_bytes(variant)),
        grid=shape.grid,
        threads=shape.threads,
        shared_bytes=shape.shared_bytes,
        cluster=shape.cluster,
        tensor_maps=driver.maps,
        late_inputs=late,
    )
    machine = Machine(program, memory, launch, seed, strict_shared=strict_shared)
    machine.run()
    raw = memory.bytes_at(output, ((m - 1) * output_stride + n) * 2).view(np.uint16)
    rows = np.lib.stride_tricks.as_strided(raw, (m, n), (output_stride * 2, 2)).copy()
    _require_written(memory, output, output_stride, m, n)
    values = torch.from_numpy(rows.view(np.int16)).view(x.dtype)
    return Outcome(values, shape, machine.turns, machine.unwritten_reads)


def _require_written(memory: GlobalMemory, address: int, stride: int, m: int, n: int) -> None:
    for row in range(m):
        start = address - memory.base + row * stride * 2
        if (memory.state[start : start + n * 2] != VALID).any():
            missing = int((memory.state[start : start + n * 2 : 2] != VALID).sum())
            raise AssertionError(f"row {row} of the output: {missing} of {n} elements not written")


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().view(torch.uint8).numpy()


def _rows(
    memory: GlobalMemory, name: str, rows: int, columns: int, values: torch.Tensor | None
) -> tuple[int, int]:
    """(address, stride in elements) of a matrix; margins around its rows are no buffer."""
    stride = columns + 2 * MARGIN
    start = memory.allocate(name, rows * stride * 2, 0) + MARGIN * 2
    for row in range(rows):
        at = start + row * stride * 2
        memory.mark(at, columns * 2, UNWRITTEN if values is None else VALID)
        if values is not None:
            memory.bytes_at(at, columns * 2)[:] = _bytes(values[row])
    return start, stride


def _operands(memory: GlobalMemory, packed, bias, tensor_scale) -> WeightOperands:
    addresses = {
        name: memory.upload(name, _bytes(getattr(packed, name)))
        for name in ("weight", "weight_scale", "weight_zero", "channel_scale")
        if getattr(packed, name) is not None
    }
    if bias is not None:
        addresses["bias"] = memory.upload("bias", _bytes(bias))
    if tensor_scale is not None:
        addresses["tensor_scale"] = memory.upload("tensor_scale", np.float32([tensor_scale]))
    form = packed.form
    return WeightOperands(
        "dense", form.activation, form.weight, form.scale, form.layout, packed.n, packed.k,
        stored_groups(packed.k, form.scale.group_size), **addresses,
    )  # fmt: skip
