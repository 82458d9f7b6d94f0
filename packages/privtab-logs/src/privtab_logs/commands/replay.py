"""`privtab replay`: decide what was logged again, by another policy or state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from privtab.command import OutputOption, deliver, err, fail_if, option, print_error, table
from privtab_analysis.commands._failing import EMPTY, INCOMPLETE, LogsOption, accepted, failing_words
from privtab_logs.commands._replay import LogOptions, ReplayOptions, replayed

if TYPE_CHECKING:
    from privtab.command import Terminal
    from privtab_logs.report import Report

PANEL = "Check"

ReplayFormat = Literal["pretty", "text", "json", "markdown", "html", "sarif", "prometheus"]
"""Output format of a replay."""
FAILING = ("lost-in-use", "gained-in-use", "unexplained", "incomplete")


def run(
    options: ReplayOptions,
    log: LogOptions,
    fail_on: Annotated[
        list[str] | None, option("--fail-on WHAT", f"Exit with 1 for {', '.join(FAILING)}; or `any`.")
    ] = None,
    accept: LogsOption = None,
    format_: Annotated[ReplayFormat, option("--format", "Output format.")] = "pretty",
    output: OutputOption = None,
) -> None:
    """Decide logged requests again using another policy or state, and show which answers change for whom.

    Each request is decided twice: using the policy and the state of its moment, and using the new ones. A difference therefore
    comes from the change. Logged answers that differ from their own moment's are shown separately.

    Example:
      privtab replay logs/ --policy next.yaml --registry registry/
      privtab replay opa.log -p next.yaml --old-policy lake.yaml --old-state state.yaml
      privtab replay logs/ -p next.yaml --old-policy lake.yaml --old-state store:grants.db
      privtab replay logs/ -p lake.yaml --registry registry/ --state narrower.yaml
      privtab replay trino.log -p trino/483 --door trino --old-policy trino/476 --old-state state.yaml
      privtab replay logs/ -p next.yaml --registry registry/ --fail-on lost-in-use --format markdown
      privtab replay logs/ -p lake.yaml --registry registry/ --format html -o replay.html
      privtab replay logs/ -p lake.yaml --registry registry/ --format prometheus -o replay.prom
    """
    kinds = accepted(accept)
    allow_incomplete, allow_empty = INCOMPLETE in kinds, EMPTY in kinds
    words = failing_words(fail_on, FAILING, allow_incomplete=allow_incomplete)
    with err().spinner("replaying", after=1.0):
        found = replayed(options, log)
    words = [*FAILING] if "any" in words else words
    failing = found.failing(words, allow_incomplete=allow_incomplete, allow_empty=allow_empty)
    deliver(_shown(found, format_, failing, options.policy), output)
    for word in failing:
        print_error(f"failed: {word}")
    fail_if(failing)


def _shown(found: Report, format_: ReplayFormat, failing: list[str], policy: str) -> object:
    match format_:
        case "json":
            return found.to_json()
        case "markdown":
            from privtab_logs.report import markdown

            return markdown(found)
        case "html":
            from privtab_logs.report import html

            return html(found, policy)
        case "prometheus":
            from privtab_logs.report import prometheus

            return prometheus(found)
        case "sarif":
            from privtab.base import FindingKind, Severity
            from privtab.language import sarif
            from privtab_logs.report import CODES, findings

            rules = {FindingKind(code, name, Severity.ERROR): text for code, name, text in CODES.values()}
            return sarif(findings(found, failing, policy), rules)
        case "pretty" | "text":
            return lambda console: _text(found, console)


def _text(found: Report, console: Terminal) -> None:
    from privtab_logs.report import headline, summary, why

    for line in summary(found):
        console.print(line)
    for place in found.replay.reading.places[:PLACES]:
        console.print(f"  {place}", style="dim")
    for group in found.groups:
        console.print()
        console.print_styled((headline(group), STYLES[group.kind]))
        if group.where:
            console.print(f"  at {group.where}")
        for title, counted in (("users", group.by_user), ("through", group.through), ("entities", group.by_entity)):
            if counted:
                console.print(f"  {title}: {', '.join(f'{name} ({number:,})' for name, number in counted)}")
        rows = [
            [
                str(sample["requests"]),
                sample["request"],
                " → ".join("allow" if sample[name] else "deny" for name in ("recorded", "then", "now")),
                why(sample),
            ]
            for sample in group.samples
        ]
        console.print(table("times", "request", "recorded → then → now", "why", rows=rows, right=("times",)))
    if found.possible:
        console.print()
        console.print("possible, not seen", style="bold")
        rows = [[p.row, p.verdict, p.witness] for p in found.possible]
        console.print(table("row", "verdict", "witness", rows=rows))


STYLES = {"lost": "bold blue", "gained": "bold red", "unexplained": "bold magenta"}
PLACES = 10
"""Damaged entries whose places are printed."""
