"""`privtab what-can`: list what a user, group or role may do."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab.cli._ask import (
    WIDEST,
    ActiveRoleOption,
    FlagOption,
    GroupOption,
    NoActiveRolesOption,
    TableFormatOption,
    active_roles,
    check_required_flags,
    entity,
    flag_names,
    group_names,
    principal_name,
    show_notes,
)
from privtab.cli._options import (
    AtOption,
    PartialOption,
    PolicyOption,
    ReadingOption,
    StateOption,
    VariantOption,
    load_state_for_queries,
    readings,
)
from privtab.cli._output import TableFormat, fail_if, out, print_error, print_if_data, spinner
from privtab.errors import UsageError
from privtab.plural import count

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.analysis.what_can import AllowedOperation, WhatCan
    from privtab.ir.nodes import Program
    from privtab.request import Entity

PANEL = "Ask"

MOST_LINES = 60
"""Default maximum of lines shown as text."""

MOST_NAMES = 5
"""Maximum entities named on one line."""


def run(
    user: Annotated[str, typer.Argument(metavar="USER", help="A user, or group:NAME or role:NAME.")],
    policy: PolicyOption,
    state: StateOption,
    resource: Annotated[
        str | None, typer.Argument(metavar="ENTITY", help="Only on this entity. (default: all that the state names)")
    ] = None,
    flag: FlagOption = None,
    group: GroupOption = None,
    active_role: ActiveRoleOption = None,
    no_active_roles: NoActiveRolesOption = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, metavar="N", help=f"Number of lines; 0 for all. (default: {MOST_LINES} for people)"
        ),
    ] = None,
    at: AtOption = None,
    allow_partial: PartialOption = False,
    variant: VariantOption = None,
    reading: ReadingOption = None,
    format_: TableFormatOption = TableFormat.TEXT,
) -> None:
    """List what a user, group or role may do, on every entity that the state names or on one.

    For a group or a role: what a user may do who holds nothing else.

    Operations that create, and calls of listings, are shown at the entity that they are about.

    An operation with further objects is listed if some entities of the state fit them.

    Example:

    \b
      privtab what-can alice -p gravitino/1.1.0 -s state.yaml
      privtab what-can alice table:m/c/s/t -p gravitino/1.1.0 -s state.yaml
      privtab what-can role:analyst -p gravitino/1.1.0 -s state.yaml
    """
    from privtab.analysis.what_can import what_can as find_operations
    from privtab.cli._stored import load_policy
    from privtab.entitlements.universe import notes as unknown
    from privtab.reference.evaluate import Reference

    about = None if resource is None else entity(resource)
    principal, groups = principal_name(user), group_names(group)
    if groups and principal.startswith(("group:", "role:")):
        raise UsageError("`--group` is for a user: leave it out")
    program = load_policy(policy, variant=variant, readings=readings(reading))
    flags = flag_names(flag, program)
    check_required_flags(flags, program)
    active = active_roles(active_role, none=no_active_roles, program=program)
    if active is not None and principal.startswith(("group:", "role:")):
        raise UsageError("active roles are those of a user: leave `--active-role` and `--no-active-roles` out")
    with spinner("reading the state"):
        loaded, partial = load_state_for_queries(program, state, allow_partial=allow_partial, at=at)
        found = find_operations(
            Reference(program, loaded),
            loaded,
            principal,
            about,
            flags=flags,
            groups=groups,
            active_roles=active,
        )
        notes = unknown(
            program, loaded, [found.principal, *(f"group:{g}" for g in groups)], [about] if about is not None else []
        )
    if format_ is TableFormat.TEXT:
        _show(out(), program, found, MOST_LINES if limit is None else limit)
    else:
        allowed = found.allowed[: limit or len(found.allowed)]
        kind, _, name = found.principal.partition(":")
        document = {
            "principal": found.principal,
            "user": name if kind == "user" else None,
            "asked": found.question_count,
            "count": len(found.allowed),
            "allowed": [_json(may) for may in allowed],
            "undecided": [rule.id for rule in found.undecided],
            "notes": list(notes),
        }
        print_if_data(format_, document, ("type", "path", "operation", "call", "with", "choices"), map(_row, allowed))
    if format_ is not TableFormat.JSON:
        show_notes(notes)
    for rule in found.undecided:
        print_error(f"not decided: `{rule.id}` has too many choices of `with` objects")
    fail_if(partial or found.undecided)


def _json(may: AllowedOperation) -> dict[str, Any]:
    return {
        "operation": may.operation,
        "resource": str(may.resource),
        "unnamed": may.unnamed,
        "with": {name: str(object_) for name, object_ in may.with_.items()},
        "choices": may.choices,
    }


def _row(may: AllowedOperation) -> tuple[object, ...]:
    with_ = " ".join(f"{name}={object_}" for name, object_ in may.with_.items())
    choices = "" if may.choices is None else may.choices
    return may.resource.type, may.resource.id, may.operation, "yes" if may.unnamed else "", with_, choices


def _show(console: Console, program: Program, found: WhatCan, most: int) -> None:
    about = "" if len(found.entities) != 1 else f" on {found.entities[0]}"
    console.print(f"what {found.principal} can do{about}", style="bold", soft_wrap=True)
    console.print(
        f"{len(found.allowed):,} of {found.question_count:,} operations on {count(len(found.entities), 'entity', 'entities')}",
        style="dim",
    )
    if not found.allowed:
        return
    lines = list(_lines(program, found.allowed))
    shown = lines[: most or len(lines)]
    wide = min(max(len(path) for _, path, _ in shown), 40)
    for type_, of_type in groupby(shown, key=lambda line: line[0]):
        console.print(f"\n{type_}", style="bold")
        for _, path, words in of_type:
            _line(console, path, words, wide)
    if len(lines) > len(shown):
        console.print(f"\n… and {len(lines) - len(shown):,} more lines; `--limit 0` lists them", style="dim")
    legend = ["[…] calls that name no item"] if any(may.unnamed for may in found.allowed) else []
    legend += ["* with some further object, which --format json names"] if any(m.with_ for m in found.allowed) else []
    if legend:
        console.print("\n" + "; ".join(legend), style="dim")


def _lines(program: Program, allowed: tuple[AllowedOperation, ...]) -> list[tuple[str, str, list[str]]]:
    """(type, paths, operations) for entities with allowed operations; neighbours with the same operations share a line."""
    order = list(program.entities)
    by_entity: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for may in allowed:
        type_ = _container(program, may.resource) if may.unnamed else may.resource.type
        path = may.resource.id.removesuffix("/")  # a path without its last name ends so where a type nests
        if may.unnamed and may.resource.type in program.flat:
            type_, _, path = path.partition(":")
        named, calls = by_entity.setdefault((type_, path), ([], []))
        word = may.operation + ("*" if may.with_ else "")
        if may.unnamed:
            calls.append(f"{word} {may.resource.type}")
        else:
            named.append(word)
    lines = []
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (type_, path), (named, calls) in by_entity.items():
        words = (*named, *(f"[{call}]" for call in calls))
        alike.setdefault((type_, path.rpartition("/")[0], words), []).append(path)
    for (type_, parent, words), paths in alike.items():
        names = paths[0] if len(paths) == 1 else _joined(parent, paths)
        lines.append((type_ or "anywhere", names, list(words)))
    return sorted(lines, key=lambda line: (order.index(line[0]) if line[0] in order else -1, line[1]))


def _container(program: Program, resource: Entity) -> str:
    """The type of the entity that contains a resource; empty for the root."""
    from privtab.ir.serialise import vocabulary

    parent = program.entities[resource.type].parent
    levels = vocabulary(program).shapes[resource.type].levels(resource.id)
    return resource.type if program.entities[resource.type].nested and levels > 1 else parent or ""


def _joined(parent: str, paths: list[str]) -> str:
    last = [path.rpartition("/")[2] for path in paths]
    listed = f"{{{','.join(last)}}}" if len(last) <= MOST_NAMES else f"{{{','.join(last[:3])},…}} ({len(last):,})"
    return f"{parent}/{listed}" if parent else listed


def _line(console: Console, path: str, words: list[str], wide: int) -> None:
    """Print a path and its operations, wrapped under the first operation."""
    indent = 4 + wide
    console.print(f"  {path:<{wide}}  ", end="", soft_wrap=True)
    column = max(indent, 4 + len(path))
    for number, word in enumerate(words):
        if number and column + len(word) > min(console.width, WIDEST):
            console.print()
            console.print(" " * indent, end="")
            column = indent
        elif number:
            console.print("  ", end="")
        console.print(word, style="dim" if word.startswith("[") else "", end="")
        column += len(word) + 2
    console.print()
