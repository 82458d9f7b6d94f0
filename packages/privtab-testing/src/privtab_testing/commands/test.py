"""`privtab test`: run scenarios, and measure their coverage and the mutations they notice."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import UsageError, count, dataclass, parse_key_values
from privtab.command import (
    OutputOption,
    argument,
    deliver,
    err,
    fail_if,
    option,
    print_error,
)

if TYPE_CHECKING:
    from privtab_testing.scenarios import CasePlan, Subject
    from privtab_testing.scenarios.results import Result
    from privtab_testing.scenarios.run import Engine

PANEL = "Start here"

_PLAIN = re.compile(r"[\w./-]+")


Format = Literal["pretty", "json", "junit"]
"""Output format of the outcome."""


Engines = Literal["reference", "opa", "both"]
"""Engines that answer the cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The selection of cases, and the measurements."""

    engine: Annotated[Engines, option("--engine", "Engine; with `both`, they must agree.")] = "reference"
    filter_: Annotated[
        str | None,
        option(
            "--filter -k TEXT",
            "Only cases with TEXT in name, user, operation, entity or tag; `*` and `?` are wildcards.",
        ),
    ] = None
    fail_fast: Annotated[bool, option("--fail-fast -x", "Stop at the first failure.")] = False
    mutation: Annotated[bool, option("--mutation", "Show which faults no case would notice.")] = False
    least: Annotated[
        list[str] | None,
        option("--min NAME=PCT", "Fail below coverage=PCT of cells, or mutation=PCT of faults noticed; repeatable."),
    ] = None
    suggest: Annotated[bool, option("--suggest", "Print scenarios for untested cells, to review and keep.")] = False

    def minimum(self, name: str) -> float | None:
        """The least percentage of coverage or mutation. Raises UsageError."""
        given = parse_key_values(
            self.least, "--min", "NAME=PCT", example="coverage=100", names=("coverage", "mutation")
        )
        for text in given.values():
            if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) > 100:
                raise UsageError(f"`--min` takes a percentage: write a number from 0 to 100, not `{text}`")
        return float(given[name]) if name in given else None

    @property
    def covers(self) -> bool:
        """True if coverage is measured: without a filter, or where something depends on it."""
        return self.filter_ is None or self.minimum("coverage") is not None or self.suggest

    @property
    def mutates(self) -> bool:
        """True if the mutation score is measured."""
        return self.mutation or self.minimum("mutation") is not None


def run(
    paths: Annotated[
        list[str] | None,
        argument(
            "PATH",
            "Policies, by name, system, path or folder, or scenario files; all policies by default.",
            kind="POLICY",
        ),
    ] = None,
    *,
    options: RunOptions,
    verbose: Annotated[bool, option("--verbose -v", "Show all failures, cells and faults.")] = False,
    format_: Annotated[Format, option("--format", "Output format: for people, programs or CI servers.")] = "pretty",
    output: OutputOption = None,
) -> None:
    """Run the scenarios of policies, and report each wrong answer.

    Exits with 1 if a case fails, or a percentage is below its minimum.

    Example:
      privtab test
      privtab test cdap
      privtab test cdap/initial@use_cases
      privtab test cdap/final --engine both --mutation
      privtab test gravitino/1.1.0 --filter 'drop table*' -x
      privtab test --min coverage=100 --min mutation=100 --format junit -o build/scenarios.xml
      privtab test cdap/final --suggest -o final.more.scenarios.yaml
    """
    options.minimum("coverage")  # a percentage that is none is refused before anything runs
    from privtab.pipeline import policy_paths
    from privtab_testing.scenarios.collect import plans

    if options.suggest and output is not None and output.exists():
        raise UsageError(f"{output} is there already: name a new file, and move from it what you keep")
    results: list[Result] = []
    for plan in plans(paths or policy_paths(existing=True)):
        results.append(_run(plan, options))
        if options.fail_fast and results[-1].failures:
            break
    report = _suggestions(results, output) if options.suggest else _report(results, format_, verbose=verbose)
    if report:
        deliver(report, output)
    else:
        not_written = f", and {output} was not written" if output else ""
        err().print(f"nothing is untested: there is nothing to suggest{not_written}")
    shortfalls = [
        *_shortfalls(results, options.minimum("coverage"), "cells are tested"),
        *_shortfalls(results, options.minimum("mutation"), "faults are noticed"),
    ]
    for message in shortfalls:
        print_error(message)
    if options.filter_ is not None and not any(result.cases for result in results):
        raise UsageError(f"no case has `{options.filter_}` in it")
    if not options.suggest and not any(result.plan.cases for result in results):
        raise UsageError("no scenarios, so nothing was tested; `--suggest` prints some to begin with")
    fail_if(shortfalls or any(result.failures for result in results))


def _run(plan: CasePlan, options: RunOptions) -> Result:
    """Run the cases of a plan, then measure the coverage of the passed ones."""
    from privtab_testing.scenarios import prove
    from privtab_testing.scenarios.results import Result
    from privtab_testing.scenarios.run import Failure, ReferenceEngine, failures, matching, opa

    cases = tuple(matching(plan.cases, options.filter_)) if options.filter_ else plan.cases
    found_failures: list[Failure] = []
    started = time.monotonic()
    with ExitStack() as stack:
        reference = ReferenceEngine(plan.program, keeps=options.covers or options.mutates)
        engines: list[Engine] = [] if options.engine == "opa" else [reference]
        engines += [stack.enter_context(opa(plan.program))] if options.engine != "reference" and cases else []
        steps = len(cases) + (len(plan.rules) if options.mutates else 0)
        tell = stack.enter_context(err().progress(steps, plan.program.system))
        for failure in failures(plan, cases, engines, tell) if cases else ():
            found_failures.append(failure)
            if options.fail_fast:
                break
        result = Result(plan=plan, cases=cases, failures=tuple(found_failures))
        if not (options.fail_fast and found_failures) and (options.covers or options.mutates):
            failed = {id(failure.case) for failure in found_failures}
            observed = prove.observe(plan, (case for case in cases if id(case) not in failed), reference)
            if options.covers:
                result = replace(result, coverage=prove.coverage(plan, observed))
            if options.mutates:
                result = replace(result, score=prove.score(plan, observed, tell))
    return replace(result, seconds=time.monotonic() - started)


def _shortfalls(results: Sequence[Result], minimum: float | None, measure: str) -> list[str]:
    """A message for each policy below its required minimum."""
    if minimum is None:
        return []
    shares = (
        (result.short_name, result.coverage if measure.startswith("cells") else result.score) for result in results
    )
    return [
        f"{name}: {share.percent:.4g} % of {measure}, {minimum:.4g} % must be"
        + (
            f", and {count(len(share.undecided), 'row')} {'was' if len(share.undecided) == 1 else 'were'} not decided"
            if share.undecided
            else ""
        )
        for name, share in shares
        if share is not None and (share.percent < minimum or share.undecided)
    ]


def _suggestions(results: Sequence[Result], output: Path | None) -> str:
    """A complete scenario file for each policy with untested parts; only one if written to a file."""
    from privtab_testing.scenarios.prove import suggested

    suggestions = [(result.plan.subject, suggested(result.plan, result.coverage, result.score)) for result in results]
    files = [(subject, text) for subject, text in suggestions if text]
    if output is not None and len(files) > 1:
        names = ", ".join(subject.title for subject, _ in files)
        raise UsageError(f"`--output` takes the suggestions for one policy, not for {names}: name one of them")
    return "\n".join(_suggested_file(subject, text, output) for subject, text in files)


def _suggested_file(subject: Subject, text: str, output: Path | None) -> str:
    folder = subject.policy.parent if output is None else output.parent
    policy = os.path.relpath(subject.policy.resolve(), folder.resolve())
    header = [
        f"# {subject.title}, suggested: check each entry against the document before you keep it",
        "scenarios: 1",
        f"policy: {json.dumps(policy) if not _PLAIN.fullmatch(policy) else policy}",
        *([f"variant: {subject.variant}"] if subject.variant else []),
    ]
    if subject.readings:
        header += ["readings:", *(f"  {row}: {name}" for row, name in subject.readings)]
    from privtab.base import SourceFile
    from privtab.language import format_source

    whole = "\n".join(header) + "\n\n" + text
    return format_source(SourceFile.of("suggested.yaml", whole))[0] or whole


def _report(results: Sequence[Result], format_: Format, *, verbose: bool) -> object:
    match format_:
        case "json":
            from privtab_testing.scenarios.results import result_json

            ok = not any(result.failures for result in results)
            return {"ok": ok, "policies": [result_json(result) for result in results]}
        case "junit":
            from privtab.language import junit
            from privtab_testing.scenarios.results import junit_suites

            return junit(junit_suites(results))
        case "pretty":
            from privtab_testing.scenarios.pretty import show

            return lambda console: show(console, results, verbose=verbose)
