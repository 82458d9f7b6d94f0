"""HTML pages: generated from `templates/`, without scripts or external resources."""

from __future__ import annotations

from privtab._resources import templates

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""What a server sends with a page: it loads nothing, and nothing embeds it."""


def page(name: str, /, **values: object) -> str:
    """The HTML of one page; values are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(templates())
    html = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return html.get_template(f"{name}.html.j2").render(**values)
