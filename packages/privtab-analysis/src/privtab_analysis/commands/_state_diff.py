"""`privtab diff --state`: compares two states, and the permissions of users under them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from privtab.base import UsageError, dataclass, no_collection
from privtab.command import (
    Terminal,
    deliver,
    err,
    fail_if,
    is_stored,
    load_policy,
    load_rows,
    load_state,
    out,
    print_error,
    show_findings,
    stop,
)
from privtab_analysis.commands._ask import show_notes
from privtab_analysis.commands._failing import failing_words
from privtab_analysis.commands._shown import show_rows
from privtab_analysis.commands._states import MOST_LINES, StateDiffOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privtab.ir import Program
    from privtab.state import Places, RawState, State
    from privtab_analysis.state_diff import ChangedRow, StateDiff
    from privtab_analysis.state_diff.summary import Group


FAILING = ("wider", "gained", "lost")


def compare_states(policy: str | None, options: StateDiffOptions, fail_on: list[str] | None, format_: str) -> None:
    """Compare two states: which rows differ, and, by a policy, who gains and loses which operations.

    The comparison is exact, and names the rows behind each difference.
    """
    failing = failing_words(fail_on, FAILING)
    assert options.states
    before, *others = options.states
    if len(others) > 1 or bool(others) == bool(options.without):
        raise UsageError("give two states, `-s OLD -s NEW`, or one with `--without ROW`")
    after = others[0] if others else None
    if policy is None:
        needing = [f"--fail-on {word}" for word in sorted(failing) if word != "any"]
        needing += ["--at"] if options.at is not None else []
        if needing:
            raise UsageError(f"`{needing[0]}` needs a policy: give it as A")
    program = None if policy is None else load_policy(policy)
    sides = _Sides(program, before, after, options.without or [])
    with no_collection(keep=True):
        # JSON lists every class of entities; what people read has those with the same changes in one line.
        together = format_ != "json"
        found = sides.compared(time_ns() if options.at is None else options.at, alike_together=together)
        _print(found, (str(before), sides.after_shown), format_, options.limit, decisions=program is not None)
    fail_if(sides.partial or found.undecided or _fails(found, failing))


@dataclass
class _Sides:
    """The two states of a comparison."""

    program: Program | None
    before: Path
    after: Path | None
    without: list[str]
    partial: bool = False

    @property
    def after_shown(self) -> str:
        """The name of the second state."""
        return str(self.after) if self.after is not None else f"without {'; '.join(self.without)}"

    def compared(self, moment: int, *, alike_together: bool) -> StateDiff:
        """The difference; of decisions, at a moment. `alike_together`: as for `state_diff`."""
        from privtab_analysis.state_diff import StateDiff, state_diff
        from privtab_analysis.state_diff.chosen import find_rows, without_rows
        from privtab_analysis.state_diff.rows import as_stored, changed_raw_rows

        if self.program is None:
            with err().spinner("reading the states"):
                rows_before = self._raw(self.before)
                rows_after = self._without(rows_before) if self.after is None else self._raw(self.after)
                return StateDiff(rows=tuple(changed_raw_rows(rows_before, rows_after)))
        with err().spinner("reading the states"):
            first = self._state(self.before)
            second = first if self.after is None else self._state(self.after)
            states, places = (first[0], second[0]), (first[1], second[1])
            notes: tuple[str, ...] = ()
            if any(is_stored(path) for path in (self.before, self.after) if path is not None):
                from privtab.state import Places

                states, places = (
                    (as_stored(self.program, states[0]), as_stored(self.program, states[1])),
                    (Places.NONE, Places.NONE),
                )
                notes = ("rows are compared as bundles hold them: sets resolved, roles of groups given to their users",)
            if self.after is None:
                gone = find_rows(self.without, states[0], places[0], str(self.before))
                states = states[0], without_rows(states[0], gone)
        with err().progress(1, "comparing users") as tell:
            found = state_diff(
                self.program, *states, places=places, moment=moment, tell=tell, alike_together=alike_together
            )
        return replace(found, notes=(*notes, *found.notes)) if found.rows else found

    def _state(self, path: Path) -> tuple[State, Places]:
        assert self.program is not None
        state, places, partial = load_state(self.program, path, for_queries=True)
        self.partial |= partial
        return state, places

    def _raw(self, path: Path) -> RawState:
        if self.after is not None and is_stored(self.before) != is_stored(self.after):
            raise UsageError("a bundle has sets and roles resolved: give a policy to compare it with a file")
        rows = load_rows(None, path)
        errors = [finding for finding in rows.findings if finding.severity == "error"]
        show_findings(errors)
        if errors:
            stop(f"{len(errors)} wrong row(s) in {path}: mend them")
        return rows

    def _without(self, rows: RawState) -> RawState:
        from privtab_analysis.state_diff.chosen import find_raw_rows

        gone = find_raw_rows(self.without, rows, str(self.before))
        remaining = {
            table: tuple(row for row in table_rows if row not in gone) for table, table_rows in rows.rows.items()
        }
        return replace(rows, rows=remaining)


def _fails(found: StateDiff, failing: Sequence[str]) -> bool:
    from privtab_analysis.state_diff.summary import totals

    gained = totals(found, gained=True)
    return (
        ("any" in failing and bool(found.rows))
        or ("gained" in failing and gained.permissions > 0)
        or ("wider" in failing and gained.sensitive > 0)
        or ("lost" in failing and found.count(gained=False) > 0)
    )


def _print(
    found: StateDiff,
    shown: tuple[str, str],
    format_: str,
    limit: int | None,
    *,
    decisions: bool,
) -> None:
    from privtab_analysis.state_diff.summary import MOST_NAMES, state_diff_json

    match format_:
        case "json":
            document = state_diff_json(found, policy=decisions, most=MOST_NAMES if limit is None else limit)
            deliver({"before": shown[0], "after": shown[1], **document})
            return
        case "markdown":
            from privtab_analysis.state_diff.markdown import markdown

            deliver(markdown(found, shown, decisions=decisions, most=MOST_LINES if limit is None else limit))
        case _:
            show(found, shown, out(), decisions=decisions, most=MOST_LINES if limit is None else limit)
    show_notes(found.notes)
    for text in found.undecided:
        print_error(f"not decided: {text}")


ROWS = 20
"""The most rows that made one difference and are listed with it."""


def show(diff: StateDiff, shown: tuple[str, str], console: Terminal, *, decisions: bool, most: int) -> None:
    """Print a difference. `most`: the most lines of rows, and of changed access; 0 for all."""
    from privtab_analysis.state_diff.summary import headline

    console.print(f"{shown[0]} → {shown[1]}", style="bold")
    console.print(headline(diff), style="dim")
    if diff.rows:
        console.print()
        _rows(console, diff.rows[: most or None], indent=0)
        console.more(len(diff.rows) - len(diff.rows[: most or None]), "rows")
    if decisions and diff.rows:
        console.print()
        show_access(diff, console, most=most)


def show_access(diff: StateDiff, console: Terminal, *, most: int) -> None:
    """Print the numbers of gained and lost permissions, and the permissions, by the rows that make the difference."""
    from privtab_analysis.state_diff.summary import totals

    for verb, gained in (("gained", True), ("lost", False)):
        console.print(totals(diff, gained=gained).text(verb))
    show_groups(diff, console, most=most)


def show_groups(diff: StateDiff, console: Terminal, *, most: int) -> None:
    """Print gained and lost permissions, by the rows that make the difference."""
    from privtab_analysis.state_diff.summary import groups

    found = groups(diff)
    lines_left = most or sum(len(group.lines) for group in found)
    for group in found:
        if lines_left <= 0:
            break
        _group(console, group, lines_left)
        lines_left -= len(group.lines)
    console.more(sum(len(group.lines) for group in found) - most if most else 0, "lines")


def _group(console: Terminal, group: Group, most: int) -> None:
    colour = "green" if group.gained else "red"
    console.print(f"\n{'gained' if group.gained else 'lost'} by", style=f"bold {colour}")
    _rows(console, group.rows[:ROWS], indent=2)
    console.more(len(group.rows) - ROWS, "rows", "`--format json` lists them", indent=2)
    subjects = ""
    for line in group.lines[:most]:
        if line.subjects != subjects:
            subjects = line.subjects
            console.print(f"    {subjects}", style="bold")
        console.print_styled(f"      {line.operations}  ", (line.entities, "dim"))


def _rows(console: Terminal, rows: Iterable[ChangedRow], *, indent: int) -> None:
    from privtab.state import RowLocation

    show_rows(
        console, [(f"{'+' if r.added else '-'} {r.text}", RowLocation.text_of(r.place)) for r in rows], indent=indent
    )
