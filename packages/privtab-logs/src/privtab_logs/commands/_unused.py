"""The work of `privtab unused`: read what it is asked about, find what is unused, write the narrower state."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from privtab.base import (
    WINDOW_COLUMNS,
    ExitCode,
    SourceFile,
    WrongTime,
    count,
    moment_text,
    needing,
    parse_moment,
    read_text,
    write_file,
)
from privtab.command import (
    QuestionOptions,
    err,
    is_stored,
    load_rows,
    load_state,
    option,
    print_error,
    show_findings,
    stop,
)
from privtab_logs.commands._replay import LogOptions, entries_of
from privtab_server.store_states import running_store

if TYPE_CHECKING:
    from privtab.base import Diagnostic
    from privtab.ir import Program
    from privtab.state import Places, RawRow, State
    from privtab_analysis.state_diff import StateDiff
    from privtab_logs.row_use import Observed, Unused
    from privtab_logs.schema import Reading

KEEP = Path("privtab-keep.yaml")
"""The default file of rows that stay."""
MOST_ROWS = 20_000
"""Proposed rows up to which the users who would lose something are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources(LogOptions):
    """Options for the sources beside a policy and a state."""

    earlier: Annotated[
        Path | None,
        option(
            "--earlier STATE",
            "The state when the log began: rows that it lacks are too young. Default for a store: its own.",
        ),
    ] = None
    keep: Annotated[
        Path | None, option("--keep FILE", "File of rows that stay, with reasons.", show_default=str(KEEP))
    ] = None
    in_place: Annotated[bool, option("--in-place", "Allow `--propose` to name the state itself.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The unused rows and rights, and how complete the logs are."""

    program: Program
    state: Path
    found: Unused
    reading: Reading
    observed: Observed
    written: Path | None = None
    difference: StateDiff | None = None
    notes: tuple[Diagnostic, ...] = ()
    partial: bool = False

    @property
    def incomplete(self) -> list[str]:
        """Return the reasons why the answer does not cover all that was decided."""
        return self.reading.gaps(self.found.log.skipped, self.found.log.samples)

    def summary(self) -> Iterator[str]:
        """Yield what was read and found, one sentence a line."""
        log, usage = self.found.log, self.found.usage
        assert log.window is not None
        begin, end = map(moment_text, log.window)
        yield f"{count(self.reading.decisions, 'decision')} from {begin} to {end}: {count(len(usage.allows), 'distinct allow')}, {count(len(usage.denials), 'denial')}"
        yield from (f"not covered: {why}" for why in self.incomplete)
        yield from self.reading.notes(log.skipped)
        if usage.lapsed:
            yield f"{count(len(usage.lapsed), 'logged allow')} that this state does not give: nothing is kept for them"
        if self.observed.earlier is None:
            yield "how old rows are is not known, so all count as older than the log: `--earlier STATE` tells"
        proposal = self.found.proposal
        yield (
            f"{count(len(proposal.removed), 'row')} can go: decided again, all {len(usage.allows):,} allows are kept and all "
            f"{len(usage.denials):,} denials, and without any of {len(proposal.needed):,} other rows an allow is lost"
        )
        if self.written is not None:
            yield f"written: {self.written}"

    def failing(self, words: Collection[str], *, proposing: bool, allow_incomplete: bool) -> list[str]:
        """Return the words of `--fail-on` that hold; incomplete logs also fail a proposal, unless they are allowed."""
        asked = {
            "unused": bool(self.found.idle),
            "operations": bool(self.found.idle_operations),
            "incomplete": bool(self.incomplete) and not allow_incomplete,
        }
        also = ("incomplete",) if proposing else ()
        return [word for word, holds in asked.items() if holds and {word, "any"} & {*words, *also}]

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        from privtab_analysis.state_diff.summary import state_diff_json

        difference = None if self.difference is None else state_diff_json(self.difference)
        return {
            "state": str(self.state),
            "read": self.reading.to_json(),
            "incomplete": self.incomplete,
            **self.found.to_json(),
            "written": None if self.written is None else str(self.written),
            "difference": difference,
        }


def answered(
    asked: QuestionOptions,
    sources: Sources,
    propose: Path | None,
    *,
    diff: bool,
    allow_incomplete: bool,
    allow_empty: bool,
) -> Answer:
    """Find what is unused; write the narrower state to `propose`. `diff`: whether to find who would lose what.

    `allow_incomplete`: write it even if the answer does not cover the whole log, of which allows then may be lost. Ends the command for a log without a decision: with the code for findings, unless `allow_empty`.
    """
    with needing("`privtab unused`", "compiler", "registry", "store"):
        from privtab_logs.distinct import distinct
        from privtab_logs.reading import batches
        from privtab_logs.row_use import Observed, unused
    from privtab_logs.schema import Reading

    reading = Reading.beside(read_text(path) for path in sources.metrics or ())
    program, moment = asked.program(), asked.moment()
    whole, places, partial = load_state(program, asked.state, for_queries=True)
    kept, notes = _kept(sources.keep, whole, places, str(asked.state))
    entries = entries_of(sources.mapping, sources.door, asked.policy)
    log = distinct(batches(sources.logs, reading, entries), program, system=sources.system)
    if log.window is None:
        for line in (*reading.gaps(log.skipped, log.samples), *reading.notes(log.skipped)):
            print_error(line)
        message = "the log has no decision of the policy with a time: nothing was observed"
        stop(message, ExitCode.OK if allow_empty else ExitCode.FINDINGS)
    earlier = _earlier(program, asked.state, sources.earlier, log.window[0])
    observed = Observed(whole=whole, places=places, moment=moment, kept=kept, earlier=earlier)
    with err().progress(1, "deciding") as tell:
        found = unused(program, observed, log, tell=lambda _: tell)
    gone = _gone(found, observed)
    small = diff and len(found.proposal.removed) <= MOST_ROWS
    answer = Answer(
        program=program,
        state=asked.state,
        found=found,
        reading=reading,
        observed=observed,
        difference=_difference(program, observed, gone) if small else None,
        notes=notes,
        partial=partial,
    )
    if propose is None or (answer.incomplete and not allow_incomplete):
        return answer
    _write(program, asked.state, propose, whole, gone, in_place=sources.in_place)
    return replace(answer, written=propose)


def _kept(
    path: Path | None, state: State, places: Places, shown: str
) -> tuple[dict[tuple[str, int], str], tuple[Diagnostic, ...]]:
    """The rows that stay, by a file; one with errors ends the command, since what it means to keep could be proposed."""
    from privtab_logs.kept import read_kept

    if path is None and not KEEP.is_file():
        return {}, ()
    found = read_kept(SourceFile.load(path or KEEP), state, places, shown)
    if any(finding.severity == "error" for finding in found.found):
        show_findings(found.found)
        stop(f"{path or KEEP} is wrong: nothing is proposed")
    return found.rows, found.found


def _earlier(program: Program, state: Path, path: Path | None, begin: int) -> State | None:
    """The state of the moment at which the log begins."""
    if path is None:
        store = running_store(state)
        if store is None:
            return None
        path = Path(f"{store}@{moment_text(begin)}")
    return load_state(program, path, for_queries=True).state.at(begin)


def _gone(found: Unused, observed: Observed) -> dict[str, list[int]]:
    """The numbers of the proposed rows in the whole state, by table."""
    gone: dict[str, list[int]] = defaultdict(list)
    for row in found.proposal.removed:
        table, number = found.usage.rows.place(row)
        gone[table].append(observed.numbers(table)[number])
    return gone


def _difference(program: Program, observed: Observed, gone: dict[str, list[int]]) -> StateDiff:
    from privtab.state import Places
    from privtab_analysis.state_diff import state_diff
    from privtab_analysis.state_diff.chosen import without_rows

    after = without_rows(observed.whole, [(table, number) for table, numbers in gone.items() for number in numbers])
    return state_diff(program, observed.whole, after, places=(observed.places, Places.NONE), moment=observed.moment)


def _write(
    program: Program, state: Path, target: Path, whole: State, gone: dict[str, list[int]], *, in_place: bool
) -> None:
    """Write the state without some rows, in its own form; what has none that is edited, such as a bundle, as JSON or CSV."""
    from privtab_logs.trimmed_files import is_edited

    if is_stored(state) or not state.exists() or not is_edited(state):
        from privtab_analysis.state_diff.chosen import without_rows
        from privtab_connect.state_files import write_tables

        less = without_rows(whole, [(table, number) for table, numbers in gone.items() for number in numbers])
        write_tables(target, less.to_tables(), in_place=in_place)
        return
    outputs = _trimmed(program, state, gone)
    for name, content in outputs.items():
        write_file(target / name, content, in_place=in_place)


def _trimmed(program: Program, state: Path, gone: dict[str, list[int]]) -> dict[str, bytes]:
    """The files of a state without some of its rows, which were read once more to be sure of it."""
    from privtab.state import validate, validate_with_places
    from privtab_analysis.state_diff.chosen import without_rows
    from privtab_analysis.state_diff.rows import changed_rows
    from privtab_logs.trimmed_files import trimmed

    raw = load_rows(program, state)
    whole, places, _ = validate_with_places(program, raw)
    numbers = {table: {places.rows[table][number].number for number in rows} for table, rows in gone.items()}
    for table, rows in numbers.items():
        # Rows that say the same are read once.
        same = {_telling(row) for row in raw.rows[table] if row.number in rows}
        rows |= {row.number for row in raw.rows[table] if _telling(row) in same}
    files = trimmed(state, raw, numbers)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / (state.name if "" in files else "state")
        for name, content in files.items():
            write_file(copy / name, content)
        less = without_rows(whole, [(table, number) for table, listed in gone.items() for number in listed])
        if any(changed_rows(less, validate(program, load_rows(program, copy))[0])):
            raise AssertionError(f"{state} without rows reads otherwise than it should")
    return files


def _edge(written: str) -> str | None:
    """A time as a window's edge is written, in UTC; None if it is not a time."""
    try:
        return moment_text(parse_moment(written))
    except WrongTime:
        return None


def _telling(row: RawRow) -> tuple[tuple[str, str | None], ...]:
    """Return the cells that tell rows of a table apart, however their times are written."""
    return tuple((name, _edge(text) if name in WINDOW_COLUMNS else text) for name, text in row.cells.items())


def markdown(answer: Answer, most: int) -> str:
    """The answer as a comment on a review. `most`: the most lines of each list; 0 for all."""
    from privtab.state import RowLocation
    from privtab_analysis.diff.markdown import as_code, as_text
    from privtab_analysis.state_diff.markdown import markdown as of_difference

    found = answer.found
    lines = ["## What logged decisions did not need", "", *(f"- {as_text(line)}" for line in answer.summary()), ""]
    lines += ["| rows of | needed | substituted | unused | stay |", "|---|---:|---:|---:|---:|"]
    for table, counts in found.counts().items():
        numbers = " | ".join(f"{counts.get(use, 0):,}" for use in ("needed", "substituted", "unused", "stays"))
        lines.append(f"| {table} | {numbers} |")
    if found.idle:
        lines += ["", f"### Unused rows of the state: {len(found.idle):,}", "", "| row | place |", "|---|---|"]
        listed = found.idle[: most or None]
        lines += [f"| {as_code(row.text)} | {as_code(RowLocation.text_of(row.place))} |" for row in listed]
        lines += [f"| and {len(found.idle) - len(listed):,} more | |"] if len(found.idle) > len(listed) else []
    if found.idle_operations:
        lines += ["", f"### Rows of the table that allowed nothing: {len(found.idle_operations):,}", ""]
        lines += [f"- {as_code(operation.rule)}" for operation in found.idle_operations[: most or None]]
    if answer.difference is not None:
        shown = str(answer.state), "the proposal" if answer.written is None else str(answer.written)
        lines += ["", of_difference(answer.difference, shown, decisions=True, most=most)]
    return "\n".join(lines).rstrip("\n") + "\n"
