"""What a real OPA sends to whoever collects its decision logs, with opa/system/log in force."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import studio_policy

from privtab import Client, Entity, Request
from privtab.base.resources import opa as opa_folder
from privtab.engines.opa.server import OpaServer

MARK = "m4rk3r"
SALARIES = "dataset:web/salaries"
Logged = Callable[[], list[dict[str, Any]]]


@contextmanager
def collecting() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A collector of decision logs."""
    found: list[dict[str, Any]] = []

    class Collects(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.extend(json.loads(gzip.decompress(body)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class calls it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collects)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    server.server_close()


@contextmanager
def running(folder: Path, settings: dict[str, str] | None, *, mask: bool = True) -> Iterator[tuple[str, Logged]]:
    """An OPA whose logs go to a collector."""
    with collecting() as (url, found):
        config = folder / "config.yaml"
        config.write_text(
            f"services: {{logs: {{url: '{url}'}}}}\n"
            "decision_logs: {service: logs, reporting: {min_delay_seconds: 1, max_delay_seconds: 1}}\n",
            encoding="utf-8",
        )
        paths = [opa_folder() / "system" / "log" / "mask.rego"] if mask else []
        if settings is not None:
            paths.append(folder / "log.json")
            paths[-1].write_text(json.dumps({"privtab_log": settings}), encoding="utf-8")
        with OpaServer(studio_policy.write(folder), config=config, paths=paths) as opa:

            def logged() -> list[dict[str, Any]]:
                return [entry for entry in found if entry.get("path", "").startswith("privtab/")]

            yield opa.url, logged


def ask(url: str) -> None:
    """Every kind of question, with more in it than decides."""
    arguments: dict[str, Any] = {"groups": [f"group-{MARK}"]}
    many = [Request(user=user, action="read", resource=Entity("dataset", "web/salaries")) for user in ("ann", "ben")]
    copy = Request(
        user="ben",
        action="copy",
        resource=Entity("dataset", "web/clicks"),
        with_={"to": Entity("project", "lab")},
        groups=(f"group-{MARK}",),
    )
    with Client(url, system="studio") as client:
        client.check("ben", "read", SALARIES, **arguments)
        client.decide("ben", "read", SALARIES, **arguments)
        client.check_many([*many, copy])
        client.decide_many([*many, copy])
        client.visible("ben", "list", "dataset", ["web/clicks"], **arguments)
    odd = {"subject": {"type": "user", "id": "ben", "cookie": MARK}, "session": MARK, "context": {"ip": MARK}}
    requests.post(f"{url}/v1/data/privtab/studio/allow", json={"input": odd}, timeout=5)
    requests.post(f"{url}/v1/data/privtab/studio/decision", json={"input": MARK}, timeout=5)


QUESTIONS = 8


def collected(logged: Logged) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 20
    while len(logged()) < QUESTIONS:
        assert time.monotonic() < deadline, "the logs never came"
        time.sleep(0.05)
    return logged()


@pytest.mark.parametrize(
    ("settings", "shown", "hidden"),
    [
        (None, ["ben", "web/salaries", "project:lab"], []),
        ({"users": "hash", "salt": "s"}, ["web/salaries", sha256(b"sben").hexdigest()], ["ben", "ann"]),
        ({"users": "remove", "resources": "remove"}, ["studio/dataset/read"], ["ben", "ann", "web", "lab"]),
        (
            {"users": "keep", "resources": "hash", "salt": "s"},
            ["ben", sha256(b"sweb/salaries").hexdigest()],
            ["web", "lab"],
        ),
    ],
    ids=["as shipped", "users hashed", "nothing named", "resources hashed"],
)
def test_logs_contain_only_the_wanted_fields(
    tmp_path: Path, settings: dict[str, str] | None, shown: list[str], hidden: list[str]
) -> None:
    with running(tmp_path, settings) as (url, logged):
        ask(url)
        entries = collected(logged)
    assert len(entries) == QUESTIONS
    text = json.dumps([{name: entry.get(name) for name in ("input", "result")} for entry in entries])
    assert MARK not in json.dumps(entries)
    assert [word for word in shown if word not in text] == []
    assert [word for word in hidden if word in text] == []
    decided = next(entry for entry in entries if entry["path"] == "privtab/studio/decision" and entry["input"])
    assert decided["result"]["decision"] is False
    assert decided["result"]["context"]["rule"] == "studio/dataset/read"
    assert decided["input"]["action"] == {"name": "read"}
    assert decided["decision_id"]


def test_without_it_properties_are_in_the_logs(tmp_path: Path) -> None:
    """The test above proves something."""
    with running(tmp_path, None, mask=False) as (url, logged):
        ask(url)
        assert MARK in json.dumps(collected(logged))
