"""What is imported from a real MariaDB, pushed, and imported again is the same, and so is what the server lets everyone do."""

from __future__ import annotations

import random
from collections.abc import Iterator

import mariadb_world
import pytest
from mariadb_world import DATABASES, ROLES, TABLES, USERS, answers, executed, imported
from seeds import daily, seeds

from privtab.pipeline import load_program
from privtab.state import State
from privtab.state.nodes import ALL_TABLES
from privtab_connect.pushdown.document import load
from privtab_connect.pushdown.rights import NativeGrant
from privtab_connect.pushdown.run import PushReport, push

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mariadb-10-11")]


def pushed(url: str, state: State, **options: bool) -> PushReport:
    program = load_program("mariadb/10.11")
    document = load("mariadb", program, {"server": "main"})
    return push(program, state, document, url, pusher="mariadb", apply=True, **options)  # type: ignore[arg-type]


def rows(state: State) -> set[str]:
    return {f"{table}: {row}" for table in ALL_TABLES for row in getattr(state, table)}


def drift(dice: random.Random) -> Iterator[str]:
    """Rights that no state gives, and some that a state gives no more."""
    for _ in range(40):
        database, table = dice.choice(DATABASES), dice.choice(TABLES)
        privilege = dice.choice(["select", "insert", "update", "delete", "drop", "alter", "index"])
        escaped = database.replace("_", "\\_")
        place = dice.choice(["*.*", f"`{escaped}`.*", f"{database}.{table}"])
        yield f"grant {privilege} on {place} to {dice.choice([*USERS, *ROLES, 'public'])}"
    yield f"set default role none for {dice.choice(USERS)}"
    yield f"revoke {ROLES[0]} from {dice.choice(USERS)}"


@pytest.mark.parametrize("seed", seeds([40, *range(12), *daily(13)[1:]], quick=1, full=1))
def test_what_is_imported_and_pushed_is_imported_again(mariadb_url: str, seed: int) -> None:
    dice = random.Random(seed)
    patterns = dice.sample(["`d_2`", "`d%`", "`%2`", "`d__`"], dice.randrange(3))
    executed(mariadb_url, *mariadb_world.rights(seed, patterns))
    state = imported(mariadb_url)[0].state
    before = answers(mariadb_url)

    first = pushed(mariadb_url, state)
    assert first.desired.findings == ()
    assert first.desired.absent == {}
    fitting = [r for r in first.plan.grant if not (isinstance(r, NativeGrant) and r.object.kind == "database")]
    assert (fitting, first.plan.revoke, first.plan.create) == ([], frozenset(), frozenset())
    assert bool(first.plan.grant) <= bool(patterns)
    assert rows(imported(mariadb_url)[0].state) == rows(state)
    assert answers(mariadb_url) == before

    for statement in drift(dice):
        executed(mariadb_url, statement, refused=True)
    pushed(mariadb_url, state, revoke_foreign=True)
    assert rows(imported(mariadb_url)[0].state) ^ rows(state) == set()
    assert answers(mariadb_url) == before
    assert not pushed(mariadb_url, state).plan.changes
