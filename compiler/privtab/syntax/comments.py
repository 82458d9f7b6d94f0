"""Find the comments of a YAML text, which its events do not include."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from privtab.syntax.yaml_events import events

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
