"""The skeleton of a driver document: every key that a policy needs, with a call to be filled in."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from privtab.base import base_type
from privtab.ir import Member, Program, ServiceAdmin, reached_atoms
from privtab_testing.conform.document import CallKind

FILL = "FILL IN"
"""The text in place of what only an author knows."""


def skeleton(program: Program, kind: CallKind) -> str:
    """A driver document for a policy, with `FILL IN` where the system's own words belong; the document can be read as it is."""
    return "\n".join(_lines(program, kind)) + "\n"


def _lines(program: Program, kind: CallKind) -> Iterator[str]:
    semantics = program.semantics
    name = f"{program.system}/{program.version}"
    yield f"# How `privtab conform {name}` makes a world in the system, and how it asks each operation: fill in what says `{FILL}`,"
    yield "# and leave out what the system cannot make or ask. Keys and placeholders: docs/conformance.md, A driver in YAML."
    yield "conform: 1"
    yield f"title: {program.title or name}"
    yield f"{kind}:"
    yield from _answers(kind)
    if kind == "http":
        yield "  exact_names: true    # names may differ in case alone, and types, users, groups and roles may share one; else leave it out"
    groups, roles = "state" in semantics.groups, "role" in semantics.grantees or bool(program.roles)
    for key, needed in (("user", True), ("group", groups), ("role", roles)):
        if needed:
            yield f"  {key}s: {_made(kind, [key])}"
    yield "  entities:"
    for type_ in program.entities.values():
        if type_.principal is None:
            yield f"    {type_.name}: {_made(kind, _path(program, type_.name))}"
    asked = {leaf for rule in program.rules.values() for leaf in reached_atoms(program, rule.item_condition)}
    admins = any(isinstance(leaf, ServiceAdmin) for leaf in asked)
    yield "  rows:"
    for table, needed, words in (
        ("memberships", groups, ["user", "group"]),
        ("assignments", roles, [*_kind(semantics.assignees), "principal", "role"]),
        ("service_admins", admins, ["user"]),
    ):
        if needed:
            yield f"    {table}: {_call(kind, 'post', words)}"
    member_of = dict.fromkeys(leaf.target.type for leaf in asked if isinstance(leaf, Member))
    owned = () if semantics.owner is None else tuple(program.entities)
    owner = [*_kind(() if semantics.owner is None else semantics.owner.kinds), "owner"]
    granted = dict.fromkeys(type_ for privilege in program.privileges.values() for type_ in privilege.on)
    effect = [] if semantics.deny == "none" else ["effect"]
    for table, types, words in (
        ("members", tuple(member_of), ["user"]),
        ("owners", owned, owner),
        ("grants", tuple(granted), [*effect, "privilege", *_kind(semantics.grantees), "grantee"]),
    ):
        if types:
            yield f"    {table}:"
            yield from (f"      {name}: {_call(kind, 'post', [*_path(program, name), *words])}" for name in types)
    yield "  operations:"
    type_name = ""
    for (entity, operation), rule in program.rules.items():
        if entity != type_name:
            type_name = entity
            yield f"    {entity}:"
        call = _call(kind, "get" if rule.each is not None else "post", _path(program, entity))
        if kind == "http" and rule.each is not None:
            call = call.removesuffix("}") + ', shows: "[].name"}'
        yield f"      {operation}: {call}"


def _answers(kind: CallKind) -> Iterator[str]:
    if kind == "sql":
        yield '  as: "set role {user}"'
        yield '  refused: ["42501"]'
    else:
        yield '  headers: {Authorization: "Bearer {token}"}    # the administrator; `--token-file` has the secret'
        yield '  as: {Authorization: "Basic {user:basic}"}'
        yield '  refused: ["401", "403"]'


def _kind(kinds: Collection[str]) -> list[str]:
    """The placeholder that tells kinds of principals apart, where there are several."""
    return ["kind"] if len(kinds) > 1 else []


def _path(program: Program, type_: str) -> list[str]:
    """The types whose names lead to an entity."""
    return list(
        dict.fromkeys(base_type(one) for one in program.chain(type_) if not program.entities[base_type(one)].single)
    )


def _made(kind: CallKind, words: list[str]) -> str:
    return f"{{make: {_call(kind, 'post', words)}, drop: {_call(kind, 'delete', words)}}}"


def _call(kind: CallKind, method: str, words: list[str]) -> str:
    placeholders = "/".join(f"{{{word}}}" for word in words)
    if kind == "sql":
        return f'"{FILL} {placeholders}"'
    return f'{{{method}: "/{FILL}/{placeholders}"}}'
