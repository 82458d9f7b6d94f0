"""What filters say to their callers: their forms, modes, and what is refused."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgresql_server import postgresql
from sqlalchemy import make_url

from privtab import AsyncClient, Client, Embedded
from privtab.base.errors import InvalidRequest, UnsupportedError, UsageError
from privtab.base.moments import Window
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.bundle.pack import state_bundle
from privtab.command import _app
from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.filters.filter import Filter, filter_of
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import index_document
from privtab.state.load import from_tables, load_raw_state, validate

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {shop: {shelf: {box: }}}
privileges: [LOOK, TAKE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
attributes: {entity: {color: {enum: [red, blue], from: request}}}
tables:
  box:
    look: LOOK (box)
    paint: LOOK (box) and box.color = red
    move: {with: {target: shelf}, requires: TAKE (box) and LOOK (target)}
"""
STATE = """\
grants:
  - {grantee: user:ann, effect: allow, privilege: LOOK, entity: shop:s}
  - {grantee: user:ann, effect: deny, privilege: LOOK, entity: box:s/a/o'brien}
  - {grantee: user:bob, effect: allow, privilege: LOOK, entity: "box:s/b/50%25 off"}
  - {grantee: user:eve, effect: allow, privilege: LOOK, entity: shop:s, until: 2200-01-01T00:00:00Z}
"""
COLUMNS = {"shop": "shop", "shelf": "shelf", "box": "b.name"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A policy and a state, as files and as bundles."""
    (tmp_path / "shop.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "state.yaml").write_text(STATE, encoding="utf-8")
    program = load_program(tmp_path / "shop.yaml")
    state, findings = validate(program, load_raw_state(tmp_path / "state.yaml"))
    assert not findings
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, state))
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Embedded:
    return Embedded(folder / "policy.tar.gz", folder / "state.tar.gz")


def test_a_filter_is_the_condition_of_a_query(client: Embedded) -> None:
    found = client.filter("ann", "look", "box")
    assert found.levels == ("shop", "shelf", "box")
    assert [found.allows("s", "a", name) for name in ("x", "o'brien", "", None)] == [True, False, False, False]
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE b (shop, shelf, name)")
        database.executemany(
            "INSERT INTO b VALUES (?, ?, ?)", [("s", "a", "x"), ("s", "a", "o'brien"), ("t", "a", "x")]
        )
        where = found.sql("sqlite", COLUMNS)
        assert "o'brien" not in where.text
        selected = database.execute(f"SELECT * FROM b WHERE {where.text}", where.parameters)  # noqa: S608
        assert selected.fetchall() == [("s", "a", "x")]


def test_names_are_those_of_columns_and_not_of_paths(client: Embedded) -> None:
    found = client.filter("bob", "look", "box")
    assert found.to_json()["where"] == {
        "all": [{"level": "shop", "in": ["s"]}, {"level": "shelf", "in": ["b"]}, {"level": "box", "in": ["50% off"]}]
    }
    assert client.filter("bob", "look", "box").sql("postgres", COLUMNS, style="named").named == {
        "p1": "s", "p2": "b", "p3": "50% off",
    }  # fmt: skip


def test_a_percent_sign_in_a_column_is_no_parameter(client: Embedded) -> None:
    columns = {**COLUMNS, "box": '"in %s"'}
    assert '"in %%s"' in client.filter("bob", "look", "box").sql("postgres", columns).text


def test_with_objects_and_the_time_count(client: Embedded) -> None:
    assert client.filter("ann", "move", "box", with_={"target": "shelf:s/a"}).nothing
    assert client.filter("eve", "look", "box").to_json()["until"] == "2200-01-01T00:00:00Z"


def test_what_is_wrong_is_refused_before_anything_runs(client: Embedded) -> None:
    with pytest.raises(InvalidRequest, match="unknown operation `lok` on `box`; did you mean `look`"):
        client.filter("ann", "lok", "box")
    with pytest.raises(InvalidRequest, match=r"context\.with\.target"):
        client.filter("ann", "move", "box")
    with pytest.raises(InvalidRequest, match="attributes come from columns"):
        client.filter("ann", "paint", "box", attributes={"entity": {"color": "red"}})
    found = client.filter("ann", "look", "box")
    with pytest.raises(UsageError, match="no column for shelf, box"):
        found.sql("sqlite", {"shop": "s"})
    with pytest.raises(UsageError, match="`shelv` is no level of a `box`; did you mean `shelf`"):
        found.sql("sqlite", {**COLUMNS, "shelv": "s"})
    with pytest.raises(UsageError, match="no dialect `postgre`"):
        found.sql("postgre", COLUMNS)
    for text in ("name OR 1 = 1", "lower(name)", "name; DROP TABLE b", "'a'", "", "1"):
        with pytest.raises(UsageError, match="is not the name of a column"):
            found.sql("sqlite", {**COLUMNS, "box": text})
    with pytest.raises(UnsupportedError, match="the filter lists 4 names, more than 1"):
        found.sql("sqlite", COLUMNS, most=1)


def test_a_client_that_is_off_asks_nobody() -> None:
    with Client("http://127.0.0.1:1", system="shop", mode="off") as client:
        everything = client.filter("ann", "look", "box")
    assert isinstance(everything, Filter)
    assert everything.sql("postgres", COLUMNS).text == "TRUE"
    assert AsyncClient.filter.__doc__


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_modes_that_let_everything_pass_filter_nothing(folder: Path, mode: str) -> None:
    client = Embedded(folder / "policy.tar.gz", folder / "state.tar.gz", mode=mode)
    assert client.filter("nobody", "look", "box").sql("sqlite", COLUMNS).text == "TRUE"


def test_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    ask = ["filter", "ann", "look", "box", "-p", "shop.yaml", "-s", "state.yaml", "--dialect", "sqlite"]
    assert _app.run(ask) == 0
    out = capsys.readouterr().out
    assert 'CAST("shop" AS TEXT) COLLATE BINARY = ?' in out
    assert '-- 1: "s"' in out
    assert _app.run([*ask, "--format", "json", "--most", "0", "--table", "f", "--rows", "rows.csv"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["form"] == "joined"
    with Path("rows.csv").open(encoding="utf-8") as file:
        *names, edition = list(csv.reader(file))[1:]
    assert names == [
        ["shop/1 ann look box", "1", "1", "s", "", ""],
        ["shop/1 ann look box", "3", "0", "s", "a", "o'brien"],
    ]
    assert edition[1] == "-1"
    assert edition[3].endswith(f" {found['revision']} until 2200-01-01T00:00:00Z")
    assert _app.run([*ask[:2], "lok", *ask[3:]]) == 2


def test_rows_in_a_store_are_joined_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert _app.run(["store", "create", "grants.db", "-p", "shop.yaml", "--state", "state.yaml"]) == 0
    state = ["-p", "shop.yaml", "-s", "store:grants.db", "--dialect", "sqlite", "--most", "0", "--format", "json"]
    rows = ["--rows", "store:grants.db", "--table"]
    with closing(sqlite3.connect("grants.db")) as database:
        database.execute("CREATE TABLE boxes (shop, shelf, box)")
        database.executemany(
            "INSERT INTO boxes VALUES (?, ?, ?)", [("s", "a", "x"), ("s", "a", "o'brien"), ("t", "a", "x")]
        )
        database.commit()
        where: dict[str, Any] = {}
        for _ in range(2):  # the second time, the rows take the place of the first ones
            capsys.readouterr()
            assert _app.run(["filter", "ann", "look", "box", *state, *rows, "filters"]) == 0
            where = json.loads(capsys.readouterr().out)
            selected = database.execute(f"SELECT * FROM boxes WHERE {where['sql']}", where["parameters"])  # noqa: S608
            assert selected.fetchall() == [("s", "a", "x")]
        kept = set(database.execute("SELECT filter, depth, allowed, revision FROM filters"))
        rows_ = ((1, 1), (3, 0), (-1, 0))
        assert kept == {("shop/1 ann look box", depth, allowed, where["revision"]) for depth, allowed in rows_}
    for name in ("state_grants", "head", "Filters", "a b", "x; DROP TABLE head"):
        assert _app.run(["filter", "ann", "look", "box", *state, *rows, name]) == 2
    assert _app.run(["filter", "ann", "look", "box", *state, *rows[:2]]) == 2
    assert _app.run(["store", "show", "grants.db", "--verify"]) == 0


@pytest.mark.slow
@pytest.mark.xdist_group("postgresql-15")
def test_rows_in_a_store_of_postgresql_are_joined_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import psycopg

    monkeypatch.chdir(folder)
    with postgresql() as address:
        url = make_url(address)
        assert _app.run(["store", "create", address, "-p", "shop.yaml", "--state", "state.yaml"]) == 0
        of_store = ["-p", "shop.yaml", "-s", f"store:{address}", "--dialect", "postgres", "--most", "0"]
        to_table = ["--rows", f"store:{address}", "--table", "filters", "--format", "json"]
        boxes = [("s", "a", "x"), ("s", "a", "o'brien"), ("t", "a", "x"), ("S", "a", "x")]
        with psycopg.connect(f"host={url.query['host']} user={url.username} dbname=postgres", autocommit=True) as sql:
            sql.execute("CREATE TABLE boxes (shop TEXT, shelf TEXT, box TEXT)")
            sql.cursor().executemany("INSERT INTO boxes VALUES (%s, %s, %s)", boxes)
            for user, seen in (("ann", [boxes[0]]), ("nobody", []), ("ann", [boxes[0]])):
                capsys.readouterr()
                assert _app.run(["filter", user, "look", "box", *of_store, *to_table]) == 0
                where = json.loads(capsys.readouterr().out)
                selected = sql.execute(f"SELECT * FROM boxes WHERE {where['sql']}", where["parameters"])  # noqa: S608
                assert selected.fetchall() == seen
            kept = sql.execute("SELECT filter, depth, allowed FROM filters").fetchall()
            of_ann = [("shop/1 ann look box", *row) for row in ((-1, 0), (1, 1), (3, 0))]
            assert sorted(kept) == [*of_ann, ("shop/1 nobody look box", -1, 0)]
        assert _app.run(["store", "show", address, "--verify"]) == 0


def test_the_rows_of_one_request_are_not_those_of_another(client: Embedded) -> None:
    keys = {client.filter("ann", "move", "box", with_={"target": f"shelf:s/{name}"}).key for name in "ab"}
    assert len(keys) == 2
    assert client.filter("ann", "look", "box").key == "shop/1 ann look box"


def test_the_rows_of_one_policy_are_not_those_of_another() -> None:
    """Two systems and two versions, whose states say the opposite of the same names, in one table."""
    denied = ("", "a", "b", "c")
    policies = [("shop", "1"), ("shop", "2"), ("depot", "1"), ("shop", "1 x")]
    filters = [_box_filter(system, version, shelf) for (system, version), shelf in zip(policies, denied, strict=True)]
    with closing(sqlite3.connect(":memory:")) as database:
        _fill(database, [row for found in filters for row in found.rows()])
        for found, shelf in zip(filters, denied, strict=True):
            assert _selected(database, found) == [name for name in "abc" if name != shelf]
    # A name with blanks looks like a version with blanks, and is none.
    assert _box_filter("shop", "1 x", "a").key != replace(filters[0], user="x ann").key


def test_rows_of_another_state_show_nothing() -> None:
    old, new = (_box_filter("shop", "1", shelf) for shelf in ("", "a"))
    changed = _box_filter("shop", "1", "a", allow="LOOK (box) and LOOK (shelf)")
    assert old.key == new.key == changed.key
    assert len({found.edition for found in (old, new, changed, replace(new, window=Window(end=5)))}) == 4
    with closing(sqlite3.connect(":memory:")) as database:
        for rows, seen in (
            ([*new.rows()], ["b", "c"]),
            ([*old.rows()], []),
            ([*changed.rows()], []),
            ([*old.rows(), *new.rows()], []),  # nobody took the old ones away
            ([*new.rows()][:-1], []),  # the last one is not there yet
            ([*new.rows("mine")], []),
        ):
            _fill(database, rows)
            assert _selected(database, new) == seen


def _box_filter(system: str, version: str, denied: str, allow: str = "LOOK (box)") -> Filter:
    """What `ann` sees of a shop with the shelves a, b and c, of which one may be denied."""
    text = POLICY.replace("system: shop", f"system: {system}").replace('"1"', f'"{version}"')
    program = load_program(SourceFile(path="shop.yaml", text=text.replace("look: LOOK (box)", f"look: {allow}")))
    rows = [("allow", "shop:s"), *([("deny", f"shelf:s/{denied}")] if denied else [])]
    grants = [{"grantee": "user:ann", "effect": effect, "privilege": "LOOK", "entity": key} for effect, key in rows]
    state, findings = validate(program, from_tables({"grants": grants}, "rows"))
    assert not findings
    engine = RowEngine(policy_artifacts(program).program, Index(index_document(program, state)))
    return filter_of(engine, Request(user="ann", action="look", resource=Entity("box", "")))


def _fill(database: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    database.execute("DROP TABLE IF EXISTS filters")
    database.execute("CREATE TABLE filters (filter TEXT COLLATE NOCASE, depth INT, allowed INT, name1, name2, name3)")
    database.executemany("INSERT INTO filters VALUES (?, ?, ?, ?, ?, ?)", rows)


def _selected(database: sqlite3.Connection, found: Filter) -> list[str]:
    """The shelves, of three, on which boxes are shown."""
    boxes = "(SELECT 's' AS shop, column1 AS shelf, 'x' AS name FROM (VALUES ('a'), ('b'), ('c'))) AS b"
    where = found.sql("sqlite", COLUMNS, table="filters", most=0)
    return [row[0] for row in database.execute(f"SELECT shelf FROM {boxes} WHERE {where.text}", where.parameters)]  # noqa: S608


def test_what_there_is_one_of_counts_however_deep_it_is() -> None:
    """Conditions may ask about the only entity of a type in the only entity of another: it has the path of what is around both."""
    text = """
privtab: 1
system: shop
version: "1"
entities: {shop: {config: {secret: }, box: }}
types: {config: {single: true}, secret: {single: true}}
privileges: [LOOK]
semantics: {inheritance: down, deny: overrides}
tables:
  box:
    look: LOOK (secret)
"""
    program = load_program(SourceFile(path="shop.yaml", text=text))
    rows = [
        {"grantee": "user:ann", "effect": "allow", "privilege": "LOOK", "entity": "secret:s"},
        {"grantee": "user:ben", "effect": "allow", "privilege": "LOOK", "entity": "shop:s"},
        {"grantee": "user:ben", "effect": "allow", "privilege": "LOOK", "entity": "shop:t"},
        {"grantee": "user:ben", "effect": "deny", "privilege": "LOOK", "entity": "secret:t"},
    ]
    state, findings = validate(program, from_tables({"grants": rows}, "rows"))
    assert not findings
    engine = RowEngine(policy_artifacts(program).program, Index(index_document(program, state)))
    for user in ("ann", "ben"):
        found = filter_of(engine, Request(user=user, action="look", resource=Entity("box", "")))
        assert [found.allows(shop, "x") for shop in ("s", "t")] == [True, False]
