"""A diff as a review comment: an overview of the changes, with collapsed witnesses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from privtab_analysis.diff.nodes import DeclarationChange, Diff, Verdict, Witness
from privtab_analysis.diff.summary import (
    Group,
    also_by,
    answers_text,
    groups,
    holding_texts,
    pairs_of,
    request_text,
    summary,
    what_changed,
)


def markdown(diff: Diff, *, level: int = 2) -> str:
    """The diff in GitHub's Markdown. `level`: of the heading."""
    return "\n".join(_lines(diff, level)).rstrip("\n") + "\n"


def _lines(diff: Diff, level: int) -> Iterator[str]:
    yield f"{'#' * level} {as_code(diff.before.shown)} → {as_code(diff.after.shown)}"
    yield ""
    yield f"{summary(diff)}."
    yield ""
    if diff.declared:
        yield "| declared | | before | after |"
        yield "|---|---|---|---|"
        for change in diff.declared:
            yield from _declared(change)
        yield ""
    changed_groups = groups(diff)
    if changed_groups:
        yield "| verdict | operation | before | after |"
        yield "|---|---|---|---|"
        for group in changed_groups:
            yield _row(group)
        yield ""
    for group in changed_groups:
        if group.first.witnesses:
            yield from _witnesses(group)
    if diff.rewritten:
        names = ", ".join(as_code(row.name) for row in diff.rewritten)
        yield f"The same decisions in other words: {names}."
        yield ""


def _declared(change: DeclarationChange) -> Iterator[str]:
    remark = f" (recognised by: {change.recognised})" if change.recognised else ""
    for detail in change.details:
        name = f"{change.kind} {as_code(change.name)}{f' {detail.what}' if detail.what else ''}"
        yield f"| {name} | {change.verdict}{remark} | {_optional(detail.before)} | {_optional(detail.after)} |"


def _row(group: Group) -> str:
    row = group.first
    verdict = f"**{group.verdict}**" if group.verdict is not Verdict.RENAMED else f"{group.verdict}"
    if row.waived is not None:
        verdict += f"<br>waived by {as_text(row.waived.who)} until {row.waived.until}: {as_text(row.waived.why)}"
    if group.declared_only and row.because:
        return f"| {verdict} | {_names(group)} | by {as_text(what_changed(row))} | |"
    if group.verdict is Verdict.RENAMED and row.was is not None:
        return f"| {verdict} | {_names(group)} | {as_code('/'.join(row.was))} | {as_text(row.recognised or '')} |"
    pairs = pairs_of(group)
    before, after = ("<br>".join(_cell(key, text) for key, *both in pairs if (text := both[side])) for side in (0, 1))
    if row.row_changed and (causes := also_by(row)):
        after = "<br>".join(filter(None, [after if before != after else "", f"by {as_text(', '.join(causes[:3]))}"]))
    return f"| {verdict} | {_names(group)} | {before} | {after} |"


def _names(group: Group) -> str:
    return as_code(group.names) if group.short == group.names else as_text(group.short)


def _cell(key: str, text: str) -> str:
    return as_code(text) if key == "requires" else f"{key}: {as_code(text)}"


def _witnesses(group: Group) -> Iterator[str]:
    row = group.first
    number = len(group.rows) - 1
    others = f", and {number} more alike" if number else ""
    yield f"<details><summary><code>{_html(row.name)}</code>{others}: {group.verdict}</summary>"
    yield ""
    if group.short != group.names:
        yield f"{as_code(group.names)}"
        yield ""
    for witness in row.witnesses:
        yield from _witness(witness)
    yield "</details>"
    yield ""


def _witness(witness: Witness) -> Iterator[str]:
    shows = "effects" if witness.shows == "effects" else witness.shows
    yield f"- {shows}: {as_code(request_text(witness.request))}: **{as_text(answers_text(witness))}**"
    holdings = holding_texts(witness.state, witness.request)
    yield from (f"  - {as_text(line)}" for line in holdings or ["nothing is held"])
    yield ""


def _optional(text: str | None) -> str:
    return "" if text is None else as_text(text)


def as_text(text: str) -> str:
    """Escape characters with a meaning in Markdown or its tables."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


def as_code(text: str) -> str:
    """Format text as code; a bar would end the table cell."""
    escaped = " ".join(text.split()).replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
