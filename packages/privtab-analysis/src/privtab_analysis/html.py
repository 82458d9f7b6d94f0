"""HTML pages from `templates/`, which load nothing, and names in them with their hidden characters shown."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from privtab.base import text_templates

if TYPE_CHECKING:
    from jinja2 import Environment


PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The headers of a page: it loads nothing, and nothing embeds it."""


def page(name: str, /, **values: object) -> str:
    """The HTML of one page; values are escaped. Filters: `seen` for names of others, `coded` for sentences with code in backticks, `cut` for paths, `number`."""
    return _html().get_template(f"{name}.html.j2").render(**values)


def prepare(folder: str) -> None:
    """Compile the templates of pages in a folder, before processes fork that render them."""
    for name in _html().list_templates(extensions=["j2"]):
        if name.startswith(f"{folder}/"):
            _html().get_template(name)


@cache
def _html() -> Environment:
    made = text_templates("").overlay(autoescape=True, keep_trailing_newline=False)
    made.filters |= {"seen": visible, "coded": _coded, "cut": _cut, "number": lambda value: f"{value:,}"}
    return made


_CUTS = re.compile(r"(?<=[/,])(?=\S)")
_TIMES = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z)")
_SPACES = re.compile("^ | $|(?<= ) ")


def visible(text: str) -> str:
    r"""A name with outer and repeated spaces made visible, and invisible or direction-changing characters shown by code point.

    >>> visible("ann\u200b"), visible("bob ")
    ('ann⟨U+200B⟩', 'bob␣')
    """
    shown = _SPACES.sub("␣", text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else f"⟨U+{ord(c):04X}⟩" for c in shown)


def _cut(text: str) -> Any:
    """A text in which a line may end after slashes and commas: a path too long for a line is cut there, and not within a name."""
    from markupsafe import Markup

    return Markup("<wbr>").join(_CUTS.split(text))


def _coded(text: str) -> Any:
    """A sentence with its parts in backticks as code, and with times, which are not cut."""
    from markupsafe import Markup

    def marked(parts: list[str], tag: str) -> Any:
        return Markup("").join(
            Markup("<{0}>{1}</{0}>").format(tag, part) if n % 2 else part for n, part in enumerate(parts)
        )

    parts = visible(text).split("`")
    if not len(parts) % 2:  # a name has a backtick
        return visible(text)
    return marked([marked(_TIMES.split(part), "time") for part in parts], "code")
