"""YAML text → its events with offsets → a tree of nodes; values follow the YAML 1.2 core schema (`on`, `no` and `yes` are text).

The events come from libyaml if available, otherwise from PyYAML's own parser.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Sequence_
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import yaml

from privtab.base.diagnostics import LINE_END, Diagnostic, Span
from privtab.base.lazy import pattern
from privtab.base.nodes import dataclass
from privtab.base.source import SourceFile
from privtab.base.yaml_text import DEEPEST, check_line_breaks
from privtab.language.findings import unreadable

Placed: TypeAlias = tuple[Any, int, int]
"""An event and its start and end offsets."""

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REFUSED = "found unexpected ':'"
_NO_VALUE = pattern(r"(?<=\w:)(?=[,}\]])")
_COMMENT = pattern(r"#[^\r\n]*")
_KEPT = 1 << 20
"""Characters of the longest text whose events are kept."""
_ESCAPES = {"x": 4, "u": 6, "U": 10}


def events(text: str) -> Iterable[Placed]:
    """The events of a text in order. Raises yaml.YAMLError from PyYAML's own parser if the text is not YAML.

    libyaml rejects a key without a value and without a space, `{table:, view:}`, which YAML allows and policies use often. It
    gets a copy with that space; offsets are offsets of the original. If a copy could mean something else, PyYAML's own parser
    reads the text, at a tenth of the speed. No event follows the first value that is nested too deeply.
    """
    check_line_breaks(text)
    read = _latest if len(text) <= _KEPT else _latest.__wrapped__
    found = read(text)
    return found if found is not None else _parsed(text, yaml.SafeLoader)


@lru_cache(maxsize=2)
def _latest(text: str) -> list[Placed] | None:
    """The events as libyaml reads them, None if PyYAML must: formatting a file asks several times for those of two texts."""
    try:
        return list(_parsed(text, _FAST))
    except yaml.YAMLError as error:
        refused = getattr(error, "problem", None) == _REFUSED
    return _patched(text, [place.start() for place in _NO_VALUE.finditer(text)]) if refused else None


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
    """The ranges in which `#` is part of a text: scalars, and for block scalars the lines below their `|` or `>`."""
    for event, start, end in events(text):
        if isinstance(event, yaml.ScalarEvent):
            head = LINE_END.search(text, start) if event.style and event.style in "|>" else None
            begin = head.end() if head else start
            if begin < end:
                yield begin, end


def _parsed(text: str, loader: Any) -> Iterator[Placed]:
    """As `yaml.parse`, which asks before each event whether there is one."""
    reader = loader(text)
    depth = 0
    try:
        while True:
            event = reader.get_event()
            yield event, event.start_mark.index, event.end_mark.index
            kind = type(event)
            if kind in _STARTS:
                depth += 1
            elif kind in _ENDS:
                depth -= 1
            if depth > DEEPEST or kind is yaml.StreamEndEvent:
                return
    finally:
        reader.dispose()


_STARTS = frozenset({yaml.MappingStartEvent, yaml.SequenceStartEvent})
_ENDS = frozenset({yaml.MappingEndEvent, yaml.SequenceEndEvent})


def _patched(text: str, gaps: Sequence_[int]) -> list[Placed] | None:
    """The events of the text with a space at each of the gaps, as read by libyaml; None if libyaml rejects it, or in doubt.

    A space after a colon changes the meaning only inside a scalar, a tag or an anchor: everywhere else libyaml has just rejected
    that colon, or it is in a comment.
    """
    spaces = [gap + index for index, gap in enumerate(gaps)]
    copy = " ".join(text[start:end] for start, end in zip((0, *gaps), (*gaps, len(text)), strict=True))
    placed: list[Placed] = []
    in_scalars: set[int] = set()
    last = spaces[-1] if spaces else -1
    try:
        for event, start, end in _parsed(copy, _FAST):
            before = after = len(spaces)
            if start <= last:
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


Plain: TypeAlias = str | int | float | bool | None

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = pattern(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST_NUMBER = 100
"""Limit on the characters of a number; longer ones are text, since Python does not read numbers of any length."""


def offsets(raw: str, text: str, style: str, start: int, end: int) -> list[int]:
    """File offsets for each character of `text` and for its end; `raw[start:end]` is the scalar as written.

    If the two cannot be matched any further, the remaining characters map to the start of the scalar.
    """
    position, limit = _content(raw, style, start, end)
    places: list[int] = []
    i = 0
    while i < len(text):
        if style == '"' and raw[position : position + 1] == "\\":
            kind = raw[position + 1 : position + 2]
            if kind in ("\n", "\r"):
                position = _skip(raw, position + 1, limit)
                continue
            places.append(position)
            position += _ESCAPES.get(kind, 2)
            i += 1
        elif text[i] in " \n\t":
            run = i
            while run < len(text) and text[run] in " \n\t":
                run += 1
            after = _skip(raw, position, limit)
            if after == position:
                break
            places.extend(min(position + k, after - 1) for k in range(run - i))
            position, i = after, run
        else:
            if raw[position : position + 1].isspace():
                position = _skip(raw, position, limit)
            if position >= limit or raw[position] != text[i]:
                break
            places.append(position)
            position += 2 if style == "'" and raw[position] == "'" else 1
            i += 1
    places.extend([start] * (len(text) - len(places)))
    last = places[-1] + 1 if places else position
    places.append(last if i == len(text) else end)
    return places


def _content(raw: str, style: str, start: int, end: int) -> tuple[int, int]:
    """The start and end of the content: after the opening quote, or after the header line of a block scalar."""
    if style in ("'", '"') and style:
        return start + 1, end - 1
    if style in ("|", ">") and style:
        line = raw.find("\n", start, end)
        return (line + 1 if line >= 0 else end), end
    return start, end


def _skip(raw: str, position: int, limit: int) -> int:
    while position < limit and raw[position].isspace():
        position += 1
    return position


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A scalar: its value, its text after folding and unquoting, and its offsets.

    >>> ScalarNode(12, "12", "", 0, 2).with_text("true").value
    True
    """

    value: Plain
    text: str
    style: str
    start: int
    end: int

    @property
    def empty(self) -> bool:
        """True if the value is left empty; an alias, and a cell that is cut, have no value either."""
        return self.value is None and not self.style

    def with_text(self, text: str) -> ScalarNode:
        """The scalar with another text, whose value follows from it as in a file."""
        return replace(self, text=text, value=text if self.style else plain_scalar(text))

    def part(self, source: SourceFile, start: int, end: int) -> Span:
        """The span of `text[start:end]` in the file."""
        if not self.style and self.end - self.start == len(self.text):
            return source.span(self.start + start, self.start + max(end, start + 1))
        places = offsets(source.text, self.text, self.style, self.start, self.end)
        first = places[min(start, len(self.text))]
        last = places[min(max(end, start + 1), len(self.text)) - 1] if self.text else first
        return source.span(first, max(first, last) + 1)


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list of nodes: `[a, b]` has two `items`."""

    items: tuple[YamlNode, ...]
    start: int
    end: int
    empty: ClassVar = False


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Key-value pairs in the order of the file; keys may repeat: `{a: 1, a: 2}` has two `entries`."""

    entries: tuple[tuple[ScalarNode, YamlNode], ...]
    start: int
    end: int
    empty: ClassVar = False


YamlNode: TypeAlias = ScalarNode | SequenceNode | MappingNode
"""A node of a document, as `compose_yaml(source, found)` returns its root."""


def plain_scalar(text: str) -> Plain:
    """The value of an unquoted scalar by the YAML 1.2 core schema.

    >>> [plain_scalar(t) for t in ("on", "true", "12", "~", "1.5")]
    ['on', True, 12, None, 1.5]
    """
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    first = text[0]
    if first not in "+-.0123456789" or len(text) > _LONGEST_NUMBER:
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").replace(".n", "n"))
    return text


def compose_yaml(source: SourceFile, found: list[Diagnostic], begins: str = unreadable.POLICY) -> YamlNode | None:
    """Build the tree of a file's only document; None, with findings, if there is no tree.

    `begins`: how a file of this kind begins, as advice for an empty one.
    """
    if source.undecodable is not None:
        offset = source.undecodable
        found.append(unreadable.not_utf8(source.span(offset, offset + 1)))
        return None
    builder = _Builder(source, found)
    try:
        for event, start, end in events(source.text):
            builder.take(event, start, end)
    except yaml.YAMLError as error:
        found.append(unreadable.yaml_error(source, error))
        return None
    if builder.root is None and not builder.broken:
        found.append(unreadable.empty_file(source.span(0, 0), begins))
    return builder.root


class _Builder:
    def __init__(self, source: SourceFile, found: list[Diagnostic]) -> None:
        self.source = source
        self.found = found
        self.root: YamlNode | None = None
        self.broken = False
        self.documents = 0
        self.open: list[tuple[int, bool, list[YamlNode]]] = []

    def take(self, event: Any, start: int, end: int) -> None:
        kind = type(event)
        if self.documents > 1:
            return
        if kind is yaml.ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                self.refuse_anchor(event, start, end)
                self.refuse_tag(event, start)
            plain = event.implicit[0] and not event.style
            value = plain_scalar(event.value) if plain else event.value
            self.add(ScalarNode(value, event.value, event.style or "", start, end))
        elif kind in _STARTS:
            self.refuse_anchor(event, start, end)
            self.refuse_tag(event, start)
            self.open.append((start, kind is yaml.MappingStartEvent, []))
            if len(self.open) > DEEPEST:
                self.found.append(unreadable.yaml_feature_nesting(self.source.span(start, start + 1)))
                self.broken = True
        elif kind is yaml.MappingEndEvent:
            begin, _, items = self.open.pop()
            self.add(MappingNode(tuple(self.pairs(items)), begin, end))
        elif kind is yaml.SequenceEndEvent:
            begin, _, items = self.open.pop()
            self.add(SequenceNode(tuple(items), begin, end))
        elif kind is yaml.AliasEvent:
            self.found.append(unreadable.yaml_feature_alias(self.source.span(start, end), event.anchor))
            self.broken = True
            self.add(ScalarNode(None, "", "*", start, end))
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self.found.append(unreadable.yaml_feature_document(self.source.span(start, start + 3)))

    def add(self, node: YamlNode) -> None:
        """Add a finished node to the innermost open collection, or make it the root."""
        if self.open:
            self.open[-1][2].append(node)
        elif not (isinstance(node, ScalarNode) and node.value is None):
            self.root = node

    def pairs(self, items: list[YamlNode]) -> list[tuple[ScalarNode, YamlNode]]:
        """The entries of a mapping; keys that are not scalars, and merges, are reported and dropped."""
        pairs: list[tuple[ScalarNode, YamlNode]] = []
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                self.found.append(unreadable.yaml_feature_complex_key(self.source.span(key.start, key.end)))
            elif key.text == "<<" and not key.style:
                self.found.append(unreadable.yaml_feature_merge(self.source.span(key.start, key.end)))
            else:
                pairs.append((key, value))
        return pairs

    def refuse_anchor(self, event: Any, start: int, end: int) -> None:
        if event.anchor is not None:
            offset = self.source.text.find("&", start, max(end, start + 1) + 1)
            offset = start if offset < 0 else offset
            self.found.append(
                unreadable.yaml_feature_anchor(self.source.span(offset, offset + 1 + len(event.anchor)), event.anchor)
            )

    def refuse_tag(self, event: Any, start: int) -> None:
        if event.tag is not None and event.tag != "!":
            offset = self.source.text.find("!", start)
            written = re.compile(r"\S*").match(self.source.text, offset)
            end = written.end() if written else offset + 1
            self.found.append(unreadable.yaml_feature_tag(self.source.span(offset, end), self.source.text[offset:end]))
