"""Every installed kernel, forced by name, against float64 over odd shapes.

What surrounds activations and output is NaN: a read or write outside the rows shows.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from installed_kernels import ROWS, make_layer, packed_of, shapes  # noqa: E402
from reference import bound, dequantize, possible_weights, relative_bound  # noqa: E402

from humming_runtime.discover import discover  # noqa: E402
from humming_runtime.torch_layer import binding, matmul  # noqa: E402

pytestmark = pytest.mark.gpu
MARGIN = 8  # elements: 16 bytes, so that rows stay aligned
MOST_ELEMENTS = 1 << 27  # of activations or outputs, with float64 of each beside them


def installed_formats() -> list[str]:
    """`f16_u4_g128f16` of every kernel of the installed packages; needs no device."""
    packages = discover().packages
    return sorted({variant.format for package in packages for _, variant in package.kernels})


def rows_of(place: int, n: int, k: int) -> list[int]:
    """A few m of a shape: two for decode, two of any kind; over all shapes every m occurs."""
    chosen = {(1, 2, 7, 8)[place % 4], (9, 15, 16, 33)[place % 4]}
    chosen |= {ROWS[place % len(ROWS)], ROWS[(3 * place + 5) % len(ROWS)]}
    return sorted(m for m in chosen if m * max(n, k) <= MOST_ELEMENTS)


class Expected:
    """x and its exact product, made once for all kernels of a format."""

    def __init__(self, layer, m, with_bias, generator) -> None:
        self.layer, self.m = layer, m
        wide = torch.full(
            (m + 1, layer.k + 2 * MARGIN), torch.nan, dtype=layer.activation, device="cuda"
        )
        self.x = wide[:m, MARGIN:-MARGIN]
        self.x.copy_(torch.randn(m, layer.k, generator=generator, device="cuda"))
        self.bias = None
        if with_bias:
            bias = torch.randn(layer.n, generator=generator, device="cuda")
            self.bias = bias.to(layer.activation)
        rows = self.x.double()
        offset = torch.zeros((), device="cuda") if self.bias is None else self.bias.double()
        self.possible = []
        for weight in possible_weights(layer):
            wanted = rows @ weight + offset
            magnitude = rows.abs() @ weight.abs() + offset.abs()
            self.possible.append((wanted, bound(wanted, magnitude, layer)))

    def fault(self, packed) -> str | None:
        """Run the forced kernel. Returns: what is wrong, None if nothing is."""
        m, n = self.m, self.layer.n
        wide = torch.full(
            (m + 1, n + 2 * MARGIN), torch.nan, dtype=self.layer.activation, device="cuda"
        )
        out = wide[:m, MARGIN:-MARGIN]
        matmul(self.x, packed, self.bias, out)
        faults = [self._fault(out, *possible) for possible in self.possible]
        if all(faults):
            return faults[0]
        out.fill_(torch.nan)
        return None if wide.isnan().all().item() else "wrote outside its output"

    def _fault(self, out, wanted, allowed) -> str | None:
        error = (out.double() - wanted).abs()
        ratio = (error / allowed).nan_to_num(nan=torch.inf).max().item()
        if ratio > 1:
            return f"error is {ratio:.3g} times its bound"
        relative = (error.norm() / wanted.norm()).item()
        if relative > relative_bound(self.layer):
            return f"relative error {relative:.3g}, bound {relative_bound(self.layer):.3g}"
        return None


@pytest.mark.parametrize("form_name", installed_formats())
def test_every_kernel_of_a_format_is_right_for_odd_shapes(kernels, generator, form_name):
    formats = {f"{f.activation}_{f.weight}_{f.scale}": f for f in kernels.by_format()}
    if form_name not in formats:
        pytest.skip("no kernel of this format loads on this device")
    form = formats[form_name]
    names = kernels.by_format()[form]
    faults, ran = [], set()
    with binding.use_plans(binding.plans_of(kernels.engine)):
        for place, (n, k) in enumerate(shapes()):
            layer, packed = make_layer(form, n, k, generator)
            for m in rows_of(place, n, k):
                expected = Expected(layer, m, place % 3 == 0, generator)
                for name in names:
                    if not kernels.takes(name, form, m, n, k):
                        continue
                    ran.add(name)
                    fault = expected.fault(packed)
                    if fault is not None:
                        faults.append(f"{name} m={m} n={n} k={k}: {fault}")
    kernels.engine.force = None
    assert not faults, "\n".join(faults)
    assert ran == set(names)


@pytest.mark.parametrize("form_name", installed_formats())
def test_extreme_weights_are_exact(kernels, form_name):
    """Codes and zero points at both ends, scales that are powers of two: sums are integers."""
    formats = {f"{f.activation}_{f.weight}_{f.scale}": f for f in kernels.by_format()}
    if form_name not in formats:
        pytest.skip("no kernel of this format loads on this device")
    form = formats[form_name]
    n, k, m = 48, 192, 5
    generator = torch.Generator("cuda").manual_seed(3)
    layer, _ = make_layer(form, n, k, generator)
    layer.codes.copy_(torch.where(layer.codes < 8, 0, 15))
    layer.scale.copy_(torch.where(layer.scale < layer.scale.median(), 0.25, 2.0))
    if layer.zero is not None:
        layer.zero.copy_(torch.where(layer.zero < 8, 0, 16))
    packed = packed_of(layer)
    x = torch.zeros(m, k, dtype=layer.activation, device="cuda")
    x[torch.arange(m), torch.arange(m) * 37] = 1
    wanted = (x.double() @ dequantize(layer)).to(layer.activation)
    with binding.use_plans(binding.plans_of(kernels.engine)):
        for name in kernels.by_format()[form]:
            if kernels.takes(name, form, m, n, k):
                assert torch.equal(matmul(x, packed), wanted), name
    kernels.engine.force = None
