"""YAML text → its events with offsets: from libyaml if available, otherwise from PyYAML's own parser."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import yaml

from privtab.yaml_text import DEEPEST, check_line_breaks

Placed: TypeAlias = tuple[Any, int, int]
"""An event and its start and end offsets."""

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REFUSED = "found unexpected ':'"
_NO_VALUE = re.compile(r"(?<=\w:)(?=[,}\]])")


def events(text: str) -> Iterable[Placed]:
    """The events of a text in order. Raises yaml.YAMLError from PyYAML's own parser if the text is not YAML.

    libyaml rejects a key without a value and without a space, `{table:, view:}`, which YAML allows and policies use often. It
    gets a copy with that space; offsets are those of the original. If a copy could mean something else, PyYAML's own parser
    reads the text, at a tenth of the speed. No event follows the first value that is nested too deeply.
    """
    check_line_breaks(text)
    try:
        return list(_parsed(text, _FAST))
    except yaml.YAMLError as error:
        refused = getattr(error, "problem", None) == _REFUSED
    patched = _patched(text, [place.start() for place in _NO_VALUE.finditer(text)]) if refused else None
    return patched if patched is not None else _parsed(text, yaml.SafeLoader)


def _parsed(text: str, loader: Any) -> Iterator[Placed]:
    event: Any
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        yield event, event.start_mark.index, event.end_mark.index
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            return


def _patched(text: str, gaps: Sequence[int]) -> list[Placed] | None:
    """The events of the text with a space at each of the gaps, as read by libyaml; None if libyaml rejects it, or in doubt.

    A space after a colon changes the meaning only inside a scalar, a tag or an anchor: everywhere else libyaml has just rejected
    that colon, or it is in a comment.
    """
    spaces = [gap + index for index, gap in enumerate(gaps)]
    copy = " ".join(text[start:end] for start, end in zip((0, *gaps), (*gaps, len(text)), strict=True))
    placed: list[Placed] = []
    in_scalars: set[int] = set()
    try:
        for event, start, end in _parsed(copy, _FAST):
            before, after = bisect_left(spaces, start), bisect_left(spaces, end)
            if isinstance(event, yaml.NodeEvent) and (event.anchor is not None or getattr(event, "tag", None)):
                return None
            if before != after and isinstance(event, yaml.ScalarEvent):
                in_scalars.update(gaps[before:after])
            placed.append((event, start - before, end - after))
    except yaml.YAMLError:
        return None
    if in_scalars:
        return _patched(text, [gap for gap in gaps if gap not in in_scalars])
    return placed
