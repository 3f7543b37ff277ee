"""Lists of digests: read as strictly as they are written."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_runtime.verify.file_tree import MappedTree, unsafe_name
from humming_runtime.verify.findings import Report
from humming_runtime.verify.sums import SumsError, read_sums, write_sums
from humming_runtime.verify.wheel_record import check_record, record_digest

DIGEST = hashlib.sha256(b"x").hexdigest()
NAMES = st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?", fullmatch=True)


@given(st.dictionaries(NAMES, st.just(DIGEST), min_size=1))
def test_sums_round_trip(sums):
    assert read_sums(write_sums(sums)) == sums


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{DIGEST}  a",
        f"{DIGEST} a\n",
        f"{DIGEST} *a\n",
        f"{DIGEST.upper()}  a\n",
        f"{DIGEST}  b\n{DIGEST}  a\n",
        f"{DIGEST}  a\n{DIGEST}  a\n",
        f"{DIGEST}  ../a\n",
        f"{DIGEST}  /a\n",
        f"{DIGEST}  a//b\n",
        f"{DIGEST}  a\r\n",
    ],
)
def test_sums_in_another_form_are_refused(text):
    with pytest.raises(SumsError):
        read_sums(text)


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a\\b", "a//b", "./a", "a/"])
def test_a_name_that_leaves_its_folder_is_unsafe(name):
    assert unsafe_name(name)


def checked(rows, files, record="d/RECORD"):
    report = Report("x")
    text = "".join(f"{row}\n" for row in rows)
    check_record(MappedTree({**files, record: text.encode()}), record, "w", report)
    return [str(finding) for finding in report.findings]


GOOD = f"a.py,{record_digest(b'x')},1"


def test_a_record_with_every_file_has_no_fault():
    assert checked([GOOD, "d/RECORD,,"], {"a.py": b"x"}) == []


@pytest.mark.parametrize(
    ("rows", "files", "message"),
    [
        ([GOOD, "d/RECORD,,"], {"a.py": b"y"}, "w: a.py: 1 bytes"),
        ([GOOD, "d/RECORD,,"], {}, "w: a.py: is missing"),
        (["d/RECORD,,"], {"a.py": b"x"}, "w: a.py: is not in RECORD"),
        ([GOOD], {"a.py": b"x"}, "w: d/RECORD: is not in RECORD"),
        ([GOOD, GOOD, "d/RECORD,,"], {"a.py": b"x"}, "is listed twice"),
        (["a.py,,", "d/RECORD,,"], {"a.py": b"x"}, "RECORD:  bytes"),
        ([GOOD.replace("a.py", "../a"), "d/RECORD,,"], {}, "lies outside of its folder"),
        (["a.py", "d/RECORD,,"], {"a.py": b"x"}, "1 fields, not 3"),
    ],
)
def test_each_fault_of_a_record_is_named(rows, files, message):
    assert any(message in fault for fault in checked(rows, files))
