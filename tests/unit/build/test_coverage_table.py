"""The table of docs/formats.md says what the specs say."""

from __future__ import annotations

import pytest
from fake_build import SPECS

from build_tools.coverage_table import DOCUMENT, coverage_table, document_with
from humming_runtime.contract.number_formats import every_weight_format


def test_the_document_has_the_table_of_these_specs():
    text = DOCUMENT.read_text(encoding="utf-8")
    message = "run: python -m build_tools.coverage_table --write"
    assert document_with(text, coverage_table(SPECS)) == text, message


def test_every_weight_format_is_covered():
    words = coverage_table(SPECS).replace("|", " ").split()
    for number in every_weight_format():
        assert words.count(str(number)) == 1


def test_a_document_without_a_place_is_an_error():
    with pytest.raises(ValueError, match="no <!-- coverage"):
        document_with("text", "table")
