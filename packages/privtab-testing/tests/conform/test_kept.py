"""Asking a system that gives ids and tokens of its own: what is kept, undone, found again, resumed, and refused before it begins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from privtab.base import Entity, PolicyInvalid
from privtab.command._app import run as command
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import Grant, State
from privtab_testing.conform import QuestionPlan, Verdict, World
from privtab_testing.conform.document import load
from privtab_testing.conform.documented import SystemNames
from privtab_testing.conform.drivers import HttpDriver, SqlDriver
from privtab_testing.conform.plan import plan
from privtab_testing.conform.report import Report, report
from privtab_testing.conform.run import AnswerFile, Settings, run

POLICY = """\
privtab: 1
system: archive
version: "1"
entities: {box: {sheet:}}
privileges: [READ, WRITE]
semantics: {inheritance: down}
tables:
  box:
    add: WRITE (box)
  sheet:
    read: READ (sheet)
    delete: WRITE (sheet)
"""
DRIVER = """\
conform: 1
title: An archive that gives ids
http:
  headers: {X-Secret: "{token}"}
  as: {X-Pass: "{pass}"}
  users:
    make: {post: "/users", body: '{"name": "{user}"}', keep: {user_id: id, pass: secret}}
    find: {get: "/users?{user}", keep: {user_id: id, pass: secret}}
    drop: {delete: "/users/{user_id}"}
  entities:
    box:
      make: {post: "/boxes", body: '{"name": "{box}"}', keep: {box_id: id}}
      find: {get: "/boxes?{box}", keep: {box_id: id}}
      drop: {delete: "/boxes", body: '{"id": "{box_id}"}'}
    sheet:
      make: {post: "/boxes/{box_id}/sheets", body: '{"name": "{sheet}"}', keep: {sheet_id: "sheets[0].id"}}
  rows:
    grants:
      box: {post: "/grants", body: '{"who": "{user_id}", "what": "{privilege}", "on": "{box_id}"}'}
      sheet: {post: "/grants", body: '{"who": "{user_id}", "what": "{privilege}", "on": "{sheet_id}"}'}
  operations:
    box:
      add: {post: "/boxes/{box_id}/new", keep: {new_id: id}, restore: {delete: "/sheets/{new_id}"}}
    sheet:
      read: {get: "/sheets/{sheet_id}"}
      delete: {delete: "/sheets/{sheet_id}", restore: {post: "/sheets/{sheet_id}/restore"}}
"""
SECRET = "the-secret-of-the-administrator"  # noqa: S105


class Archive:
    """A system of its own. `fails_at`: the call of the administrator that is answered with 500 and nothing after it is."""

    def __init__(self) -> None:
        self.users: dict[str, str] = {}
        self.boxes: dict[str, str] = {}
        self.sheets: dict[str, tuple[str, str]] = {}
        self.deleted: set[str] = set()
        self.grants: set[tuple[str, str, str]] = set()
        self.calls = 0
        self.fails_at: int | None = None
        self.number = 0

    def new(self) -> str:
        self.number += 1
        return str(self.number)

    def may(self, user: str, what: str, on: str) -> bool:
        places = {on, self.sheets[on][0] if on in self.sheets else on}
        return any((user, what, place) in self.grants for place in places)

    def answer(self, method: str, path: str, user: str | None, body: dict[str, str]) -> tuple[int, object]:
        if user is None:
            self.calls += 1
            return (500, {}) if self.calls == self.fails_at else self.changed(method, path, body)
        sheet = path.split("/")[2]
        if path.endswith("/new"):
            if not self.may(user, "WRITE", sheet):
                return 403, {}
            self.sheets[made := self.new()] = (sheet, "")
            return 201, {"id": int(made)}
        if sheet not in self.sheets or sheet in self.deleted:
            return 500, {}
        if not self.may(user, "READ" if method == "GET" else "WRITE", sheet):
            return 403, {}
        if method == "DELETE":
            self.deleted.add(sheet)
        return 200, {}

    def changed(self, method: str, path: str, body: dict[str, str]) -> tuple[int, object]:
        kind, _, rest = path[1:].partition("/")
        kind, _, asked = kind.partition("?")
        if kind == "grants":
            self.grants.add((body["who"], body["what"], body["on"]))
            return 200, {}
        known = {"users": self.users, "boxes": self.boxes}.get(kind)
        if method == "DELETE" and not rest:
            rest = body["id"]
        if known is not None and not rest:
            name = asked or body["name"]
            found = next((id_ for id_, one in known.items() if one == name), None)
            if method == "GET":
                return (404, {}) if found is None else (200, {"id": found, "secret": f"pass-{found}"})
            if found is not None:
                return 409, {}
            known[made := self.new()] = name
            return 201, {"id": made, "secret": f"pass-{made}"}
        if rest.endswith("/sheets"):
            self.sheets[made := self.new()] = (rest.partition("/")[0], body["name"])
            return 201, {"sheets": [{"id": int(made)}]}
        if rest.endswith("/restore"):
            self.deleted.remove(rest.partition("/")[0])
            return 200, {}
        assert method == "DELETE"
        if kind == "sheets":
            return (200, {}) if self.sheets.pop(rest, None) else (404, {})
        assert known is not None
        if known.pop(rest, None) is None:
            return 404, {}
        self.sheets = {id_: sheet for id_, sheet in self.sheets.items() if sheet[0] != rest}
        return 200, {}

    @property
    def is_empty(self) -> bool:
        return not (self.users or self.boxes or self.sheets)


@pytest.fixture
def archive() -> Iterator[tuple[Archive, str]]:
    system = Archive()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def do(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            assert not body or self.headers["Content-Type"] == "application/json"
            user = None
            if self.headers.get("X-Secret") != SECRET:
                user = (self.headers["X-Pass"] or "").removeprefix("pass-")
                assert user in system.users
            status, content = system.answer(self.command, self.path, user, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    yield system, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "archive.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "driver.yaml").write_text(DRIVER, encoding="utf-8")
    return load_program(tmp_path / "archive.yaml")


def opened(program: Program, url: str, folder: Path) -> HttpDriver:
    return HttpDriver(load(folder / "driver.yaml", program), program, url, token=SECRET, timeout=10.0)


def planned_for(program: Program, driver: HttpDriver) -> QuestionPlan:
    return plan(
        program,
        changes=driver.changes,
        abilities=driver.abilities,
        through_roles=driver.through_roles,
        asks=driver.asks,
    )


def reported(planned: QuestionPlan, driver: HttpDriver, answers: AnswerFile | None = None) -> Report:
    outcome = run(planned, planned.questions, driver, Settings(jobs=3), answers=answers)
    return report(planned, outcome, driver, (), date(2030, 1, 1))


def test_ids_are_kept_and_what_is_allowed_is_undone(
    archive: tuple[Archive, str], program: Program, tmp_path: Path
) -> None:
    system, url = archive
    driver = opened(program, url, tmp_path)
    planned = planned_for(program, driver)
    result = reported(planned, driver)
    assert result.outcome.failure is None
    assert {row.verdict for row in result.rows} == {Verdict.AGREES}
    assert any(question.expected for question in planned.questions if question.row == "sheet/delete")
    assert result.outcome.left == ()
    assert system.deleted == set(), "each was put back at once, so that all questions share the sheets"
    assert system.is_empty
    sheets = {str(q.request.resource) for q in planned.questions if q.row == "sheet/delete" and not q.purpose}
    assert len(sheets) == 1


def test_preparing_is_resumed_and_nothing_is_made_twice(
    archive: tuple[Archive, str], program: Program, tmp_path: Path
) -> None:
    system, url = archive
    driver = opened(program, url, tmp_path)
    planned = planned_for(program, driver)
    needed = driver.calls(planned.world)
    resumed = 0
    # Each attempt gets further, up to one that makes everything.
    for system.fails_at in (3, needed // 2, needed - 1):
        system.calls = resumed
        answers = AnswerFile(tmp_path / "answers.jsonl", planned)
        resumed = len([what for what in answers.made if what != "password"])
        system.calls = resumed
        outcome = reported(planned, opened(program, url, tmp_path), answers).outcome
        answers.close()
        assert outcome.failure is not None
        assert (outcome.kept, outcome.left) == (True, ())
        assert system.users
    system.fails_at = None
    answers = AnswerFile(tmp_path / "answers.jsonl", planned)
    assert len(answers.made) >= needed - 3
    assert (tmp_path / "answers.jsonl").stat().st_mode & 0o077 == 0, "it has tokens"
    result = reported(planned, opened(program, url, tmp_path), answers)
    answers.close()
    assert result.outcome.failure is None
    assert {row.verdict for row in result.rows} == {Verdict.AGREES}
    assert system.is_empty
    assert AnswerFile(tmp_path / "answers.jsonl", planned).made == {}, "all of it is removed"


def test_remains_of_an_earlier_test_are_found_and_removed(
    archive: tuple[Archive, str], program: Program, tmp_path: Path
) -> None:
    system, url = archive
    driver = opened(program, url, tmp_path)
    planned = planned_for(program, driver)
    driver.prepare(planned.world)
    assert not system.is_empty
    assert opened(program, url, tmp_path).clean_world(planned.world) == ()
    assert system.is_empty


def options(folder: Path, url: str) -> list[str]:
    (folder / "secret").write_text(SECRET, encoding="utf-8")
    (folder / "secret").chmod(0o600)
    driver = ["--driver", str(folder / "driver.yaml"), "--url", url, "--token-file", str(folder / "secret")]
    return ["conform", str(folder / "archive.yaml"), *driver]


def test_what_a_document_does_not_say_is_refused_before_anything_is_made(
    archive: tuple[Archive, str], program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del program
    system, url = archive
    assert command(options(tmp_path, url)) == 0
    text = DRIVER.replace("/boxes/{box_id}/sheets", "/boxes/{box_no}/sheets").replace(
        "/sheets/{new_id}", "/sheets/{new}"
    )
    lines = [line for line in text.splitlines() if not line.startswith("      box: {post")]
    (tmp_path / "driver.yaml").write_text("\n".join(lines), encoding="utf-8")
    made = system.number
    capsys.readouterr()
    assert command(options(tmp_path, url)) == 2
    told = capsys.readouterr().err
    assert "nothing was made" in told
    assert "no value for `{box_no}`" in told
    assert "no value for `{new}`" in told
    assert "does not say how a row of `grants` on a `box` is made" in told
    assert system.number == made


def test_a_class_says_what_it_cannot_make(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del program
    (tmp_path / "my_archive.py").write_text(
        """\
class Driver:
    def lacks(self, world):
        return [f"no {entity}" for entity in world.entities if entity.type == "sheet"][:1]
    def prepare(self, world): raise AssertionError
    def ask(self, request): raise AssertionError
    def clean(self): return []
""",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    assert command(["conform", "archive.yaml", "--driver", "my_archive:Driver"]) == 2
    assert "no sheet:privtab_conform_" in capsys.readouterr().err


LEVELS = """\
privtab: 1
system: archive
version: "1"
entities: {box:}
privileges: {READ: , WRITE: {implies: [READ]}, OTHER: }
tables:
  box:
    open: READ (box)
    add: WRITE (box)
    other: OTHER (box)
"""


def test_of_several_levels_the_one_that_implies_the_others_is_made(tmp_path: Path) -> None:
    (tmp_path / "archive.yaml").write_text(LEVELS, encoding="utf-8")
    calls = "users: {make: u}, entities: {box: {make: b}}, rows: {grants: {box: 'grant {privilege} to {grantee}'}}"
    program = load_program(tmp_path / "archive.yaml")
    box = Entity.parse("box:b")

    def made(levels: str, *names: str) -> tuple[list[str], tuple[str, ...]]:
        text = (
            f"conform: 1\ntitle: Archive\nsql: {{{calls}, levels: {levels}, operations: {{box: {{open: select}}}}}}\n"
        )
        (tmp_path / "driver.yaml").write_text(text, encoding="utf-8")
        document = load(tmp_path / "driver.yaml", program)
        grants = [Grant(grantee="user:ann", effect="allow", privilege=name, entity=box) for name in names]
        world = World(state=State(grants=grants), entities=(box,), users=("ann",), groups=(), roles=())
        driver = SqlDriver(document, program, "sqlite://")
        lacking = driver.lacks(world)
        steps = [] if lacking else [step() for step in SystemNames(program, document, str).creating(world)]
        return [step.calls[0].text.plain(step.values) for step in steps[2:]], tuple(lacking)

    assert made("true", "READ", "WRITE") == (["grant WRITE to ann"], ())
    assert made("false", "READ", "WRITE") == (["grant READ to ann", "grant WRITE to ann"], ())
    assert made("true", "WRITE", "OTHER") == ([], ("user:ann cannot have more than one level on box:b",))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("keep: {new_id: id}", "keep: {box: id}", "`box` cannot be the name of what is kept"),
        ("keep: {new_id: id}", "keep: {new_id: 'id['}", "`id[` is no JMESPath expression"),
        ("restore: {post:", "changes: true, restore: {post:", "`changes` is for what `restore` does not undo"),
    ],
)
def test_mistakes_are_reported(program: Program, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in DRIVER
    (tmp_path / "driver.yaml").write_text(DRIVER.replace(old, new), encoding="utf-8")
    with pytest.raises(PolicyInvalid) as caught:
        load(tmp_path / "driver.yaml", program)
    assert [finding.message for finding in caught.value.diagnostics if message in finding.message]


@pytest.mark.parametrize("kind", ["sql", "http"])
@pytest.mark.parametrize(
    "policy", ["cdap/final", "postgresql/15", "gravitino/1.1.0", "streams/teracloud", "polaris/1.7"]
)
def test_a_skeleton_is_a_document_that_says_how_each_thing_is_made(policy: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "driver.yaml"
    assert command(["conform", policy, "--skeleton", kind, "-o", str(path)]) == 0
    program = load_program(policy)
    document = load(path, program)
    assert set(document.operations) == set(program.rules)
    entities = [name for name, type_ in program.entities.items() if type_.principal is None]
    assert list(document.entities) == entities
    granted = {type_ for privilege in program.privileges.values() for type_ in privilege.on}
    assert {type_ for table, type_ in document.rows if table == "grants"} == granted
    texts = [call.text.text for calls in document.rows.values() for call in calls]
    assert all("FILL IN" in text for text in texts)
    if policy in ("gravitino/1.1.0", "cdap/final"):
        assert (("service_admins", "") in document.rows) == (policy == "gravitino/1.1.0")


def test_a_driver_is_needed_without_a_skeleton(program: Program, tmp_path: Path) -> None:
    del program
    assert command(["conform", str(tmp_path / "archive.yaml")]) == 2
