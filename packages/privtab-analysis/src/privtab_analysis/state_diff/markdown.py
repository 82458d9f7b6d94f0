"""The difference of two states in GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from privtab.state import RowLocation
from privtab_analysis.diff.markdown import as_code, as_text
from privtab_analysis.state_diff.nodes import ChangedRow, StateDiff
from privtab_analysis.state_diff.summary import groups, headline, totals


def markdown(diff: StateDiff, shown: tuple[str, str], *, decisions: bool, most: int, level: int = 2) -> str:
    """The difference in GitHub's Markdown. `most`: the most rows, and the most lines of changed access; 0 for all."""
    return "\n".join(_lines(diff, shown, decisions=decisions, most=most or None, level=level)).rstrip("\n") + "\n"


def _lines(diff: StateDiff, shown: tuple[str, str], *, decisions: bool, most: int | None, level: int) -> Iterator[str]:
    yield f"{'#' * level} {as_code(shown[0])} → {as_code(shown[1])}"
    yield ""
    lines = [headline(diff)]
    if decisions and diff.rows:
        lines += [totals(diff, gained=gained).text(verb) for verb, gained in (("gained", True), ("lost", False))]
    yield "; ".join(lines) + "."
    yield ""
    if not diff.rows:
        return
    yield "| | row | |"
    yield "|---|---|---|"
    for row in diff.rows[:most]:
        yield f"| {'added' if row.added else 'removed'} | {as_code(row.text)} | {as_text(RowLocation.text_of(row.place))} |"
    yield ""
    if len(diff.rows[:most]) < len(diff.rows):
        yield f"… and {len(diff.rows) - len(diff.rows[:most]):,} more rows"
        yield ""
    if decisions and diff.access:
        yield from _access(diff, most)


def _access(diff: StateDiff, most: int | None) -> Iterator[str]:
    yield "| | who | operations | on | by |"
    yield "|---|---|---|---|---|"
    found = [(group, line) for group in groups(diff) for line in group.lines]
    for group, line in found[:most]:
        verb = "**gained**" if group.gained else "lost"
        cells = (as_text(text) for text in (line.subjects, line.operations, line.entities))
        yield f"| {verb} | {' | '.join(cells)} | {'<br>'.join(map(_row, group.rows))} |"
    yield ""
    if len(found[:most]) < len(found):
        yield f"… and {len(found) - len(found[:most]):,} more lines"
        yield ""


def _row(row: ChangedRow) -> str:
    return f"{'+' if row.added else '-'} {as_code(row.text)}"
