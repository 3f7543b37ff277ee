"""Kernels of the installed packages by format, and layers in the formats that they take."""

from __future__ import annotations

from reference import Layer, random_layer

from humming_runtime.contract.targets import incompatibility, is_test_target
from humming_runtime.problem import Problem
from humming_runtime.torch_layer import PackedWeight, WeightFormat, pack_codes

SIZES = (8, 16, 24, 48, 64, 80, 192, 320, 576, 1152, 2112, 2880, 4304, 7000, 7168, 7392, 16512)
LARGE = 28672
ROWS = (1, 2, 15, 16, 17, 33, 63, 64, 65, 127, 128, 257, 1024, 4096)


class InstalledKernels:
    """What device 0 can load; test targets too, they run when forced."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.device = engine.device(0)
        self.variants = {
            entry.name: variant
            for package in engine.installed.packages
            for entry, variant in package.kernels
            if incompatibility(variant.target, self.device.capability) is None
        }

    def by_format(self) -> dict[WeightFormat, list[str]]:
        """Names by format, sorted."""
        formats: dict[WeightFormat, list[str]] = {}
        for name, variant in sorted(self.variants.items()):
            form = WeightFormat(variant.activation, variant.scale, variant.weight, variant.layout)
            formats.setdefault(form, []).append(name)
        return formats

    def free_formats(self) -> list[WeightFormat]:
        """Formats with a kernel that is chosen without force."""
        return [
            form
            for form, names in self.by_format().items()
            if any(not self._is_test_target(name) for name in names)
        ]

    def takes(self, name: str, form: WeightFormat, m: int, n: int, k: int) -> bool:
        """Does resolve accept this size when the kernel is forced?"""
        problem = Problem("dense", form.activation, form.weight, form.scale, form.layout, m, n, k)
        self.engine.force = name
        return bool(self.engine.explain(problem, self.device).accepted)

    def _is_test_target(self, name: str) -> bool:
        variant = self.variants[name]
        return is_test_target(variant.tier, variant.target)


def shapes() -> list[tuple[int, int]]:
    """(n, k): every size of the list once as n and once as k, far apart; then the largest."""
    count = len(SIZES)
    pairs = [(SIZES[i], SIZES[(i * 5 + 7) % count]) for i in range(count)]
    return [*pairs, (LARGE, 64), (48, LARGE), (2112, 7168)]


def make_layer(form: WeightFormat, n: int, k: int, generator) -> tuple[Layer, PackedWeight]:
    """Random weights on the generator's device."""
    layer = random_layer(
        n,
        k,
        form.group_size,
        form.activation_dtype,
        zero_point=bool(form.scale.zero_point),
        generator=generator,
        weight=form.weight,
        scale_dtype=form.scale.dtype if form.group_size else None,
        float_zero=form.scale.zero_point == "f",
    )
    return layer, packed_of(layer)


def packed_of(layer: Layer, device=None) -> PackedWeight:
    return pack_codes(
        layer.codes,
        layer.scale,
        layer.zero,
        group_size=layer.group_size,
        activation=layer.activation,
        device=device,
        weight=layer.weight,
        scale_dtype=layer.scale_dtype,
        second_scale=layer.second,
    )
