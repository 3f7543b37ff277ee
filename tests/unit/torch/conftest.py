"""Oracle and checkpoint writer for tests of the torch part; all of it is skipped without torch."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "checkpoints", "unit/runtime")]

pytest.importorskip("torch")

import fake_packages as fake  # noqa: E402
import torch  # noqa: E402
from address_plan import AddressPlan  # noqa: E402
from stub_cuda import StubCuda  # noqa: E402

from humming_runtime.discover import discover  # noqa: E402
from humming_runtime.driver import Driver  # noqa: E402
from humming_runtime.engine import Engine  # noqa: E402
from humming_runtime.torch_layer import LinearPlan, binding, operator, streams  # noqa: E402
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


@pytest.fixture
def stub():
    return StubCuda()


@pytest.fixture(params=["extension", "python"])
def engine(request, monkeypatch, tmp_path, stub):
    """Launches on the CPU's default stream go to the stub driver."""
    if request.param == "python":
        monkeypatch.setenv("HUMMING_PURE_PYTHON", "1")
    else:
        pytest.importorskip("humming_runtime._native")
    request.getfixturevalue("cpu_launches")
    monkeypatch.setattr(streams, "current_stream", lambda _device: 0)
    monkeypatch.delenv("HUMMING_FORCE", raising=False)
    folder = fake.write_package(tmp_path / "kernels", (fake.DECODE, fake.PREFILL))
    engine = Engine(discover(str(folder)), Driver(stub))
    with binding.use_plans(binding.plans_of(engine)):
        yield engine


@pytest.fixture
def long_calls(monkeypatch):
    """How often the operator ran."""
    calls = []

    def counted(plan, x, *others):
        calls.append(tuple(x.shape))
        return long_way(plan, x, *others)

    long_way = LinearPlan._operator
    monkeypatch.setattr(LinearPlan, "_operator", counted)
    return calls
