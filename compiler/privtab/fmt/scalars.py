"""Scalars as text: without quotes where YAML 1.2 allows it, and long ones folded."""

from __future__ import annotations

import re
from collections.abc import Sequence

from privtab.fmt.nodes import Text
from privtab.syntax.yaml_tree import plain_value

WIDTH = 120
_SHORT = 40
_PRINTABLE = re.compile("[\t\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
_BREAKS = re.compile("[\u2028\u2029\x85]")
_FIRST = frozenset(",[]{}#&*!|>'\"%@`")
_IN_FLOW = re.compile(r"[,\[\]{}]")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
_LINE_END = re.compile(r"\r\n|\n|\r")
_BREAK = re.compile(r"(?<=[^ \t]) (?=[^ \t])")


def inline(text: Text, *, flow: bool) -> str:
    """A scalar on one line; inside brackets, more texts need quotes."""
    scalar = text.scalar
    if not isinstance(scalar.value, str):
        return scalar.text
    return scalar.text if is_plain(scalar.text, flow=flow) else quoted(scalar.text)


def is_plain(text: str, *, flow: bool) -> bool:
    """Whether a text needs no quotes.

    >>> [is_plain(t, flow=False) for t in ("a, b", "no", "12", "a: b", "- a", "-a", "a #b", "")]
    [True, True, False, False, False, True, False, False]
    >>> is_plain("a, b", flow=True)
    False
    """
    if not text or plain_value(text) != text or text != text.strip() or text == "<<":
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
    lines = _filled(parts, room)
    if len(lines[-1]) < _SHORT:
        # A very short last line reads badly: use the same number of lines with similar lengths.
        while len(narrower := _filled(parts, room - 1)) == len(lines) and room > _SHORT:
            lines, room = narrower, room - 1
    return [">-", *(" " * indent + line for line in lines)] if len(lines) > 1 else None


def _filled(parts: Sequence[str], room: int) -> list[str]:
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) <= room:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines


def block(text: Text, indent: int) -> list[str] | None:
    """A block scalar (`|`, `>`) with its lines unchanged but reindented; None if it has to be quoted."""
    value = text.scalar.text
    raw_lines = _LINE_END.split(text.raw)[1:]
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
    head = text.scalar.style + (str(_STEP) if inner else "") + ("-" if tail == 0 else "" if tail == 1 else "+")
    return [head, *((" " * indent + line) if line else "" for line in lines)]


_STEP = 2
