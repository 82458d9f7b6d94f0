"""What a store lets a user do to gain something, `paths` finds: small worlds, in which every change of a store is tried."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from privtab.base import Entity, PrivtabError, Request, SourceFile
from privtab.ir import RESOURCE, Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference import Reference
from privtab.state import State, from_tables, validate
from privtab_analysis.caller import Caller
from privtab_analysis.effects import GainedFact
from privtab_analysis.goals import Goal, operation_goal
from privtab_analysis.paths import ReachableRights
from privtab_server.store.authority import Authority
from privtab_server.store.guarded import ChangeKind, DesiredChange, GuardedStore
from privtab_server.store.store import Store
from privtab_server.store.view import View

Rows = dict[str, tuple[tuple[tuple[str, str], ...], ...]]
USER = "ann"
PRIVILEGES = ("USE", "MAKE", "MANAGE")
ENTITIES = ("house:h", "room:h/r", "room:h/s")
PRINCIPALS = {"role": ("clerk", "boss"), "group": ("staff",)}
CONDITIONS = (
    "MANAGE (house)", "owner (house)", "USE (house)", "MAKE (house)", "member (house)", "service admin", "MANAGE (entity)",
    "owner (entity)", "USE (entity)", "MAKE (entity)",
)  # fmt: skip
ASKED = (*map(Entity.parse, ENTITIES), Entity("role", "h/clerk"), Entity("role", "h/boss"), Entity("group", "h/staff"))
DELEGATIONS = {
    "grant_privilege": ("pass_on", "delegates: {privileges}"),
    "revoke_privilege": ("take_back", "withdraws: {privileges}"),
    "set_owner": ("hand_over", "delegates: owner"),
    "assign": ("appoint", "delegates: assignments"),
    "unassign": ("dismiss", "withdraws: assignments"),
    "add_member": ("invite", "delegates: memberships"),
    "remove_member": ("expel", "withdraws: memberships"),
    "add": ("admit", "delegates: members"),
}
"""Operations by whose names a store knows what they authorise, as rows of other names that say so."""
MOST_NODES = 8
"""States after one change from which a second one is tried."""


def policy(rnd: random.Random) -> str:
    def condition(*, house: bool = False) -> str:
        allowed = [text for text in CONDITIONS if house is False or "entity" not in text]
        return rnd.choice([" and ", " or "]).join(rnd.sample(allowed, rnd.choice([1, 1, 2])))

    kinds = rnd.choice(["[user]", "[user, role]", "[role]", "[group]"])
    of_room = ["use: USE (room)", "enter: member (house) and USE (room)", "sell: owner (room)"]
    optional = [
        f"create: {{requires: {condition(house=True)}, becomes: owner}}",
        f"create: {{requires: {condition(house=True)}, grants: USE (entity)}}",
        f"drop: {{requires: {condition()}}}",
        f"grant_privilege: {{requires: {condition()}}}",
        f"revoke_privilege: {{requires: {condition()}}}",
        f"set_owner: {{requires: {condition()}}}",
        f"assign: {{requires: {condition()}}}",
    ]
    rows = {row.partition(":")[0]: row for row in rnd.sample(optional, 4)}
    role = [f"{name}: {{requires: {condition(house=True)}}}" for name in rnd.sample(["assign", "unassign", "drop"], 2)]
    group = [
        f"{name}: {{requires: {condition(house=True)}}}" for name in rnd.sample(["add_member", "remove_member"], 1)
    ]
    person = [f"add: {{requires: {rnd.choice(['USE (house)', 'MANAGE (house)', 'self'])}}}"]
    of_house = [
        f"{name}: {{requires: {condition(house=True)}}}" for name in rnd.sample(["grant_privilege", "set_owner"], 1)
    ]
    holds = rnd.choice(["", ", holds: [USE]", ", holds: ALL"])
    return f"""
privtab: 1
system: houses
version: "1"
entities: {{house: {{room: , role: , group: , user: }}}}
types: {{role: {{principal: role}}, group: {{principal: group}}, user: {{principal: user}}}}
privileges: {{USE: {{on: [house, room]}}, MAKE: {{on: [house, room]}}, MANAGE: {{on: [house, room]}}}}
semantics:
  inheritance: {rnd.choice(["down", "none"])}
  deny: {rnd.choice(["overrides", "overrides", "none"])}
  owner: {{kinds: {kinds}{holds}}}
  hierarchy: [roles]
tables:
  room: {{{", ".join([*of_room, *rows.values()])}}}
  house: {{enter: member (house), {", ".join(of_house)}}}
  role: {{play: holds (role), {", ".join(role)}}}
  group: {{visit: member (group), {", ".join(group)}}}
  user: {{{", ".join(person)}}}
"""


def declared(text: str, rnd: random.Random) -> str:
    """The policy with delegations in the place of names, of some privileges only, or of those that the caller holds."""

    def row(found: re.Match[str]) -> str:
        name, body = DELEGATIONS[found["name"]]
        privileges = rnd.choice(["any privilege", "USE", "USE + MAKE"])
        more = rnd.choice(["", " and named privilege (entity)", " or named privilege (entity)"])
        asked = f"({found['condition']}){more}" if "privilege" in found["name"] else found["condition"]
        return f"{name}: {{requires: {asked}, {body.format(privileges=privileges)}}}"

    return re.sub(rf"\b(?P<name>{'|'.join(DELEGATIONS)}): {{requires: (?P<condition>[^{{}}]*)}}", row, text)


def first_rows(rnd: random.Random, program: Program) -> dict[str, list[dict[str, str]]]:
    owner = program.semantics.owner
    assert owner is not None
    named = [f"{kind}:{name}" for kind, names in PRINCIPALS.items() for name in names]
    holders = [f"user:{USER}", *named]
    effects = ["allow", "allow", "deny"] if program.semantics.deny == "overrides" else ["allow"]
    owners = [holder for holder in [*holders, "user:ben"] if holder.partition(":")[0] in owner.kinds]
    return {
        "grants": [
            {"grantee": holder, "effect": rnd.choice(effects), "privilege": rnd.choice(PRIVILEGES), "entity": entity}
            for holder, entity in {(rnd.choice(holders), rnd.choice(ENTITIES)) for _ in range(6)}
        ],
        "owners": [{"entity": rnd.choice(ENTITIES), "owner": rnd.choice(owners)}],
        "members": [{"user": USER, "of": "house:h"}] if rnd.random() < 0.5 else [],
        "memberships": [{"user": USER, "group": "staff"}] if rnd.random() < 0.5 else [],
        "assignments": [
            {"principal": holder, "role": rnd.choice(PRINCIPALS["role"])}
            for holder in rnd.sample([f"user:{USER}", "group:staff"], 1)
        ],
        "service_admins": [{"user": USER}] if rnd.random() < 0.2 and "service admin" in str(program) else [],
    }


def candidates(rows: dict[str, list[dict[str, str]]], program: Program) -> Iterator[tuple[ChangeKind, DesiredChange]]:
    """Every change of one row that might help the user, each operation that gives something, and each deletion."""

    def adds(table: str, row: dict[str, str], **more: Any) -> tuple[ChangeKind, DesiredChange]:
        return "change", DesiredChange(user=USER, add={table: [row]}, **more)

    for privilege, entity in product(PRIVILEGES, ENTITIES):
        yield adds("grants", {"grantee": f"user:{USER}", "effect": "allow", "privilege": privilege, "entity": entity})
    holders = [f"user:{USER}", *(f"{kind}:{name}" for kind, names in PRINCIPALS.items() for name in names)]
    for entity, holder in product(ENTITIES, holders):
        yield adds("owners", {"entity": entity, "owner": holder})
    for role in PRINCIPALS["role"]:
        yield adds("assignments", {"principal": f"user:{USER}", "role": role}, resource=Entity("role", f"h/{role}"))
        for entity in ENTITIES:
            yield adds("assignments", {"principal": f"user:{USER}", "role": role, "scope": entity})
    yield adds("memberships", {"user": USER, "group": "staff"}, resource=Entity("group", "h/staff"))
    yield adds("members", {"user": USER, "of": "house:h"})
    for table, listed in rows.items():
        for row in listed:
            kind = {"assignments": "role", "memberships": "group"}.get(table)
            resource = Entity(kind, f"h/{row[kind]}") if kind is not None and "scope" not in row else None
            yield "change", DesiredChange(user=USER, remove={table: [row]}, resource=resource)
    for (type_, operation), rule in program.rules.items():
        for id_ in [entity.partition(":")[2] for entity in ENTITIES if entity.startswith(f"{type_}:")]:
            if rule.effects or rule.creates:
                yield "perform", DesiredChange(user=USER, operation=operation, resource=Entity(type_, id_))
    for type_, id_ in (("room", "h/r"), ("room", "h/s"), ("role", "h/clerk"), ("role", "h/boss")):
        yield "delete", DesiredChange(user=USER, resource=Entity(type_, id_))


def after_changes(
    program: Program, rows: dict[str, list[dict[str, str]]], folder: Path
) -> Iterator[dict[str, list[dict[str, str]]]]:
    """The rows after each change that the store performs."""
    store = Store.create(str(Path(mkdtemp(dir=folder), "rows.db")), program)
    store.load(rows, actor="operator")
    guarded = GuardedStore(store, View(store, program, policy_artifacts(program).program), Authority(program, ()))
    for kind, desired in candidates(rows, program):
        try:
            changes = guarded.propose(kind, desired).changes
        except PrivtabError:
            continue
        after = {table: list(listed) for table, listed in rows.items()}
        for change in changes:
            row = {name: text for name, text in (change.row or {}).items() if text is not None}
            listed = after.setdefault(change.table, [])
            if change.action == "add":
                listed.append(row)
            else:
                listed.remove(row)
        yield after


def state_of(program: Program, rows: dict[str, list[dict[str, str]]]) -> State:
    state, findings = validate(program, from_tables(rows, "rows"))
    assert not [finding for finding in findings if finding.severity == "error"]
    return state


def held(program: Program, state: State) -> set[Any]:
    """What the user has: facts, and (operation, entity)."""
    reference = Reference(program, state)
    caller = Caller(reference, USER)
    found: set[Any] = set()
    for entity in map(Entity.parse, ENTITIES):
        facts = [GainedFact(kind="grant", entity=entity, privilege=privilege) for privilege in PRIVILEGES]
        facts += [GainedFact(kind="owner", entity=entity), GainedFact(kind="member", entity=entity)]
        found |= {fact for fact in facts if caller.about({RESOURCE: entity}).why(fact.atom()) is not None}
    for entity in ASKED:
        for type_, operation in program.rules:
            request = Request(user=USER, action=operation, resource=entity)
            if (
                type_ == entity.type
                and not program.rules[type_, operation].creates
                and reference.decide(request).allowed
            ):
                found.add((operation, entity))
    return found


def check(seed: int, folder: Path, *, delegations: bool) -> tuple[int, int]:
    """Compare one world; the number of things that the user could gain, and for how many of them the path is certain."""
    rnd = random.Random(seed)
    text = policy(rnd)
    program = load_program(SourceFile.decode((declared(text, rnd) if delegations else text).encode(), "houses.yaml"))
    rows = first_rows(rnd, program)
    state = state_of(program, rows)
    before = held(program, state)
    nodes = {str(node): node for node in after_changes(program, rows, folder)}
    sampled = rnd.sample(sorted(nodes), min(len(nodes), MOST_NODES))
    second = [node for key in sampled for node in after_changes(program, nodes[key], folder)]
    reference = Reference(program, state)
    reach = ReachableRights(reference, state, USER, authority=Authority(program, ()), extra_entities=ASKED)
    gained = {found for node in (*nodes.values(), *second) for found in held(program, state_of(program, node))} - before
    certain = 0
    for found in sorted(gained, key=str):
        goal = Goal.of_fact(found) if isinstance(found, GainedFact) else operation_goal(reference, *found)
        path = reach.path(goal)
        assert path is not None, f"world {seed}: the store lets {USER} gain {found}"
        certain += path.certain
    return len(gained), certain


@pytest.mark.slow
def test_nothing_that_a_store_lets_a_user_gain_is_said_to_have_no_path(tmp_path: Path) -> None:
    total = certain = 0
    for seed, delegations in product(range(6), (False, True)):
        gained, sure = check(seed, tmp_path, delegations=delegations)
        total, certain = total + gained, certain + sure
    assert total > 10
    assert certain > total / 2


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_nothing_is_said_to_have_no_path_in_many_worlds(tmp_path: Path, part: int) -> None:
    for seed, delegations in product(range(100 + part * 10, 110 + part * 10), (False, True)):
        check(seed, tmp_path, delegations=delegations)
