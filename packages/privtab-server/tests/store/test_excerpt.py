"""The rows that a request concerns decide it as all rows do, and make the same rows wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from typing import Any, cast

import pytest
from lake_policy import asks
from seeds import seeds
from sqlalchemy import Connection

from privtab.base import Change, Decision, PrivtabError, StateInvalid
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import StateFinding, from_tables, validate
from privtab_server.store.excerpt import Excerpt
from privtab_server.store.lookups import Cells, Reader, Rows
from privtab_server.store.planning import ChangeRequest, plan, raw
from privtab_server.store.store import Outcome, Store, _PendingChange

OFFICE = """\
privtab: 1
system: office
version: "1"
entities: {company: {folder: {document: {comment: }}, desk: {lamp: , drawer: }, user: , group: , role: }}
types: {folder: {flat: true}, document: {flat: true}, lamp: {single: true}}
privileges:
  READ: {on: [company, folder, document, comment, desk, lamp, drawer]}
  WRITE: {on: [company, folder, document, comment, desk, lamp, drawer]}
  KEEP: {on: [desk]}
sets: {ALL: [READ, WRITE]}
roles: {keeper: {scope: company, grants: {desk: [KEEP]}}}
attributes:
  user: {badges: {set: [red, blue]}, level: integer}
  entity: {color: {enum: [red, blue], on: [desk]}}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, group, role], holds: [WRITE]}, hierarchy: [groups, roles]}
tables:
  company:
    manage: anyone
    browse: READ (company or below)
    oversee: owner (company or below)
    drop: WRITE (company)
  folder:
    manage: WRITE (folder) or owner (folder)
    drop: {requires: WRITE (folder), revokes: owner}
    see: READ (folder or below)
  document:
    create: {requires: WRITE (folder), becomes: owner, grants: READ}
    read: READ (document)
    manage: owner (document) or WRITE (folder)
  comment:
    write: READ (document) and WRITE (comment)
  desk:
    use: KEEP (desk) or member (company) and READ (desk) and desk.color in user.badges
    shine: READ (lamp)
    climb: READ (desk) and user.level >= 3
    drop: WRITE (desk)
  lamp: {light: READ (lamp)}
  group: {join: member (group), manage: service admin}
  role: {wear: holds (role), manage: service admin}
  user: {remove: {requires: service admin, revokes: [grants, assignments, owners, members, memberships]}}
"""
NESTED = OFFICE.replace("folder: {flat: true}", "folder: {flat: true, nested: true}")
"""The same with folders in folders."""
COMPANIES = ("company:a", "company:b")
FLAT = (*(f"folder:f{n}" for n in range(5)), *(f"document:d{n}" for n in range(5)))
OTHERS = ("comment:d0/c", "comment:d1/c", "desk:a/1", "desk:b/1", "lamp:a/1", "drawer:a/1/x", "desk:a/100%25")
NAMED = (*COMPANIES, *FLAT, *OTHERS)
OBJECTS = (
    *NAMED,
    "document:folder:f0/",
    "folder:company:a/",
    "folder:folder:f1/",
    "desk:a/",
    "group:a/g0",
    "role:a/r1",
    "user:a/ann",
    "user:b/ben",
)
USERS = ("root", "root", "root", "ann", "ben", "cem")
GROUPS, ROLES = tuple(f"g{n}" for n in range(6)), (*(f"r{n}" for n in range(5)), "keeper")
Tables = dict[str, list[dict[str, str]]]


class Whole(Excerpt):
    """Every row, and look-ups without any index: what an excerpt must agree with."""

    def __init__(self, program: Program, connection: Connection) -> None:
        super().__init__(program, Reader().at(connection, ""), "the store")
        self.rows = Rows.read(connection)

    def beginning(
        self, table: str, begins: tuple[str, str] | None, texts: Mapping[str, Collection[str]]
    ) -> list[Cells]:
        del begins
        found = [cells for _, cells in self.rows.tables[table].values()]
        return [cells for cells in found if all(cells.get(name) in those for name, those in texts.items())]

    def another(self) -> Excerpt:
        return self

    def on_or_below(self, key: str) -> None:
        """All rows are read."""


def random_row(random: Random, table: str) -> dict[str, str]:
    principal = random.choice(
        ("user:ann", "user:ben", "user:cem", *(f"group:{g}" for g in GROUPS), *(f"role:{r}" for r in ROLES))
    )
    entity = random.choice(NAMED)
    window = random.choice(({}, {}, {}, {"until": "2020-01-01T00:00:00Z"}, {"from": "2020-01-01T01:00:00+01:00"}))
    match table:
        case "grants":
            effect = random.choice(("allow", "allow", "deny"))
            return {
                "grantee": principal,
                "effect": effect,
                "privilege": random.choice(
                    ("READ", "WRITE", "ALL", *(("KEEP", "REED") if random.random() < 0.1 else ()))
                ),
                "entity": entity,
                **window,
            }
        case "owners":
            return {"entity": entity, "owner": principal.removeprefix("user:"), **window}
        case "memberships":
            user = random.choice(("ann", "user:ben", "cem", *(f"group:{g}" for g in GROUPS)))
            return {"user": user, "group": random.choice((*GROUPS, "group:g0")), **window}
        case "assignments":
            scope = random.choice(({}, {"scope": entity}, {"scope": random.choice(COMPANIES)}))
            return {"principal": principal, "role": random.choice(ROLES), **scope, **window}
        case "members":
            return {"user": random.choice(USERS), "of": random.choice((*COMPANIES, *COMPANIES, entity))}
        case "service_admins":
            return {"user": random.choice(USERS)}
        case "attributes":
            if random.random() < 0.5:
                return {
                    "entity": random.choice(("desk:a/1", "desk:b/1", entity)),
                    "attribute": "color",
                    "value": random.choice(("red", "blue")),
                }
            name, value = random.choice(
                (
                    ("badges", "red"),
                    ("badges", "blue"),
                    ("level", "2"),
                    ("level", "3"),
                    ("level", "x" if random.random() < 0.2 else "4"),
                )
            )
            return {"user": random.choice(USERS), "attribute": name, "value": value}
        case _:
            return {
                "entity": random.choice(FLAT),
                "parent": random.choice((*COMPANIES, *FLAT[:5])),
                **random.choice(({}, {"name": "n"})),
            }


PLACES = (
    {"entity": "folder:f0", "parent": "company:a"},
    {"entity": "folder:f1", "parent": "company:a"},
    {"entity": "folder:f2", "parent": "company:b"},
    *({"entity": f"document:d{n}", "parent": f"folder:f{n}"} for n in range(3)),
)
TABLES = (
    "grants",
    "grants",
    "owners",
    "memberships",
    "memberships",
    "assignments",
    "members",
    "service_admins",
    "attributes",
    "entities",
    "entities",
)


def random_requests(random: Random, program: Program) -> list[ChangeRequest]:
    requests = []
    for _ in range(6):
        type_, action = random.choice(sorted(program.rules))
        resource = random.choice([entity for entity in OBJECTS if entity.startswith(f"{type_}:")])
        requests.append(ChangeRequest(request=asks(random.choice(("ann", "ben", "cem")), action, resource)))
    return requests


def random_change(random: Random, program: Program, now: Tables) -> ChangeRequest:
    type_, action = random.choice(sorted(program.rules))
    if random.random() < 0.6:
        type_, action = "company", "manage"
    objects = [entity for entity in OBJECTS if entity.startswith(f"{type_}:")]
    request = asks(random.choice(USERS), action, random.choice(objects))
    kind = random.random()
    if kind < 0.2:
        return ChangeRequest(request=request)
    if action == "drop" and kind < 0.5:
        return ChangeRequest(request=request, delete=True)
    add: Tables = {}
    for _ in range(random.randint(0, 3)):
        table = random.choice(TABLES)
        add.setdefault(table, []).append(random_row(random, table))
    remove: Tables = {}
    for table in {random.choice(TABLES) for _ in range(random.choice((0, 0, 1, 2)))}:
        if now[table] and table != "service_admins":
            remove[table] = [random.choice(now[table])]
            if table == "entities" and random.random() < 0.5:
                # Moved elsewhere.
                add.setdefault(table, []).append({**remove[table][0], "parent": random.choice((*COMPANIES, *FLAT[:5]))})
    return ChangeRequest(request=request, add=raw(add, "added"), remove=raw(remove, "removed"))


def beginning(random: Random, program: Program) -> Tables:
    """The valid ones of some random rows."""
    rows: Tables = {"entities": list(PLACES)}
    for _ in range(120):
        table = random.choice(TABLES)
        rows.setdefault(table, []).append(random_row(random, table))
    return validate(program, from_tables(rows, "random"))[0].to_tables()


def outcome(program: Program, excerpt: Excerpt, requested: ChangeRequest) -> Any:
    return outcome_of(lambda: plan(program, excerpt, requested))


def written(store: Store, requested: ChangeRequest) -> tuple[Decision, tuple[Change, ...]]:
    done = store.carry_out(requested)
    return done.decision, done.changes


def outcome_of(work: Callable[[], tuple[Decision, tuple[Change, ...]]]) -> Any:
    try:
        decision, changes = work()
    except StateInvalid as invalid:
        # Rows that are there have other numbers, and advice names what is similar among the rows that are known.
        return sorted(
            str((f.code, f.place.table, f.message, sorted(f.row.items())))
            for f in cast("tuple[StateFinding, ...]", invalid.findings)
        )
    except PrivtabError as error:
        return type(error), str(error)
    return decision.to_json(), sorted(str(change.to_json()) for change in changes)


@pytest.fixture(scope="session", params=[OFFICE, NESTED], ids=["below", "nested"])
def office(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("policy") / "office.yaml"
    path.write_text(request.param, encoding="utf-8")
    return load_program(path)


@pytest.mark.parametrize("seed", seeds(range(13), quick=1))
def test_an_excerpt_decides_and_refuses_as_all_rows_do(
    office: Program, url: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privtab.state.links.MOST_LINKS", 2)
    random = Random(seed)
    store = Store.create(url, office, administrators=["root"])
    store.load(beginning(random, office), actor="setup")
    stores = (store, Store.open(url, office))
    kinds: set[str] = set()
    for _ in range(60 if seed else 25):
        requested = random_change(random, office, store.rows())
        with store.database.reading() as connection:
            for only in random_requests(random, office):
                everything, excerpt = (
                    Whole(office, connection),
                    Excerpt(office, Reader().at(connection, ""), "the store"),
                )
                assert outcome(office, excerpt, only) == outcome(office, everything, only)
            expected = outcome(office, Whole(office, connection), requested)
            assert outcome(office, Excerpt(office, Reader().at(connection, ""), "the store"), requested) == expected
        # Each store keeps what it read, and must notice what the other one changed.
        assert outcome_of(partial(written, random.choice(stores), requested)) == expected
        kinds.add(type(expected).__name__)
    assert kinds == {"list", "tuple"}
    assert store.verify() == []


@pytest.mark.parametrize("seed", seeds(range(9), quick=1))
def test_changes_written_together_are_as_those_written_one_after_another(
    office: Program, url: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("journal", "planning", "authority", "conflicts"):
        monkeypatch.setattr(f"privtab_server.store.{module}.time_ns", lambda: 1_800_000_000_000_000_000)
    random = Random(seed)
    rows = beginning(random, office)
    stores = []
    for name in (url, f"{url}.other"):
        stores.append(Store.create(name, office, administrators=["root"]))
        stores[-1].load(rows, actor="setup")
    together, single = stores
    for _ in range(40 if seed else 15):
        now = single.rows()
        batch = [random_change(random, office, now) for _ in range(random.randint(1, 5))]
        ids = [random.choice((None, None, str(random.randint(0, 9)))) for _ in batch]
        expects = [random.choice((None, None, single.head().number, single.head().number + 1)) for _ in batch]
        waiting = [_PendingChange(*item) for item in zip(batch, ids, expects, strict=True)]
        together._commits.submit(waiting)
        for item in waiting:
            alone = _PendingChange(item.requested, item.request_id, item.expect)
            single._commits.submit([alone])
            assert result_of(item) == result_of(alone)
        assert together.head() == single.head()
        assert together.rows() == single.rows()
    assert together.verify() == []


def result_of(waiting: _PendingChange) -> Any:
    result = waiting.result
    if isinstance(result, Outcome):
        return result.number, result.repeated, [change.to_json() for change in result.changes]
    assert isinstance(result, PrivtabError)

    def fail() -> tuple[Decision, tuple[Change, ...]]:
        raise result

    return outcome_of(fail)
