"""Real checkpoints through load_linear and the installed kernels, against float64.

HUMMING_TEST_CHECKPOINTS names the folder that tests/checkpoints/make_checkpoints.py has filled.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from reference import Layer, worst_error  # noqa: E402

from humming_runtime.torch_layer import load_linear  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("free_choice")]
VARIABLE = "HUMMING_TEST_CHECKPOINTS"
ROWS = (1, 7, 16, 64, 257)


def checkpoints() -> list[Path]:
    folder = os.environ.get(VARIABLE)
    return sorted(p.parent for p in Path(folder).glob("*/truth.pt")) if folder else []


@pytest.mark.parametrize("folder", checkpoints(), ids=lambda folder: folder.name)
def test_every_layer_of_a_checkpoint_multiplies_as_its_numbers_say(kernels, generator, folder):
    truth = torch.load(folder / "truth.pt", weights_only=True)
    dtype = truth["dtype"]
    formats = kernels.free_formats()
    for prefix, numbers in truth["layers"].items():
        module = load_linear(folder, prefix, dtype, "cuda")
        if module.form not in formats:
            pytest.skip(f"no kernel for {module.config} is installed")
        size = None if numbers["group_size"] == -1 else numbers["group_size"]
        layer = Layer(numbers["codes"], numbers["scale"], numbers["zero"], size, dtype).to("cuda")
        bias = numbers.get("bias")
        bias = None if bias is None else bias.cuda()
        for m in ROWS:
            x = torch.randn(m, layer.k, generator=generator, device="cuda").to(dtype)
            assert worst_error(module(x), x, layer, bias) <= 1, f"{prefix} m={m}"


def test_there_are_checkpoints():
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no folder of checkpoints")
    assert checkpoints()
