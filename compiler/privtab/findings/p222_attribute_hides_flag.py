"""P222: a flag has the name of an attribute of the request."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P222", "attribute-hides-flag", Severity.ERROR)


def finding(span: Span, name: str) -> Diagnostic:
    """Build the finding for a flag whose key in the context an attribute of the request has as well."""
    return KIND.at(
        span,
        f"`{name}` is an attribute of the request: the context cannot hold a flag of this name",
        f"rename one of them, or write `request.{name}`",
    )
