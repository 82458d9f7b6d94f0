"""Files that cannot be read, their keys and values, cells that do not parse, and comments that ignore findings: P001 to P011, P401, P402."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span
from privtab.hints import did_you_mean, listed, nearest
from privtab.names import small_letters

if TYPE_CHECKING:
    from yaml import YAMLError

    from privtab.source import SourceFile


# P001: the file is not UTF-8.
NOT_UTF8 = FindingKind("P001", "not-utf8", Severity.ERROR)


def not_utf8(span: Span) -> Diagnostic:
    """Build the finding; the first byte that is not UTF-8 is at `span`."""
    return NOT_UTF8.at(span, "the file is not UTF-8", "save it as UTF-8; this is the first byte that does not fit")


# P002: the text is not YAML.
YAML_SYNTAX = FindingKind("P002", "yaml-syntax", Severity.ERROR)

_YAML_SYNTAX_ADVICE = (
    ("mapping values are not allowed", "put text that holds `: ` in quotes, and check the indentation of this line"),
    ("expected ',' or ']'", "close the list with `]`, or separate its items by commas"),
    ("expected ',' or '}'", "close the mapping with `}`, or separate its entries by commas"),
    ("expected <block end>", "lines that belong together must be indented by the same number of spaces"),
    ("did not find expected key", "lines that belong together must be indented by the same number of spaces"),
    ("could not find expected ':'", "a key is followed by `: ` and its value"),
    ("unexpected end of stream", "a quoted text is not closed"),
    ("cannot start any token", "put the text in quotes"),
)


def yaml_syntax(source: SourceFile, error: YAMLError) -> Diagnostic:
    """Build the finding for an `error` of the YAML parser."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    offset = mark.index if mark is not None else getattr(error, "position", 0)
    offset = min(offset if isinstance(offset, int) else 0, len(source.text))
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "the text is not YAML")
    context = getattr(error, "context", None)
    message = f"{context}: {problem}" if context and not problem.startswith("mapping") else problem
    help_: str | None
    if source.text[offset : offset + 1] == "\t":
        message, help_ = "a tab cannot indent YAML", "use spaces"
    else:
        help_ = next((advice for sign, advice in _YAML_SYNTAX_ADVICE if sign in problem), None)
    return YAML_SYNTAX.at(
        source.span(offset, min(offset + 1, max(offset, len(source.text)))),
        message,
        help_,
        related=_yaml_syntax_opening(source, error, offset),
    )


def _yaml_syntax_opening(source: SourceFile, error: YAMLError, offset: int) -> tuple[Related, ...]:
    """The start of the text that the YAML parser could not finish."""
    mark = getattr(error, "context_mark", None)
    if mark is None or mark.index >= offset:
        return ()
    return (Related(message="it begins here", span=source.span(mark.index, mark.index + 1)),)


# P003: the file is empty.
EMPTY_FILE = FindingKind("P003", "empty-file", Severity.ERROR)
POLICY = "a policy begins with `privtab: 1`, `system: NAME` and `version: NAME`"


def empty_file(span: Span, begins: str = POLICY) -> Diagnostic:
    """Build the finding for a file without any value; `begins` says how such a file begins."""
    return EMPTY_FILE.at(span, "the file is empty", begins)


# P004: a feature of YAML that policies do not use.
YAML_FEATURE = FindingKind("P004", "yaml-feature", Severity.ERROR)


def yaml_feature_anchor(span: Span, name: str) -> Diagnostic:
    """`&name`."""
    return _yaml_feature_finding(
        span, f"anchor `&{name}`", "write the value where it belongs; to share a condition use `can OP (x)`"
    )


def yaml_feature_alias(span: Span, name: str | None) -> Diagnostic:
    """`*name`."""
    return _yaml_feature_finding(
        span, f"alias `*{name}`", "write the value out, so that every cell can be reviewed on its own"
    )


def yaml_feature_merge(span: Span) -> Diagnostic:
    """`<<:`."""
    return _yaml_feature_finding(
        span, "merge key `<<`", "write the rows out, or name several operations in one key: `start, stop:`"
    )


def yaml_feature_tag(span: Span, written: str) -> Diagnostic:
    """`!!str` and the like."""
    return _yaml_feature_finding(span, f"tag `{written}`", "drop it; put text in quotes where it looks like a number")


def yaml_feature_complex_key(span: Span) -> Diagnostic:
    """A list or a mapping as a key."""
    return _yaml_feature_finding(
        span, "a key that is not a word", "keys are words; name several operations as `start, stop:`"
    )


def yaml_feature_document(span: Span) -> Diagnostic:
    """A second document in the file."""
    return _yaml_feature_finding(
        span, "a second document", "one file is one system at one version: put this into a file of its own"
    )


def yaml_feature_nesting(span: Span) -> Diagnostic:
    """Values nested too deeply."""
    return _yaml_feature_finding(span, "nesting as deep as this", "write it flatter")


def _yaml_feature_finding(span: Span, what: str, help_: str) -> Diagnostic:
    return YAML_FEATURE.at(span, f"{what} is not part of the YAML that privtab reads", help_)


# P005: a key that occurs twice in one mapping.
DUPLICATE_KEY = FindingKind("P005", "duplicate-key", Severity.ERROR)


def duplicate_key(span: Span, key: str, first: Span) -> Diagnostic:
    """Build the finding for `key` at `span`, which already occurs at `first`."""
    return DUPLICATE_KEY.at(
        span,
        f"duplicate key `{key}`",
        f"it already occurs on line {first.line}: merge the two",
        related=(Related(message="first here", span=first),),
    )


# P011: a cell that does not parse.
CELL_SYNTAX = FindingKind("P011", "cell-syntax", Severity.ERROR)


def cell_syntax(span: Span, message: str, expected: Sequence[str], advice: str | None = None) -> Diagnostic:
    """Build the finding; `message` says what is at `span`, `expected` in plain words what could be there."""
    alternatives = " or ".join(filter(None, (", ".join(expected[:-1]), *expected[-1:])))
    parts = [f"expected {alternatives}" if expected else None, advice]
    return CELL_SYNTAX.at(span, message, "; ".join(p for p in parts if p) or None)


# P401: a comment that ignores a finding that does not occur.
UNUSED_IGNORE = FindingKind("P401", "unused-ignore", Severity.WARNING)


def unused_ignore(span: Span, code: str) -> Diagnostic:
    """Build the finding for the comment at `span`, which names `code` although nothing there has it."""
    return UNUSED_IGNORE.at(
        span,
        f"nothing here has the finding `{code}`",
        "drop it from the comment, or move the comment to the line that it is for",
    )


# P402: an invalid comment that should ignore a finding.
WRONG_IGNORE = FindingKind("P402", "wrong-ignore", Severity.WARNING)


def wrong_ignore(span: Span, message: str, help_: str | None, fix: str | None = None) -> Diagnostic:
    """Build the finding for an invalid comment: an unknown code, the code of an error, or no reason."""
    return WRONG_IGNORE.at(span, message, help_, fix=fix)


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
