"""Bulk look-ups find exactly what is there."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from privtab.base.arrow import Codes
from privtab.engines import lookups
from privtab.engines.lookups import Bits, HashIndex, Remembered, TextDictionary

TEXTS = ["", "a", "ab", "ä", "eight by", "eight byt", "eight bytes and more", "x" * 10_000, "x" * 10_001, "\0", "\0\0"]
OTHERS = ["b", "A", "eight bu", "eight bytes and mare", "x" * 9_999, "\0\0\0", "😀"]


def check(dictionary: TextDictionary) -> None:
    expected = {text: number for number, text in enumerate(TEXTS)}
    asked = [*OTHERS, *TEXTS, *TEXTS[::-1], *OTHERS]
    found = dictionary.find(pa.array(["before", *asked]).slice(1))  # an array that does not begin at its first byte
    assert found.tolist() == [expected.get(text, -1) for text in asked]
    assert dictionary.find(pa.array([], pa.string())).tolist() == []


_UNSPREAD = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
LAST_SLOT = [key for n in range(1, 100) if (key := (-n * _UNSPREAD) % (1 << 64)) < 1 << 63]
"""Keys whose place is the last slot of a table."""


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("keys", [[], [7], LAST_SLOT, [*range(0, 3000, 3)], [n << 32 | n for n in range(500)]])
def test_numbers_are_found_wherever_they_lie_in_the_table(keys: list[int], *, some: bool) -> None:
    positions = np.arange(0, len(keys), 2) if some else np.arange(len(keys))
    table = HashIndex(np.array(keys, np.int64), positions if some else None)
    expected = {keys[position]: position for position in positions.tolist()}
    asked = [*keys, *range(-3, 3000), -1 << 40, 1 << 62, *LAST_SLOT]
    assert table.find(np.array(asked, np.int64)).tolist() == [expected.get(key, -1) for key in asked]


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
