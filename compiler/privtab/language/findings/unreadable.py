"""Files that cannot be read, their keys and values, cells that do not parse, and comments that ignore findings: P001 to P011, P401, P402."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privtab.base.diagnostics import Diagnostic, Located, Severity, Span
from privtab.base.hints import did_you_mean, listed_names, nearest
from privtab.base.names import small_letters
from privtab.language.findings import Said, finding

if TYPE_CHECKING:
    from yaml import YAMLError

    from privtab.base.source import SourceFile


@finding("P001")
def not_utf8() -> Said:
    """A file with bytes that are not UTF-8; the finding is at the first of them."""
    return Said("the file is not UTF-8", "save it as UTF-8; this is the first byte that does not fit")


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


def yaml_error(source: SourceFile, error: YAMLError) -> Diagnostic:
    """Build the finding for an `error` of the YAML parser."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    offset = mark.index if mark is not None else getattr(error, "position", 0)
    offset = min(offset if isinstance(offset, int) else 0, len(source.text))
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "the text is not YAML")
    context = getattr(error, "context", None)
    message = f"{context}: {problem}" if context and not problem.startswith("mapping") else problem
    help_ = next((advice for sign, advice in _YAML_SYNTAX_ADVICE if sign in problem), None)
    if source.text[offset : offset + 1] == "\t":
        message, help_ = "a tab cannot indent YAML", "use spaces"
    begun = getattr(error, "context_mark", None)
    begins_here = () if begun is None or begun.index >= offset else (source.span(begun.index, begun.index + 1),)
    span = source.span(offset, min(offset + 1, max(offset, len(source.text))))
    return yaml_syntax(span, message, help_, tuple(Located("it begins here", at) for at in begins_here))


@finding("P002")
def yaml_syntax(message: str, help_: str | None, related: tuple[Located[str], ...]) -> Said:
    """A text that is not YAML."""
    return Said(message, help_, related)


POLICY = "a policy begins with `privtab: 1`, `system: NAME` and `version: NAME`"


@finding("P003")
def empty_file(begins: str = POLICY) -> Said:
    """A file without any value; `begins` says how such a file begins."""
    return Said("the file is empty", begins)


@finding("P004", name="yaml-feature")
def yaml_feature_anchor(name: str) -> Said:
    """`&name`."""
    return _unread(f"anchor `&{name}`", "write the value where it belongs; to share a condition use `can OP (x)`")


@yaml_feature_anchor.also
def yaml_feature_alias(name: str | None) -> Said:
    """`*name`."""
    return _unread(f"alias `*{name}`", "write the value out, so that every cell can be reviewed on its own")


@yaml_feature_anchor.also
def yaml_feature_merge() -> Said:
    """`<<:`."""
    return _unread("merge key `<<`", "write the rows out, or name several operations in one key: `start, stop:`")


@yaml_feature_anchor.also
def yaml_feature_tag(written: str) -> Said:
    """`!!str` and the like."""
    return _unread(f"tag `{written}`", "drop it; put text in quotes where it looks like a number")


@yaml_feature_anchor.also
def yaml_feature_complex_key() -> Said:
    """A list or a mapping as a key."""
    return _unread("a key that is not a word", "keys are words; name several operations as `start, stop:`")


@yaml_feature_anchor.also
def yaml_feature_document() -> Said:
    """A second document in the file."""
    return _unread("a second document", "one file is one system at one version: put this into a file of its own")


@yaml_feature_anchor.also
def yaml_feature_nesting() -> Said:
    """Values nested too deeply."""
    return _unread("nesting as deep as this", "write it flatter")


def _unread(what: str, help_: str) -> Said:
    return Said(f"{what} is not part of the YAML that privtab reads", help_)


@finding("P005")
def duplicate_key(key: str, first: Span) -> Said:
    """`key`, which already occurs at `first`."""
    return Said(
        f"duplicate key `{key}`",
        f"it already occurs on line {first.line}: merge the two",
        related=(Located("first here", first),),
    )


@finding("P011")
def cell_syntax(message: str, expected: Sequence[str], advice: str | None = None) -> Said:
    """A cell that does not parse; `message` says what is there, `expected` in plain words what could be."""
    alternatives = " or ".join(filter(None, (", ".join(expected[:-1]), *expected[-1:])))
    parts = [f"expected {alternatives}" if expected else None, advice]
    return Said(message, "; ".join(p for p in parts if p) or None)


@finding("P401", severity=Severity.WARNING)
def unused_ignore(code: str) -> Said:
    """A comment that names `code` although nothing there has it."""
    return Said(
        f"nothing here has the finding `{code}`",
        "drop it from the comment, or move the comment to the line that it is for",
    )


@finding("P402", severity=Severity.WARNING)
def wrong_ignore(message: str, help_: str | None, fix: str | None = None) -> Said:
    """An invalid comment: an unknown code, the code of an error, or no reason."""
    return Said(message, help_, fix=fix)


_UNKNOWN_KEY_STATE = (
    "grants and memberships are not part of a policy: they are tables of the state, which commands read from `--state`"
)
UNKNOWN_KEY_INSTEAD: Mapping[str, Mapping[str, str]] = {
    "a policy file": {
        **dict.fromkeys(
            ("grants", "users", "groups", "members", "memberships", "assignments", "owners"), _UNKNOWN_KEY_STATE
        ),
        **dict.fromkeys(("inheritance", "deny", "owner", "gate"), "it belongs under `semantics`"),
        **dict.fromkeys(("rules", "operations", "policies", "policy", "resources", "rows"), "write `tables`"),
        **dict.fromkeys(("permissions", "actions", "rights", "scopes"), "write `privileges`"),
        **dict.fromkeys(("types_of_entities", "hierarchy", "objects"), "write `entities`"),
    },
    "a row": {
        **dict.fromkeys(("if", "when", "condition", "allow"), "write `requires`"),
        **dict.fromkeys(("permission", "permissions", "privileges"), "write `requires`"),
        **dict.fromkeys(("deny", "effect"), "rows only require: denials are rows of the state, with `effect: deny`"),
        "parameters": "write `with`",
        "description": "write `title` or `note`",
    },
}
"""The keys to write instead of keys known from other tools, by the kind of mapping."""


@finding("P006")
def unknown_key(key: str, where: str, known: Sequence[str]) -> Said:
    """`key`, which `where` does not have."""
    return Said(
        f"unknown key `{key}` in {where}",
        UNKNOWN_KEY_INSTEAD.get(where, {}).get(key)
        or did_you_mean(key, known)
        or f"the keys of {where} are {listed_names(known)}",
        fix=None if key in UNKNOWN_KEY_INSTEAD.get(where, {}) else nearest(key, known),
    )


@finding("P007")
def missing_key(key: str, where: str, example: str) -> Said:
    """`where`, which lacks `key`; `example` shows how it could look."""
    return Said(f"missing key `{key}` in {where}", f"add `{example}`")


@finding("P008")
def wrong_type(what: str, expected: str, actual: str, help_: str | None = None) -> Said:
    """`what`, which must be `expected` but is `actual`, both in words."""
    return Said(f"{what} must be {expected}, not {actual}", help_)


@finding("P009")
def wrong_value(what: str, value: str, known: Sequence[str]) -> Said:
    """`value`, which is not a value of `what`."""
    return Said(
        f"`{value}` is not a value of {what}",
        did_you_mean(value, known) or f"it is {listed_names(known, last='or')}",
        fix=nearest(value, known),
    )


@wrong_value.also
def wrong_value_intended(what: str, value: str, instead: str) -> Said:
    """A wrong `value` that clearly stands for `instead`."""
    message = f"`{value}` is not a value of {what}"
    return Said(message, f"write `{instead}`", fix=instead)


@wrong_value.also
def wrong_value_other(message: str, help_: str | None = None) -> Said:
    """A value that is wrong in some other way."""
    return Said(message, help_)


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


@finding("P010")
def bad_name(what: str, name: str, help_: str | None = None) -> Said:
    """`name`, which cannot name `what` (in words, with an article)."""
    rule = "names begin with a letter; then come small letters, digits and `_`"
    return _bad_name(what, name, help_, rule, snake_case(name))


@bad_name.also
def bad_name_of_request(what: str, name: str, help_: str | None = None) -> Said:
    """As `bad_name`, for an operation, an attribute or a flag."""
    return _bad_name(what, name, help_, "names begin with a letter; then come letters, digits and `_`", as_name(name))


def _bad_name(what: str, name: str, help_: str | None, rule: str, instead: str) -> Said:
    return Said(f"`{name}` cannot be the name of {what}", help_ or (f"{rule}: `{instead}`" if instead else rule))
