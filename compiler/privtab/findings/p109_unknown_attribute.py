"""P109: a condition compares an attribute that the policy does not declare, or that its entity does not have."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed, nearest

KIND = FindingKind("P109", "unknown-attribute", Severity.ERROR)


def finding(span: Span, written: str, name: str, declared: Collection[str]) -> Diagnostic:
    """Build the finding for `written`, whose attribute `name` is not among those declared for its kind."""
    near = nearest(name, declared)
    known = f"declared are {listed(declared)}" if declared else "declare it: `attributes: {user: {NAME: TYPE}}`"
    return KIND.at(span, f"unknown attribute `{written}`", f"did you mean `{near}`?" if near else known)


def not_on(span: Span, name: str, type_: str, on: Collection[str]) -> Diagnostic:
    """Build the finding for an attribute that entities of a type do not have."""
    return KIND.at(span, f"a `{type_}` has no attribute `{name}`", f"`{name}` is declared on {listed(on)}")


def not_given(span: Span, name: str, type_: str) -> Diagnostic:
    """Build the finding for an attribute of an entity that contains the request's object: no request gives it."""
    return KIND.at(
        span,
        f"requests do not give `{name}` of the `{type_}` that contains their object",
        "declare it `from: [state, request]`, or name the other one by `with:`",
    )
