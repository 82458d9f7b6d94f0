"""The policy of a small library, and a real `privtab serve` process for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

MAIN = "from privtab.command import main; main()"

POLICY = """\
privtab: 1
system: library
version: "1"
entities: {account:, book:, document:, folder: {page:}, record:, reader:}
types: {reader: {principal: user}}
privileges: [READ, WRITE, DELETE]
semantics: {inheritance: down, deny: overrides, owner: {creator: true}}
attributes:
  user: {role: {text: true, from: [state, request]}}
  entity: {status: {enum: [active, archived], on: [record], from: [state, request]}}
  request: {soft: bool}
tables:
  account:
    can_read: READ (account)
    can_write: WRITE (account)
  book:
    extend_loan: WRITE (book)
  document:
    can_read: READ (document)
    can_edit: WRITE (document)
    read: READ (document)
  folder:
    open: anyone
  page:
    create: WRITE (folder)
    list: {requires: READ (folder), each: READ (page)}
    read: READ (page) or owner (page)
    copy: {with: {to: folder}, requires: "READ (page) and WRITE (to) and (owner (to) when replace)"}
  record:
    read: READ (record)
    write: (WRITE (record) and entity.status = active) or (user.role = admin and entity.status = archived)
    delete: DELETE (record) and request.soft
  reader:
    greet: self or READ (reader)
"""

STATE = """\
memberships:
  - {user: carol, group: staff}
assignments:
  - {principal: "group:staff", role: librarian}
grants:
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "account:123"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: WRITE, entity: "account:123"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "account:456"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "account:789"}
  - {grantee: "user:bob@example.com", effect: allow, privilege: READ, entity: "account:123"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "document:boxcarring.md"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "document:subject-search.md"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "document:resource-search.md"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "document:1"}
  - {grantee: "user:bob@example.com", effect: allow, privilege: READ, entity: "document:2"}
  - {grantee: "user:alice@example.com", effect: allow, privilege: READ, entity: "document:3"}
  - {grantee: "role:librarian", effect: allow, privilege: READ, entity: "folder:f"}
  - {grantee: "user:dan", effect: allow, privilege: WRITE, entity: "folder:f"}
  - {grantee: "user:dan", effect: allow, privilege: READ, entity: "page:f/one"}
  - {grantee: "user:carol", effect: deny, privilege: READ, entity: "page:f/secret"}
  - {grantee: "user:alice", effect: allow, privilege: READ, entity: "record:record-1"}
  - {grantee: "user:alice", effect: allow, privilege: WRITE, entity: "record:record-1"}
  - {grantee: "user:bob", effect: allow, privilege: READ, entity: "record:record-1"}
  - {grantee: "user:alice", effect: allow, privilege: DELETE, entity: "record:record-1"}
attributes:
  - {user: bob, attribute: role, value: admin}
  - {entity: "record:record-1", attribute: status, value: active}
  - {entity: "record:record-2", attribute: status, value: archived}
owners:
  - {entity: "page:f/two", owner: "user:erin"}
"""


@dataclass
class Server:
    """A running server and an HTTP session for it."""

    url: str
    process: subprocess.Popen[str]
    log: Path
    session: requests.Session = field(default_factory=requests.Session)

    def __post_init__(self) -> None:
        # Ignore certificate authorities and proxies from the environment.
        self.session.trust_env = False

    def post(self, path: str, body: object = None, **more: Any) -> requests.Response:
        """POST JSON; `data`, if given, is sent unchanged in place of `body`."""
        if "data" not in more:
            more["data"] = json.dumps(body)
        more["headers"] = {"Content-Type": "application/json", **more.get("headers", {})}
        return self.session.post(self.url + path, timeout=20, **more)

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.session.get(self.url + path, timeout=20, **more)

    def answer(self, path: str, body: object, **more: Any) -> Any:
        """The answer to a call that must succeed."""
        answered = self.post(path, body, **more)
        assert answered.status_code == 200, answered.text
        assert answered.headers["Content-Type"] == "application/json"
        return answered.json()

    def decision(self, body: object, prefix: str = "") -> bool:
        decision = self.answer(f"{prefix}/access/v1/evaluation", body)["decision"]
        assert isinstance(decision, bool)
        return decision

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the server and return its exit code."""
        self.session.close()
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            if self.process.stdout:
                self.process.stdout.close()


def library_in(folder: Path) -> tuple[Path, Path]:
    """Write the policy and the state of the library to a folder."""
    policy, state = folder / "library.yaml", folder / "state.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    state.write_text(STATE, encoding="utf-8")
    return policy, state


def start(arguments: Sequence[str | Path], folder: Path, command: Sequence[str] = ("serve",)) -> Server:
    """Start `privtab serve`, or another command that serves."""
    log = folder / f"log-{len(list(folder.glob('log-*')))}"
    line = [sys.executable, "-c", MAIN, *command, "--listen", "0", "--format", "json", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PRIVTAB_")}
    with log.open("w") as errors:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first:
        process.wait(timeout=30)
        process.stdout.close()
        raise AssertionError(log.read_text())
    return Server(url=json.loads(first)["url"], process=process, log=log)
