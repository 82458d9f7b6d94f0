"""`privtab lint`: report findings in policy files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from privtab._collection import no_collection
from privtab.cli._output import delayed_spinner, deliver, err, fail_if
from privtab.cli._parameters import argument, option, policies
from privtab.lint.settings import FailOn, LintFormat

PANEL = "Start here"


def run(
    paths: Annotated[
        list[str] | None,
        argument("PATH", "Policies, by path, folder or name; all by default.", autocompletion=policies),
    ] = None,
    format_: Annotated[
        LintFormat | None, option("--format", "Output format; `text` is `pretty`.", show_default="pretty")
    ] = None,
    fail_on: Annotated[
        FailOn | None, option("--fail-on", "Lowest severity that fails the run.", show_default="error")
    ] = None,
    strict: Annotated[bool, option("--strict", "The same as `--fail-on warning`.")] = False,
    select: Annotated[
        list[str] | None, option("--select CODE", "Only these findings, and errors; `P31` means P310 to P319.")
    ] = None,
    ignore: Annotated[list[str] | None, option("--ignore CODE", "Skip these findings.")] = None,
    output: Annotated[Path | None, option("--output -o FILE", "Write the report to a file.")] = None,
    config: Annotated[Path | None, option("--config FILE", "Settings file, instead of the privtab.toml found.")] = None,
    explain: Annotated[str | None, option("--explain CODE", "Print what a finding means; `all` lists them.")] = None,
) -> None:
    """Report all findings in policy files, sorted by position.

    Exits with 1 if there are errors, or findings of the severity that `--fail-on` names. Settings come from
    privtab.toml, or `[tool.privtab.lint]` in pyproject.toml, in a folder above the policy. `policies` there lists where
    policies lie; without it, policy_src/.

    Example:
      privtab lint
      privtab lint policy_src/cdap --fail-on warning
      privtab lint my.yaml --select P310,P305 --format json
      privtab lint --format sarif -o lint.sarif
      privtab lint --explain P310
    """
    from privtab.cli import _lint
    from privtab.pipeline import policies_at

    if explain is not None:
        _lint.explain(explain)
        return
    is_selected = _lint.selection(select, ignore)
    with no_collection(keep=True), delayed_spinner("checking"):
        results = _lint.check(policies_at(paths), config, is_selected, fail_on or (FailOn.WARNING if strict else None))
    format_ = format_ or (results[0].settings.format if results else None) or LintFormat.PRETTY
    deliver(_lint.report(results, format_), output)
    if output is not None:
        err().print(f"{_lint.summary(results)}; written to {output}", style="dim")
    elif format_ not in (LintFormat.PRETTY, LintFormat.TEXT) and any(result.settings.file for result in results):
        err().print(_lint.summary(results), style="dim")
    fail_if(any(result.failed() for result in results))
