"""Processes as clusters start them: only reads, chosen devices, forks and spawned workers."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from humming_runtime.discover import discover  # noqa: E402

pytestmark = pytest.mark.gpu
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def installed():
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    if not discover().packages:
        pytest.skip("no kernel package is installed, and HUMMING_CUBIN_PATH lists none")


def run(*command, cwd=None, code=0, **changes):
    environment = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **os.environ, **changes}
    done = subprocess.run(
        [sys.executable, *command],
        check=False,
        cwd=cwd,
        env={key: value for key, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def test_a_product_needs_no_write_no_network_no_process_and_no_compiler(tmp_path):
    for tool in ("nvcc", "gcc", "cc", "c++", "ninja", "ptxas", "ld"):
        (tmp_path / tool).write_text("#!/bin/sh\nexit 99\n")
        (tmp_path / tool).chmod(0o755)
    folder = tmp_path / "empty"
    folder.mkdir()
    folder.chmod(0o555)
    place = {"PATH": str(tmp_path), "HOME": None, "TMPDIR": "/nowhere"}
    assert "error" in run(HERE / "process_child.py", "strict", cwd=folder, **place)


@pytest.mark.parametrize("name", ["uuid", "index"])
def test_a_device_is_chosen_from_outside(name):
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    visible = uuid if name == "uuid" else "0"
    assert "error" in run(HERE / "process_child.py", "plain", CUDA_VISIBLE_DEVICES=visible)
    text = run("-m", "humming_runtime.cli", "doctor", "--json", CUDA_VISIBLE_DEVICES=visible)
    (device,) = json.loads(text)["devices"]
    assert device["ordinal"] == 0


def test_no_visible_device_is_an_error_of_its_own():
    text = run("-m", "humming_runtime.cli", "doctor", "--json", code=11, CUDA_VISIBLE_DEVICES="")
    assert json.loads(text)["devices"] == []


def test_a_fork_after_the_import_works():
    assert "error" in run(HERE / "process_child.py", "fork")


def worker(layer, queue):
    x = torch.ones(3, layer.in_features, device="cuda", dtype=layer.form.activation_dtype)
    with torch.no_grad():
        queue.put(layer.cuda()(x).float().sum().item())


def test_a_layer_goes_to_a_spawned_worker():
    from humming_runtime.measure.random_layer import random_packed
    from humming_runtime.measure.tune import parse_format
    from humming_runtime.torch_layer import QuantLinear

    formats = {v.format for package in discover().packages for _, v in package.kernels}
    form = min(formats)
    layer = QuantLinear(random_packed(parse_format(form), 64, 256))
    x = torch.ones(3, 256, device="cuda", dtype=layer.form.activation_dtype)
    with torch.no_grad():
        wanted = layer(x).float().sum().item()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=worker, args=(layer.cpu(), queue))
    process.start()
    got = queue.get(timeout=60)
    process.join()
    assert process.exitcode == 0
    assert got == wanted
