"""Oracle for GPU tests, and the kernels that the first device takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))


@pytest.fixture(scope="session")
def kernels():
    """InstalledKernels of cuda:0; skips with the reason where there are none."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    from installed_kernels import InstalledKernels

    from humming_runtime.engine import Engine

    found = InstalledKernels(Engine())
    if not found.engine.installed.packages:
        pytest.skip("no kernel package is installed, and HUMMING_CUBIN_PATH lists none")
    return found


@pytest.fixture
def free_choice(kernels):
    """Torch calls go to the shared engine, which chooses freely; its plans start empty."""
    from humming_runtime.torch_layer import binding

    kernels.engine.force = None
    with binding.use_plans(binding.plans_of(kernels.engine)) as plans:
        yield plans
    kernels.engine.force = None


@pytest.fixture
def generator():
    import torch

    return torch.Generator("cuda").manual_seed(0)
