from __future__ import annotations

import pytest

from privtab.base.diagnostics import Diagnostic
from privtab.base.source import SourceFile
from privtab.base.yaml_text import DEEPEST
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, compose_yaml, plain_scalar


def tree(text: str) -> tuple[object, list[str]]:
    found: list[Diagnostic] = []
    node = compose_yaml(SourceFile.of("a.yaml", text), found)
    return node, [d.code for d in found]


@pytest.mark.parametrize(
    "word", ["on", "off", "yes", "no", "y", "N", "1.1.0", "2024-01-01", "1_000", "0b1", "12e", "+", "."]
)
def test_words_of_yaml_1_1_are_words(word: str) -> None:
    assert plain_scalar(word) == word


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("0o17", 15),
        ("0xff", 255),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
    ],
)
def test_numbers_of_the_core_schema(text: str, value: float) -> None:
    assert plain_scalar(text) == value
    assert type(plain_scalar(text)) is type(value)


def test_leading_zeros_are_decimal() -> None:
    assert plain_scalar("007") == 7


@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None)])
def test_words_of_the_core_schema(text: str, value: object) -> None:
    assert plain_scalar(text) is value


def test_quoted_scalars_are_text() -> None:
    node, _ = tree("a: '5'\nb: \"true\"\n")
    assert isinstance(node, MappingNode)
    assert [value.value for _, value in node.entries if isinstance(value, ScalarNode)] == ["5", "true"]


def test_keys_may_repeat_and_keep_their_order() -> None:
    node, codes = tree("b: 1\na: 2\nb: 3\n")
    assert isinstance(node, MappingNode)
    assert [key.text for key, _ in node.entries] == ["b", "a", "b"]
    assert codes == []


def test_every_node_knows_its_place() -> None:
    text = "a: [x, {b: 'c d'}]\n"
    node, _ = tree(text)
    assert isinstance(node, MappingNode)
    items = node.entries[0][1]
    assert isinstance(items, SequenceNode)
    inner = items.items[1]
    assert isinstance(inner, MappingNode)
    value = inner.entries[0][1]
    assert (text[items.start : items.end], text[value.start : value.end]) == ("[x, {b: 'c d'}]", "'c d'")


def test_an_alias_is_one_finding_and_no_value() -> None:
    assert tree("a: *b\n")[1] == ["P004"]
    assert tree("a: &b 1\nc: *b\n")[1] == ["P004", "P004"]


def test_a_second_document_is_one_finding() -> None:
    node, codes = tree("a: 1\n---\nb: &x 2\n")
    assert codes == ["P004"]
    assert isinstance(node, MappingNode)


@pytest.mark.parametrize("text", ["a: [", "a: 'b", "a: \x01", "a: b: c", "\ta: b", "- a\nb: c", "a: }", "%", "a: @b"])
def test_text_that_is_no_yaml_is_one_finding(text: str) -> None:
    assert tree(text) == (None, ["P002"])


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "~\n", "\ufeff"[:0]])
def test_files_without_a_value_are_empty(text: str) -> None:
    assert tree(text) == (None, ["P003"])


@pytest.mark.parametrize("deep", [DEEPEST + 1, 3000])
def test_yaml_that_is_nested_too_deeply_is_one_finding(deep: int) -> None:
    # libyaml has a limit of its own.
    assert tree("[" * deep + "]" * deep) in ((None, ["P004"]), (None, ["P004", "P002"]))
    assert tree("[" * DEEPEST + "]" * DEEPEST)[1] == []


def test_a_row_of_very_many_digits_is_text() -> None:
    assert plain_scalar("9" * 100) == int("9" * 100)
    assert plain_scalar("9" * 5000) == "9" * 5000
