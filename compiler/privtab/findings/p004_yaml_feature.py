"""P004: a feature of YAML that policies do not use."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P004", "yaml-feature", Severity.ERROR)


def anchor(span: Span, name: str) -> Diagnostic:
    """`&name`."""
    return _finding(
        span, f"anchor `&{name}`", "write the value where it belongs; to share a condition use `can OP (x)`"
    )


def alias(span: Span, name: str | None) -> Diagnostic:
    """`*name`."""
    return _finding(span, f"alias `*{name}`", "write the value out, so that every cell can be reviewed on its own")


def merge(span: Span) -> Diagnostic:
    """`<<:`."""
    return _finding(span, "merge key `<<`", "write the rows out, or name several operations in one key: `start, stop:`")


def tag(span: Span, written: str) -> Diagnostic:
    """`!!str` and the like."""
    return _finding(span, f"tag `{written}`", "drop it; put text in quotes where it looks like a number")


def complex_key(span: Span) -> Diagnostic:
    """A list or a mapping as a key."""
    return _finding(span, "a key that is not a word", "keys are words; name several operations as `start, stop:`")


def document(span: Span) -> Diagnostic:
    """A second document in the file."""
    return _finding(span, "a second document", "one file is one system at one version: put this into a file of its own")


def nesting(span: Span) -> Diagnostic:
    """Values nested too deeply."""
    return _finding(span, "nesting as deep as this", "write it flatter")


def _finding(span: Span, what: str, help_: str) -> Diagnostic:
    return KIND.at(span, f"{what} is not part of the YAML that privtab reads", help_)
