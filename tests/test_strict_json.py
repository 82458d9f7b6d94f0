"""JSON from outside has one meaning, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privtab.base.strict_json import strict_loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_every_value_is_read_as_it_was_written(value: Any, ascii_: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_)
    assert strict_loads(text) == strict_loads(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "`a` occurs twice in one object"),
        ('[{"x": {"user": "ann", "user": "bob"}}]', "`user` occurs twice in one object"),
        (r'{"a": 1, "\u0061": 1}', "`a` occurs twice"),
        (r'{"a": "\ud800"}', "a lone surrogate"),
        (r'{"\uDFFF": 1}', "a lone surrogate"),
        (r'["\udc00\ud800"]', "a lone surrogate"),
        ("[NaN]", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (b'"\xff"', "can't decode byte 0xff"),
        (b'"\xed\xa0\x80"', "can't decode byte 0xed"),
        (b'\xef\xbb\xbf{"a": 1}', "Expecting value|BOM"),
        ('{"a": 1', "delimiter"),
        ("", "Expecting value"),
    ],
)
def test_ambiguous_json_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_loads(text)


KEYS = st.text('a":\\ \n', max_size=2)


@given(st.lists(st.tuples(KEYS, KEYS), max_size=4), st.sampled_from([":", " :", ": ", "\n:"]), st.booleans())
def test_a_key_twice_is_found_however_it_is_written(pairs: list[tuple[str, str]], colon: str, nested: bool) -> None:
    written = "{" + ",".join(f"{json.dumps(key)}{colon}{json.dumps(value)}" for key, value in pairs) + "}"
    text = f'{{"a":[{written}]}}' if nested else written
    if len(dict(pairs)) == len(pairs):
        assert strict_loads(text) == ({"a": [dict(pairs)]} if nested else dict(pairs))
    else:
        with pytest.raises(ValueError, match="occurs twice in one object"):
            strict_loads(text)


def test_whole_pairs_are_one_character() -> None:
    assert strict_loads(r'["\ud83d\ude00"]') == ["😀"]
