"""Two readers of a cubin's ELF agree: the verifier's and the build side's."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build_tools.cubin import read_facts
from humming_runtime.contract.manifest import KernelEntry, Manifest
from humming_runtime.verify.cubin_elf import CubinElfError, read_elf
from humming_runtime.verify.kernel_files import elf_differences

CUBIN = (Path(__file__).parents[1] / "build/dense_bf16_ch_decode_sm90a.cubin").read_bytes()
NAME = "dense_bf16_u4_bf16_ch_frag16_hopper-decode_t8x64x1024_w8r4_s4_sm90a"
FACTS = read_facts(CUBIN)


def entry(name=NAME, parameter_bytes=FACTS.parameter_bytes[0]):
    return KernelEntry(
        name, f"cubins/{name}.cubin", FACTS.sha256, len(CUBIN), 1, 0, parameter_bytes, 0, "0" * 64
    )


def manifest(toolchain=FACTS.toolchain):
    return Manifest("c", "p", "1", "sm_90", "13.0", toolchain, "nvcc", "default")


def test_both_readers_agree():
    elf = read_elf(CUBIN)
    assert (elf.symbols, elf.capability, elf.target, elf.toolchain, elf.parameter_bytes) == (
        FACTS.symbols,
        FACTS.capability,
        FACTS.target,
        FACTS.toolchain,
        FACTS.parameter_bytes,
    )
    assert elf_differences(CUBIN, entry(), manifest()) == []


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (
            (entry(NAME.replace("sm90a", "sm100")), manifest()),
            ["capability", "target", "symbols"],
        ),
        ((entry(NAME.replace("sm90a", "sm90")), manifest()), ["target", "symbols"]),
        ((entry(NAME.replace("_ch_", "_chz_")), manifest()), ["symbols"]),
        ((entry(parameter_bytes=8), manifest()), ["parameter bytes"]),
        ((entry(), manifest("Build other")), ["toolchain"]),
    ],
)
def test_each_difference_from_the_manifest_is_named(wrong, what):
    found = elf_differences(CUBIN, *wrong)
    assert [word for word in what if any(text.startswith(word) for text in found)] == what
    assert len(found) == len(what)


@given(st.integers(0, len(CUBIN)))
def test_a_truncated_cubin_is_no_crash(size):
    if size < len(CUBIN):
        with pytest.raises(CubinElfError):
            read_elf(CUBIN[:size])


@given(st.integers(0, len(CUBIN) - 1), st.integers(1, 255))
def test_a_damaged_cubin_is_no_crash(at, mask):
    image = bytearray(CUBIN)
    image[at] ^= mask
    with contextlib.suppress(CubinElfError):
        read_elf(bytes(image))
