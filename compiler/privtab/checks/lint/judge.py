"""Decides what happens to the findings of one file: kept with some severity, or ignored for a reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from privtab.base.diagnostics import LINE_END, Diagnostic, Located
from privtab.base.hints import nearest
from privtab.base.lazy import pattern
from privtab.base.records import dataclass
from privtab.base.source import SourceFile
from privtab.checks._every import FIRST_CONFIGURABLE, codes, unknown
from privtab.checks.lint.settings import Settings
from privtab.language.findings import unreadable
from privtab.language.report import SuppressedFinding
from privtab.language.syntax.yaml_tree import comments

_HINT = pattern(r"#[ \t]*privtab[ \t]*:")
_WORDS = pattern(r"#[ \t]*privtab[ \t]*:[ \t]*(?P<word>[A-Za-z][A-Za-z_-]*)(?P<rest>.*)")
_CODE = pattern(r"[ \t,]*(?P<code>[A-Za-z]\d+)\b(?=[ \t,:;.-]|$)")
_SEPARATOR = pattern(r"[ \t,:;.-]*")
LINE, FILE = "ignore", "ignore-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """One comment: the codes with their spans, the reason, and the lines that it covers (1-based, inclusive)."""

    codes: tuple[Located[str], ...]
    reason: str
    first: int
    last: int


def ignores(source: SourceFile, found: list[Diagnostic]) -> tuple[Ignore, ...]:
    """The comments of a file that ignore findings, in order; findings about invalid ones are added to `found`."""
    if not _HINT.search(source.text):
        return ()
    parsed = (_read(source, start, end, found) for start, end in comments(source.text))
    return tuple(ignore for ignore in parsed if ignore is not None)


def _read(source: SourceFile, start: int, end: int, found: list[Diagnostic]) -> Ignore | None:
    text = source.text[start:end]
    words = _WORDS.match(text)
    if words is None:
        return None
    word = words["word"]
    span = source.span(start, start + len(text.rstrip()))
    if word not in (LINE, FILE):
        if near := nearest(word, (LINE, FILE)):
            word_span = source.span(start + words.start("word"), start + words.end("word"))
            found.append(unreadable.wrong_ignore(word_span, f"unknown word `{word}`", f"did you mean `{near}`?", near))
        return None
    position = words.start("rest")
    named: list[Located[str]] = []
    while code := _CODE.match(text, position):
        named.append(Located(code["code"], source.span(start + code.start("code"), start + code.end("code"))))
        position = code.end()
    reason = _SEPARATOR.sub("", text[position:], count=1).strip()
    if not named:
        found.append(unreadable.wrong_ignore(span, "this comment names no code", f"write `# privtab: {word} P305 why`"))
        return None
    if not any(character.isalnum() for character in reason):
        found.append(unreadable.wrong_ignore(span, "this comment gives no reason", "add the reason after the code"))
        return None
    valid = tuple(code_span for code_span in named if _can_ignore(code_span, found))
    if word == FILE:
        return Ignore(codes=valid, reason=reason, first=1, last=len(source.starts))
    first, last = _covered(source, start)
    return Ignore(codes=valid, reason=reason, first=first, last=last)


def _can_ignore(code: Located[str], found: list[Diagnostic]) -> bool:
    known = codes().get(code.value)
    if known is None:
        found.append(unreadable.wrong_ignore(code.span, *unknown(code.value)))
    elif not known.configurable or known.code.startswith("P4"):
        problem = (
            "is an error: it cannot be ignored" if not known.configurable else "is about comments: it cannot be ignored"
        )
        found.append(unreadable.wrong_ignore(code.span, f"`{code.value}` {problem}", "put right what it says"))
    else:
        return True
    return False


def _covered(source: SourceFile, start: int) -> tuple[int, int]:
    """The lines of the entry that the comment is beside or above: its own line, or the next one with content."""
    lines = LINE_END.split(source.text)
    comment_line, column = source.position(start)
    line = comment_line
    if not lines[comment_line - 1][: column - 1].strip():
        line = next((n for n in range(comment_line + 1, len(lines) + 1) if _has_content(lines[n - 1])), comment_line)
    indent = len(lines[line - 1]) - len(lines[line - 1].lstrip(" "))  # of `- a: …` the dash: the whole item is covered
    last = line
    for number in range(line + 1, len(lines) + 1):
        text = lines[number - 1]
        if not _has_content(text):
            continue
        deeper = len(text) - len(text.lstrip(" ")) > indent
        items = text[indent:].startswith("- ") and lines[line - 1][indent : indent + 2] != "- "
        if not (deeper or (items and len(text) - len(text.lstrip(" ")) == indent)):
            break
        last = number
    return line, last


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


_NO_YAML = frozenset(found.kind.code for found in (unreadable.not_utf8, unreadable.yaml_syntax, unreadable.empty_file))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredFindings:
    """The kept findings of a file, sorted by position, and the ignored findings."""

    kept: tuple[Diagnostic, ...]
    ignored: tuple[SuppressedFinding, ...] = ()


def filter_findings(
    found: Iterable[Diagnostic], source: SourceFile, path: Path, settings: Settings, *, complete: bool = True
) -> FilteredFindings:
    """Apply the comments of a file and the settings to its findings.

    `complete`: all findings of the file are included, so that a comment that matches none becomes a finding.
    """
    all_ = tuple(sorted(set(found)))
    invalid_comments: list[Diagnostic] = []
    # If YAML cannot be parsed, there are only errors, and no comments either.
    comments = () if any(d.code in _NO_YAML for d in all_) else ignores(source, invalid_comments)
    used: set[tuple[int, int]] = set()
    reported: list[Diagnostic] = []
    ignored: list[SuppressedFinding] = []
    for finding in all_:
        if (comment := _ignoring_comment(finding, source, comments, used)) is not None:
            ignored.append(SuppressedFinding(finding=finding, reason=comment.reason))
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
            ignored.append(SuppressedFinding(finding=finding, reason=f"off in {place}", in_source=False))
        else:
            configured.append(replace(finding, severity=level.severity))
    return FilteredFindings(
        kept=tuple(sorted(set(configured))),
        ignored=tuple(sorted(ignored, key=lambda suppressed: suppressed.finding.span)),
    )


def _ignoring_comment(
    finding: Diagnostic, source: SourceFile, comments: tuple[Ignore, ...], used: set[tuple[int, int]]
) -> Ignore | None:
    """The comment that ignores a finding: the narrowest comment that names its code and covers its line."""
    if finding.code < FIRST_CONFIGURABLE or finding.span.path != source.path:
        return None
    ignoring = [
        (comment.last - comment.first, number, position)
        for number, comment in enumerate(comments)
        if comment.first <= finding.span.line <= comment.last
        for position, code in enumerate(comment.codes)
        if code.value == finding.code
    ]
    if not ignoring:
        return None
    _, number, position = min(ignoring)
    used.add((number, position))
    return comments[number]


def _unused(comments: tuple[Ignore, ...], used: set[tuple[int, int]]) -> list[Diagnostic]:
    return [
        unreadable.unused_ignore(code.span, code.value)
        for number, comment in enumerate(comments)
        for position, code in enumerate(comment.codes)
        if (number, position) not in used
    ]
