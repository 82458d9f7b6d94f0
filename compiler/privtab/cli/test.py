"""`privtab test`: scenarios, what of the tables they prove, and which faults they would not notice."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab.cli._options import ReadingOption, readings
from privtab.cli._output import out, progress

if TYPE_CHECKING:
    from privtab.scenarios.engines import Engine
    from privtab.scenarios.nodes import Plan
    from privtab.scenarios.results import Result

DEFAULT = "policy_src"


class TestFormat(StrEnum):
    """How the outcome is printed."""

    __test__ = False
    PRETTY = "pretty"
    JSON = "json"
    JUNIT = "junit"


class Engines(StrEnum):
    """What answers."""

    REFERENCE = "reference"
    OPA = "opa"
    BOTH = "both"


def run_scenarios(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Policies, by name, path or folder, or scenario files; policy_src/ where left off."
        ),
    ] = None,
    engine: Annotated[Engines, typer.Option("--engine", help="What answers; `both` must agree.")] = Engines.REFERENCE,
    filter_: Annotated[
        str | None,
        typer.Option(
            "--filter",
            "-k",
            metavar="TEXT",
            help="Only cases with TEXT in name, user, operation, entity or tag; `*` and `?` stand for anything.",
        ),
    ] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", "-x", help="Stop at the first failure.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all failures.")] = False,
    reading: ReadingOption = None,
    format_: Annotated[
        TestFormat, typer.Option("--format", help="For a person, for a program, or for a build server.")
    ] = TestFormat.PRETTY,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to the screen.")
    ] = None,
) -> None:
    """Ask every scenario beside the policies, and say what was not answered as it must be.

    Exit code 1 where a case fails.

    Example:

    \b
      privtab test
      privtab test cdap/final --engine both
      privtab test policy_src/gravitino --filter 'drop table*' -x
    """
    from privtab.scenarios.collect import plans

    made = plans(paths or [DEFAULT], readings(reading))
    results = []
    for plan in made:
        results.append(_run(plan, engine, filter_, fail_fast=fail_fast))
        if fail_fast and results[-1].failures:
            break
    _write(results, format_, output, verbose=verbose)
    if any(result.failures for result in results):
        raise typer.Exit(1)


def _run(plan: Plan, engine: Engines, filter_: str | None, *, fail_fast: bool) -> Result:
    from privtab.scenarios.engines import ReferenceEngine, opa
    from privtab.scenarios.results import Result
    from privtab.scenarios.run import failures, matching

    asked = tuple(matching(plan.cases, filter_)) if filter_ else plan.cases
    found = []
    with ExitStack() as stack:
        engines: list[Engine] = [ReferenceEngine(plan.program)] if engine is not Engines.OPA else []
        engines += [stack.enter_context(opa(plan.program))] if engine is not Engines.REFERENCE and asked else []
        bar = stack.enter_context(progress(len(asked)))
        for failure in failures(plan, asked, engines, lambda more: bar.advance(bar.task_ids[0], more)):
            found.append(failure)
            if fail_fast:
                break
    return Result(plan=plan, asked=asked, failures=tuple(found), stopped=fail_fast and bool(found))


def _write(results: list[Result], format_: TestFormat, output: Path | None, *, verbose: bool) -> None:
    import json

    from privtab.scenarios import pretty
    from privtab.scenarios.results import result_json

    if format_ is TestFormat.JSON:
        text = json.dumps({"policies": [result_json(r) for r in results]}, indent=2, ensure_ascii=False) + "\n"
    else:
        text = ""
    if format_ is TestFormat.PRETTY and output is None:
        pretty.show(out(), results, verbose=verbose)
    elif output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
