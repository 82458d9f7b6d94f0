"""What types cannot be or contain: P210, P211, P216 to P221, P223."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed
from privtab.names import quoted

# P210: `self`, `holds` or revoked rows of an entity that is not such a principal.
NOT_A_PRINCIPAL = FindingKind("P210", "not-a-principal", Severity.ERROR)


def not_a_principal(span: Span, word: str, type_: str, kind: str) -> Diagnostic:
    """Build the finding for `word`, which requires a principal of `kind`; `type_` is not one."""
    return NOT_A_PRINCIPAL.at(
        span,
        f"`{word}` requires a {kind}, but `{type_}` is not one",
        f"if it is one, declare it: `types: {{{type_}: {{principal: {kind}}}}}`",
    )


def not_a_principal_without_rows(span: Span, table: str, type_: str) -> Diagnostic:
    """Build the finding for `table`, whose rows are about principals; entities of `type_` are not."""
    return NOT_A_PRINCIPAL.at(
        span,
        f"`{table}` are rows about a user, group or role, and `{type_}` is none of them",
        f"declare it: `types: {{{type_}: {{principal: user}}}}`, or revoke `owner` or `member`",
    )


# P211: ownership in a file without owners.
NO_OWNERS = FindingKind("P211", "no-owners", Severity.ERROR)


def no_owners(span: Span, what: str) -> Diagnostic:
    """Build the finding for `what`, which refers to owners, in a file without `semantics.owner`."""
    return NO_OWNERS.at(
        span,
        f"{what} refers to owners, but the file has none",
        "say what ownership means: `semantics: {owner: {creator: true}}`",
    )


# P216: a condition that refers too deeply through `can`.
TOO_DEEP = FindingKind("P216", "too-deep", Severity.ERROR)


def too_deep(span: Span, row: str, deepest: int) -> Diagnostic:
    """Build the finding for `row` (`entity/operation`), the start of a chain of `can` of more than `deepest` levels."""
    return TOO_DEEP.at(
        span,
        f"the condition of `{row}` goes more than {deepest} levels down, through `can`",
        "say in this row what is required, or refer to a row further down the chain",
    )


# P217: two types that nest on one path.
TWO_NESTED_TYPES = FindingKind("P217", "two-nested-types", Severity.ERROR)


def two_nested_types(span: Span, type_: str, outer: str) -> Diagnostic:
    """Build the finding for `type_`, which nests and lies below `outer`, which nests as well."""
    return TWO_NESTED_TYPES.at(
        span,
        f"`{type_}` and `{outer}` both nest, and `{type_}` lies below `{outer}`",
        "only one type on a path may nest, otherwise the number of names would not tell which name belongs to which type",
    )


# P218: a word before a target whose type does not nest, or an unknown word.
SELECTOR_WITHOUT_NESTING = FindingKind("P218", "selector-without-nesting", Severity.ERROR)


def selector_without_nesting(span: Span, selector: str, target: str) -> Diagnostic:
    """Build the finding for `selector` before `target`, of which a path has only one."""
    message = f"`{selector} {target}` names one of several levels, and `{target}` has only one on a path"
    return SELECTOR_WITHOUT_NESTING.at(span, message, f"write `{target}`", fix=target)


def selector_without_nesting_unknown(span: Span, selector: str, target: str, known: tuple[str, ...]) -> Diagnostic:
    """Build the finding for a word before `target` that is none of the known ones."""
    advice = (
        did_you_mean(selector, known) or f"before a target stands {listed(known, last='or')}, or a comma is missing"
    )
    return SELECTOR_WITHOUT_NESTING.at(span, f"unknown word `{selector}` before `{target}`", advice)


# P219: a type that cannot nest, or a condition that cannot name a level.
MISPLACED_NESTED = FindingKind("P219", "misplaced-nested", Severity.ERROR)


def misplaced_nested(span: Span, type_: str, why: str, advice: str) -> Diagnostic:
    """Build the finding for `nested` of a type that cannot nest."""
    return MISPLACED_NESTED.at(span, f"`{type_}` cannot nest: {why}", advice)


def misplaced_nested_can(span: Span, written: str) -> Diagnostic:
    """Build the finding for `can` about a level other than the nearest."""
    return MISPLACED_NESTED.at(
        span,
        f"`can` asks about one entity, and `{written}` is not always an entity of the same type",
        "name the nearest one, or write the condition itself with this target",
    )


def misplaced_nested_holder(span: Span, word: str, written: str) -> Diagnostic:
    """Build the finding for `holds` or `self` about a level."""
    return MISPLACED_NESTED.at(
        span, f"`{word}` cannot be asked about `{written}`", "only privileges, `owner` and `member` can"
    )


def misplaced_nested_compared_twice(span: Span, written: str) -> Diagnostic:
    """Build the finding for a comparison of several levels with several levels."""
    return MISPLACED_NESTED.at(
        span,
        f"`{written}` is compared with several levels, and is that of several itself",
        "compare the levels one by one with the nearest or the first",
    )


def misplaced_nested_compared(span: Span, written: str) -> Diagnostic:
    """Build the finding for an attribute of a level that may be several entities, or of different types."""
    return MISPLACED_NESTED.at(
        span,
        f"an attribute is that of one entity, and `{written}` is not always one of the same type",
        "name a type: that means the nearest one",
    )


# P220: a type whose ids cannot be flat.
MISPLACED_FLAT = FindingKind("P220", "misplaced-flat", Severity.ERROR)


def misplaced_flat(span: Span, type_: str, why: str) -> Diagnostic:
    """Build the finding for `flat` of a type whose ids cannot be flat."""
    return MISPLACED_FLAT.at(span, f"ids of `{type_}` cannot be flat: {why}", "leave out `flat`")


def misplaced_flat_nested(span: Span, type_: str, below: str) -> Diagnostic:
    """Build the finding for a type that nests below `type_` and whose ids are paths."""
    return MISPLACED_FLAT.at(
        span,
        f"`{below}` nests below `{type_}`, whose ids are flat",
        f"let the ids of `{below}` be flat as well",
    )


# P221: `or below` where it means nothing or cannot be decided exactly.
BELOW_NOT_EXACT = FindingKind("P221", "below-not-exact", Severity.ERROR)


def below_not_exact_not_of(span: Span, what: str, target: str) -> Diagnostic:
    """Build the finding for a target of `what`, which is neither privileges nor ownership."""
    return BELOW_NOT_EXACT.at(
        span, f"{what} has no `or below`", f"name privileges, as in `READ ({target} or below)`, or the owner"
    )


def below_not_exact_by_default(span: Span, privilege: str, role: str) -> Diagnostic:
    """Build the finding for a privilege that a declared role gives by default on every entity of a type."""
    message = f"the role `{role}` gives `{privilege}` by default, also on entities that no row names"
    return BELOW_NOT_EXACT.at(span, message, "drop the default grant, and grant the privilege to the role in the state")


def below_not_exact_nothing_below(span: Span, privilege: str, type_: str) -> Diagnostic:
    """Build the finding for a privilege that nothing below a type can hold."""
    message = f"nothing below a `{type_}` can hold `{privilege}`"
    return BELOW_NOT_EXACT.at(span, message, f"write `{quoted(privilege)} ({type_})`")


# P223: an effect on a level of a type that nests other than the nearest.
EFFECT_ON_LEVEL = FindingKind("P223", "effect-on-level", Severity.ERROR)


def effect_on_level(span: Span, written: str) -> Diagnostic:
    """Build the finding for an effect on `written`."""
    return EFFECT_ON_LEVEL.at(
        span,
        f"an effect changes one entity of a known type, and `{written}` is not one",
        "name the entity itself, its nearest container, or a type that does not nest",
    )
