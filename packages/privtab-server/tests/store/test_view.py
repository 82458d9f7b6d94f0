"""Snapshots of a store that follow its journal hold what a reader finds who reads the whole store."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lake_policy import asks, grant

from privtab.ir import Program
from privtab.pipeline import policy_artifacts
from privtab.state import index_bytes
from privtab_server.errors import StoreError
from privtab_server.store.store import Store
from privtab_server.store.view import Snapshot, View

USERS, TABLES = ("ann", "ben", "cem"), ("l/s/t", "l/s/u", "l/s/v")


def view(store: Store) -> View:
    return View(store, store.program, policy_artifacts(store.program).program)


def content(snapshot: Snapshot) -> Any:
    return snapshot.head, snapshot.tables, index_bytes(snapshot.program, snapshot.state)


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_brought_forward_is_that_of_the_whole_store(store: Store, seed: int) -> None:
    chosen = random.Random(seed)
    store.perform(asks("root", "create", "lake:l"))
    followed = view(store)
    seen = {followed.now().number}
    for _ in range(30):
        there = followed.now().tables["grants"]
        gone = chosen.sample(list(there), k=min(len(there), chosen.randrange(3)))
        rows = [
            grant(f"user:{chosen.choice(USERS)}", "SELECT", f"table:{chosen.choice(TABLES)}")
            for _ in range(chosen.randrange(4))
        ]
        added = [row for row in rows if row not in gone]
        store.change(asks("root", "grant", "lake:l"), add={"grants": added}, remove={"grants": gone})
        if chosen.random() < 0.5:
            continue
        assert content(followed.now()) == content(view(store).now())
        seen.add(followed.now().number)
    assert len(seen) > 5


def test_a_store_that_was_replaced_is_read_anew(store: Store, url: str, program: Program, tmp_path: Path) -> None:
    store.perform(asks("root", "create", "lake:l"))
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(url)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    ours, theirs = Store.open(url, program), Store.open(str(copy), program)
    followed = view(ours)
    ours.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:ann", "USE", "lake:l")]})
    assert followed.now().number == 3
    for user in ("ben", "cem"):
        theirs.change(asks("root", "grant", "lake:l"), add={"grants": [grant(f"user:{user}", "USE", "lake:l")]})
    followed.journal = theirs
    assert [row["grantee"] for row in followed.now().tables["grants"]] == ["user:ben", "user:cem"]


def test_rows_that_are_wrong_under_the_policy_decide_nothing(store: Store) -> None:
    with store.database.writing() as connection:
        connection.exec_driver_sql("update state_service_admins set \"user\" = 'role:x'")
    with pytest.raises(StoreError, match="nothing is decided or changed"):
        view(store).now()
