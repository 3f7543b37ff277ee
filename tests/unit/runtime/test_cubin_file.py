"""A file that is not what its manifest says never reaches the driver."""

import hashlib
from dataclasses import replace

import fake_packages as fake
import pytest

from humming_runtime.contract.variant_name import Variant
from humming_runtime.cubin_file import elf_capability, read_cubin
from humming_runtime.errors import IntegrityError

IMAGE = fake.image_of(fake.DECODE)
ENTRY = fake.entry(fake.DECODE, IMAGE)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "kernel.cubin"
    file.write_bytes(IMAGE)
    return file


def entry_of(image):
    return replace(ENTRY, size_bytes=len(image), sha256=hashlib.sha256(image).hexdigest())


def test_the_right_file_is_returned_whole(path):
    assert read_cubin(path, ENTRY) == IMAGE


@pytest.mark.parametrize("size", [0, 1, 63, 64, len(IMAGE) - 1])
def test_a_truncated_file_is_refused(path, size):
    path.write_bytes(IMAGE[:size])
    with pytest.raises(IntegrityError, match=f"{size} bytes, the manifest says {len(IMAGE)}"):
        read_cubin(path, ENTRY)


def test_every_flipped_byte_is_refused(path):
    for at in range(len(IMAGE)):
        broken = bytearray(IMAGE)
        broken[at] ^= 0x40
        path.write_bytes(broken)
        with pytest.raises(IntegrityError, match="sha256 is"):
            read_cubin(path, ENTRY)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(IntegrityError, match="no such file"):
        read_cubin(tmp_path / "none", ENTRY)


def test_a_swapped_cubin_of_another_sm_is_refused_even_with_a_right_hash(path):
    swapped = fake.elf("sm_80") + b"tail"
    path.write_bytes(swapped)
    with pytest.raises(IntegrityError, match="its ELF header is for sm_80, its name says sm_90"):
        read_cubin(path, entry_of(swapped))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "not an ELF file"),
        (b"PK\x03\x04" + bytes(100), "not an ELF file"),
        (IMAGE[:40], "not an ELF file"),
        (fake.elf("sm_90a", machine=0x3E), r"ELF machine is 0x3e \(unknown\)"),
        (fake.elf("sm_80", machine=0x10E), r"ELF machine is 0x10e \(PPU\), not NVIDIA's 0xbe"),
        (IMAGE[:4] + b"\x01" + IMAGE[5:], "not a 64-bit little-endian ELF file"),
        (IMAGE[:8] + b"\x09" + IMAGE[9:], "ABI version 9"),
    ],
)
def test_what_is_no_cubin_is_refused_with_what_it_is(path, image, message):
    path.write_bytes(image)
    with pytest.raises(IntegrityError, match=message):
        read_cubin(path, entry_of(image))


@pytest.mark.parametrize("osabi", [0x41, 0x33])
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_100f", "sm_103", "sm_121a"])
def test_the_sm_is_read_from_both_elf_forms(target, osabi):
    capability = elf_capability(fake.elf(target, osabi=osabi))
    assert capability == {
        "sm_75": (7, 5), "sm_80": (8, 0), "sm_90a": (9, 0), "sm_100f": (10, 0),
        "sm_103": (10, 3), "sm_121a": (12, 1),
    }[target]  # fmt: skip
    assert Variant.parse(fake.DECODE).target == "sm_90a"
