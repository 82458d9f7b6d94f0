"""`privtab conform`: whether a running system obeys its table."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import ExitCode, SettingsInvalid, UsageError, count, parse_key_values, write_file
from privtab.command import (
    OutputOption,
    PolicyArguments,
    Terminal,
    deliver,
    err,
    fail_if,
    option,
    out,
    print_error,
    stop,
)
from privtab_analysis.commands._waivers import waivers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privtab.ir import Rule
    from privtab.state import State
    from privtab_testing.conform import Question, QuestionPlan, SystemAnswer
    from privtab_testing.conform.driver import Driver
    from privtab_testing.conform.report import Report
    from privtab_testing.conform.run import AnswerFile, Settings
    from privtab_testing.conform.variant import VariantFile
    from privtab_testing.scenarios.masks import Key

PANEL = "Check"

LACKING = 20
"""The most lines about what a driver cannot make."""
STYLES = {"wider": "bold red", "broken": "red", "narrower": "bold blue", "agrees": "green", "untested": "dim"}


Format = Literal["pretty", "json", "junit", "markdown", "html"]
"""Output format of the report."""


Skeleton = Literal["sql", "http"]
"""The kind of a driver document."""


FailOn = Literal["wider", "any", "none"]
"""The differences for which the command fails."""


def run(
    policy: PolicyArguments,
    driver: Annotated[
        str | None, option("--driver DRIVER", "Driver: `authzen`, a YAML file, or a class `module:Class`.")
    ] = None,
    url: Annotated[str | None, option("--url URL", "Address of the system.")] = None,
    set_: Annotated[list[str] | None, option("--set NAME=VALUE", "Value for the driver; repeatable.")] = None,
    filter_: Annotated[
        list[str] | None, option("--filter -k ROW", "Only these rows, as in table/load or table/*; repeatable.")
    ] = None,
    sample: Annotated[int | None, option("--sample N", "Ask only N of the questions.", min=1)] = None,
    skeleton: Annotated[
        Skeleton | None, option("--skeleton", "Print a YAML driver for the policy to fill in, and stop.")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", "Show the objects and requests of the test, and stop.")] = False,
    write_state: Annotated[
        Path | None, option("--write-state FILE", "Write the state to load into the system, and stop.")
    ] = None,
    write_variant: Annotated[
        str | None, option("--write-variant NAME", "Add a variant that describes the system's behaviour.")
    ] = None,
    clean: Annotated[bool, option("--clean", "Only remove the remains of an earlier test.")] = False,
    resume: Annotated[
        Path | None, option("--resume FILE", "Keep the answers in this file, and continue from it.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        option("--limit NAME=N", "jobs=1 questions at once, rate=N a second, seconds=60 to wait for one; repeatable."),
    ] = None,
    prefix: Annotated[str, option("--prefix TEXT", "Prefix of every created name.")] = "privtab_conform_",
    token: Annotated[
        str | None, option("--token-file FILE", "Bearer token for the system's server.", kind="TOKEN")
    ] = None,
    fail_on: Annotated[FailOn, option("--fail-on", "Differences that count as failures.")] = "any",
    waivers: Annotated[
        Path | None, option("--waivers FILE", "Known differences. Default: privtab-waivers.yaml.")
    ] = None,
    format_: Annotated[Format, option("--format", "Output format of the report.")] = "pretty",
    output: OutputOption = None,
    verbose: Annotated[bool, option("--verbose -v", "Also show rows that agree.")] = False,
) -> None:
    """Ask a running system whether it obeys its table.

    Creates users, entities and grants in the system, asks questions from the minimal sets of each row, and removes
    everything that it created. Exits with 1 if an answer differs, with 3 if the system or its driver fails.

    Example:
      privtab conform cdap/final --driver authzen --url http://127.0.0.1:8181 --write-state state.json
      privtab conform cdap/final --driver authzen --url http://127.0.0.1:8181
      privtab conform warehouse.yaml --driver postgresql.yaml --url postgresql+psycopg://admin@db/postgres --dry-run
      privtab conform lake.yaml --skeleton http -o driver.yaml
      privtab conform lake.yaml --driver my_lake:Driver --filter 'table/*' --fail-on wider --format junit -o lake.xml
    """
    from privtab.pipeline import ChosenPolicy
    from privtab_testing.conform.drivers import open_driver
    from privtab_testing.conform.formats import summary
    from privtab_testing.conform.plan import plan
    from privtab_testing.conform.report import readings_of, report
    from privtab_testing.conform.run import AnswerFile, run, sampled

    if not prefix.strip():
        raise UsageError("`--prefix` is empty: the objects of the test must be distinguishable from others")
    settings = _limits(limit)
    chosen, program = ChosenPolicy.of(policy.policy), policy.program()
    if skeleton is not None:
        from privtab_testing.conform.skeleton import skeleton as written

        deliver(written(program, skeleton), output)
        return
    if driver is None:
        raise UsageError("name a driver with `--driver`, or let `--skeleton` print one to fill in")
    found_waivers, wrong = waivers_of(waivers)
    if wrong:
        raise SettingsInvalid(wrong)
    file = None
    if write_variant is not None:
        from privtab_testing.conform.variant import VariantFile

        if chosen:
            raise UsageError(f"`--write-variant` starts from the rows as they stand: write {chosen.policy}")
        file = VariantFile(policy.policy, write_variant)
    system = open_driver(
        driver,
        program,
        url,
        parse_key_values(set_, "--set", example="metalake=prod"),
        token=token,
        timeout=settings.timeout,
    )

    with err().spinner("planning", after=1.0):
        others = {} if chosen.readings else readings_of(policy.policy, program)
        planned = plan(
            program,
            readings=others,
            rows=partial(_selected, None if system.keeps_state else filter_),
            asks=system.asks,
            changes=system.changes,
            attributes=system.gives_attributes,
            through_roles=system.through_roles,
            prefix=prefix,
            marked=system.keeps_state,
            separate=file is not None,
            abilities=system.abilities,
        )
    questions = sampled([question for question in planned.questions if _selected(filter_, question.rule)], sample)
    if not questions and not planned.undecided:
        raise UsageError(f"no row is named {' or '.join(f'`{name}`' for name in filter_ or ())}")
    answers = None if resume is None or dry_run or clean or write_state else AnswerFile(resume, planned)
    # The report for people ends with the kinds of mistakes that are not seen.
    _announce(planned, questions, system, answers, None if dry_run or write_state or format_ != "pretty" else 1)
    if write_state is not None:
        _write_state(system.state(planned.world), write_state)
        return
    if dry_run:
        return
    if clean:
        _clean(system, planned)
        return
    _set_probe(system, questions)
    with err().progress(len(questions), program.system) as tell:
        outcome = run(planned, questions, system, settings, answers=answers, on_answer=tell)
    if answers is not None:
        answers.close()
    result = report(planned, outcome, system, found_waivers, datetime.now(UTC).date())
    deliver(_report(result, format_, verbose=verbose), output)
    _print_further(result, None if file is None else partial(_propose, file, planned, outcome.answers, others))
    if output is not None:
        err().print(summary(result))
    fail_if(result.failing(str(fail_on)))  # type: ignore[arg-type]


def _clean(system: Driver, planned: QuestionPlan) -> None:
    left = system.clean_world(planned.world)
    for line in left:
        print_error(f"left behind: {line}")
    fail_if(left)


def _print_further(result: Report, propose: Callable[[], None] | None) -> None:
    """Print what is beside the report; exit with 3 if the test ended early."""
    for line in result.unused:
        err().print(f"warning: {line}")
    for line in result.outcome.left:
        print_error(f"left behind: {line}")
    if result.outcome.kept:
        err().print("what was made is still there: the same command continues from it, and `--clean` removes it")
    if result.outcome.failure is None and propose is not None:
        propose()
    if result.outcome.failure is not None:
        stop(f"ended after {count(result.requests, 'question')}: {result.outcome.failure}", ExitCode.EXTERNAL)


def _propose(
    file: VariantFile,
    planned: QuestionPlan,
    answers: Mapping[str, SystemAnswer],
    others: Mapping[Key, Mapping[str, Rule]],
) -> None:
    """Write the variant that describes the system's behaviour, and tell its changes and its open questions."""
    from privtab_testing.conform.variant import propose

    with err().spinner("looking for changes of rows", after=1.0):
        found = propose(file, planned, answers, others)
    for change in found.changes:
        row = f"{change.rule.entity}/{change.rule.operation}"
        err().print(f"variant `{file.name}`: {row}: {change.text}")
    for rule in found.unexplained:
        row = f"{rule.entity}/{rule.operation}"
        print_error(f"no small change of `{row}` gives every answer of the system: the variant leaves it as it is")
    if found.changes:
        write_file(file.path, found.text.encode(), in_place=True)
        err().print(f"{file.path}: variant `{file.name}` with {count(len(found.changes), 'row')}")
    elif not found.unexplained:
        err().print("no variant is needed: every answer is that of the table")


LEAST = {"jobs": 1, "rate": 0.01, "seconds": 0.1}
"""The lowest value of each limit."""
MOST_JOBS = 256


def _limits(given: list[str] | None) -> Settings:
    """How many questions are asked at once and a second, and how long one may take. Raises UsageError."""
    from privtab_testing.conform.run import Settings

    found = parse_key_values(given, "--limit", "NAME=N", example="jobs=4", names=tuple(LEAST))
    for name, text in found.items():
        whole = name == "jobs"
        if not re.fullmatch(r"\d+" if whole else r"\d+(\.\d+)?", text) or float(text) < LEAST[name]:
            raise UsageError(f"`--limit {name}={text}`: write a number from {LEAST[name]}")
        if whole and int(text) > MOST_JOBS:
            raise UsageError(f"`--limit {name}={text}`: write a number up to {MOST_JOBS}")
    rate = float(found["rate"]) if "rate" in found else None
    return Settings(jobs=int(found.get("jobs", 1)), rate=rate, timeout=float(found.get("seconds", 60)))


def _selected(patterns: Sequence[str] | None, rule: Rule) -> bool:
    """Return whether `--filter` selects a row, by `type/operation`, type or operation."""
    names = (f"{rule.entity}/{rule.operation}", rule.entity, rule.operation)
    return patterns is None or any(fnmatch(name, pattern) for pattern in patterns for name in names)


def _announce(
    planned: QuestionPlan, questions: Sequence[Question], system: Driver, answers: AnswerFile | None, told: int | None
) -> None:
    """Print the entities and questions of a test, before anything is made or asked. `told`: how many lines about kinds of mistakes."""
    from privtab_testing.conform.formats import mistake_lines
    from privtab_testing.conform.plan import NOT_ASKED
    from privtab_testing.conform.worlds import needed_world

    known = {} if answers is None else answers.known
    waiting = [question for question in questions if question.id not in known]
    world = planned.world if system.keeps_state else needed_world(planned, waiting)
    if lacking := system.lacks(world, [question.request for question in waiting]):
        shown = [*lacking[:LACKING], *([f"and {len(lacking) - LACKING:,} more"] if len(lacking) > LACKING else [])]
        raise UsageError("\n".join(["the driver cannot make or ask what this plan needs; nothing was made:", *shown]))
    cells = {cell for question in questions for cell in question.cells}
    changing = sum(system.changes(question.rule) for question in waiting)
    restored = sum(system.restores(question.rule) for question in waiting)
    err().print(
        f"{count(len(waiting), 'question')} about {count(len(cells), 'cell')}"
        + (f", {len(questions) - len(waiting):,} more answered already" if len(waiting) < len(questions) else "")
        + (f", {changing:,} of which may change something" if changing else "")
        + (f", {restored:,} of which are undone" if restored else "")
        + f"; {count(system.calls(world), 'call')} to make {count(len(world.users), 'user')}, "
        f"{count(len(world.entities), 'entity', 'entities')} and {count(world.rows, 'row')} of state"
    )
    for line in mistake_lines(planned)[:told]:
        err().print(line)
    unasked = sum(why == NOT_ASKED for why in planned.undecided.values())
    if unasked:
        err().print(f"no questions about {count(unasked, 'row')} that the driver cannot ask")
    for row, why in planned.undecided.items():
        if why == NOT_ASKED:
            continue
        err().print(f"no questions about {row}: {why}")


def _write_state(state: State, path: Path) -> None:
    from privtab_testing.conform.driver import state_bytes
    from privtab_testing.scenarios import size

    write_file(path, state_bytes(state))
    out().print(f"{path}: {count(size(state), 'row')}")


def _set_probe(system: Driver, questions: Sequence[Question]) -> None:
    """A server that reads its state from a file has read it when a request that the table allows is allowed."""
    from privtab_testing.conform import SystemAnswer

    witnesses = [question for question in questions if question.expected and question.state.grants]
    witness = next((question for question in witnesses if not system.changes(question.rule)), None)
    if witnesses and witness is None and system.file is not None:
        raise UsageError(
            "nothing tells when the system has the state, since all of these questions change something: "
            "ask about a row, too, that changes nothing"
        )
    if witness is not None:
        system.probe = lambda: system.ask(witness.request) is SystemAnswer.ALLOWED


def _report(result: Report, format_: Format, *, verbose: bool) -> object:
    from privtab_testing.conform import formats

    match format_:
        case "json":
            return formats.as_json(result)
        case "junit":
            return formats.as_junit(result)
        case "markdown":
            return formats.as_markdown(result)
        case "html":
            return formats.as_html(result)
        case "pretty":
            return lambda console: _show(result, console, verbose=verbose)


def _show(result: Report, console: Terminal, *, verbose: bool) -> None:
    from privtab_testing.conform.formats import pretty

    for verdict, line in pretty(result, verbose=verbose):
        console.print(line, style=STYLES.get(verdict))
