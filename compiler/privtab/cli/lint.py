"""`privtab lint`: report findings in policy files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privtab.cli._complete import policies
from privtab.cli._output import delayed_spinner, err, fail_if, out, print_text
from privtab.lint.settings import FailOn, LintFormat

PANEL = "Start here"


def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Policies, by path, folder or name; all by default.", autocompletion=policies
        ),
    ] = None,
    format_: Annotated[
        LintFormat | None, typer.Option("--format", help="Output format; `text` is `pretty`.", show_default="pretty")
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="Lowest severity that fails the run.", show_default="error")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="The same as `--fail-on warning`.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="CODE", help="Only these findings, and errors; `P31` means P310 to P319."),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="CODE", help="Skip these findings.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report to a file.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings file, instead of the privtab.toml found.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="CODE", help="Print what a finding means; `all` lists them.")
    ] = None,
) -> None:
    """Report all findings in policy files, sorted by position.

    Exits with 1 if there are errors, or findings of the severity that `--fail-on` names. Settings come from
    privtab.toml, or `[tool.privtab.lint]` in pyproject.toml, in a folder above the policy. `policies` there lists where
    policies lie; without it, policy_src/.

    Example:

    \b
      privtab lint
      privtab lint policy_src/cdap --fail-on warning
      privtab lint my.yaml --select P310,P305 --format json
      privtab lint --format sarif -o lint.sarif
      privtab lint --explain P310
    """
    from privtab._collection import no_collection
    from privtab.cli import _lint
    from privtab.cli._lint_pretty import summary
    from privtab.pipeline import policies_at

    if explain is not None:
        _lint.explain(explain)
        return
    is_selected = _lint.selection(select, ignore)
    with no_collection(keep=True), delayed_spinner("checking"):
        results = _lint.check(policies_at(paths), config, is_selected, fail_on or (FailOn.WARNING if strict else None))
    format_ = format_ or (results[0].settings.format if results else None) or LintFormat.PRETTY
    if output is not None:
        _lint.save(results, format_, output)
    elif format_ in (LintFormat.PRETTY, LintFormat.TEXT):
        _lint.show(results, out())
    else:
        print_text(_lint.report(results, format_))
        if any(result.settings.file for result in results):
            err().print(summary(results), style="dim", soft_wrap=True)
    fail_if(any(result.failed() for result in results))
