"""Every number of rows from 1 to 600, as speculative decoding and odd batches give them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from installed_kernels import make_layer  # noqa: E402
from reference import bound, possible_weights  # noqa: E402

from humming_runtime.contract.variant_name import ScaleScheme  # noqa: E402
from humming_runtime.errors import NoKernelError  # noqa: E402
from humming_runtime.torch_layer import LinearPlan, WeightFormat  # noqa: E402

pytestmark = pytest.mark.gpu
MOST_ROWS = 600


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (1032, 1000)], ids=["tuned", "modelled"])
@pytest.mark.parametrize("scale", ["g128f16", "g32zf16"])
def test_every_number_of_rows_is_right(free_choice, generator, scale, n, k):
    del free_choice
    layer, packed = make_layer(WeightFormat("f16", ScaleScheme.parse(scale)), n, k, generator)
    plan = LinearPlan(packed)
    x = torch.randn(MOST_ROWS, k, generator=generator, device="cuda").half()
    rows = x.double()
    possible = [(rows @ weight, rows.abs() @ weight.abs()) for weight in possible_weights(layer)]
    allowed = [(wanted, bound(wanted, magnitude, layer)) for wanted, magnitude in possible]
    try:
        plan(x[:1])
    except NoKernelError:
        pytest.skip(f"no kernel of f16_u4_{scale} is installed")
    for m in range(1, MOST_ROWS + 1):
        out = torch.full((m + 1, n), torch.nan, device="cuda", dtype=torch.float16)
        plan(x[:m], None, out[:m])
        got = out[:m].double()
        assert out[m].isnan().all(), f"m {m}: wrote beyond its rows"
        assert any(((got - wanted[:m]).abs() <= limit[:m]).all() for wanted, limit in allowed), (
            f"m {m}: {plan._entry().plan.kernel(m)}"
        )
