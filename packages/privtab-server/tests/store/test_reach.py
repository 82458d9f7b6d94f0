"""Nothing that the owner of one place does changes a decision in another one, whatever rows, names and resources they send."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from time import time_ns
from typing import Any

import pytest
from authzen_server import Server
from seeds import seeds
from store_server import ask, serve_store, write_tokens

from privtab.base import AccessDenied, Entity, InvalidRequest, Request, StateInvalid, UsageError
from privtab.ir import Program, vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference import EvaluationContext, Reference
from privtab.state import from_tables, validate
from privtab_server.errors import StoreConflict
from privtab_server.store.authority import OPERATIONS, Authority
from privtab_server.store.database import row_id
from privtab_server.store.guarded import ChangeKind, DesiredChange, GuardedStore, WriteOptions
from privtab_server.store.store import Store
from privtab_server.store.view import View

ESTATES = """\
privtab: 1
system: estates
version: "1"
entities: {house: {room: {shelf: }, role: , group: , user: , box: {label: }}}
types: {box: {flat: true}}
privileges:
  ENTER: {on: [house, room, box]}
  KEEP: {on: [room, shelf]}
roles: {boss: {grants: {room: [KEEP]}}, keeper: {scope: house, grants: {room: [KEEP]}}}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, role, group]}, hierarchy: [groups, roles]}
tables:
  house:
    create: {requires: service admin, becomes: owner}
    drop, grant_privilege, grant_role: owner (house)
    look: ENTER (house or below)
  room:
    create: {requires: owner (house), becomes: owner, grants: KEEP}
    enter: ENTER (room)
    keep: KEEP (room)
    grant_privilege, set_owner, grant_role: owner (room, house)
    drop: owner (house)
  shelf:
    use: KEEP (shelf) or member (house)
  box:
    create: {requires: owner (house), becomes: owner}
    open: ENTER (box) or owner (box)
    grant_privilege, drop: owner (box, house)
  label: {read: ENTER (box)}
  role:
    create: {requires: owner (house), becomes: owner}
    grant_role, revoke_role, delete: owner (house)
    get: holds (role)
  group:
    create: {requires: owner (house), creates: true}
    add_member, remove_member, remove, set_owner: owner (house)
    get: member (group)
  user:
    add: {requires: owner (house), creates: true}
    remove: {requires: owner (house), revokes: [members, memberships, assignments, grants, owners]}
"""
PLACES = ("a", "b")
OWNERS = {"ann": "a", "ben": "b"}
USERS = ("ann", "ben", "eve")
NAMES = ("x", "restricted", "boss", "keeper", "new")
REFUSALS = (AccessDenied, InvalidRequest, StateInvalid, StoreConflict, UsageError)
Tables = dict[str, list[dict[str, str]]]
Decisions = dict[tuple[str, str, str], bool]


@dataclass
class World:
    """A policy whose roots are places of different owners, with names for all of its types in each."""

    program: Program
    random: Random
    entities: dict[str, list[Entity]] = field(init=False)
    """By place."""

    def __post_init__(self) -> None:
        self.root = next(iter(self.program.entities))
        owner = self.program.semantics.owner
        self.kinds = () if owner is None else owner.kinds
        self.entities = {place: [*self._entities(place)] for place in PLACES}

    def _entities(self, place: str) -> Iterator[Entity]:
        for type_, chain in self.program.chains.items():
            begin = place if self.program.flat.isdisjoint(chain) else f"f{place}"
            between = vocabulary(self.program).shapes[type_].written.depth - 2
            lasts = {"user": USERS, "role": NAMES, "group": NAMES[:2]}.get(type_, ("x",)) if between >= 0 else ()
            yield from (Entity(type_, "/".join([begin, *["x"] * between, last])) for last in lasts)
            yield from [Entity(type_, begin)] if between < 0 else []

    def entity(self, place: str, *types: str) -> Entity:
        return self.random.choice([entity for entity in self.entities[place] if not types or entity.type in types])

    def name(self, place: str) -> str:
        name = self.random.choice(NAMES)
        return name if self.random.random() < 0.3 else f"{place}/{name}"

    def principal(self, place: str) -> str:
        kind = self.random.choice(("user", "user", "group", "role"))
        return f"{kind}:{self.random.choice(USERS) if kind == 'user' else self.name(place)}"

    def row(self, own: str) -> tuple[str, dict[str, str]]:
        """A row, most often about a place, that names principals of all places."""
        random = self.random
        table = random.choice(("grants", "grants", "owners", "assignments", "assignments", "memberships", "members"))
        here, there = (own if random.random() < 0.7 else random.choice(PLACES) for _ in range(2))
        match table:
            case "grants":
                # What a root alone has would let its holder change everything.
                grantable = {n: p.on for n, p in self.program.privileges.items() if len(p.on) > 1}
                privilege = random.choice(list(grantable))
                entity = self.entity(here, *grantable[privilege])
                effect = random.choice(("allow", "deny"))
                row = {
                    "grantee": self.principal(there),
                    "effect": effect,
                    "privilege": privilege,
                    "entity": str(entity),
                }
                return table, row
            case "owners":
                owner = self.principal(there) if len(self.kinds) > 1 else f"user:{random.choice(USERS)}"
                return table, {"entity": str(self.entity(here)), "owner": owner}
            case "assignments":
                scope = {"scope": str(self.entity(own, self.root, "room", "catalog"))} if random.random() < 0.2 else {}
                return table, {"principal": self.principal(there), "role": self.name(here), **scope}
            case "memberships":
                member = self.principal(there)
                member = member if member.startswith("group:") else random.choice(USERS)
                return table, {"user": member, "group": self.name(here)}
            case _:
                return table, {"user": random.choice(USERS), "of": f"{self.root}:{here}"}

    def state(self) -> Tables:
        """Rows that an operator loads: names with and without a place, and rights of principals of one place in another."""
        entities = ((user, entity) for user, place in OWNERS.items() for entity in self.entities[place])
        tables: Tables = {
            "owners": [{"entity": str(entity), "owner": f"user:{user}"} for user, entity in entities],
            "members": [{"user": user, "of": f"{self.root}:{place}"} for user in USERS for place in PLACES],
            "service_admins": [{"user": "root"}, {"user": "ben"}],
        }
        if self.program.flat:
            tables["entities"] = [{"entity": f"box:f{place}", "parent": f"house:{place}"} for place in PLACES]
        for _ in range(30):
            table, row = self.row(self.random.choice(PLACES))
            if table != "owners":
                tables.setdefault(table, []).append(row)
        state, _ = validate(self.program, from_tables(tables, "the rows"))
        return state.to_tables()

    def change(self, user: str, held: Tables) -> tuple[str, DesiredChange]:
        """What an owner asks for."""
        random, own = self.random, OWNERS[user]
        kind = random.choice(("add", "add", "add", "remove", "remove", "perform", "delete"))
        if kind == "add":
            table, row = self.row(own)
            return kind, DesiredChange(user=user, add={table: [row]}, resource=self.resource(own, row))
        if kind == "remove":
            table = random.choice([table for table, rows in held.items() if rows and table != "service_admins"])
            row = random.choice(held[table])
            return kind, DesiredChange(user=user, remove={table: [row]}, resource=self.resource(own, row))
        # Whoever loses a place can do nothing more.
        place, last = own if random.random() < 0.8 else random.choice(PLACES), random.random() < 0.05
        entity = random.choice([entity for entity in self.entities[place] if entity.type != self.root or last])
        if kind == "delete":
            return kind, DesiredChange(user=user, resource=entity)
        operations = [op for (type_, op), rule in self.program.rules.items() if type_ == entity.type and rule.effects]
        return kind, DesiredChange(user=user, resource=entity, operation=random.choice(operations or ["none"]))

    def resource(self, own: str, row: Mapping[str, str]) -> Entity | None:
        """Sometimes the role or the group of the caller's place that has the name of another one."""
        kind = next((kind for kind in ("role", "group") if kind in row and "scope" not in row), None)
        if kind is None or self.random.random() < 0.5:
            return None
        return Entity(kind, f"{own}/{row[kind].rpartition('/')[2]}")

    def decisions(self, store: Store) -> dict[str, Decisions]:
        """By place, what each user may do with each of its entities, by the reference."""
        state, findings = validate(self.program, from_tables(store.rows(), "the store"))
        assert not [finding for finding in findings if finding.severity == "error"]
        reference = Reference(self.program, state.at(time_ns()))
        return {place: dict(self._decided(reference, place)) for place in PLACES}

    def _decided(self, reference: Reference, place: str) -> Iterator[tuple[tuple[str, str, str], bool]]:
        firsts = {entity.type: entity for entity in self.entities[place]}
        for (type_, operation), rule in self.program.rules.items():
            others = {slot.name: firsts[slot.types[-1]] for slot in rule.withs}
            for entity in (entity for entity in self.entities[place] if entity.type == type_):
                for user in USERS:
                    context = EvaluationContext(
                        reference, Request(user=user, action=operation, resource=entity, with_=others)
                    )
                    yield (user, operation, str(entity)), context.holds(context.condition(rule))

    def governs(self, user: str, decided: Decisions) -> bool:
        """Whether a user may change anything in a place, so that its decisions may change."""
        changing = {name for names in OPERATIONS.values() for name in names} | {"create", "drop", "delete", "register"}
        return any(may and who == user and name in changing for (who, name, _), may in decided.items())


def check(world: World, store: Store, send: Callable[[str, DesiredChange], None], rounds: int) -> int:
    """Let owners change what they may, and compare the decisions in the places of others; how many changes were made."""
    done, before = 0, world.decisions(store)
    for _ in range(rounds):
        able = [user for user, place in OWNERS.items() if world.governs(user, before[place])]
        if not able:
            break  # They deleted what made them owners.
        user = world.random.choice(able)
        kind, desired = world.change(user, store.rows())
        number = store.head().number
        send(kind, desired)
        if store.head().number == number:
            continue
        after = world.decisions(store)
        for place in PLACES:
            if not world.governs(user, before[place]):
                changed = {key for key, may in after[place].items() if may != before[place][key]}
                assert not changed, f"{kind} {desired}: {store.log(number)[0].changes}"
                done += 1
        before = after
    return done


def guarded(store: Store) -> GuardedStore:
    return GuardedStore(
        store, View(store, store.program, policy_artifacts(store.program).program), Authority(store.program)
    )


def estates(tmp_path: Path) -> Path:
    path = tmp_path / "estates.yaml"
    path.write_text(ESTATES, encoding="utf-8")
    return path


def opened(tmp_path: Path, policy: str, seed: int) -> tuple[World, Store]:
    tmp_path.mkdir(exist_ok=True)
    program = load_program(estates(tmp_path) if policy == "estates" else policy)
    world = World(program, Random(seed))
    store = Store.create(str(tmp_path / "grants.db"), program)
    store.load(world.state(), actor="operator")
    return world, store


@pytest.mark.parametrize("seed", seeds(range(40), quick=0, full=1))
@pytest.mark.parametrize("policy", ["estates", "gravitino/1.1.0"])
def test_what_an_owner_changes_is_of_their_place(policy: str, seed: int, tmp_path: Path) -> None:
    asked: GuardedStore

    kinds: Mapping[str, ChangeKind] = {"perform": "perform", "delete": "delete"}

    def send(kind: str, desired: DesiredChange) -> None:
        with contextlib.suppress(*REFUSALS):
            asked.carry_out(kinds.get(kind, "change"), desired, WriteOptions())

    done, numbers = 0, count(1_000 * seed)
    while done < 12:
        number = next(numbers)
        world, store = opened(tmp_path / str(number), policy, number)
        asked = guarded(store)
        done += check(world, store, send, 100)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["estates", pytest.param("gravitino/1.1.0", marks=pytest.mark.long)])
def test_what_an_owner_changes_over_http_is_of_their_place(policy: str, tmp_path: Path) -> None:
    world, store = opened(tmp_path, policy, 0)
    shown: Any = tmp_path / "estates.yaml" if policy == "estates" else policy
    server = serve_store(
        tmp_path, [tmp_path / "grants.db", "-p", shown, "--token-file", write_tokens(tmp_path / "tokens", USERS)]
    )
    try:
        assert check(world, store, lambda kind, desired: sent(server, kind, desired), 150) > 5
    finally:
        assert server.stop() == 0


def sent(server: Server, kind: str, desired: DesiredChange) -> None:
    resource = {} if desired.resource is None else {"resource": str(desired.resource)}
    body: dict[str, Any] | None = None
    match kind:
        case "add":
            method, path, body = "POST", "/changes", {"add": desired.add, **resource}
        case "perform":
            method, path, body = "POST", "/operations", {"operation": desired.operation, **resource}
        case "delete":
            method, path = "DELETE", f"/entities?entity={desired.resource}"
        case _:
            [(table, [row])] = desired.remove.items()
            query = f"?resource={desired.resource}" if resource else ""
            method, path = "DELETE", f"/rows/{table}/{row_id(row)}{query}"
    answer = ask(server, method, path, desired.user, body)
    assert answer.status_code in (200, 400, 403, 404, 409, 422), answer.text


# --- one by one ------------------------------------------------------------------------------------------------------

LOADED: Tables = {
    "service_admins": [{"user": "ann"}, {"user": "ben"}],
    "owners": [{"entity": "house:a", "owner": "user:ann"}, {"entity": "house:b", "owner": "user:ben"}],
    "grants": [
        {"grantee": "user:ben", "effect": "allow", "privilege": "ENTER", "entity": "house:a"},
        *(
            {"grantee": holder, "effect": "deny", "privilege": "ENTER", "entity": "room:a/x"}
            for holder in ("role:a/restricted", "role:restricted", "group:a/out", "group:out")
        ),
    ],
    "assignments": [{"principal": "user:ben", "role": role} for role in ("a/restricted", "restricted")],
    "memberships": [{"user": "ben", "group": group} for group in ("a/out", "out")],
}
FREE = WriteOptions()


@pytest.fixture
def houses(tmp_path: Path) -> GuardedStore:
    """The houses `a` of ann and `b` of ben, who are both service administrators; ben is denied a room of `a` in four ways."""
    store = Store.create(str(tmp_path / "grants.db"), load_program(estates(tmp_path)))
    store.load(LOADED, actor="operator")
    return guarded(store)


def add(user: str, table: str, resource: str | None = None, /, **row: str) -> DesiredChange:
    about = None if resource is None else Entity.parse(resource)
    return DesiredChange(user=user, add={table: [row]}, resource=about)


def on(user: str, entity: str, operation: str | None = None) -> DesiredChange:
    return DesiredChange(user=user, resource=Entity.parse(entity), operation=operation)


@pytest.mark.parametrize("table", ["assignments", "memberships"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("resource", ["role:b/restricted", "group:b/out", None])
def test_what_is_of_another_place_or_of_none_is_not_removed(
    houses: GuardedStore, table: str, number: int, resource: str | None
) -> None:
    row = LOADED[table][number]
    about = None if resource is None else Entity.parse(resource)
    with pytest.raises((AccessDenied, UsageError)):
        houses.carry_out("change", DesiredChange(user="ben", remove={table: [row]}, resource=about), FREE)


@pytest.mark.parametrize("operation", ["remove", None])
def test_the_removal_of_a_user_removes_nothing_elsewhere(houses: GuardedStore, operation: str | None) -> None:
    gone = [{"table": "assignments", **LOADED["assignments"][1]}, {"table": "memberships", **LOADED["memberships"][1]}]
    leave = on("ben", "user:b/ben", operation)
    with pytest.raises(AccessDenied, match=r"`(role:restricted|group:out)` is of no place"):
        houses.carry_out("perform", leave, FREE) if operation else houses.carry_out("delete", leave, FREE)
    by_operator = Request(user="ann", action="drop", resource=Entity("house", "a"))
    remove = {row.pop("table"): [row] for row in gone}
    store = houses.store
    store.change(by_operator, remove=remove)
    houses.carry_out("perform", leave, FREE) if operation else houses.carry_out("delete", leave, FREE)
    assert store.rows()["assignments"] == LOADED["assignments"][:1]
    assert store.rows()["memberships"] == LOADED["memberships"][:1]


def test_a_role_cannot_be_held_before_it_exists(houses: GuardedStore) -> None:
    for name in ("new", "a/new"):
        with pytest.raises((AccessDenied, UsageError)):
            houses.carry_out("change", add("ben", "assignments", "role:b/new", principal="user:ben", role=name), FREE)
    houses.carry_out("change", add("ben", "assignments", principal="user:ben", role="b/new"), FREE)
    with pytest.raises(AccessDenied, match="is of no place: its path, as in `house/new`"):
        houses.carry_out(
            "change",
            add("ann", "grants", grantee="role:new", effect="allow", privilege="ENTER", entity="house:a"),
            FREE,
        )
    # Somebody in the same place would take over its holders.
    with pytest.raises(StoreConflict, match="rows are about it"):
        houses.carry_out("perform", on("ben", "role:b/new", "create"), FREE)


def test_a_declared_role_is_of_no_place(houses: GuardedStore) -> None:
    with pytest.raises(AccessDenied, match="`role:boss` is of no place"):
        houses.carry_out("change", add("ben", "assignments", "role:b/boss", principal="user:ben", role="boss"), FREE)
    with pytest.raises(AccessDenied, match="`role:keeper` is of no place"):
        # Whoever holds it anywhere passes `holds (role)` of this name.
        houses.carry_out(
            "change", add("ben", "assignments", principal="user:ben", role="keeper", scope="house:b"), FREE
        )
    grant = add("ben", "grants", grantee="role:boss", effect="allow", privilege="ENTER", entity="house:b")
    assert houses.carry_out("change", grant, FREE).changes


def test_listings_tell_who_holds_what_to_those_who_may_change_it(houses: GuardedStore) -> None:
    houses.store.change(
        Request(user="ann", action="grant_role", resource=Entity("house", "a")),
        add={"assignments": [{"principal": "user:eve", "role": role} for role in ("a/x", "x")]},
    )
    seen = {user: houses.visible(user, ["assignments"])[1]["assignments"] for user in ("ann", "ben")}
    assert {row["role"] for row in seen["ann"]} == {"a/restricted", "a/x"}
    assert {row["role"] for row in seen["ben"]} == {"a/restricted", "restricted"}  # He holds them.


def test_a_role_has_rights_in_its_place_alone(houses: GuardedStore) -> None:
    houses.carry_out("perform", on("ann", "role:a/x", "create"), FREE)
    for table, row in (
        ("grants", {"grantee": "role:a/x", "effect": "allow", "privilege": "ENTER", "entity": "house:b"}),
        ("owners", {"entity": "room:b/x", "owner": "group:a/g"}),
        ("assignments", {"principal": "group:a/g", "role": "b/x"}),
        ("memberships", {"user": "group:a/g", "group": "b/g"}),
        ("assignments", {"principal": "user:ben", "role": "a/x", "scope": "house:b"}),
    ):
        with pytest.raises(AccessDenied, match=r"is of house:a, and [a-z]+:b"):
            houses.carry_out("change", add("ben", table, **row), FREE)
    houses.carry_out("change", add("ann", "assignments", principal="user:eve", role="a/x"), FREE)
    assert houses.carry_out("delete", on("ann", "role:a/x"), FREE).changes


def test_rights_beyond_a_place_are_given_by_whoever_may_give_them_everywhere(houses: GuardedStore) -> None:
    row = {"grantee": "role:b/x", "effect": "allow", "privilege": "ENTER", "entity": "house:a"}
    houses.store.change(
        Request(user="ann", action="grant_privilege", resource=Entity("house", "a")), add={"grants": [row]}
    )
    with pytest.raises(AccessDenied, match="role:b/x has rights outside house:b"):
        houses.carry_out("change", add("ben", "assignments", principal="user:ben", role="b/x"), FREE)
    # Whoever's place it is takes them away.
    assert houses.carry_out("change", DesiredChange(user="ann", remove={"grants": [row]}), FREE).changes
    assert houses.carry_out("change", add("ben", "assignments", principal="user:ben", role="b/x"), FREE).changes


def test_a_dropped_place_takes_its_roles_and_groups_along(houses: GuardedStore) -> None:
    houses.carry_out("change", add("ben", "assignments", principal="user:eve", role="b/x"), FREE)
    houses.carry_out("change", add("ben", "memberships", user="eve", group="b/g"), FREE)
    houses.carry_out("delete", on("ben", "house:b"), FREE)
    assert not [row for rows in houses.store.rows().values() for row in rows if "b/" in str(row)]
    # And is new when it is created again.
    assert houses.carry_out("perform", on("ben", "house:b", "create"), FREE).changes


def test_what_exists_is_not_created_again_by_anybody(houses: GuardedStore) -> None:
    houses.carry_out("perform", on("ann", "role:a/x", "create"), FREE)
    owner = {"entity": "role:a/x", "owner": "user:ann"}
    houses.store.change(
        Request(user="ann", action="grant_privilege", resource=Entity("house", "a")), remove={"owners": [owner]}
    )
    again = on("ann", "role:a/x", "create")
    for make in (lambda: houses.carry_out("perform", again, FREE), lambda: houses.propose("perform", again)):
        with pytest.raises(StoreConflict, match="role:a/x exists"):
            make()
    houses.carry_out("delete", on("ann", "role:a/x"), FREE)
    assert houses.carry_out("perform", on("ann", "role:a/x", "create"), FREE).changes


def test_of_those_who_create_the_same_at_once_one_does(houses: GuardedStore) -> None:
    def create(_: int) -> bool:
        try:
            return bool(houses.carry_out("perform", on("ann", "group:a/new", "create"), FREE).number)
        except StoreConflict:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1


def test_a_name_that_reads_as_the_path_of_another_is_refused(houses: GuardedStore) -> None:
    with pytest.raises(UsageError, match="has no `/`"):
        houses.carry_out("perform", on("ann", "role:a/b%2Fx", "create"), FREE)


def test_who_may_do_so_in_every_place_changes_what_is_of_none(tmp_path: Path) -> None:
    policy = tmp_path / "estates.yaml"
    policy.write_text(ESTATES.replace("owner (house)", "owner (house) or service admin"), encoding="utf-8")
    store = Store.create(str(tmp_path / "grants.db"), load_program(policy))
    store.load({**LOADED, "service_admins": [{"user": "root"}]}, actor="operator")
    houses = guarded(store)
    for user in ("ben", "ann"):
        with pytest.raises(AccessDenied, match="is of no place"):
            houses.carry_out(
                "change", add(user, "memberships", f"group:{OWNERS[user]}/out", user="eve", group="out"), FREE
            )
    assert houses.carry_out("change", add("root", "memberships", "group:a/out", user="eve", group="out"), FREE).changes
    assert houses.carry_out("perform", on("root", "user:b/ben", "remove"), FREE).changes


@pytest.mark.parametrize("ahead", [1, 100])
def test_a_change_of_the_future_is_not_known(houses: GuardedStore, ahead: int) -> None:
    how = WriteOptions(expect=houses.store.head().number + ahead)
    for make in (
        lambda: houses.carry_out("perform", on("ann", "role:a/x", "create"), how),
        lambda: houses.carry_out("change", add("ann", "members", user="eve", of="house:a"), how),
        lambda: houses.carry_out("delete", on("ann", "room:a/x"), how),
        lambda: houses.propose("perform", on("ann", "role:a/x", "create"), how.expect),
        lambda: houses.propose("change", add("ann", "members", user="eve", of="house:a"), how.expect),
    ):
        with pytest.raises(StoreConflict, match="was expected"):
            make()
