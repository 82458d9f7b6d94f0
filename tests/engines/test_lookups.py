"""Bulk look-ups find exactly what is there."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from privtab.base.arrow import Codes
from privtab.engines import lookups
from privtab.engines.lookups import Bits, Remembered, TextDictionary

TEXTS = ["", "a", "ab", "ä", "eight by", "eight byt", "eight bytes and more", "x" * 10_000, "x" * 10_001, "\0", "\0\0"]
OTHERS = ["b", "A", "eight bu", "eight bytes and mare", "x" * 9_999, "\0\0\0", "😀"]


def check(dictionary: TextDictionary) -> None:
    expected = {text: number for number, text in enumerate(TEXTS)}
    asked = [*OTHERS, *TEXTS, *TEXTS[::-1], *OTHERS]
    found = dictionary.find(pa.array(["before", *asked]).slice(1))  # an array that does not begin at its first byte
    assert found.tolist() == [expected.get(text, -1) for text in asked]
    assert dictionary.find(pa.array([], pa.string())).tolist() == []


def test_texts_of_any_length_are_found() -> None:
    check(TextDictionary(TEXTS))
    assert TextDictionary([]).find(pa.array(OTHERS)).tolist() == [-1] * len(OTHERS)


@pytest.mark.parametrize("kinds", [1, 3])
def test_texts_with_the_same_hash_are_told_apart(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "hashed", lambda texts: np.arange(len(texts), dtype=np.int64) % kinds)
    check(TextDictionary(TEXTS))


def test_another_text_with_the_hash_of_a_known_one_is_not_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dictionary = TextDictionary(["a"])
    monkeypatch.setattr(lookups, "hashed", lambda texts: np.full(len(texts), 7, np.int64))
    assert dictionary.find(pa.array(["b", "a"])).tolist() == [-1, 0]


@pytest.mark.parametrize("most", [0, 50, 100_000])
def test_what_was_found_before_is_not_looked_up_again(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "MOST_REMEMBERED", most)
    remembered, looked_up, rng = Remembered(), [], random.Random(5)
    for _ in range(30):
        keys: Codes = np.array(rng.sample(range(200), rng.randrange(60)), np.int64)

        def find(rows: Codes, keys: Codes = keys) -> Bits:
            looked_up.extend(keys[rows].tolist())
            return (keys[rows] * 3).astype(np.uint64)

        assert remembered.get(keys, find).tolist() == (keys * 3).tolist()
        again = len(looked_up)
        assert remembered.get(keys, find).tolist() == (keys * 3).tolist()
        assert len(looked_up) == again
    if most == 100_000:
        assert len(looked_up) == len(set(looked_up))
