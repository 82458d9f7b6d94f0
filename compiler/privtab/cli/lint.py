"""`privtab lint`: the findings of policy files."""

from __future__ import annotations

from typing import Annotated

import typer

from privtab.cli._options import FormatOption
from privtab.cli._output import Format, count, diagnostic_json, out, print_json, show_diagnostics
from privtab.cli.compile import policies_in
from privtab.diagnostics import Diagnostic, Severity, in_order


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Policies, by path, folder or name; policy_src/ where left off."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Count warnings as errors.")] = False,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Report every finding of policy files, sorted by place.

    Exit code 1 where there are errors.

    Example:

    \b
      privtab lint
      privtab lint policy_src/cdap --strict
      privtab lint my.yaml --format json
    """
    from privtab.pipeline import check_policy

    policies = policies_in(paths)
    found: list[Diagnostic] = []
    for policy in policies:
        found += check_policy(policy)[1]
    findings = in_order(found)
    if format_ is Format.JSON:
        print_json([diagnostic_json(finding) for finding in findings])
    else:
        show_diagnostics(findings)
        if not findings:
            out().print(f"{count(len(policies), 'policy', 'policies')}, no findings")
    if any(strict or finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(1)
