"""Findings as values: where something is wrong in a file, what it is, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from privtab._nodes import dataclass

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Span:
    """A place in a file: 1-based lines and columns, the end exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Located(Generic[T_co]):
    """A value and the position it was read from."""

    value: T_co
    span: Span


class Severity(StrEnum):
    """The severity of a finding; only errors stop a compilation."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """A second position that belongs to a finding."""

    message: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding: a code and a name, a message, a position, and a computed hint.

    `fix` is the text that corrects the file if it replaces the span.
    """

    code: str
    name: str
    severity: Severity
    message: str
    span: Span
    help: str | None = None
    related: tuple[Related, ...] = ()
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class FindingKind:
    """What all findings of one code share."""

    code: str
    name: str
    severity: Severity

    def at(
        self,
        span: Span,
        message: str,
        advice: str | None = None,
        *,
        related: tuple[Related, ...] = (),
        fix: str | None = None,
    ) -> Diagnostic:
        """A finding of this kind; `advice` is its hint."""
        return Diagnostic(
            code=self.code,
            name=self.name,
            severity=self.severity,
            message=message,
            span=span,
            help=advice,
            related=related,
            fix=fix,
        )


def in_order(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings sorted by position, then code, without duplicates."""
    return tuple(sorted(set(found), key=lambda d: (d.span, d.code, d.message)))
