"""`privtab diff`: compare policies by meaning, or states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import FindingKind, Severity, UsageError, no_collection, parse_key_values
from privtab.command import argument, deliver, err, fail_if, option, out, show_findings
from privtab_analysis.commands._failing import failing_words
from privtab_analysis.commands._states import StateDiffOptions
from privtab_analysis.commands._waivers import WaiversOption, waivers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privtab.base import Diagnostic
    from privtab_analysis.diff.nodes import Diff, Verdict

PANEL = "Start here"

FAILING = ("wider", "narrower", "incomparable", "added", "removed", "renamed")


DiffFormat = Literal["pretty", "text", "json", "markdown", "sarif"]
"""Output format of a comparison."""


def run(
    before: Annotated[
        str | None,
        argument(
            "A",
            "A policy by name or path, a bundle, registry:URL#CHANNEL, or REVISION:path as in git; or `--policy`.",
            kind="POLICY",
            also="--policy -p",
        ),
    ] = None,
    after: Annotated[str | None, argument("B", "The policy to compare with, in the same forms.", kind="POLICY")] = None,
    fail_on: Annotated[
        list[str] | None,
        option(
            "--fail-on VERDICT",
            f"Exit with 1 if an operation is {', '.join(FAILING)}; or `any`; of states, if wider, gained, lost or any.",
        ),
    ] = None,
    waivers: WaiversOption = None,
    rename: Annotated[
        list[str] | None,
        option("--rename OLD=NEW", "New name of a type, privilege or TYPE/OPERATION; repeatable."),
    ] = None,
    everything: Annotated[bool, option("--all", "Show every change.")] = False,
    *,
    states: StateDiffOptions,
    format_: Annotated[DiffFormat, option("--format", "Output format.")] = "pretty",
) -> None:
    """Compare two policies: for each operation, whether more callers may do it now, fewer, or others. Or two states.

    The comparison is exact over every request and state; each difference comes with the smallest state that shows it. A
    single policy is compared with its version at HEAD in git; a single revision compares every policy that `privtab lint`
    checks. With `--state`, two states are compared: which rows differ, and by policy A who gains and loses which operations
    (`--fail-on wider`: a sensitive one gained; `gained`, `lost`, or any row).

    Example:
      privtab diff cdap/revised cdap/final
      privtab diff HEAD~1:policy_src/cdap/final.yaml cdap/final
      privtab diff cdap/final
      privtab diff HEAD~1 --fail-on wider,incomparable
      privtab diff cdap/final cdap/final@namespace/list=parent
      privtab diff old.yaml new.yaml --rename item/read=item/peek
      privtab diff old.yaml new.yaml --format markdown
      privtab diff registry:registry#prod lake.yaml
      privtab diff -s yesterday/ -s today/
      privtab diff lake.yaml -s yesterday/ -s today/ --fail-on wider
      privtab diff lake.yaml -s registry:registry#prod -s state.yaml --format markdown
      privtab diff gravitino/1.1.0 -s sample:gravitino --without "alice is in group:analysts"
    """
    if states.states is not None:
        _check_about_states(after, waivers, rename, everything=everything, format_=format_)
        from privtab_analysis.commands._state_diff import compare_states

        compare_states(before, states, fail_on, format_)
        return
    if states != StateDiffOptions():
        raise UsageError("`--without`, `--limit` and `--at` are about states: give `--state`")
    from privtab_analysis.commands._diff import programs, sides
    from privtab_analysis.diff import diff as compare
    from privtab_analysis.diff.nodes import Verdict
    from privtab_analysis.diff.renames import check_renames
    from privtab_analysis.diff.waivers import apply_waivers, failing

    words = failing_words(fail_on, FAILING)
    verdicts = frozenset(map(Verdict, FAILING if "any" in words else words))
    active_waivers, waiver_file_findings = waivers_of(waivers)
    diffs = []
    renames = parse_key_values(rename, "--rename", example="READ=SELECT")
    with no_collection(keep=True), err().spinner("comparing", after=1.0):
        found = [(pair, programs(*pair)) for pair in sides(before, after)]
        check_renames(renames, [pair for _, pair in found])
        for (old_side, new_side), program_pair in found:
            diffs.append(compare(*program_pair, shown=(old_side.name, new_side.name), renames=renames))
    marked, waiver_findings = apply_waivers(diffs, active_waivers, datetime.now(tz=UTC).date())
    _print(marked, format_, verdicts, (*waiver_file_findings, *waiver_findings), everything=everything)
    has_errors = any(finding.severity == "error" for finding in waiver_file_findings)
    fail_if(has_errors or any(failing(diff, verdicts) for diff in marked))


def _check_about_states(after: str | None, waivers: object, rename: object, *, everything: bool, format_: str) -> None:
    """Raise UsageError for what a comparison of states does not take."""
    given = {"a second policy": after, "`--waivers`": waivers, "`--rename`": rename, "`--all`": everything}
    for what, value in (given | {"`--format sarif`": format_ == "sarif"}).items():
        if value:
            raise UsageError(f"states are compared by one policy or none: leave out {what}, or `--state`")


def _print(
    diffs: Sequence[Diff],
    format_: DiffFormat,
    verdicts: frozenset[Verdict],
    found: Sequence[Diagnostic],
    *,
    everything: bool,
) -> None:
    """Print the comparisons to standard output, and problems with waivers where they will be seen."""
    match format_:
        case "json":
            from privtab_analysis.diff.summary import diff_json

            waivers = [finding.to_json() for finding in found]
            deliver({"comparisons": [diff_json(diff) for diff in diffs], "waivers": waivers})
            return
        case "sarif":
            deliver(_sarif(diffs, verdicts, found))
            return
        case "markdown":
            from privtab_analysis.diff.markdown import markdown

            deliver("\n".join(map(markdown, diffs)) or "No policy changed.\n")
        case "pretty" | "text":
            from privtab_analysis.commands._diff import show

            console = out()
            for number, diff in enumerate(diffs):
                if number:
                    console.print()
                show(diff, console, everything=everything)
            if not diffs:
                console.print("no policy changed")
    show_findings(found)


def _sarif(diffs: Sequence[Diff], verdicts: frozenset[Verdict], found: Sequence[Diagnostic]) -> str:
    from privtab.language import SuppressedFinding, sarif
    from privtab_analysis.diff.summary import CODES, findings

    rules = {FindingKind(code, name, Severity.ERROR): summary for code, name, summary in CODES.values()}
    open_findings, suppressed = list(found), []
    for diff in diffs:
        for finding, row in findings(diff, verdicts):
            if row.waived is None:
                open_findings.append(finding)
            else:
                suppressed.append(
                    SuppressedFinding(finding=finding, reason=f"{row.waived.who}: {row.waived.why}", in_source=False)
                )
    return sarif(open_findings, rules, suppressed=suppressed)
