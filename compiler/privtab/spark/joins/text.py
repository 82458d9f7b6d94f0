"""Pieces of Spark SQL: one text is parsed at once, where a tree of Column objects takes a call for each of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from privtab.errors import PolicyError


def literal(text: str) -> str:
    """A name of the policy as a literal; raises PolicyError for what no policy can name.

    >>> literal("table")
    "'table'"
    """
    if "'" in text or "\\" in text:
        raise PolicyError(f"`{text}` is no name that a policy can have")
    return f"'{text}'"


def quoted(name: str) -> str:
    """The name of a column.

    >>> quoted("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def chosen(cases: Iterable[tuple[str, str]], otherwise: str) -> str:
    """The value of the first condition that holds."""
    arms = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    return f"CASE {arms} ELSE {otherwise} END" if arms else otherwise


def one_of(column: str, values: Sequence[str]) -> str:
    """Whether a column has one of some names."""
    return f"{column} IN ({', '.join(map(literal, values))})" if values else "false"


def both(conditions: Iterable[str]) -> str:
    """All hold."""
    listed = list(conditions)
    return "(" + " AND ".join(listed) + ")" if listed else "true"


def either(conditions: Iterable[str]) -> str:
    """Some holds."""
    listed = list(conditions)
    return "(" + " OR ".join(listed) + ")" if listed else "false"


def united(words: Sequence[str]) -> str:
    """The bits of some columns together."""
    return "(" + " | ".join(words) + ")" if words else "0L"


def beginning(path: str, depth: str | int) -> str:
    """The beginning of a path with that many names."""
    return f"substring_index({path}, '/', {depth})"
