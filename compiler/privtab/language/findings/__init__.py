"""Builders of what readers report: called with a place and what the finding is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, ParamSpec

from privtab.base.diagnostics import Diagnostic, FindingKind, Located, Severity, Span

P = ParamSpec("P")
Q = ParamSpec("Q")


class Said(NamedTuple):
    """The words of a finding: its message and its hint, other places, and the text that corrects the file."""

    message: str
    advice: str | None = None
    related: tuple[Located[str], ...] = ()
    fix: str | None = None


class Builder(Generic[P]):
    """Builds findings of one kind: `said` returns what they say."""

    def __init__(self, kind: FindingKind, said: Callable[P, Said]) -> None:
        self.kind = kind
        self._said = said

    def __call__(self, span: Span, /, *args: P.args, **kwargs: P.kwargs) -> Diagnostic:
        """The finding at a place."""
        message, advice, related, fix = self._said(*args, **kwargs)
        return self.kind.at(span, message, advice, related=related, fix=fix)

    def also(self, said: Callable[Q, Said]) -> Builder[Q]:
        """Build further findings of the kind, which say something else."""
        return Builder(self.kind, said)


def finding(
    code: str, *, name: str = "", severity: Severity = Severity.ERROR
) -> Callable[[Callable[P, Said]], Builder[P]]:
    """Declare a kind of findings by the function that returns what they say; `name`: that of the function by default."""

    def builder(said: Callable[P, Said]) -> Builder[P]:
        return Builder(FindingKind(code, name or said.__name__.replace("_", "-"), severity), said)

    return builder
