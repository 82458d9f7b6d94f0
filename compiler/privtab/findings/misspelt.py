"""Keys and values: P006 to P010."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest
from privtab.names import small_letters

# P006: an unknown key.
UNKNOWN_KEY = FindingKind("P006", "unknown-key", Severity.ERROR)


_UNKNOWN_KEY_STATE = (
    "grants and memberships are not part of a policy: they are tables of the state, which commands read from `--state`"
)
_UNKNOWN_KEY_SEMANTICS = "it belongs under `semantics`"
_UNKNOWN_KEY_CONDITION = "write `requires`"
UNKNOWN_KEY_INSTEAD: Mapping[str, Mapping[str, str]] = {
    "a policy file": {
        **dict.fromkeys(
            ("grants", "users", "groups", "members", "memberships", "assignments", "owners"), _UNKNOWN_KEY_STATE
        ),
        **dict.fromkeys(("inheritance", "deny", "owner", "gate"), _UNKNOWN_KEY_SEMANTICS),
        **dict.fromkeys(("rules", "operations", "policies", "policy", "resources", "rows"), "write `tables`"),
        **dict.fromkeys(("permissions", "actions", "rights", "scopes"), "write `privileges`"),
        **dict.fromkeys(("types_of_entities", "hierarchy", "objects"), "write `entities`"),
    },
    "a row": {
        **dict.fromkeys(
            ("if", "when", "condition", "allow", "permission", "permissions", "privileges"), _UNKNOWN_KEY_CONDITION
        ),
        **dict.fromkeys(("deny", "effect"), "rows only require: denials are rows of the state, with `effect: deny`"),
        "parameters": "write `with`",
        "description": "write `title` or `note`",
    },
}
"""What to write instead of keys known from other tools, by the kind of mapping."""


def unknown_key(span: Span, key: str, where: str, known: Sequence[str]) -> Diagnostic:
    """Build the finding for `key`, which `where` does not have."""
    return UNKNOWN_KEY.at(
        span,
        f"unknown key `{key}` in {where}",
        UNKNOWN_KEY_INSTEAD.get(where, {}).get(key)
        or did_you_mean(key, known)
        or f"the keys of {where} are {listed(known)}",
        fix=None if key in UNKNOWN_KEY_INSTEAD.get(where, {}) else nearest(key, known),
    )


# P007: a required key is missing.
MISSING_KEY = FindingKind("P007", "missing-key", Severity.ERROR)


def missing_key(span: Span, key: str, where: str, example: str) -> Diagnostic:
    """Build the finding for `where`, which lacks `key`; `example` shows how it could look."""
    return MISSING_KEY.at(span, f"missing key `{key}` in {where}", f"add `{example}`")


# P008: a value of the wrong YAML type.
WRONG_TYPE = FindingKind("P008", "wrong-type", Severity.ERROR)


def wrong_type(span: Span, what: str, expected: str, actual: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for `what`, which must be `expected` but is `actual`, both in words."""
    return WRONG_TYPE.at(span, f"{what} must be {expected}, not {actual}", help_)


# P009: a value that is not one of those allowed.
WRONG_VALUE = FindingKind("P009", "wrong-value", Severity.ERROR)


def wrong_value(span: Span, what: str, value: str, known: Sequence[str]) -> Diagnostic:
    """Build the finding for `value`, which is not a value of `what`."""
    return WRONG_VALUE.at(
        span,
        f"`{value}` is not a value of {what}",
        did_you_mean(value, known) or f"it is {listed(known, last='or')}",
        fix=nearest(value, known),
    )


def wrong_value_intended(span: Span, what: str, value: str, instead: str) -> Diagnostic:
    """Build the finding for a wrong `value` that clearly stands for `instead`."""
    message = f"`{value}` is not a value of {what}"
    return WRONG_VALUE.at(span, message, f"write `{instead}`", fix=instead)


def wrong_value_other(span: Span, message: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for a value that is wrong in some other way."""
    return WRONG_VALUE.at(span, message, help_)


# P010: a name that is not spelled as names must be.
BAD_NAME = FindingKind("P010", "bad-name", Severity.ERROR)


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


def bad_name(span: Span, what: str, name: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for `name`, which cannot name `what` (in words, with an article)."""
    help_ = help_ or _bad_name_instead(
        "names begin with a letter; then come small letters, digits and `_`", snake_case(name)
    )
    return BAD_NAME.at(span, f"`{name}` cannot be the name of {what}", help_)


def bad_name_of_request(span: Span, what: str, name: str, help_: str | None = None) -> Diagnostic:
    """As `finding`, for an operation, an attribute or a flag."""
    return bad_name(
        span,
        what,
        name,
        help_ or _bad_name_instead("names begin with a letter; then come letters, digits and `_`", as_name(name)),
    )


def _bad_name_instead(rule: str, name: str) -> str:
    return f"{rule}: `{name}`" if name else rule
