"""Which package's kernels run with which driver, and what is said where none do."""

from dataclasses import replace
from pathlib import Path

import fake_packages as fake
import pytest

from humming_runtime.contract.variant_name import ScaleScheme
from humming_runtime.cuda_support import package_name, too_new
from humming_runtime.discover import Package
from humming_runtime.driver import Driver
from humming_runtime.errors import NoKernelError
from humming_runtime.known_devices import assumed_device
from humming_runtime.problem import Problem
from humming_runtime.resolve import Distance, resolve

PROBLEM = Problem("dense", "f16", "u4", ScaleScheme.parse("g128f16"), "frag16", 8, 4096, 4096)
CU12, CU13 = "humming-cubins-sm90-cu12", "humming-cubins-sm90-cu13"


def package(name, cuda):
    return Package(fake.manifest([fake.DECODE], name, cuda=cuda), Path("nowhere"))


OLD, NEW = package(CU12, "12.9"), package(CU13, "13.0")


def device(driver, capability=(9, 0)):
    return replace(assumed_device(capability), driver_cuda=driver)


@pytest.mark.parametrize(
    ("driver", "packages", "chosen"),
    [
        ((12, 0), (OLD, NEW), CU12),
        ((12, 9), (NEW, OLD), CU12),
        ((13, 0), (OLD, NEW), CU13),
        ((13, 0), (NEW, OLD), CU13),
        ((13, 0), (OLD,), CU12),
        (None, (OLD, NEW), CU13),
    ],
)
def test_the_newest_package_that_the_driver_loads_is_taken(driver, packages, chosen):
    decision = resolve(PROBLEM, device(driver), packages)
    assert decision.chosen.package.name == chosen
    assert decision.others == ()


def test_a_package_that_another_stands_in_for_is_said():
    [rejected] = resolve(PROBLEM, device((13, 0)), (OLD, NEW)).rejected
    assert (rejected.package, rejected.distance) == (CU12, Distance.SUPERSEDED)
    assert rejected.reason == f"{CU13} has it for a newer CUDA"


@pytest.mark.parametrize("force", [None, fake.DECODE])
def test_an_older_driver_with_the_newer_package_alone_is_told_which_one_it_needs(force):
    with pytest.raises(NoKernelError) as error:
        resolve(PROBLEM, device((12, 4)), (NEW,), force)
    reason = "needs a driver for CUDA 13 (580 or newer), this one supports CUDA 12.4"
    assert f"({CU13}): {reason}" in error.value.message
    if force is None:
        assert error.value.hint == f"pip install {CU12}"


@pytest.mark.parametrize(
    ("driver", "capability", "number"), [((12, 8), (10, 0), 580), ((11, 8), (9, 0), 525)]
)
def test_where_no_package_is_for_a_driver_the_hint_is_a_driver(driver, capability, number):
    with pytest.raises(NoKernelError) as error:
        resolve(PROBLEM, device(driver, capability), (NEW,))
    assert error.value.hint == f"install NVIDIA driver {number} or newer"


def test_names_of_packages_follow_the_driver():
    assert package_name((9, 0), (12, 4)) == CU12
    assert package_name((9, 0), (13, 1)) == package_name((9, 0), None) == CU13
    assert package_name((12, 0), (12, 9)) == "humming-cubins-sm120-cu13"
    assert too_new("12.9", (12, 0)) is None
    assert too_new("14.0", (13, 0)) == "needs a driver for CUDA 14, this one supports CUDA 13.0"


def test_a_device_knows_the_version_of_its_driver(stub):
    assert Driver(stub).device(0).driver_cuda == (13, 0)
