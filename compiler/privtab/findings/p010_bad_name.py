"""P010: a name that is not spelled as names must be."""

from __future__ import annotations

import re

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P010", "bad-name", Severity.ERROR)


def snake_case(name: str) -> str:
    """Convert a name to the spelling of types and operations.

    >>> snake_case("InstanceNamespace-2")
    'instance_namespace_2'
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_").lstrip("0123456789_")


def several(name: str) -> tuple[str, ...]:
    """The operations meant by a key with separators in it; empty for a single name.

    >>> several("start/Stop")
    ('start', 'stop')
    """
    parts = tuple(snake_case(part) for part in re.split(r"[/|&+;]", name))
    return parts if len(parts) > 1 and all(parts) else ()


def finding(span: Span, what: str, name: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for `name`, which cannot name `what` (in words, with an article)."""
    snake = snake_case(name)
    return KIND.at(
        span,
        f"`{name}` cannot be the name of {what}",
        help_
        or "names begin with a letter; then come small letters, digits and `_`"
        + (f": `{snake}`" if snake and snake != name else ""),
    )
