"""A small service behind a driver in YAML: mistakes in its code are found, and calls that lose a part of a row are refused."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from privtab.base import Entity
from privtab.command._app import run as command
from privtab.pipeline import load_program
from privtab.state import Assignment, Grant, State
from privtab_testing.conform import World
from privtab_testing.conform.document import load
from privtab_testing.conform.drivers import HttpDriver

POLICY = """\
privtab: 1
system: desk
version: "1"
entities: {project: {doc:, sheet:}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: none}
tables:
  doc:
    open: READ (doc)
    edit: READ + WRITE (doc)
  sheet:
    open: READ (sheet)
    edit: WRITE (sheet)
"""
DRIVER = """\
conform: 1
title: A desk
http:
  headers: {Authorization: Bearer admin}
  as: {Authorization: "Basic {user:basic}"}
  refused: ["403"]
  exact_names: true
  users: {make: {put: "/users/{user}"}, drop: {delete: "/users/{user}"}}
  roles: {make: {put: "/users/{role}"}, drop: {delete: "/users/{role}"}}
  entities:
    project: {make: {put: "/project/{project}"}, drop: {delete: "/project/{project}"}}
    doc: {make: {put: "/doc/{project}/{doc}"}, drop: {delete: "/doc/{project}/{doc}"}}
    sheet: {make: {put: "/sheet/{project}/{sheet}"}, drop: {delete: "/sheet/{project}/{sheet}"}}
  rows:
    assignments: {put: "/roles/{principal}/{role}"}
    grants:
      project: {put: "/grants/{kind}/{grantee}/{effect}/{privilege}/project/{project}"}
      doc: {put: "/grants/{kind}/{grantee}/{effect}/{privilege}/doc/{project}/{doc}"}
      sheet: {put: "/grants/{kind}/{grantee}/{effect}/{privilege}/sheet/{project}/{sheet}"}
  operations:
    doc: {open: {get: "/doc/{project}/{doc}/READ"}, edit: {get: "/doc/{project}/{doc}/READ+WRITE"}}
    sheet: {open: {get: "/sheet/{project}/{sheet}/READ"}, edit: {get: "/sheet/{project}/{sheet}/WRITE"}}
"""


class Row(NamedTuple):
    kind: str
    grantee: str
    effect: str
    privilege: str
    path: str


class Desk:
    """The service, with some mistakes: `roles` (denials to roles count for nothing), `beginning` (of names), `cache` (without the type)."""

    def __init__(self, mistakes: str) -> None:
        self.mistakes = mistakes.split()
        self.rows: list[Row] = []
        self.roles: set[tuple[str, str]] = set()
        self.answers: dict[tuple[str, ...], bool] = {}

    def put(self, table: str, *words: str) -> None:
        if table == "grants":
            self.rows.append(Row._make((*words[:4], "/".join(words[4:]))))
        elif table == "roles":
            self.roles.add((words[0], words[1]))

    def may(self, user: str, privilege: str, *path: str) -> bool:
        key = (user, privilege, *(path[1:] if "cache" in self.mistakes else path))
        if key not in self.answers:
            who = {("user", user), *(("role", role) for holder, role in self.roles if holder == user)}
            held = [row for row in self.rows if (row.kind, row.grantee) in who and row.privilege == privilege]
            held = [row for row in held if self.reaches(row.path, "/".join(path), f"project/{path[1]}")]
            denied = [row for row in held if row.effect == "deny"]
            denied = [row for row in denied if row.kind == "user" or "roles" not in self.mistakes]
            self.answers[key] = not denied and any(row.effect == "allow" for row in held)
        return self.answers[key]

    def reaches(self, granted: str, path: str, project: str) -> bool:
        return granted in (path, project) or ("beginning" in self.mistakes and path.startswith(granted))


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    desk = Desk(request.param)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # one packet

        def do(self) -> None:
            words, allowed = self.path.strip("/").split("/"), True
            kind, _, said = self.headers["Authorization"].partition(" ")
            if kind == "Basic":
                *path, privileges = words
                user = b64decode(said).decode().partition(":")[0].replace(" ", "%20")
                allowed = all(desk.may(user, privilege, *path) for privilege in privileges.split("+"))
            elif self.command == "PUT":
                desk.put(*words)
            self.send_response(200 if allowed else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_DELETE = do  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "desk.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "driver.yaml").write_text(DRIVER, encoding="utf-8")
    return ["conform", str(tmp_path / "desk.yaml"), "--driver", str(tmp_path / "driver.yaml")]


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("", ""),
        ("roles", "1 wider"),
        ("beginning", "4 wider"),
        ("cache", "1 wider"),
        ("roles beginning cache", "4 wider"),
    ],
    indirect=["url"],
)
def test_each_mistake_is_found(url: str, wrong: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command([*files, "--url", url]) == (1 if wrong else 0)
    shown = capsys.readouterr()
    assert (f"{wrong}; 13 of 13 cells agree" if wrong else "4 rows: 4 agree; 13 of 13 cells agree") in shown.out
    assert ("answered otherwise" in shown.out) == bool(wrong)
    assert "type-forgotten" not in shown.out
    told = [line for line in (shown.err + shown.out).splitlines() if line.startswith("not seen:")]
    assert len(told) == len({*told}) > 0


PLACE = Entity.parse("project:p")
DENIAL = State(grants=(Grant(grantee="user:ann", effect="deny", privilege="READ", entity=PLACE),))
SCOPED = State(assignments=(Assignment(principal="user:ann", role="r", scope=PLACE),))


@pytest.mark.parametrize(
    ("state", "lost", "why"),
    [
        (DENIAL, "{effect}", "a denial on a `project` would be a grant: its calls need `{effect}` or `{EFFECT}`"),
        (SCOPED, "", "a role within a `project` would be held everywhere: its calls need `{project}`"),
    ],
    ids=["effect", "scope"],
)
def test_calls_that_lose_a_part_of_a_row_are_refused(state: State, lost: str, why: str, files: list[str]) -> None:
    _, policy, _, path = files
    world = World(state=state, entities=(PLACE,), users=("ann",), groups=(), roles=("r",))
    Path(path).write_text(DRIVER.replace(lost, "allow") if lost else DRIVER, encoding="utf-8")
    program = load_program(policy)
    driver = HttpDriver(load(path, program), program, "http://127.0.0.1:1", token=None, timeout=1.0)
    assert driver.lacks(world) == (f"{path}: {why}",)
