"""`privtab routes`: whether every route of a web application has a decision."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer.core import TyperCommand

from privtab.base import SourceFile, UsageError, count, parse_key_values
from privtab.command import (
    OutputOption,
    Terminal,
    argument,
    deliver,
    err,
    fail_if,
    load_policy,
    option,
    out,
    show_findings,
    table,
)

if TYPE_CHECKING:
    from privtab.base import Diagnostic
    from privtab_web._coverage import Coverage, Judged

PANEL = "Check"

LISTED = Path("privtab-routes.yaml")
"""The default file of routes."""
COLUMNS = ("method", "route", "row", "by", "status", "why")
RoutesFormat = Literal["text", "json", "csv", "markdown", "sarif"]
"""Output format."""
Probe = Literal["none", "safe", "all"]
"""Methods of the probe."""


class RoutesCommand(TyperCommand):
    """A command whose `--probe` alone is `--probe safe`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the value of `--probe` where it is left out."""
        given = [*args, ""]
        words = [
            "--probe=safe" if word == "--probe" and given[place + 1] not in ("none", "safe", "all") else word
            for place, word in enumerate(args)
        ]
        return super().parse_args(ctx, words)


SETTINGS = {"cls": RoutesCommand}


def run(
    app: Annotated[
        str, argument("APP", "An application (`module:app`, for Django `mysite.urls`), or an OpenAPI document.")
    ],
    policy: Annotated[str | None, option("--policy -p POLICY", "Policy whose rows the routes use.")] = None,
    listed: Annotated[
        Path | None,
        option("--listed FILE", "File of open routes, and of rows decided elsewhere.", show_default=str(LISTED)),
    ] = None,
    probe: Annotated[
        Probe, option("--probe [all]", "Call each route using GET, HEAD and OPTIONS, or all methods.")
    ] = "none",
    header: Annotated[
        list[str] | None, option("--header -H NAME:VALUE", "Header that the probe sends, as for sign-in; repeatable.")
    ] = None,
    format_: Annotated[RoutesFormat, option("--format", "Output format.")] = "text",
    output: OutputOption = None,
) -> None:
    """List each route of an application with the row that guards it; exit with 1 if a route has no decision.

    The application is imported, not served. `--probe` starts it and calls it in this process, once for each route and method, as an
    identity that holds nothing, while every guard denies. Where a guard is missing its handler runs: with `--probe all` it may change or
    delete something, so use a test environment.

    Example:
      privtab routes shop_app:app -p shop.yaml
      privtab routes shop_app:app -p shop.yaml --probe
      privtab routes shop_app:app -p shop.yaml --probe all --header 'Authorization: Bearer test'
      privtab routes openapi.yaml -p shop.yaml --format sarif -o routes.sarif
    """
    from privtab.ir import vocabulary
    from privtab_web._coverage import covered, no_gateway
    from privtab_web._declared import read_declared, read_openapi
    from privtab_web._inspect import inspected, load_app
    from privtab_web._probe import probed
    from privtab_web._routes import place_of

    headers = parse_key_values(header, "--header", "NAME:VALUE", allow_empty=True)
    program = None if policy is None else load_policy(policy)
    found: list[Diagnostic] = []
    documents, answers = [], None
    seen = None
    if Path(app).suffix in SourceFile.SUFFIXES:
        if probe != "none":
            raise UsageError("`--probe` asks an application: name it as module:app")
        documents.append(read_openapi(SourceFile.load(app), found))
        routes = documents[0].routes
    else:
        with redirect_stdout(sys.stderr):  # what the application prints is no part of the report
            seen = inspected(load_app(app))
        routes = seen.routes
    if listed is not None or LISTED.is_file():
        documents.append(read_declared(SourceFile.load(listed or LISTED), found))
    if seen is not None:
        with redirect_stdout(sys.stderr):
            answers = {} if probe == "none" or found else probed(seen, everything=probe == "all", headers=headers)
        found.extend(no_gateway(document.gateway) for document in documents if document.gateway is not None)
    result = covered(
        routes,
        documents,
        found,
        where=place_of(app),
        answers=answers,
        vocabulary=None if program is None else vocabulary(program),
    )
    deliver(_report(result, format_), output)
    out().file.flush()
    if format_ != "sarif":
        # What a line of the table says needs no second telling.
        show_findings(one for one in result.findings if format_ != "text" or one.code not in ("R003", "R004", "R005"))
    if output is not None:
        err().print(f"{_summary(result)}; written to {output}", style="dim")
    fail_if(result.findings)


def _cells(judged: Judged) -> tuple[str, ...]:
    rows = ", ".join(dict.fromkeys(row for _, row in judged.covers if row))
    by = ", ".join(dict.fromkeys(by for by, _ in judged.covers))
    return judged.route.method, judged.route.path, rows, by, str(judged.status), judged.why


def _report(result: Coverage, format_: RoutesFormat) -> Any:
    rows = [_cells(judged) for judged in result.routes]
    match format_:
        case "json":
            routes = [
                dict(zip(COLUMNS, cells, strict=True))
                | {
                    "guards": [{"by": by, "row": row or None} for by, row in judged.covers],
                    "span": judged.route.span,
                }
                for cells, judged in zip(rows, result.routes, strict=True)
            ]
            findings = [finding.to_json() for finding in result.findings]
            return {"routes": routes, "unused_rows": result.unused, "findings": findings}
        case "csv":
            return lambda console: console.print_csv(COLUMNS, rows)
        case "markdown":
            from privtab_analysis.diff.markdown import as_code, as_text

            lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
            for method, route, row, by, status, why in rows:
                lines.append(
                    f"| {method} | {as_code(route)} | {row and as_code(row)} | {by} | {status} | {as_text(why)} |"
                )
            lines += ["", f"{_summary(result)}."]
            lines += ["", f"No route uses {', '.join(map(as_code, result.unused))}."] if result.unused else []
            return "\n".join(lines) + "\n"
        case "sarif":
            from privtab.language import sarif

            return sarif(result.findings)
        case "text":
            return lambda console: _show(result, rows, console)


def _show(result: Coverage, rows: list[tuple[str, ...]], console: Terminal) -> None:
    console.print(table(*COLUMNS, rows=rows))
    console.print()
    console.print(_summary(result), style="bold")
    if result.unused:
        console.print(f"no route uses {', '.join(result.unused)}")
    if (open_ := next((judged.route for judged in result.routes if str(judged.status) == "ungated"), None)) is not None:
        console.print(f"a route without a decision is accepted in {LISTED}, with a reason:", style="dim")
        console.print(f"  {open_.method} {open_.path}: {{open: WHY}}", style="dim")


def _summary(result: Coverage) -> str:
    """`12 routes: 10 proved, 1 open, 1 ungated`."""
    from privtab_web._coverage import Status

    numbers = {status: sum(one.status is status for one in result.routes) for status in Status}
    parts = [f"{number:,} {status}" for status, number in numbers.items() if number]
    return f"{count(len(result.routes), 'route')}{': ' if parts else ''}{', '.join(parts)}"
