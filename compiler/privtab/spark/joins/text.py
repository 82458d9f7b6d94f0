"""Build Spark SQL as text: it is parsed in one call, whereas Column objects take a call for each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from privtab.errors import PolicyError


def literal(text: str) -> str:
    """A name of the policy as an SQL literal; raises PolicyError for a name that no policy can contain.

    >>> literal("table")
    "'table'"
    """
    if "'" in text or "\\" in text:
        raise PolicyError(f"`{text}` is not a name that a policy can have")
    return f"'{text}'"


def constant(value: str | bool | int) -> str:  # noqa: FBT001  (a value like others)
    """Any value as SQL, whatever signs a text has.

    >>> constant("it's"), constant("two words"), constant(True), constant(-3)
    ("cast(unhex('69742773') AS string)", "'two words'", 'true', '-3')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case _ if value.isascii() and value.isprintable() and not {*"'\\$"} & {*value}:
            return f"'{value}'"
        case _:
            return f"cast(unhex('{value.encode().hex()}') AS string)"


def constants(values: Iterable[str | bool | int]) -> str:
    """Several values as the right side of `IN`.

    >>> constants(["a", "b"])
    "('a', 'b')"
    """
    return f"({', '.join(map(constant, values))})"


def quoted(name: str) -> str:
    """The name of a column as a quoted identifier.

    >>> quoted("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def chosen(cases: Iterable[tuple[str, str]], default: str) -> str:
    """A CASE expression: the value of the first condition that holds."""
    arms = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    return f"CASE {arms} ELSE {default} END" if arms else default


def one_of(column: str, values: Sequence[str]) -> str:
    """Condition that a column has one of the values."""
    return f"{column} IN ({', '.join(map(literal, values))})" if values else "false"


def both(conditions: Iterable[str]) -> str:
    """Condition that all conditions hold."""
    parts = list(conditions)
    return "(" + " AND ".join(parts) + ")" if parts else "true"


def either(conditions: Iterable[str]) -> str:
    """Condition that at least one condition holds."""
    parts = list(conditions)
    return "(" + " OR ".join(parts) + ")" if parts else "false"


def bitwise_or(words: Sequence[str]) -> str:
    """The bitwise or of columns."""
    return "(" + " | ".join(words) + ")" if words else "0L"


def beginning(path: str, depth: str | int) -> str:
    """The first `depth` names of a path."""
    return f"substring_index({path}, '/', {depth})"
