"""`privtab explain`: explain the decision on a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from privtab.base import dataclass
from privtab.command import (
    FormatOption,
    QuestionOptions,
    argument,
    err,
    fail_if,
    option,
    out,
    print_if_data,
)
from privtab_analysis.commands import _ask as ask
from privtab_analysis.commands._shown import show_place, show_rows, show_rule, show_words

if TYPE_CHECKING:
    from privtab.base import Request
    from privtab.command import Terminal
    from privtab.ir import Program
    from privtab_analysis.answer_view import AnswerView, Section, Way
    from privtab_analysis.explanation import Part
    from privtab_analysis.provenance import Chain

PANEL = "Start here"

MOST_WAYS = 6
"""Maximum ways shown without `--all`."""
MOST_CHAINS = 3
"""Maximum chains of rows shown for one atom without `--all`."""


def run(
    user: Annotated[str, argument("USER", "The user.")],
    action: Annotated[str, argument("ACTION", "The operation.", kind="OPERATION")],
    resource: Annotated[
        str, argument("RESOURCE", "The entity, as type:path (table:demo/hive/sales/orders).", kind="ENTITY")
    ],
    *,
    options: ask.RequestOptions,
    everything: Annotated[bool, option("--all", "Show all ways and rows, and the missing parts.")] = False,
    asked: QuestionOptions,
    format_: FormatOption = "text",
) -> None:
    """Explain why a request is allowed, row by row of the state, or what would allow it: roles, groups, grants, ownership.

    As the action, `row_filter` or `column_mask` asks which filter applies, and why earlier filters do not.

    Example:
      privtab explain alice load table:demo/hive/sales/orders -p gravitino/1.1.0 -s sample:gravitino
      privtab explain kim run job:demo/job_2 -p gravitino/1.1.0 -s sample:gravitino \\
              --with template=job_template:demo/nightly
    """
    from privtab.ir import vocabulary
    from privtab.pipeline import policy_revision
    from privtab.reference import Reference
    from privtab_analysis.answer_view import answered

    program = asked.program()
    request = options.request(program, user, action, resource)
    loaded, places, partial = asked.rows(program)
    revision = policy_revision(program) if format_ == "json" else None
    reference = Reference(program, loaded, revision=revision)
    applied = None
    if action in ("row_filter", "column_mask") and (request.resource.type, action) not in program.rules:
        from privtab.engines import OpenEngine
        from privtab.pipeline import policy_artifacts
        from privtab.state import index_document

        vocabulary(program).check_filtered(request)
        opened = OpenEngine.of(policy_artifacts(program).program, index_document(program, loaded), asked.moment())
        applied = opened.engine.applied(request)
    with err().spinner("looking for ways", after=1.0):
        answers = []
        for one in [request] if applied is None else _tried(program, request):
            answers.append(answered(reference, one, loaded, places))
            if answers[-1].explanation.decision.allowed:
                break  # no later filter is tried
    document = answers[0].to_json() if applied is None else _applied_json(request, asdict(applied), answers)
    if not print_if_data(format_, {**document, "notes": list(answers[0].notes)}):
        if applied is not None:
            _show_applied(out(), answers[-1], applied.sql, denied=applied.denied)
        for answer in answers:
            _AnswerPrinter(out(), program, answer, everything).show()
        ask.show_notes(answers[0].notes)
    fail_if(partial)


def _tried(program: Program, request: Request) -> list[Request]:
    """The questions whether each filter holds, in their order."""
    from privtab.ir import vocabulary

    names = vocabulary(program).filters[request.action][request.resource.type]
    return [replace(request, action=f"{request.action}.{name}") for name in names]


def _applied_json(request: Request, applied: Mapping[str, Any], answers: Sequence[AnswerView]) -> dict[str, Any]:
    tried = [{"operation": one.explanation.request.action, **one.to_json()} for one in answers]
    return {"request": request.to_json(), **applied, "tried": tried}


def _show_applied(console: Terminal, last: AnswerView, sql: str, *, denied: bool) -> None:
    """The answer, before the answers about the filters that were tried, of which this is the last."""
    request, allowed = last.explanation.request, last.explanation.decision.allowed
    kind, _, name = request.action.partition(".")
    found = f"{kind.replace('_', ' ')} {name}" if allowed else f"no {kind.replace('_', ' ')}"
    lacking = ": a value for its text is missing" if allowed and denied else ""
    style = "bold red" if denied else "bold green"
    console.print_styled((found, style), f"{lacking}  user:{request.user} {request.resource}")
    console.print(f"  {sql}\n", soft_wrap=True)


@dataclass
class _AnswerPrinter:
    """Prints one answer as text."""

    console: Terminal
    program: Program
    answer: AnswerView
    everything: bool

    def __post_init__(self) -> None:
        self.most_ways, self.most_chains = (10**6, 10**6) if self.everything else (MOST_WAYS, MOST_CHAINS)

    def show(self) -> None:
        """Print the decision, the rule, the reasons, and what would allow a denied request."""
        answer = self.answer
        style = "bold green" if answer.explanation.decision.allowed else "bold red"
        self.console.print_styled((answer.verdict, style), f"  {answer.question}")
        show_rule(self.console, self.program, answer.explanation.rule)
        ways = [section for section in answer.reasons if section.way]
        for section in ways[: self.most_ways]:
            self._section(section)
        self._more(len(ways) - self.most_ways, "way that holds", "ways that hold")
        self._cut(answer.reasons_cut)
        for section in answer.reasons:
            if not section.way:
                self._section(section)
        for parts in answer.otherwise if self.everything else ():
            self._title("not by")
            self._parts(parts)
        if answer.remedy:
            self._title(answer.remedy)
        for number, way in enumerate(answer.ways[: self.most_ways], start=1):
            self._way(number, way, len(str(min(len(answer.ways), self.most_ways))))
        self._more(len(answer.ways) - self.most_ways, "way", "ways")
        self._cut(answer.ways_cut)

    def _section(self, section: Section) -> None:
        self._title(section.title)
        self._parts(section.parts)
        for text in section.lines[: self.most_ways]:
            self.console.print(f"  {text}")
        self._more(len(section.lines) - self.most_ways)

    def _cut(self, sentence: str) -> None:
        if sentence:
            self.console.print(f"  {sentence}", style="dim")

    def _way(self, number: int, way: Way, digits: int) -> None:
        margin = " " * (digits + 4)
        for n, line in enumerate(way.lines):
            label = margin if n else f"{number:>{digits + 2}}  "
            text = f"and {line.text}" if n else line.text
            self.console.print_styled((label, "dim"), text, end="")
            show_place(self.console, line.place, at=len(label) + len(text))
            if line.also_at:
                *others, last = line.also_at
                head = f"{margin}  or at "
                show_words(
                    self.console, head, [*(f"{above}," for above in others), last], margin=len(head), style="dim"
                )
        if way.gains:
            self.console.print(margin + way.gains, style="dim")

    def _parts(self, parts: Sequence[Part]) -> None:
        for part in parts:
            sign = ("  ✓ ", "green") if part.holds else ("  ✗ ", "red")
            state = "" if part.holds else "  denied" if part.denied else "  missing"
            self.console.print_styled(sign, part.atom, (state, "dim"))
            self._chains(part.denied_by)
            if part.because and part.denied:
                self.console.print("      though", style="dim")
            self._chains(part.because)

    def _chains(self, chains: tuple[Chain, ...]) -> None:
        from privtab_analysis.answer_view import chain_rows

        for number, chain in enumerate(chains[: self.most_chains]):
            if number:
                self.console.print("      or", style="dim")
            show_rows(self.console, chain_rows(chain))
        self._more(len(chains) - self.most_chains, "row that gives it", "rows that give it", indent=6)

    def _title(self, text: str) -> None:
        self.console.print(f"\n{text}", style="bold")

    def _more(self, number: int, noun: str = "", nouns: str = "", *, indent: int = 2) -> None:
        self.console.more(number, noun if number == 1 else nouns, "`--all` shows them", indent=indent)
