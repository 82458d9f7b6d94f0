"""A real OPA that decides generated requests in every way that clients ask, and logs its decisions on its console."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests as http

from privtab.base.request import Request
from privtab.bundle.pack import shard_bundles, shard_file, state_bundle
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import policy_artifacts
from privtab.state.nodes import State

CONSOLE = ("msg", "level", "time", "type")
"""What the console adds to an entry."""


def ask(url: str, system: str, rule: str, body: dict[str, Any], session: http.Session) -> Any:
    """The value of a rule."""
    answer = session.post(f"{url}/v1/data/privtab/{system}/{rule}", json={"input": body}, timeout=30)
    return answer.json().get("result")


def decided(
    folder: Path, binary: Path, program: Program, state: State, requests: Sequence[Request], *, sharded: bool = False
) -> tuple[Path, list[bool]]:
    """Ask an OPA with its own bundles in every way; returns its console log, and one answer for each request.

    `sharded`: the state is in shards. The bundles stay in the folder.
    """
    folder.mkdir(parents=True)
    states = {"state.tar.gz": state_bundle(program, state)}
    if sharded:
        states = {shard_file(key): bundle for key, bundle in shard_bundles(program, state).items()}
    packed = {"policy.tar.gz": policy_artifacts(program, sharded=sharded).bundle(), **states}
    for name, bundle in packed.items():
        (folder / name).write_bytes(bundle)
    config = folder / "config.json"
    config.write_text(json.dumps({"decision_logs": {"console": True}}))
    log = folder / "opa.log"
    bundles = [folder / name for name in packed]
    names, system = vocabulary(program), program.system
    sent = [request.to_json() for request in requests]
    with OpaServer(bundles, binary=binary, config=config, log=log) as opa, http.Session() as session:
        answers = ask(opa.url, system, "decisions", {"requests": sent}, session)
        ask(opa.url, system, "explained", {"requests": sent[:40]}, session)
        for number, body in enumerate(sent[:60]):
            ask(opa.url, system, ("allow", "check", "decision", "nope")[number % 4], body, session)
        groups: dict[tuple[str, str], list[Request]] = {}
        for request in requests:
            if request.plain and not names.lies_in_state(request.resource.type):
                groups.setdefault((request.action, request.resource.type), []).append(request)
        for (action, type_), of_form in groups.items():
            shared: dict[str, Any] = {"action": {"name": action}, "resource": {"type": type_}}
            items = [[request.user, names.item_keys(request.resource)] for request in of_form]
            ask(opa.url, system, "decisions", {**shared, "items": items}, session)
            listing = {
                **shared,
                "subject": {"type": "user", "id": of_form[0].user},
                "items": [keys for _, keys in items],
            }
            ask(opa.url, system, "visible", listing, session)
    return log, answers


def entries(log: Path) -> list[dict[str, Any]]:
    """The entries in a console log, as they are uploaded."""
    lines = (json.loads(line) for line in log.read_text().splitlines())
    found = [line for line in lines if line.get("msg") == "Decision Log"]
    return [{name: value for name, value in line.items() if name not in CONSOLE} for line in found]


def uploaded(path: Path, log: list[dict[str, Any]], size: int = 50) -> Path:
    """Entries as uploads, one packed array after the other."""
    arrays = (log[start : start + size] for start in range(0, len(log), size))
    path.write_bytes(b"".join(gzip.compress(json.dumps(array, separators=(",", ":")).encode()) for array in arrays))
    return path
