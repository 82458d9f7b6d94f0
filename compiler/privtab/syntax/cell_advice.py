"""Advice for cells that do not parse, such as syntax from other policy languages."""

from __future__ import annotations

import re

from privtab.hints import not_a_condition
from privtab.syntax.cell_errors import CellError

_NEGATION = re.compile(r"(?:^|[\s(&|])(?:(?:not|no|without|unless|except)\s|!(?!=))", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"[=<>~]|\w\s+(?:in|like|matches|contains)\s+[\[\"'(\w]", re.IGNORECASE)
_PRINCIPAL = re.compile(r"\b(role|group|user)s?\b(?:[\s:]|\s*={1,2})+(?!(?:or|and|when|in)\b)[\w\"']", re.IGNORECASE)
_NAME = r"[^\W\d](?:[\w.:\-]*\w)?"
_NO_TARGET = re.compile(rf"(can\s+{_NAME}|{_NAME})(?:\s+(?:on|of|at|for|in)?\s*({_NAME}))?", re.IGNORECASE)
_EVERYBODY = {"any", "all", "everyone", "everybody", "true", "yes", "public", "allow", "open", "authenticated"}
_NOBODY = {"false", "no", "nobody", "none", "never", "deny"}

NEGATION = (
    "negation is not a condition; write what a caller must hold: "
    "who must not is denied in the state, with `semantics: {deny: overrides}`"
)
ATTRIBUTES = (
    "attributes are declared under `attributes`, and compared as in `user.team = entity.team`, "
    "`entity.color in {red, blue}`, `request.hour >= 8`"
)
_BELOW = re.compile(r"\(([^()]*)\)\s+or\s+below\b", re.IGNORECASE)
_COMPARISONS = {
    r"!=|<>": "there is no `!=`: name the values that are allowed, as in `entity.color in {red, blue}`",
    r"==": "write `=`",
    r"\bin\s*[\[(]": "write constants in braces: `in {red, blue}`",
}


def advice(text: str, error: CellError) -> tuple[str | None, bool]:
    """What to write instead, and whether that is all there is to say: then a list of expected words does not help."""
    for_cell = _for_whole_cell(text.strip())
    if for_cell is not None:
        return for_cell, True
    return _for_error(text, error)


def _for_whole_cell(text: str) -> str | None:
    """Advice for cells that as a whole mean something other than a condition."""
    if _NEGATION.search(text) and text.lower() not in _NOBODY:
        return NEGATION
    principal = _PRINCIPAL.search(text)
    if principal is not None:
        return not_a_condition(principal[1])
    below = _BELOW.search(text)
    if below is not None:
        return f"write `or below` in the parentheses: `({below[1]} or below)`"
    if _ATTRIBUTE.search(text):
        return next((say for pattern, say in _COMPARISONS.items() if re.search(pattern, text)), ATTRIBUTES)
    word = text.lower()
    if word in _EVERYBODY:
        return "write `anyone`"
    if word in _NOBODY:
        return "write a privilege that is never granted: without a grant a request is denied"
    if word in ("admin", "service_admin", "superuser", "root"):
        return "write `service admin` for the service administrators of the state, or a privilege: `ADMIN (TYPE)`"
    lone = _NO_TARGET.fullmatch(text)
    if lone is None or text.lower().startswith(("allow ", "deny ", "if ", "is ", "requires ", "self ", "anyone ")):
        return None
    return f"write the entity type in parentheses: `{lone[1]} ({lone[2] or 'TYPE'})`"


def _for_error(text: str, error: CellError) -> tuple[str | None, bool]:
    """Advice for the text at which the parser stopped."""
    found, before, after = text[error.start : error.end], text[: error.start], text[error.end :]
    if found in ("/", "+") and ("/" in before or "+" in before) and "(" not in before.rpartition(")")[2]:
        return "`/` (any of) and `+` (all of) do not mix in one term: write two terms with `and` or `or`", False
    first = text.split(None, 1)[0].lower() if text.strip() else ""
    if first in ("allow", "requires", "require", "is", "has", "grant"):
        return f"leave `{text.split(None, 1)[0]}` out: a row says what is required", True
    if first == "deny":
        return "rows require, and denials are rows of the state: `{grantee: …, effect: deny, …}`", True
    inside = before.count("(") > before.count(")")
    instead: str | None = {
        "||": "write `or`", "|": "write `or`", "or": "write `or`",
        "&&": "write `and`", "and": "write `and`",
        "if": "write `when`, followed by the name of a flag", "provided": "write `when`, followed by the name of a flag",
        "*": "there are no wildcards: name each entity type" if inside
        else "there are no wildcards: name the privileges, or a set of them",
        "?": "a character lost from the document, most likely `/`",
    }.get(found.lower())  # fmt: skip
    if found in ("and", "or"):
        instead = None
    if instead is None and found == "&" and (before.endswith("&") or after.startswith("&")):
        instead = "write `and`"
    if instead is None and found == "," and not inside:
        instead = "write `READ/WRITE (TYPE)` for any of them, `READ + WRITE (TYPE)` for all"
    if instead is None and found == "/" and inside:
        instead = "separate entity types by commas: any of them will do"
    if instead is None and found == "(" and re.search(r"\b(self|anyone)\s*$", before):
        instead = "`self` and `anyone` take no parentheses"
    if instead is None and (found == "[" or (found == "-" and after.startswith("-"))):
        instead = "write targets in `( )`" if found == "[" else "write remarks in `note:`, or after ` #`"
    return instead, False
