"""View → a Python module, through the template."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from privtab._templates import environment
from privtab.backends.stubs.view import view
from privtab.ir.nodes import Program
from privtab.ir.support import Tool, check_support

if TYPE_CHECKING:
    from jinja2 import Environment


def render(program: Program) -> str:
    """The typed module for callers of a policy; the same policy gives the same text."""
    check_support(program, Tool.STUBS)
    text = _environment().get_template("module.py.j2").render(module=view(program))
    return text.rstrip("\n") + "\n"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    templates = environment("stubs")
    templates.filters["quoted"] = quoted
    return templates


def quoted(value: str) -> str:
    """A text as a Python literal, which cannot contain line breaks."""
    return json.dumps(value) if value.isascii() else ascii(value)
