"""`privtab serve store:…`, a real process: who may do what over HTTP, and what each error is answered with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from authzen_server import Server
from lake_policy import POLICY, grant
from openapi_spec_validator import validate
from store_server import ask, serve_store, token, write_tokens

from privtab.pipeline import load_program
from privtab_server.store.server.openapi import openapi
from privtab_server.store.store import Store

USERS = ("root", "ann", "ben", "eve", "auditor")


def test_the_openapi_document_of_each_policy_is_valid() -> None:
    for policy in ("gravitino/1.1.0", "streams/teracloud"):
        validate(openapi(load_program(policy), "http://127.0.0.1"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a store in which `root` is the service administrator; each test creates a lake of its own."""
    folder = tmp_path_factory.mktemp("served")
    policy, url = folder / "lake.yaml", folder / "grants.db"
    policy.write_text(POLICY, encoding="utf-8")
    Store.create(str(url), load_program(policy), administrators=["root"])
    tokens = write_tokens(folder / "tokens", USERS)
    tokens.write_text(f"{tokens.read_text()}console {token('console')} evaluate search\n", encoding="utf-8")
    started = serve_store(
        folder, [url, "-p", policy, "--token-file", tokens, "--authorise", "owners=grant", "--auditor", "auditor"]
    )
    yield started
    assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()
    assert Store.open(str(url), load_program(policy)).verify() == []


@pytest.fixture
def lake(server: Server, request: pytest.FixtureRequest) -> str:
    """A lake that `root` owns, named for the test."""
    name = f"lake:{request.node.name}"
    done(ask(server, "POST", "/operations", "root", {"operation": "create", "resource": name}))
    return name


def done(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: Any, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


@pytest.mark.slow
def test_a_grant_is_decided_written_and_seen_by_the_next_decision(server: Server, lake: str) -> None:
    path = lake.partition(":")[2]
    question = {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "create"},
        "resource": {"type": "schema", "id": f"{path}/s"},
    }
    assert not done(ask(server, "POST", "//access/v1/evaluation", "console", question))["decision"]
    rows = {"rows": [grant("user:ann", "CREATE", lake)]}
    proposed = done(ask(server, "POST", "/rows/grants?dry_run=true", "root", rows))
    assert proposed["dry_run"]
    assert proposed["effect"]["access"][0]["subjects"]["names"] == ["user:ann"]
    assert not done(ask(server, "POST", "//access/v1/evaluation", "console", question))["decision"]
    answer = ask(server, "POST", "/rows/grants", "root", rows)
    written = done(answer)
    assert answer.headers["ETag"] == f'"{written["number"]}"'
    assert written["changes"] == proposed["changes"] == [{"add": "grants", "row": rows["rows"][0]}]
    assert written["decision"]["context"]["reasons"][0]["atom"] == f"owner ({lake})"
    assert done(ask(server, "POST", "//access/v1/evaluation", "console", question))["decision"]
    created = done(ask(server, "POST", "/operations", "ann", {"operation": "create", "resource": f"schema:{path}/s"}))
    assert created["changes"][0]["row"]["owner"] == "user:ann"
    found = {"subject": {"type": "user"}, "action": {"name": "drop"}, "resource": question["resource"]}
    names = {
        result["id"] for result in done(ask(server, "POST", "//access/v1/search/subject", "console", found))["results"]
    }
    assert names == {"ann", "root"}


@pytest.mark.slow
def test_users_ask_about_themselves_unless_their_token_says_more(server: Server, lake: str) -> None:
    path = lake.partition(":")[2]
    ann, user_ann, root, nobody = ({"type": "user", "id": name} for name in ("ann", "user:ann", "root", ""))
    rest = {"action": {"name": "create"}, "resource": {"type": "schema", "id": f"{path}/s"}}
    evaluation, evaluations = "//access/v1/evaluation", "//access/v1/evaluations"
    resources, actions = ({**rest, "resource": {"type": "schema"}}, {"resource": rest["resource"]})
    asked: list[tuple[str, dict[str, Any], tuple[dict[str, str], ...]]] = [
        (evaluation, {**rest, "subject": {}}, (ann, user_ann, root)),
        ("//access/v1/search/resource", {**resources, "subject": {}}, (ann, user_ann, root)),
        ("//access/v1/search/action", {**actions, "subject": {}}, (ann, user_ann, root)),
    ]
    for where, body, subjects in asked:
        for subject in subjects:
            answer = ask(server, "POST", where, "ann", {**body, "subject": subject})
            assert answer.status_code == (403 if subject is root else 200), (where, subject)
            assert done(ask(server, "POST", where, "console", {**body, "subject": subject}))
    everyone = {**rest, "subject": {"type": "user"}}
    refusal = ask(server, "POST", "//access/v1/search/subject", "ann", everyone)
    assert (refusal.status_code, 'scope="search"' in refusal.headers["WWW-Authenticate"]) == (403, True)
    mixed = {**rest, "subject": ann, "evaluations": [{}, {"subject": root}]}
    assert ask(server, "POST", evaluations, "ann", mixed).status_code == 403
    assert ask(server, "POST", evaluations, "ann", {**mixed, "subject": root}).status_code == 403
    assert ask(server, "POST", evaluations, "ann", {**rest, "evaluations": [{"subject": nobody}]}).status_code == 403
    assert (
        len(done(ask(server, "POST", evaluations, "ann", {**mixed, "evaluations": [{}, {"subject": user_ann}]}))) == 1
    )
    assert len(done(ask(server, "POST", evaluations, "console", mixed))["evaluations"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/store/v1/rows", "/store/v1/metrics", "/access/v1/evaluation"])
def test_two_tokens_are_none(server: Server, path: str) -> None:
    method = "POST" if path.startswith("/access") else "GET"
    for first, second in (("root", "eve"), ("eve", "root"), ("root", "root"), ("nobody", "root")):
        headers = [("Authorization", f"Bearer {token(user)}") for user in (first, second)]
        answer = httpx.request(method, server.url + path, headers=headers, trust_env=False)
        assert answer.status_code == 400, (first, second)
        assert "one `Authorization` header" in answer.text


@pytest.mark.slow
def test_a_question_is_answered_no_older_than_the_change_it_names(server: Server, lake: str) -> None:
    question = {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "create"},
        "resource": {"type": "schema", "id": f"{lake.partition(':')[2]}/s"},
    }

    def asked(number: object) -> Any:
        return ask(server, "POST", "//access/v1/evaluation", "console", question, **{"X-Privtab-At-Least": str(number)})

    last = done(ask(server, "GET", "/rows", "root"))["number"]
    assert not done(asked(last))["decision"]
    with ThreadPoolExecutor() as pool:
        # It waits for a change that is yet to come.
        waiting = pool.submit(asked, f'"{last + 1}"')
        written = ask(server, "POST", "/rows/grants", "root", {"rows": [grant("user:ann", "CREATE", lake)]})
        assert done(waiting.result())["decision"]
    assert written.headers["ETag"] == f'"{last + 1}"'
    assert done(asked(written.headers["ETag"]))["decision"]
    late = asked(last + 1000)
    assert (late.status_code, late.headers["Retry-After"]) == (503, "1")
    assert late.text == f"the store is at change {last + 1}, and change {last + 1000} is requested"
    assert asked("newest").status_code == 400


@pytest.mark.slow
def test_errors_have_their_status_and_change_nothing(server: Server, lake: str) -> None:
    path = lake.partition(":")[2]
    good = grant("user:ann", "CREATE", lake)
    before = done(ask(server, "GET", "/rows", "root"))
    denied = refused(ask(server, "POST", "/rows/grants", "eve", {"rows": [good]}), 403)
    assert denied["decision"]["context"]["missing"] == [[f"MANAGE ({lake})"], [f"owner ({lake})"]]
    wrong = {"rows": [{**good, "privilege": "CRATE"}, {**good, "grantee": "ann"}]}
    assert len(refused(ask(server, "POST", "/rows/grants", "root", wrong), 422)["findings"]) == 2
    refused(ask(server, "POST", "/rows/grants", "root", {"rows": [good], "operation": "create"}), 422)
    refused(ask(server, "POST", "/rows/memberships", "root", {"rows": [{"user": "ann", "group": "g"}]}), 422)
    refused(ask(server, "POST", "/operations", "root", {"operation": "create", "resource": lake}), 409)
    refused(ask(server, "POST", "/operations", "root", {"operation": "burn", "resource": lake}), 422)
    refused(ask(server, "DELETE", f"/rows/grants/{'0' * 64}", "root"), 404)
    refused(ask(server, "DELETE", f"/entities?entity=schema:{path}/none", "eve"), 403)
    bodies: tuple[Any, ...] = (
        {"rows": "x"},
        {"rows": [{"grantee": 1}]},
        {"user": "root", "rows": []},
        {},
        [],
    )
    for body in bodies:
        refused(ask(server, "POST", "/rows/grants", "root", body), 400)
    refused(ask(server, "POST", "/rows/grants", "root", {"rows": [good]}, **{"If-Match": "old"}), 400)
    refused(ask(server, "GET", "/rows?limit=0", "root"), 400)
    refused(ask(server, "GET", "/rows?after=%21", "root"), 400)
    refused(ask(server, "GET", "/journal", "root"), 403)
    refused(ask(server, "GET", "/rows", None), 401)
    refused(ask(server, "GET", "/rows", None, Authorization="Bearer " + token("nobody")), 401)
    large = json.dumps({"rows": [{**good, "grantee": "user:" + "x" * 2_000_000}]})
    headers = {"Authorization": f"Bearer {token('root')}", "Content-Type": "application/json"}
    url = f"{server.url}/store/v1/rows/grants"
    assert server.session.post(url, data=large, headers=headers, timeout=20).status_code == 413
    assert server.session.post(url, data="{", headers=headers, timeout=20).status_code == 400
    assert server.session.post(url, data="{}", headers=headers | {"Content-Type": "x/y"}, timeout=20).status_code == 400
    assert done(ask(server, "GET", "/rows", "root")) == before


@pytest.mark.slow
def test_a_repeated_request_is_done_once_and_an_overtaken_one_is_refused(server: Server, lake: str) -> None:
    rows = {"rows": [grant("user:ann", "CREATE", lake)]}
    first = ask(server, "POST", "/rows/grants", "root", rows, **{"Idempotency-Key": lake})
    again = done(ask(server, "POST", "/rows/grants", "root", rows, **{"Idempotency-Key": lake}))
    assert again == done(first) | {"repeated": True}
    refused(
        ask(
            server,
            "POST",
            "/rows/grants",
            "root",
            {"rows": []} | rows | {"flags": {"x": True}},
            **{"Idempotency-Key": lake},
        ),
        409,
    )
    seen = first.headers["ETag"]
    more = {"rows": [grant("user:ann", "SELECT", lake)]}
    done(ask(server, "POST", "/rows/grants", "root", more, **{"If-Match": seen}))
    other = {"rows": [grant("user:ann", "USE", lake)]}
    assert (
        "read them again"
        in refused(ask(server, "POST", "/rows/grants", "root", other, **{"If-Match": seen}), 409)["message"]
    )
    (entry,) = (
        e
        for e in done(ask(server, "GET", f"/rows?about={lake}", "root"))["rows"]
        if e["row"].get("privilege") == "SELECT"
    )
    path = f"/rows/grants/{entry['id']}"
    removed = done(ask(server, "DELETE", path, "root", **{"Idempotency-Key": f"{lake} removed"}))
    assert removed["changes"] == [{"remove": "grants", "row": more["rows"][0]}]
    assert done(ask(server, "DELETE", path, "root", **{"Idempotency-Key": f"{lake} removed"}))["repeated"]
    refused(ask(server, "DELETE", path, "root"), 404)


@pytest.mark.slow
def test_listings_show_what_the_caller_may_see_page_by_page(server: Server, lake: str) -> None:
    rows = [grant(f"user:{name}", "SELECT", lake) for name in ("ann", "ben", "cid", "dan")]
    done(ask(server, "POST", "/rows/grants", "root", {"rows": rows}))
    found: list[Any] = []
    after: str | None = ""
    while after is not None:
        page = done(
            ask(server, "GET", f"/rows/grants?about={lake}&limit=3{f'&after={after}' if after else ''}", "root")
        )
        found += [entry["row"] for entry in page["rows"]]
        after = page["next"]
    assert sorted(map(str, found)) == sorted(map(str, rows))
    mine = done(ask(server, "GET", f"/rows?about={lake}", "ben"))["rows"]
    assert [entry["row"]["grantee"] for entry in mine] == ["user:ben"]
    assert done(ask(server, "GET", f"/rows?about={lake}", "eve"))["rows"] == []
    assert lake in done(ask(server, "GET", "/entities?type=lake&limit=1000", "ben"))["entities"]
    assert {"cid", "dan"} <= {*done(ask(server, "GET", "/users", "root"))["users"]}
    assert "dan" not in done(ask(server, "GET", "/users", "ben"))["users"]
    assert done(ask(server, "GET", "/roles", "root"))["roles"] == []
    assert done(ask(server, "GET", "/authority", "ben"))["rows"]["grants"]["add"]["table"] == "grant"
    everything = done(ask(server, "GET", f"/rows?about={lake}", "auditor"))["rows"]
    assert len(everything) == 5
    entries = done(ask(server, "GET", "/journal", "auditor"))["entries"]
    refused(ask(server, "GET", "/journal.html", "root"), 403)
    page = ask(server, "GET", "/journal.html", "auditor")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert all(f'#{entry["number"]}"' in page.text and entry["actor"] in page.text for entry in entries)
    assert [entry["number"] for entry in entries] == list(range(1, len(entries) + 1))
    validate(done(ask(server, "GET", "/openapi.json", None)))


@pytest.mark.slow
def test_an_owner_is_replaced_and_an_entity_deleted_with_all_below(server: Server, lake: str) -> None:
    path = lake.partition(":")[2]
    schema = f"schema:{path}/s"
    done(ask(server, "POST", "/operations", "root", {"operation": "create", "resource": schema}))
    change = {
        "remove": {"owners": [{"entity": schema, "owner": "user:root"}]},
        "add": {"owners": [{"entity": schema, "owner": "user:ann"}]},
    }
    assert len(done(ask(server, "POST", "/changes", "root", change))["changes"]) == 2
    refused(ask(server, "POST", "/changes", "root", change), 409)
    done(ask(server, "POST", "/operations", "ann", {"operation": "create", "resource": f"table:{path}/s/t"}))
    proposed = done(ask(server, "DELETE", f"/entities?entity={schema}&dry_run=true", "ann"))
    removed = done(ask(server, "DELETE", f"/entities?entity={schema}", "ann"))
    assert len(proposed["changes"]) == len(removed["changes"]) == 3
    assert {entry["row"]["entity"] for entry in done(ask(server, "GET", f"/rows?about={lake}", "root"))["rows"]} == {
        lake
    }


@pytest.mark.slow
def test_entities_are_deleted_as_far_as_each_may_be(server: Server, lake: str) -> None:
    path = lake.partition(":")[2]
    schemas = [f"schema:{path}/{name}" for name in "abc"]
    for schema in schemas:
        done(ask(server, "POST", "/operations", "root", {"operation": "create", "resource": schema}))
    own = {"entity": schemas[1], "owner": "user:ann"}
    done(ask(server, "POST", "/rows/owners", "root", {"rows": [own]}))
    body = {"entities": schemas}
    proposed = done(ask(server, "POST", "/deletions?dry_run=true", "ann", body))["results"]
    assert [result["status"] for result in proposed] == [403, 200, 403]
    key = {"Idempotency-Key": f"{path} deleted"}
    denied, deleted, _ = done(ask(server, "POST", "/deletions", "ann", body, **key))["results"]
    assert (denied["entity"], denied["error"]["kind"]) == (schemas[0], "denied")
    assert {"remove": "owners", "row": own} in deleted["changes"] == proposed[1]["changes"]
    assert done(ask(server, "POST", "/deletions", "ann", body, **key))["results"][1]["repeated"]
    results = done(ask(server, "POST", "/deletions", "root", body))["results"]
    assert [len(result["changes"]) for result in results] == [1, 0, 1]
    assert [result["number"] for result in results] == [deleted["number"] + n for n in (1, 2, 3)]
    bodies: tuple[Any, ...] = ({}, {"entities": []}, {"entities": [1]}, {"entities": [lake], "user": "root"})
    for wrong in bodies:
        refused(ask(server, "POST", "/deletions", "root", wrong), 400)


@pytest.mark.slow
def test_metrics_count_what_is_done_and_refused(server: Server, lake: str) -> None:
    def metrics() -> dict[str, float]:
        answer = ask(server, "GET", "/metrics", "root")
        assert answer.headers["Content-Type"].startswith("text/plain")
        lines = (line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#"))
        return {name.removeprefix("privtab_store_"): float(value) for name, _, value in lines}

    before = metrics()
    rows = {"rows": [grant("user:ann", "CREATE", lake)]}
    for _ in range(2):
        done(ask(server, "POST", "/rows/grants", "root", rows, **{"Idempotency-Key": f"{lake} metrics"}))
    refused(ask(server, "POST", "/rows/grants", "eve", rows), 403)
    unread = metrics()
    assert (unread["database_ok"], unread["change_number"]) == (1, before["change_number"] + 1)
    names = ("changes_total", "repeated_total", 'refused_total{kind="denied"}', "change_seconds_count")
    assert [unread[name] - before.get(name, 0) for name in names] == [1, 1, 1, 2]
    done(ask(server, "GET", "/rows", "root"))
    read = metrics()
    assert (read["unseen_changes"], read["lag_seconds"]) == (0, 0)
    assert ask(server, "GET", "/metrics", None).status_code == 401


@pytest.mark.slow
def test_concurrent_writers_lose_nothing(server: Server, lake: str) -> None:
    def write(number: int) -> int:
        rows = {"rows": [grant(f"user:u{number}", "SELECT", lake)]}
        return ask(server, "POST", "/rows/grants", "root", rows).status_code

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(write, range(24))) == {200}
    found = done(ask(server, "GET", f"/rows/grants?about={lake}&limit=1000", "root"))["rows"]
    assert {entry["row"]["grantee"] for entry in found} == {f"user:u{number}" for number in range(24)}


@pytest.mark.slow
def test_a_token_has_its_scopes_and_a_lost_database_is_unavailable(tmp_path: Path) -> None:
    policy, url = tmp_path / "lake.yaml", tmp_path / "grants.db"
    policy.write_text(POLICY, encoding="utf-8")
    Store.create(str(url), load_program(policy), administrators=["root"])
    tokens = write_tokens(tmp_path / "tokens", ["root"], "read")
    server = serve_store(tmp_path, [url, "-p", policy, "--token-file", tokens, "--anonymous", "guest"])
    try:
        create = {"operation": "create", "resource": "lake:l"}
        refused(ask(server, "POST", "/operations", "root", create), 403)
        assert done(ask(server, "GET", "/rows", "root"))["rows"] == []
        assert "user:guest may not" in refused(ask(server, "POST", "/operations", None, create), 403)["message"]
        with closing(sqlite3.connect(url)) as database:
            database.execute("DROP TABLE head")
        for answer in (
            ask(server, "GET", "/rows", None),
            ask(server, "POST", "/operations", None, create),
            ask(server, "GET", "//ready", None),
        ):
            assert answer.status_code == 503, answer.text
        assert "no such table" not in ask(server, "GET", "/rows", None).text
    finally:
        server.stop()
