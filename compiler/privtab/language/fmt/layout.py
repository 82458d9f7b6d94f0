"""Turns `nodes` into lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.base.diagnostics import LINE_END
from privtab.base.lazy import pattern
from privtab.base.records import dataclass
from privtab.language.fmt.attach import Collection, Item, Line, Text, Value
from privtab.language.syntax.yaml_tree import plain_scalar

STEP = 2


@dataclass(slots=True)
class _OutputLine:
    """A line, and the comment beside it."""

    text: str
    comment: str = ""
    column: int = 0


def lay_out(document: Item) -> str:
    """The text of a whole file."""
    printer = _Printer()
    printer.document(document)
    lines = [
        f"{line.text:<{line.column}}{line.comment}"
        if line.column
        else f"{line.text}  {line.comment}"
        if line.comment
        else line.text
        for line in printer.lines
    ]
    while lines and not lines[0]:
        lines.pop(0)
    return "\n".join(lines).rstrip("\n") + "\n" if not printer.ends_in_kept_blanks else "\n".join(lines) + "\n"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[_OutputLine] = []
        self.ends_in_kept_blanks = False
        """True if the last printed value is a block scalar whose trailing blank lines count."""

    def document(self, item: Item) -> None:
        self.comments(item.lead, 0)
        match item.value:
            case Text() as text:
                self.put("", self.scalar(text, 0, 0), item.tail)
            case Collection() as collection:
                line = flow(collection) if collection.items else "{}" if collection.mapping else "[]"
                if line is not None and len(line) <= WIDTH:
                    self.comments(collection.foot, 0)
                    self.put("", [line], item.tail)
                else:
                    self.comments([Line(text=text, blank=False) for text in item.tail], 0)
                    self.collection(collection, 0, "")
        self.comments(item.foot, 0)

    def collection(self, collection: Collection, indent: int, head: str) -> None:
        """Print a collection in block form; its first line begins with `head`, which is as wide as the indentation."""
        run: list[_OutputLine] = []
        for number, item in enumerate(collection.items):
            lines_before = len(self.lines)
            move_comments_above(item, indent)
            if number or not head.strip():
                self.comments(item.lead, indent, first=number == 0 and indent > 0)
                if item.blank and (number or item.lead or indent == 0):
                    self.blank()
            starts_run = number == 0 or len(self.lines) > lines_before
            start = head if number == 0 else " " * indent
            first_line = len(self.lines)
            if collection.mapping:
                self.entry(item, indent, start)
            else:
                self.item(item, indent, start)
            output = self.lines[first_line]
            if starts_run or not item.tail:
                align(run)
                run = []
            if item.tail:
                run.append(output)
            # A comment indented below a multi-line text would become part of it.
            below = len(self.lines) > first_line + 1 and isinstance(item.value, Text)
            self.comments(item.foot, indent if below else indent + STEP)
        align(run)
        self.comments(collection.foot, indent)

    def entry(self, item: Item, indent: int, start: str) -> None:
        assert item.key is not None
        key = f"{start}{inline(item.key, flow=False)}:"
        match item.value:
            case Text() as text:
                self.put(key, self.scalar(text, len(key) + 1, indent + STEP), item.tail)
            case Collection() as collection:
                if (shown := bracketed(collection, len(key) + 1)) is not None:
                    self.put(key, shown, item.tail)
                else:
                    self.put(key, [], item.tail)
                    self.collection(collection, indent + STEP, " " * (indent + STEP))

    def item(self, item: Item, indent: int, start: str) -> None:
        match item.value:
            case Text() as text:
                self.put(f"{start}-", self.scalar(text, indent + STEP, indent + STEP), item.tail)
            case Collection() as collection:
                if (shown := bracketed(collection, indent + STEP, row=True)) is not None:
                    self.put(f"{start}-", shown, item.tail)
                else:
                    self.collection(collection, indent + STEP, f"{start}- ")

    def put(self, head: str, shown: list[str], comments: list[str]) -> None:
        """Print a first line with its comment, and the lines below."""
        first = " ".join(filter(None, (head, *shown[:1])))
        self.lines.append(_OutputLine(first, comments[0] if comments else ""))
        self.lines += [_OutputLine(line) for line in shown[1:]]
        self.ends_in_kept_blanks = bool(shown) and len(shown) > 1 and not shown[-1]

    def scalar(self, text: Text, column: int, indent: int) -> list[str]:
        """The lines of a scalar that begins in `column`, or continues below at `indent`."""
        scalar = text.scalar
        if scalar.style in ("|", ">") and scalar.style:
            return block(text, indent) or [quoted(scalar.text)]
        shown = inline(text, flow=False)
        if isinstance(scalar.value, str) and column + len(shown) > WIDTH:
            return folded(scalar.text, indent) or [shown]
        return [shown] if shown else []

    def comments(self, lines: list[Line], indent: int, *, first: bool = False) -> None:
        for number, line in enumerate(lines):
            if line.blank and not (first and number == 0):
                self.blank()
            self.lines.append(_OutputLine(" " * indent + line.text))
            self.ends_in_kept_blanks = False

    def blank(self) -> None:
        if self.lines and not self.ends_in_kept_blanks and self.lines[-1].text:
            self.lines.append(_OutputLine(""))


def move_comments_above(item: Item, indent: int) -> None:
    """Move the comments of an item that cannot stand beside it to the lines above it."""
    at_line_end = 1
    if isinstance(item.value, Collection):
        if not item.value.items:
            item.lead += item.value.foot
        column = indent + (STEP if item.key is None else len(inline(item.key, flow=False)) + 2)
        shown = bracketed(item.value, column, row=item.key is None)
        if shown is None and item.key is None:
            # The dash is on the first line of the item's content.
            first = item.value.items[0]
            move_comments_above(first, indent + STEP)
            item.lead += [Line(text=text, blank=False) for text in item.tail] + first.lead
            item.tail, first.lead = [], []
        elif shown is not None and len(shown) > 1:
            # The next line is still inside the brackets.
            at_line_end = 0
    item.lead += [Line(text=text, blank=False) for text in item.tail[at_line_end:]]
    del item.tail[at_line_end:]


def bracketed(collection: Collection, column: int, *, row: bool = False) -> list[str] | None:
    """A collection that is written in brackets and can stay so, beginning in `column`; None if it becomes a block.

    Long collections are continued on further lines if they are lists of words, or mappings that are one `row` of a
    list.
    """
    if not collection.items:
        return ["{}" if collection.mapping else "[]"]
    line = flow(collection) if collection.flow else None
    if line is None:
        return None
    if column + len(line) <= WIDTH:
        return [line]
    if row if collection.mapping else all(isinstance(item.value, Text) for item in collection.items):
        return _filled(collection, column)
    return None


def flow(value: Value) -> str | None:
    """A value on one line; None if comments or its form prevent that."""
    match value:
        case Text() as text:
            return inline(text, flow=True)
        case Collection(open=True) | Collection(flow=False):
            return None
        case Collection(mapping=mapping, items=items):
            parts = [_part(item) for item in items]
            content = ", ".join(part for part in parts if part is not None)
            return None if None in parts else f"{{{content}}}" if mapping else f"[{content}]"


def _part(item: Item) -> str | None:
    shown = flow(item.value)
    key = f"{inline(item.key, flow=True)}:" if item.key is not None else ""
    return None if shown is None else " ".join(filter(None, (key, shown)))


def _filled(collection: Collection, column: int) -> list[str] | None:
    """A long collection in brackets over several lines: with the original line breaks if they fit, else filled."""
    room = WIDTH - column - 2
    parts = [_part(item) or "" for item in collection.items]
    lines: list[str] = []
    row = 0
    for item, part in zip(collection.items, parts, strict=True):
        if lines and item.row == row:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
        row = item.row
    if len(lines) < 2 or any(len(line) > room for line in lines):
        lines = _filled_lines(parts, room, ", ")
    if any(len(line) > room for line in lines):
        return None
    opens, closes = "{}" if collection.mapping else "[]"
    margin = " " * (column + 1)
    last = len(lines) - 1
    return [f"{margin if n else opens}{line}{closes if n == last else ','}" for n, line in enumerate(lines)]


def align(run: list[_OutputLine]) -> None:
    """Align the comments of neighbouring lines; comments of lines that are too long are left out."""
    if not run:
        return
    limit = WIDTH - max(len(line.comment) for line in run)
    columns = [len(line.text) + 2 for line in run if len(line.text) + 2 <= limit]
    column = max(columns, default=0)
    for line in run:
        line.column = column if len(line.text) + 2 <= column else 0


WIDTH = 120
_SHORT = 40
_PRINTABLE = pattern("[\t\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
_BREAKS = pattern("[\u2028\u2029\x85]")
_FIRST = frozenset(",[]{}#&*!|>'\"%@`")
_IN_FLOW = pattern(r"[,\[\]{}]")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
_BREAK = pattern(r"(?<=[^ \t]) (?=[^ \t])")


def inline(text: Text, *, flow: bool) -> str:
    """A scalar on one line; inside brackets, more texts need quotes."""
    scalar = text.scalar
    if not isinstance(scalar.value, str):
        return scalar.text
    return scalar.text if is_plain(scalar.text, flow=flow) else quoted(scalar.text)


def is_plain(text: str, *, flow: bool) -> bool:
    """Return whether a text needs no quotes.

    >>> [is_plain(t, flow=False) for t in ("a, b", "no", "12", "a: b", "- a", "-a", "a #b", "")]
    [True, True, False, False, False, True, False, False]
    >>> is_plain("a, b", flow=True)
    False
    """
    if not text or plain_scalar(text) != text or text != text.strip() or text == "<<":
        return False
    if text[0] in _FIRST or (text[0] in "-?:" and (flow or text[1:2] in ("", " "))):
        return False
    if text.startswith(("---", "...")) or text.endswith(":") or ": " in text or " #" in text or "\t" in text:
        return False
    return _PRINTABLE.fullmatch(text) is not None and not (
        _BREAKS.search(text) or (flow and _IN_FLOW.search(text) is not None)
    )


def quoted(text: str) -> str:
    """A text in double quotes, or in single quotes if that saves escapes."""
    simple = _PRINTABLE.fullmatch(text) is not None and not _BREAKS.search(text) and "\t" not in text
    if simple and "'" not in text and ('"' in text or "\\" in text):
        return f"'{text}'"
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if _PRINTABLE.fullmatch(character) and not _BREAKS.match(character):
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def folded(text: str, indent: int) -> list[str] | None:
    """A long text as `>-` and its lines; None if it cannot be folded or has no place to break."""
    if not _PRINTABLE.fullmatch(text) or _BREAKS.search(text) or text != text.strip(" \t"):
        return None
    parts = _BREAK.split(text)
    room = WIDTH - indent
    lines = _filled_lines(parts, room)
    if len(lines[-1]) < _SHORT:
        # A very short last line reads badly: use the same number of lines with similar lengths.
        while len(narrower := _filled_lines(parts, room - 1)) == len(lines) and room > _SHORT:
            lines, room = narrower, room - 1
    return [">-", *(" " * indent + line for line in lines)] if len(lines) > 1 else None


def _filled_lines(parts: Sequence[str], room: int, separator: str = " ") -> list[str]:
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(separator) + len(part) <= room:
            lines[-1] += separator + part
        else:
            lines.append(part)
    return lines


def block(text: Text, indent: int) -> list[str] | None:
    """A block scalar (`|`, `>`) with its lines unchanged but reindented; None if it has to be quoted."""
    value = text.scalar.text
    raw_lines = LINE_END.split(text.raw)[1:]
    first = next((line for line in raw_lines if line.strip(" ")), None)
    first_text = next((line for line in value.split("\n") if line.strip(" ")), None)
    if (
        first is None
        or first_text is None
        or not _PRINTABLE.fullmatch(value.replace("\n", ""))
        or _BREAKS.search(value)
    ):
        return None
    inner = len(first_text) - len(first_text.lstrip(" "))
    old_indent = len(first) - len(first.lstrip(" ")) - inner
    lines = ["" if len(line) < old_indent else line[old_indent:] for line in raw_lines]
    tail = len(value) - len(value.rstrip("\n"))
    while lines and not lines[-1]:
        lines.pop()
    lines += [""] * (tail - 1)
    head = text.scalar.style + (str(STEP) if inner else "") + ("-" if tail == 0 else "" if tail == 1 else "+")
    return [head, *((" " * indent + line) if line else "" for line in lines)]
