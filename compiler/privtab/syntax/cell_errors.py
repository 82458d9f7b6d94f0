"""What is wrong in a cell that does not parse, in plain words; and the comments of a YAML text, which its events do not include."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from privtab.syntax.yaml_tree import events


@dataclass(frozen=True, slots=True)
class CellError:
    """A cell that does not parse: the position and the error, and what is expected there in plain words."""

    start: int
    end: int
    message: str
    expected: tuple[str, ...]


_WORDS = {
    "NAME": "a name",
    "TEXT": "a name in quotes",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "COMMA": "`,`",
    "SLASH": "`/`",
    "PLUS": "`+`",
    "_AND": "`and`",
    "_OR": "`or`",
    "OR_BELOW": "`or below`",
    "WHEN": "`when`",
    "CAN": "`can`",
    "OWNER": "`owner`",
    "MEMBER": "`member`",
    "HOLDS": "`holds`",
    "RELATION": "a relation such as `=`",
    "SELF": "`self`",
    "ANYONE": "`anyone`",
    "SERVICE_ADMIN": "`service admin`",
    "QUOTES": "quotes around a name of several words",
    "$END": "the end of the cell",
}


_TERM = frozenset({"NAME", "TEXT", "LPAR", "CAN", "OWNER", "MEMBER", "HOLDS", "SELF", "ANYONE", "SERVICE_ADMIN"})


def cell_error(text: str, error: UnexpectedInput) -> CellError:
    """What the parser found, said of the cell."""
    position: int = getattr(error, "pos_in_stream", None) or 0
    match error:
        case UnexpectedToken(token=token) if token.type != "$END":
            position = token.start_pos or 0
            end, message = position + max(1, len(token)), f"unexpected `{token}`"
            expected = set(error.accepts) or {"$END"}  # the input is complete: nothing can follow
            if token.type == "NAME" and {"SLASH", "PLUS"} <= expected:
                expected.add("QUOTES")
        case UnexpectedToken():
            position = end = len(text.rstrip())
            message = "the cell ends too early" if text.strip() else "the cell is empty"
            expected = set(error.accepts)
        case UnexpectedCharacters():
            end, message = position + 1, f"unexpected character `{text[position : position + 1]}`"
            expected = set(error.allowed)
            if {"NAME", "LPAR"} <= expected:
                expected |= _TERM  # keywords that look like names are not listed separately
        case _:
            end, message, expected = position + 1, "the cell does not parse", set()
    return CellError(position, end, message, _plain_words(expected))


def _plain_words(expected: set[str]) -> tuple[str, ...]:
    words: list[str] = []
    if expected - {"OR_BELOW"} == {"NAME", "RPAR", "COMMA"}:
        expected = expected - {"NAME"}  # the first of two names says a level; what is missing is the end of the target
    if expected >= _TERM:
        words.append("a condition such as `READ (table)`, `owner (…)`, `can OP (…)`")
        expected = expected - _TERM
    return (*words, *(_WORDS[name] for name in _WORDS if name in expected))


_COMMENT = re.compile(r"#[^\r\n]*")
_LINE_END = re.compile(r"\r\n|\n|\r")


def comments(text: str) -> Iterator[tuple[int, int]]:
    """The offsets of every comment; a `#` inside a text is not one. Raises YAMLError if the text is not YAML."""
    position = 0
    for start, end in (*_texts(text), (len(text), len(text))):
        while found := _COMMENT.search(text, position, start):
            # The search stops where a scalar begins; the comment itself continues to the end of its line.
            comment = _COMMENT.match(text, found.start())
            assert comment is not None
            yield comment.span()
            position = comment.end()
        position = max(position, end)


def _texts(text: str) -> Iterator[tuple[int, int]]:
    """Where `#` is part of a text: scalars, and for block scalars the lines below their `|` or `>`."""
    for event, start, end in events(text):
        if isinstance(event, yaml.ScalarEvent):
            head = _LINE_END.search(text, start) if event.style and event.style in "|>" else None
            begin = head.end() if head else start
            if begin < end:
                yield begin, end
