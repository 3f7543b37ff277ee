"""Which way launches go."""

from __future__ import annotations

import shutil
import sys
import sysconfig

import pytest

from build_tools.native_build import has_headers
from humming_runtime import launcher


@pytest.mark.skipif(
    not (has_headers() and shutil.which("cc")), reason="no C compiler or no Python.h"
)
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="free-threaded Python has no abi3"
)
def test_an_editable_install_has_built_the_extension():
    assert launcher.extension() is not None


def test_python_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("HUMMING_PURE_PYTHON", "1")
    assert launcher.extension() is None


def test_python_takes_over_where_the_extension_is_not_installed(monkeypatch):
    monkeypatch.delenv("HUMMING_PURE_PYTHON", raising=False)
    monkeypatch.setitem(sys.modules, "humming_runtime._native", None)
    monkeypatch.delattr("humming_runtime._native", raising=False)
    assert launcher.extension() is None


def test_arguments_of_another_size_are_refused_by_the_extension():
    native = pytest.importorskip("humming_runtime._native")
    shape, offsets, no_map = (1, 32, 0, 1, False), (0, 8, 16, 24, 32, -1), (0,) * 9
    with pytest.raises(ValueError, match="offset 32: outside of the arguments"):
        native.Launch((1,) * 5, (1, 1), shape, bytes(32), offsets, no_map, None, 0)
    with pytest.raises(ValueError, match="arguments: 8192 bytes, limit 4096"):
        native.Launch((1,) * 5, (1, 1), shape, bytes(8192), offsets, no_map, None, 0)
