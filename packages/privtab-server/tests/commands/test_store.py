"""`privtab store`, and `store:…` wherever a command takes a state."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from lake_policy import POLICY

from privtab.command._app import run

GRANT = "{grantee: user:eve, effect: allow, privilege: SELECT, entity: lake:l}"
OWNER = "owners:{entity: lake:l, owner: user:eve}"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a policy and a store, in which `root` owns the lake `l`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.yaml").write_text(POLICY, encoding="utf-8")
    assert run(["store", "create", "grants.db", "-p", "lake.yaml", "--admin", "root"]) == 0
    assert change("root", "create", "lake:l", "--yes") == 0
    capsys.readouterr()
    return tmp_path


def change(user: str, operation: str, entity: str, *more: str) -> int:
    sentences = [f"perform {operation} on {entity}"]
    options = iter(more)
    rest = []
    for option in options:
        if option in ("--add", "--remove"):
            sentences.append(f"{option[2:]} {next(options)}")
        else:
            rest.append(option)
    return run(["store", "change", "grants.db", *sentences, *rest, "--as", user, "-p", "lake.yaml"])


def log(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run(["store", "show", "grants.db", "--after", "0", "--format", "json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_dry_run_shows_who_gains_what_and_changes_nothing(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert change("root", "grant", "lake:l", "--add", OWNER, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == f"  + {OWNER}"
    assert "  user:eve gains `grant` (sensitive) on lake:l" in shown.splitlines()
    assert len(log(capsys)) == 2


def test_a_store_is_packed_as_any_state(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "pack", "store:grants.db", "-p", "lake.yaml"]) == 0
    assert "1 owner" in capsys.readouterr().out
    assert run(["compile", "lake.yaml", "--state", "store:grants.db"]) == 0


def test_changes_that_give_a_sensitive_operation_need_confirmation(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change("root", "grant", "lake:l", "--add", OWNER) == 1
    printed = capsys.readouterr()
    assert "`--yes` confirms it" in printed.err
    assert "user:eve gains `grant` (sensitive) on lake:l" in printed.out
    assert len(log(capsys)) == 2
    assert change("root", "grant", "lake:l", "--add", f"grants:{GRANT}") == 0, "reading is not sensitive"
    assert change("root", "grant", "lake:l", "--add", OWNER, "--yes") == 0
    assert "+ owners:{entity: lake:l, owner: user:eve}" in capsys.readouterr().out
    assert [entry["actor"] for entry in log(capsys)] == ["operator", "root", "root", "root"]


def test_a_denied_change_is_explained(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert change("eve", "grant", "lake:l", "--add", f"grants:{GRANT}") == 1
    assert "user:eve may not `grant` on lake:l; missing: MANAGE (lake:l), or owner (lake:l)" in capsys.readouterr().err
    assert len(log(capsys)) == 2


def test_rows_printed_by_show_can_be_removed(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = '"user:o\'neil \\"x\\": {#"'
    assert change("root", "grant", "lake:l", "--add", f"grants:{GRANT.replace('user:eve', hostile)}", "--yes") == 0
    capsys.readouterr()
    assert run(["store", "show", "grants.db"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("grants:")]
    assert change("root", "grant", "lake:l", "--remove", row) == 0
    (lake / "more.yaml").write_text(f"grants: [{GRANT}]\n", encoding="utf-8")
    assert change("root", "grant", "lake:l", "--add", "more.yaml", "--request-id", "r1") == 0
    assert change("root", "grant", "lake:l", "--add", "more.yaml", "--request-id", "r1") == 0
    assert "change 5: 1 row, done before" in capsys.readouterr().out
    assert change("root", "grant", "lake:l", "--remove", "more.yaml", "--expect", "4") == 1
    assert "change 5 by root concerns the same rows" in capsys.readouterr().err
    assert change("root", "grant", "lake:l", "--remove", row) == 1
    assert "does not hold these rows" in capsys.readouterr().err


WRONG_ROWS = [
    ("shelves:{a: b}", 2, "the tables are members"),
    ("grants:{grantee: user:eve}", 1, "column `effect` is missing"),
    ("grants:{grantee", 1, "not YAML"),
    ("missing.yaml", 3, "no such state"),
]


def test_wrong_rows_are_reported(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rows, code, says in WRONG_ROWS:
        assert change("root", "grant", "lake:l", "--add", rows) == code
        assert says in capsys.readouterr().err
    assert len(log(capsys)) == 2


def test_every_question_takes_a_store_at_any_moment(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert change("root", "grant", "lake:l", "--add", f"grants:{GRANT}") == 0
    at = log(capsys)[1]["at"]

    def readers(state: str) -> str:
        assert run(["who-can", "read", "table:l/s/t", "-p", "lake.yaml", "-s", state, "--format", "json"]) == 0
        return capsys.readouterr().out

    assert "eve" in readers("store:grants.db")
    assert "eve" in readers(f"store:{lake}/grants.db@3")
    assert "eve" not in readers("store:grants.db@2")
    assert "eve" not in readers(f"store:grants.db@{at}")
    assert run(["diff", "-s", "store:grants.db@2", "-s", "store:grants.db", "-p", "lake.yaml"]) == 0
    assert "user:eve" in capsys.readouterr().out
    assert run(["diff", "-s", "store:grants.db@2", "-s", "store:grants.db"]) == 0
    assert "1 row changed: 1 added" in capsys.readouterr().out
    assert run(["store", "show", "grants.db", "--at", "2", "--format", "json"]) == 0
    (lake / "then.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert run(["diff", "-s", "then.json", "-s", "store:grants.db@2", "-p", "lake.yaml"]) == 0
    assert "no row changed" in capsys.readouterr().out


NO_MOMENTS = [
    ("store:grants.db@9", 2, "has the changes 1 to 2, not 9"),
    ("store:grants.db@2020-01-01T00:00Z", 2, "did not exist at 2020-01-01T00:00:00Z"),
    ("store:grants.db@2020-01-01", 2, "is a date without a time"),
    ("store:none.db", 3, "`privtab store create` creates one"),
    ("store:none.db@yesterday", 3, "no such store: none.db@yesterday"),
    ("store:sqlite:///grants.db", 2, "write the path alone"),
    ("store:grants.db@2026-03-03T12:00", 2, "`2026-03-03T12:00` has no time zone; end it with `Z`"),
    *(
        (
            f"store:grants.db@{text}",
            2,
            f"`{text}` is not a moment: write store:grants.db@2026-03-03T12:00:00Z for a time, or store:grants.db@12 for",
        )
        for text in ("yesterday", "", "-1", "12:00Z", "2026-3-3", "2026/03/03")
    ),
    (
        "store:postgresql+psycopg://ann@nowhere.invalid/grants@yesterday",
        2,
        "`yesterday` is not a moment: write store:postgresql+psycopg://ann@nowhere.invalid/grants@2026-03-03T12:00:00Z",
    ),
    ("grants.db", 2, "grants.db is a database: a state in a store is written store:grants.db"),
    ("postgresql+psycopg://nowhere.invalid/g", 2, "written store:postgresql+psycopg://nowhere.invalid/g"),
]


def test_an_invalid_moment_of_a_store_is_reported(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for state, code, says in NO_MOMENTS:
        assert run(["who-can", "read", "table:l/s/t", "-p", "lake.yaml", "-s", state]) == code
        assert says in capsys.readouterr().err
    assert not (lake / "none.db").exists()


def test_names_of_stores_may_contain_an_at_sign(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "create", "team@lake.db", "-p", "lake.yaml", "--admin", "root"]) == 0
    for state in ("store:team@lake.db", "store:team@lake.db@1"):
        assert run(["who-can", "read", "table:l/s/t", "-p", "lake.yaml", "-s", state]) == 0
    capsys.readouterr()
    assert run(["store", "show", "team@lake.db@1"]) == 3
    assert "only a state is read at a moment, as in `--state store:team@lake.db@1`: give team@lake.db" in (
        capsys.readouterr().err
    )


def test_a_store_is_loaded_from_any_state_and_verified(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "create", "other.db", "-p", "lake.yaml", "--state", "store:grants.db", "--actor", "ann"]) == 0
    assert run(["store", "show", "other.db", "--verify"]) == 0
    assert "2 changes, the last with hash " in capsys.readouterr().out
    assert run(["diff", "-s", "store:grants.db", "-s", "store:other.db", "-p", "lake.yaml"]) == 0
    assert "no row changed" in capsys.readouterr().out
    with closing(sqlite3.connect("other.db")) as connection, connection:
        connection.execute("update journal set actor = 'bob' where actor = 'ann'")
    assert run(["store", "show", "other.db", "--verify"]) == 1
    assert "was altered" in capsys.readouterr().err
    assert run(["store", "create", "third.db", "-p", "lake.yaml"]) == 0


def test_wrong_first_rows_leave_no_store(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lake / "wrong.yaml").write_text("grants: [{grantee: user:ann, effect: allow, privilege: SELET, entity: lake:l}]\n")
    assert run(["store", "create", "other.db", "-p", "lake.yaml", "--state", "wrong.yaml"]) == 1
    assert "did you mean `SELECT`?" in capsys.readouterr().err
    assert not (lake / "other.db").exists()


def test_entities_are_deleted_as_far_as_the_policy_allows(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for schema in ("a", "b"):
        assert change("root", "create", f"schema:l/{schema}", "--yes") == 0
    row = "owners:{entity: schema:l/a, owner: user:eve}"
    assert change("root", "grant", "schema:l/a", "--add", row, "--yes") == 0
    capsys.readouterr()
    sentences = ["delete schema:l/a", "delete schema:l/b by drop"]
    delete = ["store", "change", "grants.db", *sentences, "--as", "eve", "-p", "lake.yaml"]
    assert run([*delete, "--dry-run"]) == 1
    proposed = capsys.readouterr()
    assert "schema:l/a: 2 rows" in proposed.out
    assert len(log(capsys)) == 5
    assert run(delete) == 1
    printed = capsys.readouterr()
    assert printed == proposed
    assert "user:eve may not `drop` on schema:l/b" in printed.err
    assert [entry["resource"] for entry in log(capsys)[5:]] == ["schema:l/a"]


def test_a_change_is_shown_and_taken_back_by_an_operation(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert change("root", "grant", "lake:l", "--add", OWNER, "--yes") == 0
    assert run(["store", "show", "grants.db", "--after", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"  + {OWNER}"

    def undo(number: int, user: str, *options: str) -> int:
        sentences = [f"undo {number}", "perform grant on lake:l"]
        return run(["store", "change", "grants.db", *sentences, "--as", user, *options, "-p", "lake.yaml"])

    assert undo(3, "root", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert f"  - {OWNER}" in shown
    assert "user:eve loses `grant` (sensitive) on lake:l" in shown
    assert len(log(capsys)) == 3
    assert undo(3, "ben") == 1
    assert "user:ben may not" in capsys.readouterr().err
    assert undo(3, "root") == 0
    assert f"  - {OWNER}" in capsys.readouterr().out
    assert undo(3, "root", "--dry-run") == 1, "the row is not there any more"
    assert "does not hold these rows" in capsys.readouterr().err
    assert undo(4, "root", "--yes") == 0
    assert f"  + {OWNER}" in capsys.readouterr().out
    assert undo(9, "root") == 2


def test_settings_name_the_first_administrators(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lake / "privtab.toml").write_text('[store]\nadministrators = ["ann", "ben"]\n', encoding="utf-8")
    assert run(["store", "create", "other.db", "-p", "lake.yaml", "--admin", "root"]) == 0
    assert f"service administrators by {lake / 'privtab.toml'}: ann, ben\n" in capsys.readouterr().out
    assert run(["store", "show", "other.db"]) == 0
    shown = {line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()}
    assert shown == {"root}", "ann}", "ben}"}
    lake.chmod(0o777)
    assert run(["store", "create", "third.db", "-p", "lake.yaml"]) == 2
    assert f"other users may write to {lake}" in capsys.readouterr().err
    lake.chmod(0o700)
    (lake / "privtab.toml").write_text("[store]\nadministrators = 3\nadmin = 4\n", encoding="utf-8")
    assert run(["store", "create", "third.db", "-p", "lake.yaml"]) == 2
    error = capsys.readouterr().err
    assert "`administrators` is not a list of users" in error
    assert "unknown setting `admin`" in error
    assert not (lake / "third.db").exists()


def test_a_change_gives_the_attributes_that_its_operation_compares(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = POLICY.replace("\ntables:", "\nattributes: {request: {mfa: bool}}\ntables:")
    guarded = text.replace(
        "grant: {requires: owner (lake) or MANAGE (lake)", "grant: {requires: owner (lake) and request.mfa", 1
    )
    assert "request.mfa" in guarded
    (lake / "lake.yaml").write_text(guarded, encoding="utf-8")
    assert change("root", "grant", "lake:l", "--add", f"grants:{GRANT}") == 1
    assert "request.mfa" in capsys.readouterr().err
    assert change("root", "grant", "lake:l", "--add", f"grants:{GRANT}", "--with", "request.mfa=true", "--yes") == 0
    assert change("root", "grant", "lake:l", "--with", "request.mafia=true") == 2
    assert "did you mean `mfa`?" in capsys.readouterr().err
    assert len(log(capsys)) == 3


DRIVE = """\
privtab: 1
system: drive
version: "1"
entities: {drive: {document: }}
types: {document: {flat: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, owner: {creator: true}}
tables:
  drive:
    create: {requires: service admin, becomes: owner}
  document:
    create: {requires: owner (drive), becomes: owner}
    read: READ (document) or owner (document)
"""


def test_an_entity_with_a_flat_id_is_created_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.yaml").write_text(DRIVE, encoding="utf-8")
    assert run(["store", "create", "grants.db", "-p", "lake.yaml", "--admin", "root"]) == 0
    assert change("root", "create", "drive:d", "--yes") == 0
    assert change("root", "create", "document:drive:d/", "--yes") == 2
    assert "give its flat id as `new`" in capsys.readouterr().err
    assert change("root", "create", "document:drive:d/ creating document:d7", "--yes") == 0
    assert "entities:{entity: document:d7, parent: drive:d}" in capsys.readouterr().out
    assert run(["explain", "root", "read", "document:d7", "-p", "lake.yaml", "-s", "store:grants.db"]) == 0
    assert "ALLOW" in capsys.readouterr().out


def test_the_journal_is_a_page_with_what_takes_each_change_back(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "user:<script>"
    assert change("root", "grant", "lake:l", "--add", f"grants:{GRANT.replace('user:eve', hostile)}", "--yes") == 0
    assert run(["store", "show", "grants.db", "--page", "journal.html"]) == 0
    page = (lake / "journal.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "user:&lt;script&gt;" in page
    newest, first = (page.index(f'id="{entry["number"]}"') for entry in (log(capsys)[-1], log(capsys)[0]))
    assert newest < first
    assert 'privtab store change grants.db "undo 2" --policy POLICY --as USER' in page
