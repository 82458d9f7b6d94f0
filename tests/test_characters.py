"""Which characters names may hold is said once: as a function, for regular expressions of other languages, and as a common case."""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.compute as pc
from unusual_names import UNUSABLE as LISTED

from privtab.base import names
from privtab.base.names import PLAIN_CHARACTERS, UNUSABLE, is_unicode, unusable_character


def test_the_function_and_the_class_of_regular_expressions_mean_the_same() -> None:
    every = [character for character in map(chr, range(sys.maxunicode + 1)) if is_unicode(character)]
    matches = pc.match_substring_regex(pa.array(every), f"[{UNUSABLE}]").to_pylist()
    found = {character for character, wrong in zip(every, matches, strict=True) if wrong}
    assert found == {character for character in every if unusable_character(character)}
    assert found == {character for character in LISTED if is_unicode(character)}
    assert not found & {*PLAIN_CHARACTERS}
    assert all(names.unusable_character(character) for character in LISTED)
