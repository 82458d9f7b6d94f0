from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privtab.base.printable import indented_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text(max_size=3) | st.integers(0, 2) | st.booleans()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


class Word(StrEnum):
    """A word."""

    YES = "yes"


class Other(dict[str, Any]):
    """A mapping of another class."""


@given(VALUES)
def test_the_text_is_that_of_the_standard_library(value: object) -> None:
    assert indented_json(value) == json.dumps(value, indent=2, ensure_ascii=False)


@given(st.dictionaries(st.text(max_size=3), st.dictionaries(st.text(max_size=3), SCALARS)))
def test_keys_are_sorted_on_request(value: object) -> None:
    assert indented_json(value, sort_keys=True) == json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


@pytest.mark.parametrize(
    "value", [Other(a=Other()), {"%s%": "%"}, [Word.YES, {Word.YES: Word.YES}], [{1: 0}, {True: 0}]]
)
def test_unusual_values_are_written_as_by_the_standard_library(value: object) -> None:
    assert indented_json(value) == json.dumps(value, indent=2, ensure_ascii=False)


def test_other_values_need_a_default() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        indented_json([{1j}])
    assert indented_json([1j], default=str) == '[\n  "1j"\n]'
