"""Oracle and checkpoint writer for tests of the torch part; all of it is skipped without torch."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "checkpoints", "unit/runtime")]

pytest.importorskip("torch")

import torch  # noqa: E402
from address_plan import AddressPlan  # noqa: E402

from humming_runtime.torch_layer import binding, operator, streams  # noqa: E402
from humming_runtime.torch_layer.plan_cache import PlanCache  # noqa: E402

STREAM = 7


class CpuLaunches:
    """Operators on the CPU launch here: plans by key, so that a test sees what was asked for."""

    def __init__(self) -> None:
        self.plans: list[AddressPlan] = []
        self.cache = PlanCache(self._make)

    def _make(self, key):
        plan = AddressPlan(key)
        self.plans.append(plan)
        return plan


def override(library, name, function):
    try:
        library.impl(name, function, "CPU", allow_override=True)
    except TypeError:  # an older torch has no word for it and keeps a list
        torch.library._impls.discard(f"humming/{name}/CPU")
        library.impl(name, function, "CPU")


@pytest.fixture
def cpu_launches(monkeypatch):
    """The CUDA side of the operators, run on the CPU with a plan that reads its addresses."""
    launches = CpuLaunches()
    monkeypatch.setattr(streams, "current_stream", lambda _device: STREAM)
    monkeypatch.setattr(operator, "require_cuda", lambda _device: None)
    library = torch.library.Library("humming", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is meant here: an override
        override(library, "gemm", operator._cuda_gemm)
        override(library, "gemm_out", operator._cuda_gemm_out)
    with binding.use_plans(launches.cache):
        yield launches
    library._destroy()


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
