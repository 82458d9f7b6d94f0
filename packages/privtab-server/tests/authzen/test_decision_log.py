"""What a server decides is logged as OPA logs it, and a replay by the same policy and state finds no difference."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from authzen_server import Server

import privtab_logs as logs
from privtab.command._app import run


def body(user: str, action: str, resource: str, **more: Any) -> dict[str, Any]:
    type_, _, id_ = resource.partition(":")
    subject = {"type": "user", "id": user}
    return {"subject": subject, "action": {"name": action}, "resource": {"type": type_, "id": id_}, **more}


def test_decisions_are_logged_and_replayed(
    serving: Callable[..., Server], library_files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, state = library_files
    log = tmp_path / "decisions.jsonl"
    server = serving("-p", policy, "-s", state, "--decision-log", log)
    asked = [
        body("alice@example.com", "can_read", "account:123"),
        body("bob@example.com", "can_write", "account:123"),
        body("alice", "delete", "record:record-1", context={"soft": True}),
        body("nobody", "open", "folder:é"),
    ]
    single = [server.decision(one) for one in asked]
    batch = server.answer("/access/v1/evaluations", {"evaluations": asked})["evaluations"]
    threads = [threading.Thread(target=server.decision, args=(asked[0],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.stop() == 0
    assert [one["decision"] for one in batch] == single
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert sum(len(line["result"]) for line in lines) == 2 * len(asked) + len(threads)
    assert {tuple(line["bundles"]) for line in lines} == {("policy", "state")}
    table = logs.read(log)
    assert table.num_rows == 2 * len(asked) + len(threads)
    assert table["problem"].null_count == table.num_rows
    command = ("replay", log, "--policy", policy, "--state", state, "--old-policy", policy, "--old-state", state)
    assert run([*map(str, command), "--fail-on", "any"]) == 0
    capsys.readouterr()
    narrower = tmp_path / "narrower.yaml"
    narrower.write_text(
        policy.read_text(encoding="utf-8").replace("can_read: READ (account)", "can_read: DELETE (account)")
    )
    command = ("replay", log, "-p", narrower, "-s", state, "--old-policy", policy, "--old-state", state)
    run([*map(str, command), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["lost"]


def test_what_cannot_be_logged_is_not_answered(
    serving: Callable[..., Server], library_files: tuple[Path, Path]
) -> None:
    policy, state = library_files
    server = serving("-p", policy, "-s", state, "--decision-log", "/dev/full")
    answered = server.post("/access/v1/evaluation", body("alice@example.com", "can_read", "account:123"))
    assert answered.status_code == 503
    assert server.stop() == 0


def test_an_opa_logs_its_own_decisions(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run(["serve", "--opa", "http://127.0.0.1:1", "--decision-log", str(log)]) == 2
    assert not log.exists()
