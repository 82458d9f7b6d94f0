"""A small policy and state, and a way to run command lines in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from privtab.command._app import run

POLICY = """\
privtab: 1
system: shop
version: "1"
title: A small shop
entities:
  store:
    shelf:
      item:
    tag:
privileges: [READ, WRITE, OWN]
sets: {ALL: [READ, WRITE]}
semantics: {inheritance: down, deny: overrides, owner: {creator: true}}
core:
  delete: {requires: WRITE (entity), destructive: true}
tables:
  store:
    open: READ (store)
  shelf:
    create: {requires: WRITE (store), grants: ALL (shelf), note: Shelves are cheap.}
    list: {each: READ (shelf)}
  item:
    create: WRITE (shelf)
    read: READ (item) or owner (shelf, item)
    move: {with: {to: shelf}, requires: WRITE (item) and WRITE (to)}
    burn: {requires: "WRITE (item) and (OWN (item) when really)"}
  tag:
    put: {with: {on: [shelf, item]}, requires: READ (tag) and WRITE (on)}
"""

STATE = """\
grants:
  - {grantee: "role:clerk", effect: allow, privilege: READ, entity: "store:s"}
  - {grantee: "user:ann", effect: allow, privilege: ALL, entity: "shelf:s/a"}
  - {grantee: "user:ben", effect: deny, privilege: READ, entity: "item:s/a/x"}
assignments:
  - {principal: "user:ben", role: clerk}
owners:
  - {entity: "item:s/a/y", owner: "user:cleo"}
"""


@dataclass(frozen=True)
class Ran:
    """What a command line gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state.yaml"
    path.write_text(STATE, encoding="utf-8")
    return path


@pytest.fixture
def privtab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs a command line as `privtab` does, with the streams captured and no terminal."""
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
