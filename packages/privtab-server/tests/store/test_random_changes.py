"""Random requests on two handles of one store: decisions are the reference's, changes are whole, and the journal tells all of it."""

from __future__ import annotations

from random import Random
from time import time_ns

import pytest
from lake_policy import asks, grant

from privtab.base import AccessDenied, InvalidRequest, Request, StateInvalid, UsageError
from privtab.ir import Program
from privtab.reference.evaluate import evaluate
from privtab.state import from_tables, validate
from privtab_server.errors import StoreConflict
from privtab_server.store import Outcome, Store

LAKES = ("lake:l", "lake:m")
ENTITIES = (*LAKES, "schema:l/s", "schema:l/t", "schema:m/s", "table:l/s/a", "table:l/s/b", "table:m/s/a")
OBJECTS = (*ENTITIES, "role:l/x", "role:m/y", "user:l/ann", "user:m/ben")
USERS = ("root", "root", "root", "ann", "ben")
REFUSALS = (InvalidRequest, StateInvalid, StoreConflict, UsageError)
Tables = dict[str, list[dict[str, str]]]


def random_rows(random: Random) -> Tables:
    rows: Tables = {}
    for _ in range(random.randint(0, 2)):
        table = random.choice(("grants", "assignments", "owners"))
        principal = random.choice(("user:ann", "user:ben"))
        window = random.choice(({}, {}, {"until": "2020-01-01T00:00:00Z"}, {"until": "2099-01-01T00:00:00Z"}))
        if table == "grants":
            privilege, entity = random.choice(("READ", "SELECT", "CREATE", "USE")), random.choice(LAKES + ENTITIES[2:5])
            if not (privilege == "CREATE" and entity.startswith("table:")):
                row = grant(random.choice((principal, "role:x")), privilege, entity, **window)
                rows.setdefault(table, []).append({**row, "effect": random.choice(("allow", "deny"))})
        elif table == "assignments":
            rows.setdefault(table, []).append({"principal": principal, "role": random.choice("xy"), **window})
        else:
            rows.setdefault(table, []).append({"entity": random.choice(ENTITIES), "owner": principal, **window})
    return rows


def random_change(random: Random, store: Store, request: Request, before: Tables) -> Outcome:
    kind = random.random()
    if kind < 0.4:
        return store.perform(request)
    if kind < 0.55:
        return store.delete_entity(request)
    gone = {t: [random.choice(before[t])] for t in ("grants", "owners") if before[t] and random.random() < 0.3}
    expect = random.choice((None, store.head().number, max(1, store.head().number - 2)))
    return store.change(request, add=random_rows(random), remove=gone, expect=expect)


def as_set(rows: Tables) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {(table, tuple(sorted(row.items()))) for table, listed in rows.items() for row in listed}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_requests_change_what_they_say_or_nothing(store: Store, url: str, program: Program, seed: int) -> None:
    random = Random(seed)
    stores = (store, Store.open(url, program))
    for lake in LAKES:
        store.perform(asks("root", "create", lake))
    done = 0
    for _ in range(40):
        type_, action = random.choice(sorted(program.rules))
        resource = random.choice([entity for entity in OBJECTS if entity.startswith(f"{type_}:")])
        request = asks(random.choice(USERS), action, resource)
        before, number = store.rows(), store.head().number
        state, findings = validate(program, from_tables(before, "the store"))
        assert not any(finding.severity == "error" for finding in findings)
        allowed = evaluate(program, state.at(time_ns()), request).allowed
        outcome, denied = None, False
        try:
            outcome = random_change(random, random.choice(stores), request, before)
        except AccessDenied:
            denied = True
        except REFUSALS:
            pass
        assert denied == (not allowed)
        if outcome is None:
            assert (store.rows(), store.head().number) == (before, number)
            continue
        assert outcome.number == number + 1
        done += 1
        expected = as_set(before)
        for change in outcome.changes:
            row = change.table, tuple(sorted((name, value or "") for name, value in (change.row or {}).items()))
            assert (row in expected) == (change.action == "remove")
            (expected.add if change.action == "add" else expected.remove)(row)
        assert as_set(store.rows()) == expected
    assert done
    assert store.verify() == []
    assert store.rows() == store.rows(number=store.head().number)
