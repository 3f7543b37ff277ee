"""Packages on disk, a stub driver, and engines that use them."""

import fake_packages as fake
import pytest
from stub_cuda import StubCuda

from humming_runtime.discover import discover
from humming_runtime.driver import Driver
from humming_runtime.engine import Engine
from humming_runtime.known_devices import assumed_device

ALL = (fake.DECODE, fake.PREFILL, fake.PREFILL_ZERO, fake.TEST_TARGET, fake.CHANNEL)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("HUMMING_CUBIN_PATH", "HUMMING_FORCE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def package_folder(tmp_path):
    return fake.write_package(tmp_path / "kernels", ALL)


@pytest.fixture
def installed(package_folder):
    return discover(str(package_folder))


@pytest.fixture(params=["extension", "python"])
def launcher(request, monkeypatch):
    """Both ways to launch, for tests of what the driver gets."""
    if request.param == "python":
        monkeypatch.setenv("HUMMING_PURE_PYTHON", "1")
    else:
        pytest.importorskip("humming_runtime._native")
    return request.param


@pytest.fixture
def stub():
    return StubCuda()


@pytest.fixture
def engine(installed, stub):
    return Engine(installed, Driver(stub))


@pytest.fixture
def hopper():
    return assumed_device((9, 0))
