"""Jinja2 for everything that is generated from `templates/`: undefined names are errors, block tags leave no lines behind."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from privtab._resources import templates

if TYPE_CHECKING:
    from jinja2 import Environment


@lru_cache(maxsize=4)
def environment(folder: str) -> Environment:
    """The templates of one folder. The output is not HTML, so nothing is escaped: quote values with a filter."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(templates() / folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - see the docstring
    )
