"""The templates of the Rego back end, and the layout of values and short rules in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from privtab.base.names import PLAIN_CHARACTERS
from privtab.base.resources import templates_folder, text_templates

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_LINE_LENGTH = 120
_FOLDED = 100
_JSON = json.JSONEncoder(ensure_ascii=False)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from privtab.backends.rego.compiled_templates import CompiledTemplates

    templates = text_templates("rego")
    templates.optimized = False  # else the code would hold what filters make of constants
    templates.bytecode_cache = CompiledTemplates(templates_folder())
    templates.filters |= {"quoted": rego_string, "folded": folded}
    templates.globals |= {"guarded": guarded, "plain": PLAIN_CHARACTERS, "set_of": set_of}
    return templates


def rego_string(value: object) -> str:
    r"""A value as a JSON literal, which is also a Rego literal and a YAML scalar; it cannot contain line breaks.

    >>> print(rego_string('USE "X"'))
    "USE \"X\""
    """
    return _JSON.encode(value).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def folded(text: str) -> str:
    """A quoted value for a METADATA comment, broken at single spaces into lines, which YAML reads as the same value."""
    if len(text) <= _FOLDED or "  " in text:
        return text
    import textwrap

    return "\n#     ".join(textwrap.wrap(text, _FOLDED, break_long_words=False, break_on_hyphens=False))


def guarded(head: str, condition: str) -> str:
    """A rule with one condition, on one line if that is short enough."""
    line = f"{head} if {condition}"
    return line if len(line) <= _LINE_LENGTH else f"{head} if {{\n\t{condition}\n}}"


def set_of(name: str, values: Sequence[str]) -> str:
    """The definition of a set, on one line if that is short enough."""
    items = [rego_string(value) for value in values]
    line = f"{name} := {{{', '.join(items)}}}" if items else f"{name} := set()"
    if len(line) <= _LINE_LENGTH:
        return line
    return "\n\t".join([f"{name} := {{", *(f"{item}," for item in items)]) + "\n}"


def rego_template(name: str) -> Template:
    """A template of this back end, with its filters: `rego_template("door/lib.rego.j2").render(…)`."""
    return _environment().get_template(name)
