"""P218: a word before a target whose type does not nest, or an unknown word."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed

KIND = FindingKind("P218", "selector-without-nesting", Severity.ERROR)


def finding(span: Span, selector: str, target: str) -> Diagnostic:
    """Build the finding for `selector` before `target`, of which a path has only one."""
    message = f"`{selector} {target}` names one of several levels, and `{target}` has only one on a path"
    return KIND.at(span, message, f"write `{target}`", fix=target)


def unknown(span: Span, selector: str, target: str, known: tuple[str, ...]) -> Diagnostic:
    """Build the finding for a word before `target` that is none of the known ones."""
    advice = (
        did_you_mean(selector, known) or f"before a target stands {listed(known, last='or')}, or a comma is missing"
    )
    return KIND.at(span, f"unknown word `{selector}` before `{target}`", advice)
