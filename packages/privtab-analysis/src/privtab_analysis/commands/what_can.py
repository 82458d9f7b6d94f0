"""`privtab what-can`: list what a user, group or role may do, or could gain."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from privtab.base import UsageError, count
from privtab.command import QuestionOptions, argument, err, fail_if, out, print_error, print_if_data
from privtab_analysis.commands._ask import (
    PathOptions,
    RequestOptions,
    TableFormatOption,
    entity,
    limit_option,
    principal_name,
    show_notes,
)
from privtab_analysis.commands._shown import show_words

if TYPE_CHECKING:
    from privtab.command import Terminal
    from privtab.ir import Program
    from privtab_analysis.permissions import AllowedOperation, WhatCan

PANEL = "Ask"

MOST_LINES = 60
"""Default maximum of lines shown as text."""


def run(
    user: Annotated[str | None, argument("USER", "A user, or group:NAME or role:NAME.")] = None,
    resource: Annotated[
        str | None, argument("ENTITY", "Only on this entity. (default: all that the state names)")
    ] = None,
    *,
    paths: PathOptions,
    carried: RequestOptions,
    limit: Annotated[int | None, limit_option("lines, or of paths", MOST_LINES)] = None,
    asked: QuestionOptions,
    format_: TableFormatOption = "text",
) -> None:
    """List what a user, group or role may do, on every entity that the state names or on one; or what a user could gain.

    For a group or a role: the permissions of a user who holds nothing else.

    Operations that create, and calls of listings, are shown at the entity that they are about.

    An operation with further objects is listed if some entities of the state fit them.

    With `--steps`, `--gain` or `--all`: what a user could gain by operations that grant it or change a store, step by step. Every
    answer says which changes are not considered.

    Example:
      privtab what-can alice -p gravitino/1.1.0 -s sample:gravitino
      privtab what-can alice table:demo/hive/sales/orders -p gravitino/1.1.0 -s sample:gravitino
      privtab what-can role:analyst -p gravitino/1.1.0 -s sample:gravitino
      privtab what-can ben --steps any -p lake.yaml -s state.yaml
      privtab what-can ben table:l/web/t --gain SELECT -p lake.yaml -s state.yaml
      privtab what-can ben schema:l/web --gain 'can drop' -p lake.yaml -s state.yaml
      privtab what-can --all -p lake.yaml -s state.yaml
    """
    if (user is None) != paths.everyone:
        raise UsageError("name a USER, or ask for every user with `--all`")
    if paths.steps is not None or paths.gain is not None or paths.everyone:
        from privtab_analysis.commands._paths import find_paths

        find_paths(user, resource, paths, carried, asked, limit, format_)
        return
    assert user is not None
    if paths.authorise is not None:
        raise UsageError("`--authorise` is about what they could gain: give `--steps`, `--gain` or `--all`")
    from privtab.reference import Reference
    from privtab_analysis.entitlements.universe import notes as unknown
    from privtab_analysis.permissions import what_can as find_operations

    about = None if resource is None else entity(resource)
    principal, groups = principal_name(user), carried.groups()
    if groups and principal.startswith(("group:", "role:")):
        raise UsageError("`--caller group:…` is for a user: leave it out")
    program = asked.program()
    flags = carried.general(program).flags
    active = carried.active_roles(program)
    if active is not None and principal.startswith(("group:", "role:")):
        raise UsageError("active roles are those of a user: leave `--caller` out")
    loaded, _, partial = asked.rows(program)
    with err().spinner("looking for operations", after=1.0):
        found = find_operations(
            Reference(program, loaded), loaded, principal, about, flags=flags, groups=groups, active_roles=active
        )
    principals = [found.principal, *(f"group:{group}" for group in groups)]
    notes = unknown(program, loaded, principals, [about] if about is not None else [])
    if format_ == "text":
        _show(out(), program, found, MOST_LINES if limit is None else limit)
    else:
        allowed = found.allowed[: limit or len(found.allowed)]
        kind, _, name = found.principal.partition(":")
        document = {
            "principal": found.principal,
            "user": name if kind == "user" else None,
            "asked": found.question_count,
            "count": found.count,
            "allowed": allowed,
            "undecided": [rule.id for rule in found.undecided],
            "notes": notes,
        }
        print_if_data(format_, document, ("type", "path", "operation", "call", "with", "choices"), map(_row, allowed))
    if format_ != "json":
        show_notes(notes)
    for rule in found.undecided:
        print_error(f"not decided: `{rule.id}` has too many choices of `with` objects")
    fail_if(partial or found.undecided)


def _row(may: AllowedOperation) -> tuple[object, ...]:
    with_ = " ".join(f"{name}={object_}" for name, object_ in may.with_.items())
    choices = "" if may.choices is None else may.choices
    return may.resource.type, may.resource.id, may.operation, "yes" if may.unnamed else "", with_, choices


def _show(console: Terminal, program: Program, found: WhatCan, most: int) -> None:
    from privtab_analysis.permissions import lines

    about = "" if len(found.entities) != 1 else f" on {next(iter(found.entities))}"
    console.print(f"what {found.principal} can do{about}", style="bold")
    console.print(
        f"{found.count:,} of {found.question_count:,} operations on {count(len(found.entities), 'entity', 'entities')}",
        style="dim",
    )
    if not found.groups:
        return
    found_lines = lines(program, found)
    shown = found_lines[: most or len(found_lines)]
    wide = min(max(len(path) for _, path, _ in shown), 40)
    for type_, of_type in groupby(shown, key=lambda line: line[0]):
        console.print(f"\n{type_}", style="bold")
        for _, path, words in of_type:
            show_words(console, f"  {path or '/':<{wide}}  ", words, margin=4 + wide, gap="  ")
    console.more(len(found_lines) - len(shown), "lines", apart=True)
    operations = [may for group in found.groups for may in group.operations]
    legend = ["[…] calls that name no item"] if any(may.unnamed for may in operations) else []
    legend += ["* with some further object, which --format json names"] if any(m.with_ for m in operations) else []
    if legend:
        console.print("\n" + "; ".join(legend), style="dim")
