"""Two processes that serve a store on one PostgreSQL: writes through both, and one of them killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from authzen_server import Server
from lake_policy import POLICY, asks, grant
from postgresql_server import postgresql, stopped
from requests import RequestException as Disconnected
from store_server import EVERYTHING, ask, serve_store, write_tokens

from privtab.pipeline import load_program
from privtab_server.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgresql-15")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in PostgreSQL with the lake `l` of root."""
    policy = tmp_path / "lake.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    with postgresql() as url:
        created = Store.create(url, load_program(policy), administrators=["root"])
        created.perform(asks("root", "create", "lake:l"))
        yield created
        created.database.engine.dispose()


@pytest.fixture
def servers(store: Store, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    tokens = write_tokens(tmp_path / "tokens", ["root", "eve"], EVERYTHING)
    url = store.database.url.render_as_string(hide_password=False)
    started: list[Server] = []
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            arguments: list[str | Path] = [
                url,
                "-p",
                tmp_path / "lake.yaml",
                "--token-file",
                tokens,
                "--authorise",
                "owners=grant",
            ]
            started.append(serve_store(tmp_path / name, arguments))
        yield started[0], started[1]
    finally:
        for server in started:
            server.stop(signal.SIGKILL)


def create(server: Server, schema: str, **headers: str) -> Any:
    body = {"operation": "create", "resource": f"schema:l/{schema}"}
    return ask(server, "POST", "/operations", "root", body, **headers)


def test_writes_through_both_are_all_done_and_each_once(store: Store, servers: tuple[Server, Server]) -> None:
    def write(number: int) -> tuple[int, bool, int]:
        server = servers[number % 2]
        own = create(server, f"own{number}")
        # The same request reaches both servers, four times in all.
        shared = create(server, f"shared{number // 4}", **{"Idempotency-Key": f"shared {number // 4}"})
        assert (own.status_code, shared.status_code) == (200, 200), f"{own.text} {shared.text}"
        return own.json()["number"], shared.json()["repeated"], shared.json()["number"]

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(write, range(32)))
    numbers = {number for own, _, shared in done for number in (own, shared)}
    assert numbers == set(range(3, 3 + 32 + 8))
    assert sum(not repeated for _, repeated, _ in done) == 8
    assert store.verify() == []
    owned = {row["entity"] for row in store.rows()["owners"]}
    assert len(owned) == 1 + 32 + 8


def test_a_change_through_one_is_known_to_the_other(servers: tuple[Server, Server]) -> None:
    first, second = servers
    seen = create(first, "s").headers["ETag"]
    for server, privilege in ((second, "SELECT"), (first, "USE")):
        rows = {"rows": [grant("user:eve", privilege, "schema:l/s")]}
        written = ask(server, "POST", "/rows/grants", "root", rows, **{"If-Match": seen})
        # What the second server changed, the first one must not overwrite unseen.
        assert written.status_code == (200 if server is second else 409), written.text
        last = written.headers.get("ETag", seen)
        question = {
            "subject": {"type": "user", "id": "eve"},
            "action": {"name": "read"},
            "resource": {"type": "table", "id": "l/s/t"},
        }
        answer = ask(
            first, "POST", "//access/v1/evaluation", "root", question, **{"X-Privtab-At-Least": last.strip('"')}
        )
        assert answer.json()["decision"] is True


def test_while_the_database_is_gone_servers_refuse_and_afterwards_go_on(
    store: Store, servers: tuple[Server, Server]
) -> None:
    question = {
        "subject": {"type": "user", "id": "root"},
        "action": {"name": "drop"},
        "resource": {"type": "schema", "id": "l/before"},
    }

    def decided(server: Server) -> Any:
        return ask(server, "POST", "//access/v1/evaluation", "root", question)

    assert create(servers[0], "before").status_code == 200
    assert all(decided(server).json()["decision"] is True for server in servers)
    with stopped(store.database.url.render_as_string(hide_password=False)):
        for server in servers:
            lost = create(server, "lost", **{"Idempotency-Key": "lost"})
            assert (lost.status_code, lost.json()["error"]["kind"]) == (503, "unavailable")
            # What was decided before may have been revoked by now.
            assert decided(server).status_code == 503
            assert ask(server, "GET", "//ready", None).status_code == 503
    for server in servers:
        assert decided(server).json()["decision"] is True
        # The refused request was not done: it is done now, once.
        assert create(server, "lost", **{"Idempotency-Key": "lost"}).json()["repeated"] is (server is servers[1])
    assert [row["entity"] for row in store.rows()["owners"]] == ["lake:l", "schema:l/before", "schema:l/lost"]
    assert store.verify() == []


def test_a_server_that_is_killed_leaves_the_other_and_the_store_whole(
    store: Store, servers: tuple[Server, Server]
) -> None:
    first, second = servers

    def write(number: int) -> str:
        if number == 12:
            first.process.kill()
        try:
            return str(create(servers[number % 2], f"k{number}", **{"Idempotency-Key": f"k{number}"}).status_code)
        except Disconnected:
            return "lost"

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(write, range(40)))
    assert "lost" in statuses
    assert set(statuses[1::2]) == {"200"}
    # Who got no answer asks the other server: each is done once, whether or not the first one had committed it.
    again = [create(second, f"k{number}", **{"Idempotency-Key": f"k{number}"}).json() for number in range(40)]
    assert all(answer["repeated"] for answer, status in zip(again, statuses, strict=True) if status == "200")
    assert {row["entity"] for row in store.rows()["owners"]} == {"lake:l"} | {f"schema:l/k{n}" for n in range(40)}
    assert store.head().number == 2 + 40
    assert store.verify() == []
