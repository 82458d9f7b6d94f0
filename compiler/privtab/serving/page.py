"""HTML pages: generated from `templates/`, without scripts or external resources."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from privtab._resources import templates

if TYPE_CHECKING:
    from jinja2 import Environment


PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""What a server sends with a page: it loads nothing, and nothing embeds it."""


def page(name: str, /, **values: object) -> str:
    """The HTML of one page; values are escaped."""
    return _html().get_template(f"{name}.html.j2").render(**values)


@cache
def _html() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(templates())
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
