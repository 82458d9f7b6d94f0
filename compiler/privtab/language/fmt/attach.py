"""The nodes that are laid out: a YAML tree with each comment attached to a node by its position."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias

from privtab.base.records import dataclass
from privtab.base.source import SourceFile
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode, comments


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A comment on its own line, and whether a blank line precedes it."""

    text: str
    blank: bool


@dataclass(slots=True, kw_only=True)
class Text:
    """A scalar; `raw` is its source text, for block scalars."""

    scalar: ScalarNode
    raw: str


@dataclass(slots=True, kw_only=True)
class Item:
    """An entry of a mapping, or an item of a list, whose key is None.

    `lead` are the comments above it, `tail` the comments beside it, `foot` the comments below it that are indented further. `blank`:
    a blank line precedes it. `row`: the line of the file on which it begins.
    """

    key: Text | None
    value: Value
    lead: list[Line] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    foot: list[Line] = field(default_factory=list)
    blank: bool = False
    row: int = 0


@dataclass(slots=True, kw_only=True)
class Collection:
    """A mapping or a list. `flow`: written in brackets; `open`: contains comments, so it cannot be on one line."""

    mapping: bool
    flow: bool
    open: bool
    items: list[Item]
    foot: list[Line] = field(default_factory=list)


Value: TypeAlias = Text | Collection


def attach(source: SourceFile, root: YamlNode) -> Item:
    """The whole file as one item without a key; `lead` holds the comments above it, `foot` the comments below."""
    return _Attacher(source).document(root)


class _Attacher:
    """Walks the tree in the order of the file, and takes each comment where it occurs."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.text = source.text
        self.comments = list(comments(source.text))
        self.starts = [start for start, _ in self.comments]
        self.next_comment = 0
        self.kept_blank = -1
        """The offset up to which blank lines belong to a block scalar that keeps them."""

    def document(self, root: YamlNode) -> Item:
        item = Item(key=None, value=Text(scalar=ScalarNode(None, "", "", 0, 0), raw=""))
        if isinstance(root, ScalarNode) or self.text[root.start] in "{[":
            item.lead = self.above(root.start)
        item.value = self.value(root, -1, len(self.text), flow=False)
        item.tail = self.trailing(root, len(self.text))
        item.foot = self.above(len(self.text))
        return item

    def value(self, node: YamlNode, column: int, limit: int, *, flow: bool) -> Value:
        """Convert a node; `column` is that of its entry, `limit` is where the next entry begins."""
        if isinstance(node, ScalarNode):
            if _block(node) and node.text.endswith("\n\n"):
                self.kept_blank = node.end
            return Text(scalar=node, raw=self.text[node.start : node.end])
        flow = flow or self.text[node.start] in "{["
        end = node.end - 1 if flow and self.text[node.end - 1] in "}]" else (node.end if flow else limit)
        content_column = max(self.source.position(node.start)[1] - 1, column + 1)
        found = Collection(mapping=isinstance(node, MappingNode), flow=flow, open=self.commented(node), items=[])
        match node:
            case MappingNode(entries=entries):
                starts = [key.start for key, _ in entries]
                for number, (key, value) in enumerate(entries):
                    item_end = starts[number + 1] if number + 1 < len(starts) else end
                    found.items.append(self.entry(key, value, content_column, item_end, flow=flow))
            case SequenceNode(items=items):
                for number, value in enumerate(items):
                    item_end = self.dash(items[number + 1], flow=flow) if number + 1 < len(items) else end
                    found.items.append(self.entry(None, value, content_column, item_end, flow=flow))
        if flow:
            found.foot = self.above(end)
        else:
            found.foot = self.indented(content_column, limit)
        return found

    def entry(self, key: ScalarNode | None, value: YamlNode, column: int, until: int, *, flow: bool) -> Item:
        """Convert an entry of a mapping, or without a key an item of a list whose content begins in `column`."""
        begin = value.start if key is None else key.start
        row, own_column = self.source.position(begin)
        column = column if key is None else own_column - 1
        item = Item(
            key=None if key is None else Text(scalar=key, raw=self.text[key.start : key.end]),
            value=_NOTHING,
            lead=self.above(begin),
            blank=self.blank(self.dash(value, flow=flow) if key is None else begin),
            row=row,
        )
        if _block(value):
            # After `|` or `>`, on the same line.
            item.tail = [line.text for line in self.above(self.line_end(value.start))]
        else:
            item.tail = self.on_line(row if key is None else self.source.position(key.end)[0], self.inside(value))
            if key is not None and isinstance(value, ScalarNode):
                item.lead += self.above(value.start)
        item.value = self.value(value, column, until, flow=flow)
        item.tail += self.trailing(value, until)
        item.foot = [] if flow or not isinstance(value, ScalarNode) else self.indented(column + 1, until)
        return item

    def inside(self, node: YamlNode) -> int:
        """The start of the first element in brackets; for any other node, its own start."""
        match node:
            case MappingNode(entries=((key, _), *_)):
                return key.start
            case SequenceNode(items=(first, *_)) if self.text[node.start] == "[":
                return first.start
            case _:
                return node.start

    def trailing(self, node: YamlNode, until: int) -> list[str]:
        """The comments after a value, on the line where it ends."""
        if _block(node) or not (isinstance(node, ScalarNode) or self.text[node.start] in "{["):
            return []
        return self.on_line(self.source.position(node.end)[0], until)

    def on_line(self, line: int, until: int) -> list[str]:
        """The texts of the next comments on a line."""
        return [comment.text for comment in self.above(until, lambda start: self.source.position(start)[0] == line)]

    def indented(self, column: int, until: int) -> list[Line]:
        """The next comments that are indented by `column` or more."""
        return self.above(until, lambda start: self.source.position(start)[1] > column)

    def above(self, until: int, fits: Callable[[int], bool] = lambda _: True) -> list[Line]:
        """The next comments before an offset, as long as they fit."""
        lines: list[Line] = []
        while self.next_comment < len(self.comments):
            start, end = self.comments[self.next_comment]
            if start >= until or not fits(start):
                break
            lines.append(Line(text=self.text[start:end].rstrip(), blank=self.blank(start)))
            self.next_comment += 1
        return lines

    def blank(self, start: int) -> bool:
        """Return whether a node or comment is the first of its line, and the line above is blank."""
        row = self.source.position(start)[0]
        begin = self.source.starts[row - 1]
        if self.text[begin:start].strip(" -?") or row < 2:
            return False
        above = self.source.starts[row - 2]
        return above >= self.kept_blank and not self.text[above:begin].strip()

    def dash(self, node: YamlNode, *, flow: bool) -> int:
        """The start of a list item: its dash, which may be on an earlier line."""
        end = node.start
        while not flow and end > 0:
            begin = max(self.text.rfind("\n", 0, end), self.text.rfind("\r", 0, end)) + 1
            line = self.text[begin:end]
            if line.lstrip().startswith("-") or "-" in line.strip()[-1:]:
                return begin + line.rindex("-")
            if line.strip() and not line.lstrip().startswith("#") and end != node.start:
                break
            end = begin - 1
        return node.start

    def commented(self, node: YamlNode) -> bool:
        first = bisect_left(self.starts, node.start)
        return first < len(self.starts) and self.starts[first] < node.end

    def line_end(self, offset: int) -> int:
        line = self.source.position(offset)[0]
        return self.source.starts[line] if line < len(self.source.starts) else len(self.text)


_NOTHING = Text(scalar=ScalarNode(None, "", "", 0, 0), raw="")


def _block(node: YamlNode) -> bool:
    return isinstance(node, ScalarNode) and node.style in ("|", ">")
