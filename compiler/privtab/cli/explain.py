"""`privtab explain`: why one answer is what it is."""

from __future__ import annotations

from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab.cli._options import (
    FormatOption,
    PartialOption,
    PolicyOption,
    ReadingOption,
    StateOption,
    VariantOption,
    load_state_to_ask,
    readings,
)
from privtab.cli._output import Format, out, print_json
from privtab.errors import UsageError
from privtab.request import Entity, Request

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.analysis.explain import Part, Why
    from privtab.diagnostics import Span

MOST_LINES = 8
"""How much of a row's source is shown."""


def explain(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who asks.")],
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The operation.")],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="On what, type:path (table:m/c/s/t).")],
    policy: PolicyOption,
    state: StateOption,
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME=TYPE:PATH", help="A further object of the request.")
    ] = None,
    flag: Annotated[list[str] | None, typer.Option("--flag", help="A flag that the request's context sets.")] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="A group that the caller says the user is in.")
    ] = None,
    allow_partial: PartialOption = False,
    variant: VariantOption = None,
    reading: ReadingOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Say why a request is allowed or refused: the rule, and what holds and misses of each way to an allow.

    Example:

    \b
      privtab explain alice load table:m/c/s/t -p gravitino/1.1.0 -s state.yaml
      privtab explain bob run job:m/j -p gravitino/1.1.0 -s state.yaml \\
              --with template=job_template:m/nightly
    """
    from privtab.analysis.explain import explain as explained
    from privtab.bundle.pack import policy_artifacts
    from privtab.ir.evaluate import Reference
    from privtab.pipeline import load_program

    request = Request(
        user=user.removeprefix("user:"),
        action=action,
        resource=_entity(resource),
        groups=tuple(name.removeprefix("group:") for name in group or ()),
        with_=dict(_named(text) for text in with_ or ()),
        flags=frozenset(flag or ()),
    )
    program = load_program(policy, variant=variant, readings=readings(reading))
    loaded, partial = load_state_to_ask(program, state, allow_partial=allow_partial)
    why = explained(Reference(program, loaded, revision=policy_artifacts(program).revision), request)
    if format_ is Format.JSON:
        print_json(_json(why))
    else:
        _show(out(), why)
    if partial:
        raise typer.Exit(1)


def _entity(text: str) -> Entity:
    try:
        return Entity.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _named(text: str) -> tuple[str, Entity]:
    name, equals, entity = text.partition("=")
    if not equals:
        raise UsageError(f"`--with {text}`: write NAME=TYPE:PATH, as in template=job_template:m/nightly")
    return name, _entity(entity)


def _json(why: Why) -> dict[str, Any]:
    return {
        "request": why.request.to_json(),
        **why.decision.to_json(),
        "sets": [{"holds": all(p.holds for p in parts), "atoms": [asdict(p) for p in parts]} for parts in why.sets],
    }


def _show(console: Console, why: Why) -> None:
    allowed = why.decision.allowed
    request = why.request
    console.print("ALLOW" if allowed else "DENY", style="bold green" if allowed else "bold red", end="  ")
    console.print(f"user:{request.user} {request.action} {request.resource}", soft_wrap=True)
    console.print(f"\nrule {why.rule.id}", end="")
    console.print(f"  {why.rule.span.path}:{why.rule.span.line}", style="dim", soft_wrap=True)
    for line in _source(why.rule.span):
        console.print(f"    {line}", style="dim", soft_wrap=True)
    if why.decision.context.get("source"):
        console.print(f"  from {why.decision.context['source']}", style="dim", soft_wrap=True)
    if not why.sets:
        console.print("\nno way leads to an allow")
    nearest_first = sorted(why.sets, key=lambda parts: sum(not part.holds for part in parts))
    for number, parts in enumerate(nearest_first, start=1):
        holds = all(part.holds for part in parts)
        console.print(f"\n{'either' if number == 1 and len(why.sets) > 1 else 'or' if number > 1 else 'needs'}", end="")
        console.print("  (holds)" if holds else "", style="green")
        for part in parts:
            _show_part(console, part)
        if not parts:
            console.print("  anyone may")
    effects = why.decision.effects
    if effects:
        console.print(f"\non success: {'; '.join(effects)}", soft_wrap=True)


def _show_part(console: Console, part: Part) -> None:
    console.print("  ✓ " if part.holds else "  ✗ ", style="green" if part.holds else "red", end="")
    console.print(part.atom, end="", soft_wrap=True)
    reason = f"through {part.through}" if part.through else "" if part.holds else "missing"
    reason += f" at {part.on}" if part.on and f"({part.on})" not in part.atom else ""
    reason = "denied to " + ", ".join(part.denied) if part.denied else reason
    console.print(f"  {reason}", style="dim", soft_wrap=True)


def _source(span: Span) -> list[str]:
    """The row as its author wrote it: the line of its key and what is indented below; nothing where the file is gone."""
    try:
        lines = Path(span.path).read_text(encoding="utf-8").splitlines()[span.line - 1 :]
    except OSError:
        return []
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    below = takewhile(lambda line: line.startswith(" " * (indent + 1)), lines[1:MOST_LINES])
    return [line[indent:].rstrip() for line in [*lines[:1], *below]]
