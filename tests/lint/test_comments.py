from __future__ import annotations

import pytest

from privtab.base.diagnostics import Diagnostic
from privtab.base.source import SourceFile
from privtab.checks.lint.judge import Ignore, ignores
from privtab.language.syntax.yaml_tree import comments


def read(text: str) -> tuple[tuple[Ignore, ...], list[Diagnostic]]:
    found: list[Diagnostic] = []
    return ignores(SourceFile.of("a.yaml", text), found), found


def good(text: str) -> tuple[Ignore, ...]:
    read_, found = read(text)
    assert found == []
    return read_


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b # c\n", ["# c"]),
        ("# a\n\n  # b\r\na: 1 #c", ["# a", "# b", "#c"]),
        ("a: 'x # y' # z\n", ["# z"]),
        ('a: "x # y\n  # still text" # z\n', ["# z"]),
        ("a: x#y\n", []),
        ("a: |  # head\n  # text\n  text # too\n# after\nb: 1", ["# head", "# after"]),
        ("a: >- # head\n  x\n\n  # y\nb:\n  # c\n  - 1", ["# head", "# c"]),
        ("a: {b: c, # d\n  # e\n  f: [1, 2 # g\n  ]}", ["# d", "# e", "# g"]),
        ("a: {table:, x: y} # null\n", ["# null"]),
        ("a: two\n  lines # c\n", ["# c"]),
    ],
)
def test_comments_are_distinguished_from_texts(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in comments(text)] == expected


def test_codes_reason_and_line() -> None:
    (comment,) = good("a: 1\nb: 2  # privtab: ignore P305, P310: the document says so\nc: 3\n")
    assert [(code.value, code.span.line, code.span.column) for code in comment.codes] == [
        ("P305", 2, 25),
        ("P310", 2, 31),
    ]
    assert comment.reason == "the document says so"
    assert (comment.first, comment.last) == (2, 2)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# privtab: ignore P305 why\na: 1\nb: 2\n", (2, 2)),
        ("# privtab: ignore P305 why\n\n# another comment\na: 1\nb: 2\n", (4, 4)),
        ("# privtab: ignore P305 why\na:\n  b: 1\n\n  c:\n    d: 1\ne: 1\n", (2, 6)),
        ("a:\n  b:  # privtab: ignore P305 why\n    c: 1\n  d: 1\n", (2, 3)),
        ("a:\n  b: {c: 1,  # privtab: ignore P305 why\n      d: 1}\n  e: 1\n", (2, 3)),
        ("a:  # privtab: ignore P305 why\n- 1\n- 2\nb: 1\n", (1, 3)),
        ("a:\n  # privtab: ignore P305 why\n  - b: 1\n    c: 2\n  - d: 1\n", (3, 4)),
        ("# privtab: ignore-file P305 why\na:\n  b: 1\nc: 2\n", (1, 5)),
        ("a: 1\n# privtab: ignore P305 why", (2, 2)),
    ],
)
def test_a_comment_covers_the_entry_beside_or_below_it(text: str, lines: tuple[int, int]) -> None:
    (comment,) = good(text)
    assert (comment.first, comment.last) == lines


@pytest.mark.parametrize(
    ("comment", "message", "help_"),
    [
        ("ignore", "this comment names no code", "write `# privtab: ignore P305 why`"),
        ("ignore the rest", "this comment names no code", "write `# privtab: ignore P305 why`"),
        ("ignore P305", "this comment gives no reason", "add the reason after the code"),
        ("ignore P305, P310 --", "this comment gives no reason", "add the reason after the code"),
        ("ignore P3O5 why", "this comment names no code", "write `# privtab: ignore P305 why`"),
        ("ignore P3055 why", "there is no finding `P3055`", "did you mean `P305`?"),
        ("ignore p305 why", "there is no finding `p305`", "did you mean `P305`?"),
        ("ignore P101 why", "`P101` is an error: it cannot be ignored", "put right what it says"),
        ("ignore P401 why", "`P401` is about comments: it cannot be ignored", "put right what it says"),
        ("ignroe P305 why", "unknown word `ignroe`", "did you mean `ignore`?"),
        ("ignore_file P305 why", "unknown word `ignore_file`", "did you mean `ignore-file`?"),
    ],
)
def test_mistakes_in_comments_are_findings(comment: str, message: str, help_: str) -> None:
    _, (found,) = read(f"a: 1  # privtab: {comment}\n")
    assert (found.code, found.message, found.help) == ("P402", message, help_)


def test_other_words_are_other_comments() -> None:
    assert read("# privtab: 1 is the first format\n# see privtab: lint\na: 1\n") == ((), [])


def test_a_text_that_reads_like_a_comment_ignores_nothing() -> None:
    assert good("a: '# privtab: ignore P305 why'\nb: |\n  # privtab: ignore P305 why\n") == ()
