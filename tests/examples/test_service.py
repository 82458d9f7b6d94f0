"""The example service, started as its page says and asked over real sockets, over both kinds of decision point."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from checkout import PYTHONPATH, ROOT
from failing_servers import free_port

from privtab.command._app import run
from privtab.engines.opa.server import OpaServer

TOKENS = {"alice": "token-of-alice", "bob": "token-of-bob", "sam": "token-of-sam"}
ORDERS = "/tables/demo/hive/sales/orders"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    state = ROOT / "policy_src" / "gravitino" / "state.yaml"
    policy = ROOT / "policy_src" / "gravitino" / "1.1.0.yaml"
    assert run(["compile", str(policy), "-o", str(folder), "--state", str(state)]) == 0
    return folder / "gravitino" / "1.1.0"


@contextlib.contextmanager
def service(folder: Path, **environment: str) -> Iterator[tuple[str, Path]]:
    """The service as a process of its own: its address and its log."""
    users = folder / "users.json"
    users.write_text(json.dumps({token: user for user, token in TOKENS.items()}), encoding="utf-8")
    port, log = free_port(), folder / "service.log"
    settings = {"PYTHONPATH": PYTHONPATH, "SERVICE_USERS": str(users), "SERVICE_PORT": str(port)}
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "service" / "app.py")],
            cwd=folder,
            env={**os.environ, **settings, **environment},
            stdout=written,
            stderr=written,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(requests.RequestException):
                requests.get(f"{url}/health", timeout=5)
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield url, log
    finally:
        process.terminate()
        process.wait(10)


def ask(url: str, user: str | None, method: str, path: str) -> requests.Response:
    headers = {} if user is None else {"Authorization": f"Bearer {TOKENS.get(user, user)}"}
    return requests.request(method, url + path, headers=headers, timeout=10)


def converse(url: str) -> None:
    """Allow, deny, nobody, nonsense."""
    allowed = ask(url, "alice", "GET", ORDERS)
    assert (allowed.status_code, allowed.json()["rule"]) == (200, "gravitino/table/load")
    denied = ask(url, "bob", "GET", ORDERS)
    assert denied.status_code == 403
    assert "SELECT_TABLE (table:demo/hive/sales/orders)" in denied.json()["detail"]
    for user in (None, "token-of-nobody", ""):
        assert ask(url, user, "GET", ORDERS).status_code == 401, user
        assert ask(url, user, "GET", "/tables?schema=demo/hive/sales").status_code == 401
        assert ask(url, user, "DELETE", ORDERS).status_code == 401
    assert ask(url, "alice", "GET", "/tables/demo/hive").status_code == 400
    seen = {user: ask(url, user, "GET", "/tables?schema=demo/hive/sales").json() for user in ("alice", "bob")}
    assert set(seen["alice"]) - set(seen["bob"]) == {"demo/hive/sales/orders"}
    assert ask(url, "alice", "PUT", "/tables/demo/hive/sales/new").status_code == 403
    created = ask(url, "sam", "PUT", "/tables/demo/hive/sales/new")
    assert created.json()["effects"] == ["become owner (table:demo/hive/sales/new)"]
    row = {"entity": "table:demo/hive/sales/new", "owner": "user:sam"}
    assert created.json()["changes"] == [{"add": "owners", "row": row}]
    assert ask(url, "bob", "DELETE", "/tables/demo/hive/sales/new").status_code == 403
    assert "demo/hive/sales/new" in ask(url, "sam", "GET", "/tables?schema=demo/hive/sales").json()
    assert ask(url, "sam", "DELETE", "/tables/demo/hive/sales/new").status_code == 204
    assert "demo/hive/sales/new" not in ask(url, "sam", "GET", "/tables?schema=demo/hive/sales").json()


@pytest.mark.slow
def test_the_service_decides_in_its_own_process(bundles: Path, tmp_path: Path) -> None:
    with service(tmp_path, PRIVTAB_URL=str(bundles)) as (url, log):
        assert ask(url, None, "GET", "/health").json() == {"ready": True}
        converse(url)
    text = log.read_text()
    assert "Traceback" not in text
    assert "privtab.decisions INFO require user:bob load table:demo/hive/sales/orders: deny" in text
    assert not any(token in text for token in TOKENS.values())


@pytest.mark.slow
def test_the_service_denies_everyone_when_its_opa_is_gone(bundles: Path, tmp_path: Path) -> None:
    server = OpaServer([bundles / "policy.tar.gz", bundles / "state.tar.gz"])
    with server as opa, service(tmp_path, PRIVTAB_URL=opa.url, PRIVTAB_TOTAL="1") as (url, log):
        converse(url)
        server.stop()
        for method, path in (("GET", ORDERS), ("DELETE", ORDERS), ("GET", "/tables?schema=demo/hive/sales")):
            answer = ask(url, "sam", method, path)
            assert (answer.status_code, "Retry-After" in answer.headers) == (503, True), path
            assert opa.url not in answer.text
        assert ask(url, None, "GET", "/health").status_code == 503
    assert not any(token in log.read_text() for token in TOKENS.values())
