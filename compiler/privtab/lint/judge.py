"""Decides what happens to the findings of one file: kept with some severity, or ignored for a reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from privtab.diagnostics import Diagnostic, in_order
from privtab.findings import unreadable
from privtab.lint.codes import FIRST_CONFIGURABLE
from privtab.lint.comments import Ignore, ignores
from privtab.lint.settings import Settings
from privtab.report.nodes import Suppressed
from privtab.source import SourceFile

_NO_YAML = frozenset(kind.code for kind in (unreadable.NOT_UTF8, unreadable.YAML_SYNTAX, unreadable.EMPTY_FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredFindings:
    """The findings of a file that are kept, sorted by position, and those that are ignored."""

    kept: tuple[Diagnostic, ...]
    ignored: tuple[Suppressed, ...] = ()


def filter_findings(
    found: Iterable[Diagnostic], source: SourceFile, path: Path, settings: Settings, *, complete: bool = True
) -> FilteredFindings:
    """Apply the comments of a file and the settings to its findings.

    `complete`: all findings of the file are included, so that a comment that matches none becomes a finding.
    """
    all_ = in_order(list(found))
    invalid_comments: list[Diagnostic] = []
    # If YAML cannot be parsed, there are only errors, and no comments either.
    comments = () if any(d.code in _NO_YAML for d in all_) else ignores(source, invalid_comments)
    used: set[tuple[int, int]] = set()
    reported: list[Diagnostic] = []
    ignored: list[Suppressed] = []
    for finding in all_:
        if (comment := _ignoring_comment(finding, source, comments, used)) is not None:
            ignored.append(Suppressed(finding=finding, reason=comment.reason))
        else:
            reported.append(finding)
    if complete:
        reported += _unused(comments, used)
    reported += invalid_comments
    levels = settings.levels(path) if settings.severity or settings.overrides else {}
    configured: list[Diagnostic] = []
    for finding in reported:
        level = levels.get(finding.code)
        if level is None:
            configured.append(finding)
        elif level.severity is None:
            place = f"{Path(level.span.path).name}:{level.span.line}"
            ignored.append(Suppressed(finding=finding, reason=f"off in {place}", in_source=False))
        else:
            configured.append(replace(finding, severity=level.severity))
    return FilteredFindings(
        kept=in_order(configured), ignored=tuple(sorted(ignored, key=lambda suppressed: suppressed.finding.span))
    )


def _ignoring_comment(
    finding: Diagnostic, source: SourceFile, comments: tuple[Ignore, ...], used: set[tuple[int, int]]
) -> Ignore | None:
    """The comment that ignores a finding: the narrowest of those that name its code and cover its line."""
    if finding.code < FIRST_CONFIGURABLE or finding.span.path != source.path:
        return None
    narrowest: tuple[int, int, int] | None = None
    for number, comment in enumerate(comments):
        if comment.first <= finding.span.line <= comment.last:
            for position, code in enumerate(comment.codes):
                if code.value == finding.code:
                    narrowest = min(
                        narrowest or (comment.last - comment.first, number, position),
                        (comment.last - comment.first, number, position),
                    )
    if narrowest is None:
        return None
    used.add(narrowest[1:])
    return comments[narrowest[1]]


def _unused(comments: tuple[Ignore, ...], used: set[tuple[int, int]]) -> list[Diagnostic]:
    return [
        unreadable.unused_ignore(code.span, code.value)
        for number, comment in enumerate(comments)
        for position, code in enumerate(comment.codes)
        if (number, position) not in used
    ]
