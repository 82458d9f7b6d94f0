from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from privtab.base.diagnostics import Diagnostic
from privtab.base.source import SourceFile
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, compose_yaml, offsets


def scalar(text: str) -> ScalarNode:
    found: list[Diagnostic] = []
    node = compose_yaml(SourceFile.of("a.yaml", text), found)
    assert isinstance(node, MappingNode), found
    value = node.entries[0][1]
    assert isinstance(value, ScalarNode)
    return value


def written(text: str) -> list[tuple[str, str]]:
    """Each character of the value that is no blank, with the character of the file that it falls on."""
    value = scalar(text)
    places = offsets(text, value.text, value.style, value.start, value.end)
    assert len(places) == len(value.text) + 1
    return [(c, text[at]) for c, at in zip(value.text, places, strict=False) if not c.isspace()]


@pytest.mark.parametrize(
    "text",
    [
        "a: READ (x)\n",
        "a:   READ  (x)  # comment\n",
        "a: READ (x)\n  or WRITE (x)\n\n  or owner (x)\n",
        "a: 'READ (x) or WRITE (y)'\n",
        '{a: "READ (x)\n   or WRITE (y)"}\n',
        "a: >-\n  READ (x)\n  or WRITE (x)\n",
        "a: >\n\n    READ (x)\n    or WRITE (x)\n\n\n",
        "a: |\n  READ (x)\n    or WRITE (x)\n",
        "a: |2-\n   READ (x)\n   or WRITE (x)\n",
        "a: >- # comment\n  READ (x)\n",
        'a: "READ \\\n   (x)"\n',
        "a: 'READ (x)\r\n  or WRITE (x)'\r\n",
    ],
)
def test_characters_fall_on_themselves(text: str) -> None:
    assert [c for c, at in written(text) if c != at] == []


def test_escapes_fall_on_their_backslash() -> None:
    assert written('a: "x\\u0041\\ty"\n') == [("x", "x"), ("A", "\\"), ("y", "y")]


def test_a_doubled_quote_is_one_character() -> None:
    assert written("a: 'it''s b'\n") == [("i", "i"), ("t", "t"), ("'", "'"), ("s", "s"), ("b", "b")]


@given(
    st.text(alphabet="abÄ '\"\\:#\n\t🏪{}-&", min_size=1, max_size=30),
    st.sampled_from([None, "'", '"', "|", ">"]),
    st.integers(min_value=5, max_value=40),
)
def test_whatever_yaml_writes_every_offset_is_in_the_scalar(value: str, style: str | None, width: int) -> None:
    text = yaml.dump({"a": value}, default_style=style, width=width, allow_unicode=True)
    node = compose_yaml(SourceFile.of("a.yaml", text), [])
    assert isinstance(node, MappingNode)
    read = node.entries[0][1]
    assert isinstance(read, ScalarNode)
    places = offsets(text, read.text, read.style, read.start, read.end)
    assert len(places) == len(read.text) + 1
    assert all(read.start <= at <= read.end for at in places)
