"""Which kernel wheels make one index: each is checked, then all of them against each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from build_tools.errors import Fault, UsageError
from build_tools.release.kernel_wheel import KernelWheel, KernelWheelError, open_kernel_wheel
from build_tools.release.variant_metadata import Variant, label_of
from build_tools.release.variant_properties import (
    NoWordError,
    Route,
    offered_words,
    routes,
    shown,
    sm_arch_words,
)
from humming_runtime.contract.targets import target_capability
from humming_runtime.cuda_support import major_of

_MAKE_WHEELS = "humming-build --arch all -o dist"
_ONE_RELEASE = ("version", "contract", "cuda")


@dataclass(frozen=True)
class VariantInput:
    """A kernel wheel and the variant that it becomes."""

    wheel: KernelWheel
    variant: Variant


def read_inputs(wheels: Sequence[Path]) -> tuple[VariantInput, ...]:
    """In the order of labels. Raises: UsageError with every fault; DiskError."""
    inputs: list[VariantInput] = []
    faults: list[Fault] = []
    for path in wheels:
        try:
            wheel = open_kernel_wheel(path)
            inputs.append(VariantInput(wheel, _variant(wheel)))
        except KernelWheelError as error:
            faults.append(Fault(str(path), str(error), _MAKE_WHEELS))
    if not wheels:
        faults.append(Fault("WHEEL", "0 kernel wheels are given, at least 1 is needed"))
    if faults:
        raise UsageError(faults)
    inputs.sort(key=lambda item: item.variant.label)
    faults = [*_label_faults(inputs), *_release_faults(inputs)] or _reach_faults(inputs)
    if faults:
        raise UsageError(faults)
    return tuple(inputs)


def routes_of(inputs: Sequence[VariantInput]) -> tuple[Route, ...]:
    """For every capability the wheel that it gets."""
    words = {item.variant.label: item.variant.sm_arch for item in inputs}
    return routes(words, {item.variant.label: item.wheel.targets for item in inputs})


def _variant(wheel: KernelWheel) -> Variant:
    manifest = wheel.manifest
    if re.fullmatch(r"\d+\.\d+", manifest.cuda) is None:
        raise KernelWheelError(f"cuda is {manifest.cuda!r}, no release like 13.0")
    try:
        words = sm_arch_words(manifest.arch, wheel.targets)
        return Variant(label_of(manifest), words, f"{major_of(manifest.cuda)}.0")
    except (NoWordError, ValueError) as error:
        raise KernelWheelError(str(error)) from error


def _label_faults(inputs: Sequence[VariantInput]) -> list[Fault]:
    faults = []
    for before, item in pairwise(inputs):
        if item.variant.label == before.variant.label:
            message = f"label {item.variant.label!r} is that of {before.wheel.path} as well"
            faults.append(Fault(str(item.wheel.path), message, "name one wheel an arch"))
    return faults


def _release_faults(inputs: Sequence[VariantInput]) -> list[Fault]:
    """One version and contract; and one CUDA release, since installers compare
    cuda_version_lower_bound before sm_arch: the later one would win over the GPU's own wheel.
    """
    first = inputs[0].wheel
    faults = []
    for item in inputs[1:]:
        for key in _ONE_RELEASE:
            theirs, ours = getattr(item.wheel.manifest, key), getattr(first.manifest, key)
            if theirs != ours:
                message = f"{key} is {theirs}, {first.path} has {ours}"
                faults.append(Fault(str(item.wheel.path), message, _MAKE_WHEELS))
    return faults


def _reach_faults(inputs: Sequence[VariantInput]) -> list[Fault]:
    """A wheel that its own GPU never gets: another one has the same word and an earlier label."""
    chosen = {route.capability: route.label for route in routes_of(inputs)}
    faults = []
    for item in inputs:
        own = target_capability(item.wheel.manifest.arch)
        label = chosen[own]
        if label != item.variant.label:
            word = offered_words(own)[0]
            message = f"never installed, capability {shown(own)} takes {label} for its {word!r}"
            faults.append(Fault(str(item.wheel.path), message, "leave one of the two wheels out"))
    return faults
