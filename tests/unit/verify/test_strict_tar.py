"""A bundle's archive has one form: what was written is read, and each byte counts."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_runtime.verify.strict_tar import StrictTarError, read_tar, write_tar

NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}(/[a-z][a-z0-9_.-]{0,8})?", fullmatch=True)
FILES = st.dictionaries(NAMES, st.binary(max_size=1500), min_size=1, max_size=5)


def mode(name):
    return 0o755 if name.endswith(".sh") else 0o644


@given(FILES, st.integers(0, 2**33 - 1))
def test_what_is_written_is_read(files, epoch):
    assert read_tar(write_tar("root", files, mode, epoch), mode) == ("root", epoch, files)


@given(FILES, st.data())
def test_a_flipped_byte_anywhere_is_found_or_changes_a_file(files, data):
    image = bytearray(write_tar("root", files, mode, 7))
    at = data.draw(st.integers(0, len(image) - 1))
    image[at] ^= data.draw(st.integers(1, 255))
    try:
        _, _, found = read_tar(bytes(image), mode)
    except StrictTarError:
        return
    assert found != files


def test_other_archivers_read_it():
    image = write_tar("root", {"a.sh": b"x", "b/c": b"yy"}, mode, 7)
    with tarfile.open(fileobj=io.BytesIO(image)) as archive:
        entries = {entry.name: (entry.mode, entry.mtime, entry.uid) for entry in archive}
    assert entries == {"root/a.sh": (0o755, 7, 0), "root/b/c": (0o644, 7, 0)}


def foreign(**fields):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("root/a", "root/b"):
            entry = tarfile.TarInfo(name)
            for key, value in fields.items():
                setattr(entry, key, value)
            archive.addfile(entry)
    return out.getvalue()


@pytest.mark.parametrize(
    "fields", [{"uid": 5}, {"uname": "me"}, {"mode": 0o4755}, {"type": tarfile.SYMTYPE}]
)
def test_an_entry_that_a_bundle_would_not_have_is_refused(fields):
    assert read_tar(foreign(), mode)[0] == "root"
    with pytest.raises(StrictTarError):
        read_tar(foreign(**fields), mode)


def test_what_is_cut_off_or_appended_is_refused():
    image = write_tar("root", {"a": bytes(5000)}, mode, 7)
    for wrong in (image[:2000], image[:-1], image + b"\0", image + image, b"", b"not a tar"):
        with pytest.raises(StrictTarError):
            read_tar(wrong, mode)
