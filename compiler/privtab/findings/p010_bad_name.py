"""P010: a name that is not spelled as names must be."""

from __future__ import annotations

import re

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.names import small_letters

KIND = FindingKind("P010", "bad-name", Severity.ERROR)


def snake_case(name: str) -> str:
    """Convert a name to the spelling of types.

    >>> snake_case("InstanceNamespace-2")
    'instance_namespace_2'
    """
    return re.sub(r"[^a-z0-9]+", "_", small_letters(name)).strip("_").lstrip("0123456789_")


def as_name(name: str) -> str:
    """A name without what the names of operations, attributes and flags cannot contain: `Open-All` → `Open_All`."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lstrip("0123456789_")


def several(name: str) -> tuple[str, ...]:
    """The operations meant by a key with separators in it; empty for a single name.

    >>> several("start/Stop")
    ('start', 'Stop')
    """
    parts = tuple(as_name(part.strip()) for part in re.split(r"[/|&+;]", name))
    return parts if len(parts) > 1 and all(parts) else ()


def finding(span: Span, what: str, name: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for `name`, which cannot name `what` (in words, with an article)."""
    help_ = help_ or _instead("names begin with a letter; then come small letters, digits and `_`", snake_case(name))
    return KIND.at(span, f"`{name}` cannot be the name of {what}", help_)


def of_request(span: Span, what: str, name: str, help_: str | None = None) -> Diagnostic:
    """As `finding`, for an operation, an attribute or a flag."""
    return finding(
        span,
        what,
        name,
        help_ or _instead("names begin with a letter; then come letters, digits and `_`", as_name(name)),
    )


def _instead(rule: str, name: str) -> str:
    return f"{rule}: `{name}`" if name else rule
