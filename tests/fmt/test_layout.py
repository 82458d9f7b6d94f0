"""What the layout is: before and after, side by side."""

from __future__ import annotations

from textwrap import dedent

import pytest

from privtab.base.diagnostics import Diagnostic
from privtab.base.source import SourceFile
from privtab.checks.lint.judge import ignores
from privtab.language.fmt import format_source

LONG = "a word that goes on " * 7


def laid_out(text: str) -> str:
    once, found = format_source(SourceFile.of("a.yaml", text))
    assert once is not None, found
    again, _ = format_source(SourceFile.of("a.yaml", once))
    assert again == once, "not stable"
    return once


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("a:   1\nb :  x\n", "a: 1\nb: x\n", id="one space behind a colon"),
        pytest.param("a:\n     b:\n      - 1\n", "a:\n  b:\n    - 1\n", id="two spaces for each level"),
        pytest.param("a:\n- 1\n-   - 2\n    - 3\n", "a:\n  - 1\n  - - 2\n    - 3\n", id="lists are indented"),
        pytest.param("-\n  a: 1\n  b: 2\n", "- a: 1\n  b: 2\n", id="an item begins beside its dash"),
        pytest.param("a: {b: 1,c:   [2,3] , }\n", "a: {b: 1, c: [2, 3]}\n", id="brackets"),
        pytest.param("a: {b: 1,\n    c: 2}\n", "a: {b: 1, c: 2}\n", id="short brackets go on one line"),
        pytest.param("a:\n  b: {}\n  c: [ ]\n", "a:\n  b: {}\n  c: []\n", id="empty brackets"),
        pytest.param("{a: 1, b: {c: }}", "{a: 1, b: {c:}}\n", id="a whole file in brackets"),
        pytest.param("a: {b: }\nc:\nd: ~\n", "a: {b:}\nc:\nd: ~\n", id="nothing stays what it was"),
        pytest.param("\n\n# a\n\n\n\nb: 1\n\n\n\nc: 1\n\n", "# a\n\nb: 1\n\nc: 1\n", id="one blank line at most"),
        pytest.param("a:\n\n  b: 1\n", "a:\n  b: 1\n", id="no blank line below a key"),
        pytest.param("a: 'x'\nb: \"y z\"\n'c d': 1\n", "a: x\nb: y z\nc d: 1\n", id="no quotes without need"),
        pytest.param(
            "a: '1'\nb: 'true'\nc: 'x: y'\nd: 'x #y'\ne: '- x'\nf: ''\n",
            'a: "1"\nb: "true"\nc: "x: y"\nd: "x #y"\ne: "- x"\nf: ""\n',
            id="double quotes where needed",
        ),
        pytest.param("a: 'no'\nb: \"on\"\n", "a: no\nb: on\n", id="words that YAML 1.2 takes for words"),
        pytest.param("a: \"x: \\\"y\\\"\"\nb: 'it''s: so'\n", 'a: \'x: "y"\'\nb: "it\'s: so"\n', id="fewest escapes"),
        pytest.param("a: {'b, c': 'd, e', f: 'g'}\n", 'a: {"b, c": "d, e", f: g}\n', id="commas in brackets"),
        pytest.param("'b, c': 'd, e'\n", "b, c: d, e\n", id="commas outside of brackets"),
        pytest.param('a: "x\\ty\\u2028z\\n"\n', 'a: "x\\ty\\u2028z\\n"\n', id="escapes"),
        pytest.param("a: one\n  two\n\nb: 1\n", "a: one two\n\nb: 1\n", id="lines of one text"),
        pytest.param("a: |\n     x\n      y\n\n\nb: 1\n", "a: |\n  x\n   y\n\nb: 1\n", id="a block of text"),
        pytest.param("a: |+\n  x\n\n\nb: 1\n", "a: |+\n  x\n\n\nb: 1\n", id="blank lines that count"),
        pytest.param("a: |4\n      x\n    y\n", "a: |2\n    x\n  y\n", id="a block that begins further in"),
        pytest.param("a: >-\n    x\n    y\n", "a: >-\n  x\n  y\n", id="a folded text keeps its lines"),
        pytest.param("a: |\n  x", "a: |-\n  x\n", id="a block without a last line break"),
        pytest.param("a: 1\r\nb: 2\r\n", "a: 1\nb: 2\n", id="line ends"),
        pytest.param("--- # a\nb: 1\n...\n", "# a\nb: 1\n", id="no marks of documents"),
    ],
)
def test_layout(before: str, after: str) -> None:
    assert laid_out(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("a: 1 # x\nbcd: 2      # y\n", "a: 1    # x\nbcd: 2  # y\n", id="beside neighbours: one column"),
        pytest.param("a: 1 # x\nb: 2\nc: long # y\n", "a: 1  # x\nb: 2\nc: long  # y\n", id="no neighbours"),
        pytest.param("a: 1 # x\n\nlonger: 2 # y\n", "a: 1  # x\n\nlonger: 2  # y\n", id="a blank line between"),
        pytest.param("a: # x\n  b: 1\n", "a:  # x\n  b: 1\n", id="beside a key"),
        pytest.param("a: [1, # x\n  2] # y\n", "a:  # y\n  - 1  # x\n  - 2\n", id="within brackets"),
        pytest.param("a: { # x\n b: 1}\n", "a:  # x\n  b: 1\n", id="behind a bracket"),
        pytest.param("a:\n    # x\n    b: 1\n  # y\nc: 1\n", "a:\n  # x\n  b: 1\n# y\nc: 1\n", id="above its line"),
        pytest.param("a:\n    b: 1\n    # x\nc: 1\n", "a:\n  b: 1\n  # x\nc: 1\n", id="below the last line"),
        pytest.param("a:\n- 1\n# x\nb: 1\n", "a:\n  - 1\n# x\nb: 1\n", id="below a list that is not indented"),
        pytest.param("a:\n  # x\nb: 1\n", "a:\n  # x\nb: 1\n", id="below a key without a value"),
        pytest.param("a:\n  # x\n  y\n", "# x\na: y\n", id="between key and value"),
        pytest.param("- # x\n  a: 1\n", "# x\n- a: 1\n", id="behind a dash"),
        pytest.param("a: >- # x\n  y\n# z\n", "a: >-  # x\n  y\n# z\n", id="at a block of text"),
        pytest.param("a: | \n  # x\n  y # z\n", "a: |\n  # x\n  y # z\n", id="text that looks like one"),
        pytest.param("a: [1 # x\n  # y\n  ,2] #z\n", "a:  #z\n  - 1  # x\n  # y\n  - 2\n", id="before a comma"),
        pytest.param("a: { # x\n  }\nb: [\n  # y\n  ]\n", "# x\na: {}\n# y\nb: []\n", id="in empty brackets"),
        pytest.param("- >-\n    a\n    b\n  # x\n- c\n", "- >-\n  a\n  b\n# x\n- c\n", id="below a block of text"),
        pytest.param("a: '#x' #y\n", 'a: "#x"  #y\n', id="after quotes"),
    ],
)
def test_comments_stay_with_what_they_are_about(before: str, after: str) -> None:
    assert laid_out(before) == after


def test_long_values_are_broken_into_lines() -> None:
    row = ", ".join(f"column_{n}: value_{n}" for n in range(8))
    table = laid_out(f"a: {{{row}}}\nb:\n- {{{row}}}\n").splitlines()
    assert table[1] == "  column_0: value_0"
    assert table[10].startswith("  - {column_0: value_0, column_1")
    assert table[11].startswith("     column_")
    assert max(map(len, table)) <= 120


def test_a_long_list_of_words_keeps_its_lines_or_is_filled_up() -> None:
    words = [f"word_{n:02}" for n in range(20)]
    text = f"a: [{', '.join(words[:3])},\n    {', '.join(words[3:11])},\n    {', '.join(words[11:])}]\n"
    assert laid_out(text) == text
    filled = laid_out(f"a: [{', '.join(words)}]\n").splitlines()
    assert len(filled) == 2
    assert filled[0].startswith("a: [word_00, word_01")
    assert filled[1].startswith("    word_1")


def test_a_long_text_is_folded() -> None:
    assert laid_out(f"a: {LONG}\n").splitlines()[0] == "a: >-"
    assert max(map(len, laid_out(f"a:\n  b: '{LONG}: x'\n").splitlines())) <= 120
    word = "x" * 130
    assert laid_out(f"a: {word}\n") == f"a: {word}\n"
    double = f"{'x ' * 30} {'y ' * 40}z"
    assert "  y" in laid_out(f"a: '{double}'\n")


def test_a_comment_beside_a_long_line_stays_out_of_the_column() -> None:
    long = "x" * 112
    text = dedent(f"""\
        a: 1  # one
        b: {long}  # two
        cc: 2 # three
        """)
    assert laid_out(text).splitlines() == ["a: 1   # one", f"b: {long}  # two", "cc: 2  # three"]


@pytest.mark.parametrize("text", ["a: [1\n", "a: &x 1\nb: *x\n", "a: 1\n---\nb: 2\n", "a: !t 1\n", ""])
def test_a_file_that_cannot_be_laid_out_has_findings(text: str) -> None:
    result, found = format_source(SourceFile.of("a.yaml", text))
    assert result is None
    assert found


def test_a_comment_that_ignores_a_finding_still_covers_its_row() -> None:
    cell = " or ".join(f"PRIVILEGE_{n} (some_entity)" for n in range(5))
    row = f"get: {{requires: {cell}, source: 1}}  # privtab: ignore P310 why\n"
    found: list[Diagnostic] = []
    for text in (
        row,
        laid_out(row),
        laid_out(f"- {row}"),
        laid_out(f"- {{get: {cell}, source: 1}} # privtab: ignore P310 why"),
    ):
        (ignore,) = ignores(SourceFile.of("a.yaml", text), found)
        expected = next(n for n, line in enumerate(text.splitlines(), start=1) if "PRIVILEGE" in line)
        assert ignore.first <= expected <= ignore.last, text
    assert not found
