from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
import worlds
import yaml
from hypothesis import given
from hypothesis import strategies as st

from privtab.base import resources
from privtab.base.diagnostics import Diagnostic
from privtab.base.source import SourceFile
from privtab.language.syntax.yaml_tree import compose_yaml, events

POLICIES = sorted(path for path in resources.policies().rglob("*.yaml"))
NASTY = (
    "{a:}",
    "a: {b:, c:}\n",
    "a: {b:, c: 'd:, e:}', f:}\n",
    'a: {b:, c: "d:, \\" e:]", f:}\n',
    "a: {b:} # {c:, d:}\ne: f\n",
    "a: {b:,\n  # {c:,}\n  d:}\n",
    "a: {b:,\n  c: {d:,\n    e:}}\nf: [g:, {h:}]\n",
    "a: |\n  b:, c:}\n  {d:,}\ne: {f:}\n",
    "a: >\n  b:, c:}\n\n    d:,\ne: {f:, g:}\n",
    "a: {b:,\r\n  c:}\r\nd: {e:}\r\n",
    "ä: {ö:, 😀ü:}\nb: {ß:, c: d}\n",
    "a: {b:, c: d e:}\n",
    "a: {b:, c: http://d:80, e::, f:}\n",
    "a: [b:, 'c':, \"d\":, e]\n",
    "a: {b:, c: 'd:,\n    e:}', f:}\n",
    "a: {&x b:, c:}\n",
    "a: {!x b:, c:}\n",
    "a: {b:, c: *x}\n",
    "--- {a:, b:}\n--- {c:}\n",
    "a: {b:} c:,\n",
    "a: b:, c\n",
    "a:,\nb: {c:}\n",
    "a: {b:]\n",
    "a: {b:,",
)
PIECES = (
    *("a:", "b:,", ":,", ":}", "é:}", "{", "}", "[", "]", ", ", ",", "x", "b: ", "'q:,'", '"d:}"', "'", '"', " ", "\n"),
    *("# c {a:,}\n", "\n  ", "\r\n", "- ", "k: |\n  t:,\n", "k: >\n  t:}\n\n  u\n", "a: {b:, c:}\n", "{b:,\n  c:}\n"),
    *("m:\n", "&n ", "*n", "!t ", "!t:,", "%", "-", "1", "~", "😀:,", "[y:]", "{a: b:,}"),
)


def shape(found: Iterable[tuple[Any, int, int]]) -> list[tuple[object, ...]]:
    """What the tree is made of. Of a value that is not there the libraries differ in the place: it has no text."""
    return [
        (
            type(event).__name__,
            *(getattr(event, key, None) for key in ("value", "tag", "anchor", "implicit")),
            getattr(event, "style", None) or "",
            (start, end) if end > start else None,
        )
        for event, start, end in found
    ]


def read(text: str, *, purely: bool) -> list[tuple[object, ...]] | tuple[str, int]:
    try:
        if not purely:
            return shape(events(text))
        parsed: list[Any] = list(yaml.parse(text, Loader=yaml.SafeLoader))
        return shape((event, event.start_mark.index, event.end_mark.index) for event in parsed)
    except yaml.MarkedYAMLError as error:
        return str(error.problem), error.problem_mark.index if error.problem_mark else -1


@pytest.mark.parametrize("text", NASTY)
def test_keys_without_values_are_read_as_by_the_plain_parser(text: str) -> None:
    assert read(text, purely=False) == read(text, purely=True)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_shipped_files_are_read_as_by_the_plain_parser(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert read(text, purely=False) == read(text, purely=True)


@pytest.mark.parametrize("seed", range(10))
def test_generated_policies_are_read_as_by_the_plain_parser(seed: int) -> None:
    text = worlds.policy(seed)
    assert read(text, purely=False) == read(text, purely=True)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.sampled_from(["}", "c:}\n", "]}", ""]))
def test_any_text_is_read_as_by_the_plain_parser(middle: str, end: str) -> None:
    text = "a: {b:, " + middle + end
    assert read(text, purely=False) == read(text, purely=True)


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize(
    "text", ["a: b{}c\n", "a: 'b{}c'\n", "a: b # {}c: d\n", "a: |\n  b{}c\n", "{{a:,\n  b: {}c}}\n"]
)
def test_a_line_break_of_some_readers_alone_is_refused_where_it_stands(text: str, character: str) -> None:
    source = SourceFile.of("p.yaml", "x: y\r\n" + text.format(character))
    found: list[Diagnostic] = []
    assert compose_yaml(source, found) is None
    (finding,) = found
    at = source.text.index(character)
    assert finding.code == "P002"
    assert (finding.span.line, finding.span.column) == source.position(at)
    assert f"U+{ord(character):04X} ends a line for some readers" in finding.message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "{? ", "[[{a: "])
def test_nesting_without_an_end_is_refused_at_once(opening: str) -> None:
    found: list[Diagnostic] = []
    begun = time.monotonic()
    assert compose_yaml(SourceFile.of("p.yaml", opening * 100_000), found) is None
    assert time.monotonic() - begun < 30, "it must not take time that grows with the square of the depth"
    assert [(f.code, f.span.line) for f in found] == [("P004", 1)]


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="without libyaml there is one parser")
@pytest.mark.parametrize("text", ["a: {b:, c: 'd:, e:}'}\n", "a: {b:} # {c:, d:}\n", "a: |\n  b:,\nc: {d:, e:}\n"])
def test_the_plain_parser_is_left_alone(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "SafeLoader", None)
    assert list(events(text))
