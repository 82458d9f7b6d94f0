"""Documents written from columns of numbers are those that `json` writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from privtab.base import arrow
from privtab.state.index import revision as revision_of
from privtab.state.index import stamped_bytes
from privtab.state.large_index import Level, Part, quoted

ODD = """a"b\\c\td\x7fé\ud7ff😀"""


@pytest.mark.parametrize("ascii_only", [False, True])
def test_texts_are_escaped_as_json_does(ascii_only: bool) -> None:
    texts = ["", "a", ODD, "\n", "\\n", '"', "\x7f", "\ud7ff", "\U0001d49c", *map(chr, range(40))]
    written = quoted(arrow.text_array(texts), ascii_only=ascii_only).to_pylist()
    assert written == [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in texts]
    some = quoted(arrow.text_array(texts)[3:7], ascii_only=ascii_only).to_pylist()
    assert some == written[3:7]


@pytest.mark.parametrize("rows_at_once", [1, 2, 7, 100])
def test_long_objects_are_written_in_pieces(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {f"p{p}": {f"k{k}": {f"n{n}": True for n in range(3)} for k in range(5)} for p in range(4)}
    flat = [(p, k, n) for p in range(4) for k in range(5) for n in range(3)]
    columns = [np.array([row[at] for row in flat]) for at in range(3)]
    around = (('":{', "}},"), ('":{', "},"), ('":true', ","))
    names = [arrow.text_array([f"{letter}{n}" for n in range(5)]) for letter in "pkn"]
    levels = tuple(Level(texts, '"', *style) for texts, style in zip(names, around, strict=True))
    monkeypatch.setattr("privtab.state.large_index.MAX_BLOCK_ROWS", rows_at_once)
    text = b"".join(Part(lambda: [columns], levels, "}}").json(ascii_only=True))
    assert text.decode() == json.dumps(value, separators=(",", ":"))


def test_the_revision_is_the_hash_in_ascii() -> None:
    names = Part(lambda: [[np.arange(1)]], (Level(arrow.text_array([ODD]), '"', '":true', ","),), "")
    revision, text = stamped_bytes({"names": names, "more": {"a": 1}})

    value = {"names": {ODD: True}, "more": {"a": 1}}
    assert revision == revision_of(value)
    assert json.loads(text) == value | {"revision": revision}
