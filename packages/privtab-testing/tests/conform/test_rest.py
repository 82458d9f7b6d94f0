"""Asking an HTTP API through a driver document, over real sockets."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from failing_servers import reply
from proxies import proxy

from privtab.base import Entity, Request
from privtab.pipeline import load_program
from privtab.state import State
from privtab_testing.conform import QuestionPlan, SystemAnswer, Verdict, World
from privtab_testing.conform.document import AnswerPatterns, load
from privtab_testing.conform.drivers import HttpDriver, open_driver, read_answer
from privtab_testing.conform.plan import plan
from privtab_testing.conform.report import Report, report
from privtab_testing.conform.run import Settings, run

POLICY = """\
privtab: 1
system: library
version: "1"
entities: {folder: {page:}}
privileges: [READ, WRITE, MAKE]
semantics: {inheritance: down}
tables:
  page:
    create: MAKE (folder)
    list: {requires: anyone, each: READ (page)}
    read: READ (page)
    write: WRITE (page) and READ (page)
    delete: WRITE (folder)
"""
DRIVER = """\
conform: 1
title: A library over HTTP
http:
  headers: {X-Admin: "yes"}
  as: {Authorization: "Basic {user:basic}"}
  users: {make: {put: "/users/{user}"}, drop: {delete: "/users/{user}"}}
  roles: {make: {put: "/users/{role}"}, drop: {delete: "/users/{role}"}}
  entities:
    folder: {make: {put: "/folders/{folder}"}, drop: {delete: "/folders/{folder}"}}
    page: {make: {put: "/folders/{folder}/{page}"}}
  rows:
    assignments: {post: "/roles", body: '{"user": "{principal}", "role": "{role}"}'}
    grants:
      folder: {post: "/grants", body: '{"who": "{grantee}", "what": "{privilege}", "on": "/folders/{folder}"}'}
      page: {post: "/grants", body: '{"who": "{grantee}", "what": "{privilege}", "on": "/folders/{folder}/{page}"}'}
  operations:
    page:
      create: {put: "/folders/{folder}/{page}"}
      list: {get: "/folders/{folder}", shows: "pages[].name"}
      read: {get: "/folders/{folder}/{page}"}
      write: {post: "/folders/{folder}/{page}", allowed: ["409"]}
      delete: {delete: "/folders/{folder}/{page}"}
"""


class Library:
    """A system of its own: what it holds, and whether it asks for WRITE when a page is deleted."""

    def __init__(self, *, lax: bool) -> None:
        self.lax = lax
        self.paths: set[str] = set()
        self.users: set[str] = set()
        self.roles: set[tuple[str, str]] = set()
        self.grants: set[tuple[str, str, str]] = set()

    def may(self, user: str, what: str, path: str) -> bool:
        who = {user, *(role for holder, role in self.roles if holder == user)}
        return any((name, what, at) in self.grants for name in who for at in (path, path.rpartition("/")[0]))

    def answer(self, method: str, path: str, user: str | None, body: dict[str, str]) -> tuple[int, object]:
        if user is None:
            return self.changed(method, path, body)
        folder = path.rpartition("/")[0]
        if method == "PUT":
            return (201, {}) if self.may(user, "MAKE", folder) else (403, {})
        if path.count("/") == 2:
            shown = [
                at.rpartition("/")[2] for at in self.paths if at.startswith(f"{path}/") and self.may(user, "READ", at)
            ]
            return 200, {"pages": [{"name": name} for name in shown]}
        if path not in self.paths:
            return 500, {}
        if method == "DELETE":
            if not (self.lax or self.may(user, "WRITE", folder)):
                return 403, {}
            self.paths.discard(path)
            return 200, {}
        if not self.may(user, "READ", path):
            return 404, {}
        return (409 if self.may(user, "WRITE", path) else 403, {}) if method == "POST" else (200, {})

    def changed(self, method: str, path: str, body: dict[str, str]) -> tuple[int, object]:
        if method == "DELETE":
            self.paths = {at for at in self.paths if not f"{at}/".startswith(f"{path}/")}
            self.users.discard(path)
        elif path == "/grants":
            self.grants.add((body["who"], body["what"], body["on"]))
        elif path == "/roles":
            self.roles.add((body["user"], body["role"]))
        else:
            (self.users if path.startswith("/users/") else self.paths).add(path)
        return 200, {}


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Iterator[tuple[Library, str]]:
    system = Library(lax=getattr(request, "param", False))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # headers and body in one packet

        def do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            token = re.fullmatch("Basic (.*)", self.headers.get("Authorization", ""))
            assert (token is None) == (self.headers.get("X-Admin") == "yes")
            user = None if token is None else b64decode(token[1]).decode().partition(":")[0]
            status, content = system.answer(self.command, self.path, user, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield system, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def plan_and_report(url: str, folder: Path) -> tuple[QuestionPlan, Report]:
    (folder / "library.yaml").write_text(POLICY, encoding="utf-8")
    (folder / "driver.yaml").write_text(DRIVER, encoding="utf-8")
    program = load_program(folder / "library.yaml")
    driver = HttpDriver(load(folder / "driver.yaml", program), program, url, token=None, timeout=10.0)
    planned = plan(program, changes=driver.changes, abilities=driver.abilities)
    outcome = run(planned, planned.questions, driver, Settings(jobs=4))
    return planned, report(planned, outcome, driver, (), date(2030, 1, 1))


def test_a_system_that_obeys_agrees_and_is_left_empty(library: tuple[Library, str], tmp_path: Path) -> None:
    system, url = library
    planned, result = plan_and_report(url, tmp_path)
    assert result.outcome.failure is None
    assert {row.name: row.verdict for row in result.rows} == {row.name: Verdict.AGREES for row in result.rows}
    assert result.cells[Verdict.AGREES] == len(planned.cells)
    assert not system.paths
    assert not system.users
    assert result.outcome.left == ()


@pytest.mark.parametrize("library", [True], indirect=True)
def test_a_missing_check_is_reported_with_a_command_to_paste(library: tuple[Library, str], tmp_path: Path) -> None:
    _, url = library
    _, result = plan_and_report(url, tmp_path)
    wrong = {row.name: row for row in result.rows if row.verdict is not Verdict.AGREES}
    assert set(wrong) == {"page/delete"}
    first = wrong["page/delete"].findings[0]
    assert first.verdict is Verdict.WIDER
    assert first.reproduce.startswith(f"curl -s -X DELETE {url}/folders/privtab_conform_folder")
    assert "-H 'Authorization: Basic " in first.reproduce


def test_questions_of_users_never_carry_the_token_of_the_administrator(tmp_path: Path) -> None:
    (tmp_path / "library.yaml").write_text(POLICY, encoding="utf-8")
    # Without these, the headers of both are the same: none.
    (tmp_path / "driver.yaml").write_text(re.sub("  (headers|as): .*\n", "", DRIVER), encoding="utf-8")
    program = load_program(tmp_path / "library.yaml")
    secret, question = "a-token", Request(user="ann", action="read", resource=Entity("page", "f/p"))
    with proxy(lambda _: reply("{}", "200 OK", "Connection: close")) as (where, heads):
        driver = open_driver(str(tmp_path / "driver.yaml"), program, f"http://{where}", {}, token=secret)
        assert driver.ask(question) is SystemAnswer.ALLOWED
        driver.prepare(World(state=State(grants=()), entities=(), users=("ann",), groups=(), roles=()))
    carried = [(head.split(b" ", 2)[:2], f"Bearer {secret}".encode() in head) for head in heads]
    assert carried == [([b"GET", b"/folders/f/p"], False), ([b"PUT", b"/users/ann"], True)]


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (200, b"", SystemAnswer.ALLOWED),
        (409, b"", SystemAnswer.ALLOWED),
        (403, b"", SystemAnswer.REFUSED),
        (400, b"you are not authorized", SystemAnswer.REFUSED),
        (404, b"", SystemAnswer.HIDDEN),
        (400, b"", SystemAnswer.BROKEN),
        (500, b"", SystemAnswer.BROKEN),
    ],
)
def test_statuses_and_bodies_are_judged(status: int, body: bytes, answer: SystemAnswer) -> None:
    signs = AnswerPatterns(allowed=("409",), refused=("403", "not authorized"))
    assert read_answer(signs, status, body) is answer
