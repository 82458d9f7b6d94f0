"""The sentences of `privtab store change`, and `store show`, on a store here and behind a real server."""

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
from authzen_server import Server
from checkout import ROOT
from hypothesis import assume, example, given
from hypothesis import strategies as st
from lake_policy import POLICY
from store_server import serve_store, token, write_tokens

from privtab.pipeline import load_program
from privtab_server.commands import _store_session
from privtab_server.commands._sentences import FORMS, read_sentences
from privtab_server.commands.store import change
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
    assert privtab("store", "change", "grants.db", "perform create on lake:l", *HERE, "--yes").code == 0
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
    ran = privtab("store", "change", "grants.db", "grant CREATE (lake:l) to ann", *HERE, "--dry-run")
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
    with pytest.raises(SystemExit):
        _store_session.confirm(unknown, dry_run=True)
    assert "who gains and loses what is not known: too many roles" in capsys.readouterr().err


def test_each_sentence_changes_its_rows(lake: Path, privtab: Privtab) -> None:
    def done(*sentences: str) -> None:
        ran = privtab("store", "change", "grants.db", *sentences, *HERE, "--yes")
        assert ran.code == 0, ran.err

    done("grant SELECT (lake:l) to role:reader until 2030-01-01T00:00Z", "deny USE (lake:l) to group:hr")
    done("assign reader to ben", "about role:l/reader")
    done("make group:hr owner of schema:l/s")
    assert {row["privilege"] for row in rows("grants")} == {"SELECT", "USE"}
    assert rows("assignments") == [{"principal": "user:ben", "role": "reader"}]
    shown = privtab("store", "show", "grants.db", "role:reader")
    assert shown.out.splitlines() == [
        "assignments:{principal: user:ben, role: reader}",
        'grants:{grantee: role:reader, effect: allow, privilege: SELECT, entity: lake:l, until: "2030-01-01T00:00:00Z"}',
    ]
    found = json.loads(privtab("store", "show", "grants.db", "schema:l/s", "--format", "json").out)
    assert found == [{"table": "owners", "row": {"entity": "schema:l/s", "owner": "group:hr"}}]
    done("make user:ann owner of schema:l/s")
    assert {row["owner"] for row in rows("owners") if row["entity"] == "schema:l/s"} == {"user:ann"}
    done("unassign reader from ben", "about role:l/reader")
    done("revoke SELECT (lake:l) from role:reader", "revoke deny USE (lake:l) from group:hr")
    assert rows("grants") == rows("assignments") == []
    done("grant SELECT + USE (lake:l) to ann")
    assert {row["privilege"] for row in rows("grants")} == {"SELECT", "USE"}
    done("undo 9")
    assert rows("grants") == []


def test_sentences_are_one_change(lake: Path, privtab: Privtab) -> None:
    sentences = ("grant SELECT (lake:l) to ann", "revoke USE (lake:l) from ben")
    ran = privtab("store", "change", "grants.db", *sentences, *HERE, "--yes")
    assert (ran.code, "does not hold USE on lake:l for user:ben" in ran.err) == (1, True)
    assert rows("grants") == []
    ran = privtab("store", "change", "grants.db", sentences[0], "grant SELET (lake:l) to ben", *HERE, "--yes")
    assert (ran.code, "did you mean `SELECT`?" in ran.err) == (1, True)
    assert rows("grants") == []


WRONG = [
    ("grand SELECT (lake:l) to ann", 1, "did you mean `grant`?"),
    ("", 1, "a sentence begins with grant, deny"),
    ("grant SELECT lake:l to ann", 14, "`(` is expected: write `grant PRIVILEGE (ENTITY)"),
    ("grant SELECT (lake:l to ann", 22, "`)` is expected"),
    ("grant SELECT + (lake:l) to ann", 16, "PRIVILEGE is expected"),
    ("grant SELECT (lake) to ann", 15, "`lake` is not"),
    ("grant SELECT (lake:l) to", 25, "PRINCIPAL is expected"),
    ("grant SELECT (lake:l) to role:", 26, "`role:` has no name"),
    ("grant SELECT (lake:l) to ann until 2030-01-01", 36, "is a date without a time"),
    ("grant SELECT (lake:l) to ann until 2030-01-01T00:00Z until 2031-01-01T00:00Z", 54, "`until` is not expected"),
    ("grant SELECT (lake:l) to ann for lake:l", 30, "`for` is not expected"),
    ('grant SELECT (lake:l) "to" ann', 23, "`to` is expected"),
    ('grant SELECT (lake:l) to "ann', 26, "the quotation mark is not closed"),
    ("undo one", 6, "`one` is not the number of a change"),
    ("add", 4, "ROWS is expected"),
    ("make ann owner", 15, "`of` is expected"),
    ("assign 'reader' to ann", 8, "stands in double quotes"),
    ("assign '' to ann", 8, "stands in double quotes"),
    ("deny SELECT (lake:l) to ann;", 25, "`ann;`: a name with other quotation marks, or with `,` or `;` at its end"),
    ("deny SELECT (lake:l) to ann, ben", 25, "`ann,`"),
    ("grant SELECT (lake:l) to \u201cann\u201d", 26, "stands in double quotes"),
    ("grant SELECT, USE (lake:l) to ann", 7, "several privileges have `+` between them"),
]


def test_every_wrong_sentence_is_named_with_its_column(lake: Path, privtab: Privtab) -> None:
    ran = privtab("store", "change", "grants.db", "grant SELECT (lake:l) to ann", *(text for text, *_ in WRONG), *HERE)
    assert ran.code == 2
    said = ran.err.removeprefix("privtab: ").splitlines()
    assert len(said) == len(WRONG)
    for number, (line, (_, column, message)) in enumerate(zip(said, WRONG, strict=True), start=2):
        assert line.startswith(f"sentence {number}, column {column}: ")
        assert message in line
    assert rows("grants") == []


NAMES = st.text(st.sampled_from("abz/:.-+#'é()[] ,"), min_size=1, max_size=8).map(str.strip).filter(bool)


@example("(", ")", ["(", ")", "+"])
@given(NAMES, NAMES, st.lists(NAMES, min_size=1, max_size=3))
def test_a_quoted_name_is_itself(user: str, path: str, privileges: list[str]) -> None:
    assume(not user.startswith(":") and not path.startswith("/") and not path.endswith("/") and "//" not in path)
    quoted = " + ".join(f'"{name}"' for name in privileges)
    (read,) = read_sentences([f'grant {quoted} ("lake:{path}") to "group:{user}"'])
    assert read.given == {"PRIVILEGE": tuple(privileges), "ENTITY": f"lake:{path}", "PRINCIPAL": f"group:{user}"}


def test_help_and_the_reference_show_every_form() -> None:
    shown = " ".join((change.__doc__ or "").split())
    page = (ROOT / "docs" / "reference" / "store.md").read_text(encoding="utf-8")
    assert [form for form in FORMS if f"`{form}`" not in shown] == []
    assert [form for form in FORMS if f"`{form}`" not in page] == []


def test_sentences_that_do_not_go_together_are_refused(lake: Path, privtab: Privtab) -> None:
    def said(*arguments: str) -> str:
        ran = privtab("store", "change", "grants.db", *arguments, *HERE)
        assert ran.code == 2
        return str(ran.err)

    assert "are a change of their own" in said("delete schema:l/a", "grant SELECT (lake:l) to ann")
    assert "one `perform` or one `about`" in said("about lake:l", "perform create on lake:k")
    assert "give rows to add or to remove" in said("about lake:l")
    assert "make owners of lake:l" in said("make ann owner of lake:l", "make ben owner of lake:l")
    assert "no operation that is known to delete a `lake`" in said("delete lake:l")


def test_widening_a_sensitive_operation_needs_confirmation(
    lake: Path, privtab: Privtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("store", "change", "grants.db", "grant MANAGE (lake:l) to ann", *HERE)
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
    def changed(sentence: str, *options: str) -> Any:
        return privtab("store", "change", "grants.db", sentence, *options)

    grant = "grant SELECT (lake:l) to ann"
    assert "needs `--policy POLICY` and `--as USER`" in changed(grant).err
    ran = changed(grant, "-p", "lake.yaml", "--as", "eve")
    assert (ran.code, "user:eve may not `grant` on lake:l; missing: " in ran.err) == (1, True)
    ran = changed("revoke SELECT (lake:l) from ann", *HERE)
    assert (ran.code, "does not hold SELECT on lake:l for user:ann" in ran.err) == (1, True)
    assert changed("make ann owner of lake:l", "-p", "lake.yaml", "--as", "root").code == 2
    assert changed(grant, *HERE, "--yes", "--request-id", "r1").code == 0
    again = changed(grant, *HERE, "--yes", "--request-id", "r1")
    assert (again.code, "done before" in again.out) == (0, True)
    assert changed("grant USE (lake:l) to ann", *HERE, "--expect", "2").code == 1


@pytest.mark.slow
def test_a_server_is_changed_and_shown_in_the_same_way(
    lake: Path, server: Server, privtab: Privtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVTAB_TOKEN", token("root"))

    def changed(sentence: str, *options: str) -> Any:
        return privtab("store", "change", server.url, sentence, *options)

    grant = "grant CREATE (lake:l) to eve"
    dry = changed(grant, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert dry.out == privtab("store", "change", "grants.db", grant, *HERE, "--dry-run").out
    assert changed(grant, "--request-id", "r1").code == 0
    assert "done before" in changed(grant, "--request-id", "r1").out
    assert changed("make eve owner of schema:l/s").code == 1, "owners may drop it"
    assert changed("make eve owner of schema:l/s", "--yes").code == 0
    assert privtab("store", "show", server.url, "schema:l/s").out == "owners:{entity: schema:l/s, owner: user:eve}\n"
    assert changed("assign writer to eve").code == 0
    assert "role: writer" in changed("unassign writer from eve").out
    elsewhere = privtab("store", "show", f"{server.url}/elsewhere")
    assert (elsewhere.code, "is it the URL of `privtab serve store:STORE`?" in elsewhere.err) == (3, True)
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = privtab("store", "show", f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert (nobody.code, nobody.err.endswith("/store/v1 cannot be reached: connection refused\n")) == (
        3,
        True,
    )
    assert privtab("store", "change", server.url, "assign reader to eve", "about role:l/reader").code == 0
    (lake / "eve.token").write_text(token("eve"), encoding="utf-8")
    eve = ("--token-file", "eve.token")
    assert privtab("store", "show", server.url, "lake:l", *eve).out.startswith("grants:{grantee: user:eve,")
    ran = changed("grant SELECT (lake:l) to eve", *eve)
    assert (ran.code, "user:eve may not `grant` on lake:l" in ran.err) == (1, True)
    ran = changed("grant SELET (lake:l) to eve")
    assert (ran.code, "unknown privilege" in ran.err) == (1, True)
    assert changed("revoke CREATE (lake:l) from eve").code == 0
    assert rows("grants") == []
    assert changed(grant, "--expect", "2").code == 1
    assert changed("perform create on schema:l/new", "--yes").code == 0
    assert {"entity": "schema:l/new", "owner": "user:root"} in rows("owners")
    assert "user:eve may not" in changed("delete schema:l/new", *eve).err
    dry = changed("delete schema:l/new", "--dry-run")
    assert (dry.code, dry.out.splitlines()[0]) == (0, "schema:l/new: 1 row")
    assert changed("delete schema:l/new").out == dry.out
    assert {"entity": "schema:l/new", "owner": "user:root"} not in rows("owners")
    assert "leave out `by OPERATION`" in changed("delete schema:l/s by drop").err
    assert "give the database of the store" in changed("undo 3").err
    assert "the user's token alone" in changed("perform create on schema:l/x", "--caller", "group:hr").err
    assert changed(grant, "--as", "eve").code == 2
    monkeypatch.setenv("PRIVTAB_TOKEN", token("nobody"))
    assert "not known" in changed(grant).err
    assert server.stop() == 0
    assert changed(grant).code == 3
