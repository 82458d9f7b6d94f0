"""Conditions of the language from the cells of a page."""

from __future__ import annotations

import re

from privtab.language import cell_names
from privtab_pages.tables import joined, words

PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bAND\b"), "and"),
    (re.compile(r"\bOR\b"), "or"),
    (re.compile(r"\bon (?:the |an? )?(\w+)(?=$| and\b| or\b|\))"), r"(\1)"),
    (re.compile(r"\bowner of (?:the |an? )?(\w+)"), r"owner (\1)"),
    (
        re.compile(
            r"^(?:none|no privileges?|no privileges? (?:is |are )?(?:required|needed)|anybody|everyone)$", re.IGNORECASE
        ),
        "anyone",
    ),
)
"""Ways of writing a condition beside the language's own, each with its meaning."""
_PRIVILEGE = re.compile(
    r"[A-Z][A-Z0-9_]+(?: [A-Z][A-Z0-9_]+){0,3}|[A-Za-z][\w-]*(?:[.:_][A-Za-z][\w-]*)+|\w+:[\w.:/-]*\w|[a-z]\w*(?:-\w+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+"
)
"""A privilege that stands without what it is held on: its form says that it is a name."""
_WORD = re.compile(r"[A-Z][a-z]+")
_NO_PRIVILEGE = words(
    "yes no none any all na tbd public anonymous authenticated unknown varies optional deprecated various custom other default see same"
)
_NO_PART = words("not no unless if except without only when or and any all on to for with of by in as none")
_VERBS = words(
    "select insert update delete read write execute create drop alter grant revoke use view edit list describe modify"
)
_DESCRIBES = words("description details explanation purpose summary effect")
_LIMITS = re.compile(
    r"\b(?:(?<!read[ -])(?<!view[ -])only|if|when|unless|except|must|requires?|required|needs?|needed|not|cannot|can't|own|depend\w*|limited|without|prevents?|den(?:y|ies)|controlled|provided|until|at least|subject to|by default|deprecated|also|as long as|within)\b",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:also|additional\w*|in addition|as well|too|only (?:if|by|for|when|admin\w*|owner\w*)|unless|except|must (?:also|be))\b",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\s+(and|or|AND|OR|&|\+)\s+")


def condition(text: str, *, column: bool) -> str:
    """A condition as the language writes it: as it stands, else using the patterns, else privileges on the entity of the row.

    `column`: the cell stands in a column of privileges, so that a word with a capital is the name of one.
    """
    lines, written = "\n" in text, joined(text)
    text = written
    names, word = ([], "") if lines else _privileges(written, column=column)
    dotted = any("." in name for name in names)  # `roles.view` would be an attribute in the language
    if isinstance(cell_names(text, "condition"), str):
        for pattern, instead in PATTERNS:
            text = pattern.sub(instead, text)
    if not dotted and not isinstance(cell_names(text, "condition"), str):
        return text
    return f" {word} ".join(f"{quoted(name)} (entity)" for name in names) or written


def privileges_of(text: str) -> list[str]:
    """The privileges that a cell lists, all of which it names; empty for other texts."""
    names, word = _privileges(joined(text).replace(", ", " and "), column=False)
    return names if word == "and" else []


def limits(note: str, heading: str) -> bool:
    """Return whether a note may limit the marks of its row: limiting words of a description do, and any text of other notes."""
    return bool(note) and (heading.lower() not in _DESCRIBES or bool(_LIMITS.search(note)))


def asks_more(note: str) -> bool:
    """Return whether a note beside a condition may ask for more than the condition."""
    return bool(_ASKS.search(note))


def _privileges(text: str, *, column: bool) -> tuple[list[str], str]:
    """Privileges without what they are held on, and the one kind of word between them; none for other texts."""
    parts = _BETWEEN.split(text)
    names, between = parts[::2], {"and" if part.lower() in ("and", "&", "+") else "or" for part in parts[1::2]}
    if len(between) > 1 or not all(_is_name(name, column=column) for name in names):
        return [], ""
    return names, next(iter(between), "and")


def _is_name(text: str, *, column: bool) -> bool:
    """Return whether a text is one privilege: `CREATE TABLE`, but not `NOT READ` or `SELECT INSERT`."""
    parts = frozenset(text.lower().split())
    several = len(parts) > 1 and (parts & _NO_PART or parts <= _VERBS)
    named = _PRIVILEGE.fullmatch(text) or (column and _WORD.fullmatch(text))
    return bool(named) and not several and text.lower() not in _NO_PRIVILEGE


def quoted(name: str) -> str:
    """A privilege as conditions write it; a name of the language has no slash."""
    name = name.replace("/", ".")
    return f'"{name}"' if " " in name else name
