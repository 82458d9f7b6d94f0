r"""Make text from outside safe to print: the one filter for all terminal output.

Names, notes and paths come from policies, states, requests and callers. A terminal would interpret some of their characters
(ESC, BEL, the C1 controls), and show others in another order (bidirectional controls) or not at all.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from json.encoder import encode_basestring as quoted
from typing import Any, TextIO, cast

from privtab.base.lazy import pattern

# Unicode's control, format, line separator and surrogate characters, except tabs, line feeds and the format characters
# that are visible (the signs of Arabic and other numbers).
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)
FORMULA = r"^(?:[\t\r]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])"
"""The start of a cell that a spreadsheet may evaluate as a formula, as a regular expression for Python and for Java."""
_CHARACTER = pattern(f"[{_HIDDEN}]")
_CHARACTER_OR_LINE_END = pattern(f"[\n{_HIDDEN}]")


def printable_text(text: str, *, one_line: bool = False) -> str:
    r"""Replace each character that a terminal would interpret or hide by its escape; with `one_line`, line ends too.

    Each character is replaced independently, so a text may be cut before or after.

    >>> print(printable_text("a\x1b[31mb\u202e"), printable_text("two\nlines", one_line=True))
    a\x1b[31mb\u202e two\nlines
    """
    if text.isprintable():  # none of those characters is; long lines are looked at often
        return text
    return (_CHARACTER_OR_LINE_END if one_line else _CHARACTER).sub(_escape, text)


def printable_json(value: object, *, indent: bool = False, **style: Any) -> str:
    r"""A value as JSON with all such characters escaped. `style`: arguments of `json.dumps`.

    >>> print(printable_json("a\x7f\U000e0041"))
    "a\u007f\udb40\udc41"
    """
    text = indented_json(value, **style) if indent else json.dumps(value, ensure_ascii=False, **style)
    return text if text.isascii() and "\x7f" not in text else _CHARACTER.sub(_json_escape, text)


def indented_json(value: object, *, sort_keys: bool = False, default: Callable[[Any], Any] | None = None) -> str:
    """The text of `json.dumps(value, indent=2, ensure_ascii=False, …)`, in less than half the time: Python's C encoder does not indent."""
    # By the keys of an object and its indentation: the keys in order, and a template for their values.
    layouts: dict[tuple[tuple[Any, ...], str], tuple[tuple[Any, ...], str]] = {}
    # Short texts by the identity of an object, which may occur often, and its indentation. Objects are kept with them.
    written: dict[tuple[int, str], tuple[object, str]] = {}

    def text(value: Any, newline: str) -> str:
        kind = type(value)
        if kind is str:
            return quoted(value)
        if kind is dict:
            return mapping(value, newline) if value else "{}"
        if kind is list or kind is tuple:
            return sequence(value, newline) if value else "[]"
        if kind is int:
            return repr(value)
        if value is None or kind is bool:
            return "null" if value is None else "true" if value else "false"
        if isinstance(value, dict):
            return text(dict(value), newline)
        if isinstance(value, list | tuple):
            return text(list(value), newline)
        if default is None or isinstance(value, str | int | float):
            return json.dumps(value, ensure_ascii=False)  # raises TypeError for what is not JSON
        return text(default(value), newline)

    def mapping(value: dict[Any, Any], newline: str) -> str:
        known = written.get((id(value), newline))
        if known is not None:
            return known[1]
        inner = newline + "  "
        keys = tuple(value)
        layout = layouts.get((keys, newline))
        if layout is None:
            order = tuple(sorted(keys)) if sort_keys else keys
            fields = [quoted(_key(key)).replace("%", "%%") + ": %s" for key in order]
            layout = order, "{" + inner + ("," + inner).join(fields) + newline + "}"
            if all(isinstance(key, str) for key in keys):  # others may be equal and have different texts, as 1 and True
                layouts[keys, newline] = layout
        order, template = layout
        items = [value[key] for key in order]
        made = template % tuple([quoted(item) if type(item) is str else text(item, inner) for item in items])
        if len(made) < _SHORT:
            written[id(value), newline] = value, made
        return made

    def sequence(value: list[Any] | tuple[Any, ...], newline: str) -> str:
        inner = newline + "  "
        parts = [quoted(item) if type(item) is str else text(item, inner) for item in value]
        return "[" + inner + ("," + inner).join(parts) + newline + "]"

    return text(value, "\n")


_SHORT = 200
"""Characters of the longest texts of objects that are kept while others are written."""


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(next(iter(json.loads(json.dumps({key: None})))))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def no_formula(cell: str) -> str:
    """Keep spreadsheets from evaluating a cell: put an apostrophe before it if it may begin a formula.

    >>> no_formula("=HYPERLINK(1)"), no_formula("ann"), no_formula(" +1")
    ("'=HYPERLINK(1)", 'ann', "' +1")
    """
    return f"'{cell}" if re.match(FORMULA, cell) else cell


class PrintableStream:
    """A text stream that writes only printable text; everything else is passed to the underlying stream.

    Rich's consoles write to the underlying stream, because their colours are escapes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        """The underlying stream, under the name that Rich looks for."""

    def write(self, text: str) -> int:
        """Write the printable form of a text."""
        self.rich_proxied_file.write(printable_text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def printable_output() -> Iterator[None]:
    """Let this process write only printable text to standard output and standard error during the block.

    with printable_output():
        print(name)  # a right-to-left override is written as its code point
    """
    originals = sys.stdout, sys.stderr
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, cast(TextIO, PrintableStream(stream)))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = originals


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 policy`, `2 policies`, `1,000 grants`.

    >>> count(1, "policy", "policies"), count(1000, "grant")
    ('1 policy', '1,000 grants')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
