"""Names in paths are written and read back alike, wherever it is done."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privtab.base.names import decode_name, encode_name, is_wildcard, last_name, wrong_escape
from privtab.engines.columns import decoded

NAMES = ("a", "a/b", "100%", "%2F", "a%25b/%", "é/ü", "*a", "a?", "%%2F//", "")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_comes_back(name: str) -> None:
    written = encode_name(name)
    assert "/" not in written
    assert wrong_escape(written) is None
    assert decode_name(written) == name == last_name(f"m/{written}")


@settings(deadline=None)
@given(st.text(alphabet="a%/2F5*?é", max_size=8))
def test_any_name_is_written_so_that_it_is_one_name_of_a_path(name: str) -> None:
    written = encode_name(name)
    assert "/" not in written
    assert wrong_escape(written) is None
    assert not is_wildcard(written)
    assert encode_name(decode_name(written)) == written or not name.strip("*?")


@settings(deadline=None)
@given(st.lists(st.text(alphabet="a%/2F5*?é", max_size=8), min_size=1))
def test_columns_are_read_as_single_names_are(names: list[str]) -> None:
    assert decoded(pa.array(names)).to_pylist() == [decode_name(name) for name in names]
