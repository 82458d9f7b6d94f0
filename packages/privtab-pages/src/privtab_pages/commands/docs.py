"""`privtab docs`: renders a policy as a page, and checks a committed page against its policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import STATE_HELP, UsageError, no_collection
from privtab.command import OutputOption, PolicyArguments, deliver, err, is_stored, load_state, option, out, stop

if TYPE_CHECKING:
    from privtab.ir import Program
    from privtab_analysis.diff.nodes import Diff

PANEL = "Write"

PageFormat = Literal["markdown", "html"]
"""Format of a page."""
_SUFFIXES = ("", ".md", ".markdown", ".mdx", ".txt", ".htm", ".html")


def run(
    policy: PolicyArguments,
    *,
    state: Annotated[
        Path | None, option("--state -s STATE", f"Also show the roles of this state. {STATE_HELP}")
    ] = None,
    since: Annotated[
        str | None, option("--since POLICY", "Show what changed since this version: a name, a path, REVISION:path.")
    ] = None,
    check: Annotated[bool, option("--check", "Write nothing; exit with 1 if the file is out of date.")] = False,
    format_: Annotated[
        PageFormat | None, option("--format", "Format of the page. (default: by the name of the file)")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Write a policy as a page: roles by operations, rows with links, entities, readings, coverage, changes.

    The same policy gives the same bytes, so that `--check` in CI tells when a committed page is out of date.

    Example:
      privtab docs cdap/final -o docs/cdap.md
      privtab docs cdap/final -o cdap.html --since cdap/revised
      privtab docs polaris/1.7 -o polaris.html --state sample:polaris
      privtab docs cdap/final -o docs/cdap.md --check
    """
    from privtab.pipeline import policy_revision
    from privtab_pages.policy import PolicyPage
    from privtab_pages.roles import default_roles, roles_of_state

    if check and output is None:
        raise UsageError("`--check` compares with a file: name it by `--output`")
    if format_ is None and output is not None and output.suffix not in _SUFFIXES:
        raise UsageError(
            f"a page is Markdown or HTML: name it .md or .html instead of {output.suffix}, or give `--format`"
        )
    html = format_ == "html" or (format_ is None and output is not None and output.suffix in (".html", ".htm"))
    with no_collection(keep=True), err().spinner("writing the page", after=1.0):
        program = policy.program()
        matrices = [default_roles(program)]
        matrices += [] if state is None else [roles_of_state(program, load_state(program, state, samples=True).state)]
        page = PolicyPage(
            program=program,
            revision=policy_revision(program, parallel=True),
            roles=matrices,
            coverage=_coverage(policy),
            source=_source(policy),
            changes=None if since is None else _changes(policy, since, program),
        )
        text = page.html() if html else page.markdown()
    if not check or output is None:
        deliver(text, output)
        return
    try:
        written = output.read_bytes()
    except FileNotFoundError:
        stop(f"{output} is not there: the same command without `--check` writes it")
    if written != text.encode():
        stop(f"{output} is not what {policy.policy} says: the same command without `--check` writes it")
    out().print(f"{output} is what {policy.policy} says")


def _source(policy: PolicyArguments) -> str:
    """The policy as `privtab fmt` writes it; empty for a bundle."""
    from privtab.base import SourceFile
    from privtab.language import format_source
    from privtab.pipeline import ChosenPolicy, find_policy

    return (
        ""
        if is_stored(policy.policy)
        else format_source(SourceFile.load(find_policy(ChosenPolicy.of(policy.policy).policy)))[0] or ""
    )


def _coverage(policy: PolicyArguments) -> dict[str, tuple[int, int]]:
    """The number of cells of each row, and of the cells that the scenarios beside the policy prove; empty if there are none."""
    from privtab.pipeline import ChosenPolicy, find_policy
    from privtab_testing.scenarios.collect import plans
    from privtab_testing.scenarios.prove import proved

    if is_stored(policy.policy):
        return {}
    named = ChosenPolicy.of(policy.policy)
    plan = next(
        (
            plan
            for plan in plans([find_policy(named.policy)])
            if plan.cases and (plan.subject.variant, dict(plan.subject.readings)) == (named.variant, named.readings)
        ),
        None,
    )
    if plan is None:
        return {}
    return {id_: (cells, covered) for id_, (_, cells, covered) in proved(plan).by_rule().items()}


def _changes(policy: PolicyArguments, since: str, program: Program) -> Diff:
    from privtab_analysis.commands._diff import programs, sides
    from privtab_analysis.diff import diff

    found = list(sides(since, policy.policy))
    if len(found) != 1:
        raise UsageError(f"`--since {since}` is not one policy")
    (before, after), *_ = found
    return diff(*programs(before, after, program), shown=(before.name, after.name))
