"""P110: a comparison of values that do not compare."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P110", "wrong-comparison", Severity.ERROR)


def different_types(span: Span, left: str, left_type: str, right: str, right_type: str) -> Diagnostic:
    """Build the finding for attributes of types that do not compare."""
    return KIND.at(span, f"`{left}` is {left_type}, `{right}` is {right_type}", "compare values of one type")


def constant(span: Span, left: str, value: str, expected: str) -> Diagnostic:
    """Build the finding for a constant that an attribute cannot have."""
    return KIND.at(span, f"`{left}` is never `{value}`", f"it is {expected}")


def relation(span: Span, left: str, left_type: str, operator: str, instead: str) -> Diagnostic:
    """Build the finding for a relation that values of a type do not stand in."""
    return KIND.at(
        span, f"`{left}` is {left_type}, which has no `{'VALUE in' if operator == 'contains' else operator}`", instead
    )


def truth(span: Span, left: str, left_type: str) -> Diagnostic:
    """Build the finding for an attribute that stands alone and is not true or false."""
    return KIND.at(span, f"`{left}` is {left_type}, so it does not stand alone", f"compare it, as in `{left} = VALUE`")
