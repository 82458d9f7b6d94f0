"""`privtab store grant`, `revoke`, `assign`, `unassign`, `own` and `show`, on a store here and behind a real server."""

from __future__ import annotations

import json
import os
import pty
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from socket import socket
from typing import Any

import pytest
import typer
from authzen_server import Server
from lake_policy import POLICY
from store_server import serve_store, token, write_tokens

from privtab.pipeline import load_program
from privtab_server.commands import _store_session
from privtab_server.store.journal import Journal
from privtab_server.store.store import Store

Privtab = Callable[..., Any]
HERE = ("-p", "lake.yaml", "--as", "root", "--authorise", "owners=grant")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privtab: Privtab) -> Path:
    """A folder with a policy and a store, in which `root` owns the lake `l`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.yaml").write_text(POLICY, encoding="utf-8")
    Store.create("grants.db", load_program("lake.yaml"), administrators=["root"])
    assert privtab("store", "change", "grants.db", "root", "create", "lake:l", "-p", "lake.yaml", "--yes").code == 0
    return tmp_path


@pytest.fixture
def server(lake: Path) -> Iterator[Server]:
    tokens = write_tokens(lake / "tokens", ["root", "eve"])
    started = serve_store(lake, ["grants.db", "-p", "lake.yaml", "--token-file", tokens, "--authorise", "owners=grant"])
    yield started
    assert started.stop() == 0


def rows(table: str) -> list[dict[str, str]]:
    return Journal.open("grants.db").rows()[table]


def test_a_dry_run_says_who_gains_what_and_changes_nothing(lake: Path, privtab: Privtab) -> None:
    ran = privtab("store", "grant", "grants.db", "CREATE", "lake:l", "--to", "ann", *HERE, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "  + grants:{grantee: user:ann, effect: allow, privilege: CREATE, entity: lake:l}",
        "  user:ann gains `create` on lake:l",
    ]
    assert rows("grants") == []


def test_an_operation_is_shown_with_what_a_request_for_it_gives() -> None:
    given = {"request": {"mfa": True}, "with": {"template": {"level": 3}}}
    access = {"operation": "read", "flags": ["pii"], "attributes": given, "sensitive": True}
    shown = "`read` with pii if request.mfa = true and template.level = 3 (sensitive)"
    assert _store_session._operation(access) == shown


def test_a_dry_run_that_cannot_tell_who_gains_what_fails(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = _store_session.Answer(number=1, changes=(), undecided="too many roles")
    with pytest.raises(typer.Exit):
        _store_session.confirm(unknown, dry_run=True)
    assert "who gains and loses what is not known: too many roles" in capsys.readouterr().err


def test_each_command_changes_its_rows(lake: Path, privtab: Privtab) -> None:
    def done(*arguments: str) -> None:
        ran = privtab(*arguments, *HERE, "--yes")
        assert ran.code == 0, ran.err

    done("store", "grant", "grants.db", "SELECT", "lake:l", "--to", "role:reader", "--until", "2030-01-01T00:00Z")
    done("store", "grant", "grants.db", "USE", "lake:l", "--to", "group:hr", "--deny")
    done("store", "assign", "grants.db", "reader", "--to", "ben", "--resource", "role:l/reader")
    done("store", "own", "grants.db", "schema:l/s", "--to", "group:hr")
    assert [row["privilege"] for row in rows("grants")] == ["SELECT", "USE"]
    assert rows("assignments") == [{"principal": "user:ben", "role": "reader"}]
    shown = privtab("store", "show", "grants.db", "role:reader")
    assert shown.out.splitlines() == [
        "assignments:{principal: user:ben, role: reader}",
        'grants:{grantee: role:reader, effect: allow, privilege: SELECT, entity: lake:l, until: "2030-01-01T00:00:00Z"}',
    ]
    found = json.loads(privtab("store", "show", "grants.db", "schema:l/s", "--format", "json").out)
    assert found == [{"table": "owners", "row": {"entity": "schema:l/s", "owner": "group:hr"}}]
    done("store", "own", "grants.db", "schema:l/s", "--to", "user:ann")
    assert {row["owner"] for row in rows("owners") if row["entity"] == "schema:l/s"} == {"user:ann"}
    done("store", "unassign", "grants.db", "reader", "--from", "ben", "--resource", "role:l/reader")
    done("store", "revoke", "grants.db", "SELECT", "lake:l", "--from", "role:reader")
    done("store", "revoke", "grants.db", "USE", "lake:l", "--from", "group:hr", "--deny")
    assert rows("grants") == rows("assignments") == []


def test_widening_a_sensitive_operation_needs_confirmation(
    lake: Path, privtab: Privtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("store", "grant", "grants.db", "MANAGE", "lake:l", "--to", "ann", *HERE)
    ran = privtab(*arguments)
    assert ran.code == 1
    assert "user:ann gains `grant` (sensitive) on lake:l" in ran.out
    assert "`--yes` confirms it" in ran.err
    assert rows("grants") == []
    main, other = pty.openpty()
    os.write(main, b"y\n")
    with closing(os.fdopen(other, encoding="utf-8")) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        assert privtab(*arguments).code == 0
    os.close(main)
    assert len(rows("grants")) == 1


def test_impossible_changes_say_why(lake: Path, privtab: Privtab) -> None:
    grant = ("store", "grant", "grants.db", "SELECT", "lake:l", "--to", "ann")
    assert "needs `--policy POLICY` and `--as USER`" in privtab(*grant).err
    eve = ("-p", "lake.yaml", "--as", "eve")
    ran = privtab(*grant, *eve)
    assert (ran.code, "user:eve may not `grant` on lake:l; missing: " in ran.err) == (1, True)
    ran = privtab("store", "grant", "grants.db", "SELET", "lake:l", "--to", "ann", *HERE)
    assert (ran.code, "did you mean `SELECT`?" in ran.err) == (1, True)
    ran = privtab("store", "revoke", "grants.db", "SELECT", "lake:l", "--from", "ann", *HERE)
    assert (ran.code, "does not hold SELECT on lake:l for user:ann" in ran.err) == (1, True)
    assert privtab("store", "grant", "grants.db", "SELECT", "lake:l", "--to", "role:", *HERE).code == 2
    assert privtab("store", "own", "grants.db", "lake:l", "--to", "ann", "-p", "lake.yaml", "--as", "root").code == 2
    assert privtab(*grant, *HERE, "--yes", "--request-id", "r1").code == 0
    again = privtab(*grant, *HERE, "--yes", "--request-id", "r1")
    assert (again.code, "done before" in again.out) == (0, True)
    assert privtab("store", "grant", "grants.db", "USE", "lake:l", "--to", "ann", *HERE, "--expect", "2").code == 1


@pytest.mark.slow
def test_a_server_is_changed_and_shown_in_the_same_way(
    lake: Path, server: Server, privtab: Privtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVTAB_TOKEN", token("root"))
    grant = ("store", "grant", server.url, "CREATE", "lake:l", "--to", "eve")
    dry = privtab(*grant, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert dry.out == privtab("store", "grant", "grants.db", *grant[3:], *HERE, "--dry-run").out
    assert privtab(*grant, "--request-id", "r1").code == 0
    assert "done before" in privtab(*grant, "--request-id", "r1").out
    assert privtab("store", "own", server.url, "schema:l/s", "--to", "eve").code == 1, "owners may drop it"
    assert privtab("store", "own", server.url, "schema:l/s", "--to", "eve", "--yes").code == 0
    assert privtab("store", "show", server.url, "schema:l/s").out == "owners:{entity: schema:l/s, owner: user:eve}\n"
    assert privtab("store", "assign", server.url, "writer", "--to", "eve").code == 0
    assert "role: writer" in privtab("store", "unassign", server.url, "writer", "--from", "eve").out
    elsewhere = privtab("store", "show", f"{server.url}/elsewhere")
    assert (elsewhere.code, "is it the URL of `privtab serve store`?" in elsewhere.err) == (3, True)
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = privtab("store", "show", f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert (nobody.code, nobody.err.endswith("/store/v1 cannot be reached: connection refused\n")) == (
        3,
        True,
    )
    assert privtab("store", "assign", server.url, "reader", "--to", "eve", "--resource", "role:l/reader").code == 0
    (lake / "eve.token").write_text(token("eve"), encoding="utf-8")
    eve = ("--token-file", "eve.token")
    assert privtab("store", "show", server.url, "lake:l", *eve).out.startswith("grants:{grantee: user:eve,")
    ran = privtab("store", "grant", server.url, "SELECT", "lake:l", "--to", "eve", *eve)
    assert (ran.code, "user:eve may not `grant` on lake:l" in ran.err) == (1, True)
    ran = privtab("store", "grant", server.url, "SELET", "lake:l", "--to", "eve")
    assert (ran.code, "unknown privilege" in ran.err) == (1, True)
    assert privtab("store", "revoke", server.url, "CREATE", "lake:l", "--from", "eve").code == 0
    assert rows("grants") == []
    assert privtab(*grant, "--expect", "2").code == 1
    assert privtab(*grant, "--as", "eve").code == 2
    monkeypatch.setenv("PRIVTAB_TOKEN", token("nobody"))
    assert "not known" in privtab(*grant).err
    assert server.stop() == 0
    assert privtab(*grant).code == 3
