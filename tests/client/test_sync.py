"""The synchronous client against a real OPA, and against sockets that tell what it sent."""

from __future__ import annotations

import json
import os
import pickle
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from privtab import AccessDenied, Client, DecisionUnavailable, Entity, InvalidRequest, PolicyError, Request, UsageError
from privtab.client import RequestsTransport, Revision, Timeout, _opa
from privtab.client import _transport as transports
from privtab.engines.opa.server import OpaServer

READ = Request(user="alice", action="read", resource=Entity("doc", "s/d"))


class Recorder:
    """A transport that remembers what passed through it."""

    def __init__(self, url: str) -> None:
        self.inner = RequestsTransport(url)
        self.sent: list[tuple[str, Any]] = []

    def post(self, path: str, body: bytes, timeout: Timeout) -> bytes:
        self.sent.append((path, json.loads(body)["input"]))
        return self.inner.post(path, body, timeout)

    def get(self, path: str, timeout: Timeout) -> bytes:
        return self.inner.get(path, timeout)

    def close(self) -> None:
        self.inner.close()


# --- answers ---


def test_every_way_of_asking_gives_the_same_right_answer(client: Client, decision_bundle: Any) -> None:
    for request, expected in decision_bundle.cases:
        assert client.check(request) is expected, request
        assert client.decide(request).allowed is expected
        assert client.explain(request) == client.decide(request)
        if expected:
            assert client.require(request).allowed
        else:
            with pytest.raises(AccessDenied):
                client.require(request)
    assert client.check_many([r for r, _ in decision_bundle.cases]) == [e for _, e in decision_bundle.cases]


@pytest.mark.parametrize("resource", ["doc:t/ü%2F1", ("doc", "t/ü%2F1"), Entity("doc", "t/ü%2F1")])
def test_a_resource_may_be_written_in_three_ways(client: Client, resource: Any) -> None:
    assert client.check("bob", "read", resource)
    assert not client.check("alice", "read", resource)


def test_a_create_may_leave_off_the_last_name(client: Client) -> None:
    assert client.check("alice", "create", "doc:s")
    assert not client.check("bob", "create", "doc:s")


def test_with_objects_and_flags_are_sent(client: Client) -> None:
    assert client.check("alice", "copy", "doc:s/d", with_={"source": "doc:s/e"})
    assert not client.check("alice", "copy", "doc:s/d", with_={"source": ("doc", "t/e")})
    assert not client.check("alice", "copy", "doc:s/d", with_={"source": "doc:s/e"}, flags={"force"})


def test_a_denial_says_what_is_missing(client: Client) -> None:
    with pytest.raises(AccessDenied, match=r"user:bob may not `read` on doc:s/d; missing: READ \(doc:s/d\)") as caught:
        client.require("bob", "read", "doc:s/d")
    assert caught.value.request.user == "bob"
    assert caught.value.decision.missing == (("READ (doc:s/d)",),)
    assert caught.value.decision.rule == "demo/doc/read"


# --- many ---


def world(count: int, seed: int) -> tuple[list[Request], list[bool]]:
    """Random requests of every form, and the right answers by the demo's state."""
    chance = random.Random(seed)
    requests: list[Request] = []
    right: list[bool] = []
    for _ in range(count):
        user, space, doc = chance.choice(["alice", "bob"]), chance.choice("stu"), chance.choice("de")
        action = chance.choice(["read", "create", "copy"])
        source = Entity("doc", f"{chance.choice('st')}/d")
        forced = chance.random() < 0.3
        reads = (user == "alice" and space == "s") or (user == "bob" and (space, doc) == ("t", "d"))
        writes = user == "alice" and space == "s"
        sees = (user == "alice" and source.id == "s/d") or (user == "bob" and source.id == "t/d")
        requests.append(
            Request(
                user=user,
                action=action,
                resource=Entity("doc", f"{space}/{doc}"),
                with_={"source": source} if action == "copy" else {},
                flags=frozenset({"force"} if forced else ()),
            )
        )
        right.append({"read": reads, "create": writes, "copy": writes and sees and not forced}[action])
    return requests, right


@pytest.mark.parametrize("chunk_size", [1, 3, 64, 1000])
def test_many_answers_keep_their_order(opa: OpaServer, chunk_size: int) -> None:
    requests, right = world(400, seed=chunk_size)
    assert 20 < sum(right) < 380
    with Client(opa.url, chunk_size=chunk_size) as client:
        assert client.check_many(iter(requests)) == right


def test_any_number_of_requests_is_sent_in_bounded_calls(opa: OpaServer) -> None:
    requests, right = world(5000, seed=7)
    recorder = Recorder(opa.url)
    with Client(opa.url, chunk_size=10, transport=recorder) as client:
        assert client.check_many(requests) == right
        assert client.check_many([]) == []
    sizes = [len(sent.get("items", sent.get("requests"))) for _, sent in recorder.sent]
    assert max(sizes) <= 10
    assert sum(sizes) == len({json.dumps(request.to_json()) for request in requests}) > 50  # each asked once


def test_plain_requests_go_by_type_and_operation_and_the_rest_as_they_are(opa: OpaServer) -> None:
    copy = Request(user="alice", action="copy", resource=Entity("doc", "s/d"), with_={"source": Entity("doc", "s/e")})
    request_list = [
        READ,
        copy,
        Request(user="bob", action="read", resource=Entity("space", "s")),
        # Groups that the policy takes from the state and flags that the operation does not read make no difference.
        Request(user="bob", action="read", resource=Entity("doc", "t/d"), groups=("hr",), flags=frozenset({"force"})),
        Request(user="alice", action="create", resource=Entity("doc", "s")),
    ]
    recorder = Recorder(opa.url)
    with Client(opa.url, transport=recorder) as client:
        assert client.check_many(request_list) == [True, True, False, True, True]
    assert [sent for _, sent in recorder.sent] == [
        {
            "action": {"name": "read"},
            "resource": {"type": "doc"},
            "items": [["alice", ["space:s", "doc:s/d"]], ["bob", ["space:t", "doc:t/d"]]],
        },
        {"action": {"name": "read"}, "resource": {"type": "space"}, "items": [["bob", ["space:s"]]]},
        {"action": {"name": "create"}, "resource": {"type": "doc"}, "items": [["alice", ["space:s"]]]},
        {"requests": [copy.to_json()]},
    ]
    assert {path for path, _ in recorder.sent} == {"/v1/data/privtab/demo/decisions"}


def test_groups_that_the_policy_reads_take_the_mixed_form(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], demo: Any
) -> None:
    program = demo.program() | {"semantics": {"groups": ["state", "request"]}}
    server = raw_server(http_reply('{"result": [true]}'), program={"result": program})
    recorder = Recorder(server.url)
    with Client(server.url, system="demo", transport=recorder) as client:
        client.check_many([Request(user="bob", action="read", resource=Entity("doc", "t/d"), groups=("hr",))])
    assert recorder.sent[0][1]["requests"][0]["subject"]["properties"] == {"groups": ["hr"]}


@pytest.mark.parametrize("chunk_size", [1, 5, 1000])
def test_many_explanations_keep_their_order(opa: OpaServer, decision_bundle: Any, chunk_size: int) -> None:
    requests = [request for request, _ in decision_bundle.cases]
    with Client(opa.url, chunk_size=chunk_size) as client:
        assert client.decide_many(iter(requests)) == [client.decide(request) for request in requests]
        assert client.decide_many([]) == []
        with pytest.raises(InvalidRequest, match="request 1: "):
            client.decide_many([READ, Request(user="alice", action="raed", resource=READ.resource)])


class SlowOpa(Recorder):
    """Takes as long as a batch has requests, and gives up where that is longer than the call may take."""

    def post(self, path: str, body: bytes, timeout: Timeout) -> bytes:
        needed = 0.005 * len(json.loads(body)["input"]["requests"])
        time.sleep(min(needed, timeout[1]))
        if needed > timeout[1]:
            raise transports.too_slow(self.inner.url)
        return super().post(path, body, timeout)


@pytest.mark.slow
def test_chunks_follow_the_time_that_an_answer_takes(opa: OpaServer) -> None:
    requests = [Request(user="bob", action="read", resource=Entity("doc", f"t/d{n}")) for n in range(300)]
    recorder = SlowOpa(opa.url)
    with Client(opa.url, transport=recorder, timeout=1, retries=0) as client:
        assert [decision.allowed for decision in client.decide_many(requests)] == [False] * 300
    sizes = [len(sent["requests"]) for _, sent in recorder.sent]
    assert sizes[0] == 100
    assert max(sizes[1:]) <= 50
    slow = SlowOpa(opa.url)
    with (
        Client(opa.url, transport=slow, timeout=0.1, retries=0) as client,
        pytest.raises(DecisionUnavailable, match=r"in time: .* `timeout` .* `chunk_size`"),
    ):
        client.decide_many(requests)


@pytest.mark.parametrize("chunk_size", [1, 2, 1000])
def test_visible_keeps_the_items_and_their_order(opa: OpaServer, chunk_size: int) -> None:
    with Client(opa.url, chunk_size=chunk_size) as client:
        assert client.visible("alice", "list", "doc", ["s/b", "t/d", "s/a", "s/b", "u/x"]) == ["s/b", "s/a", "s/b"]
        entities = [Entity("doc", "t/e"), Entity("doc", "t/d"), Entity("doc", "t/ü%2F1")]
        visible = client.visible("bob", "list", iter(entities))
        assert visible == entities[1:]
        assert visible[0] is entities[1]
        assert client.visible("bob", "list", ["doc:t/d", "doc:s/d"]) == ["doc:t/d"]
        assert client.visible("bob", "list", [("doc", "t/d")]) == [("doc", "t/d")]
        assert client.visible("bob", "list", "doc", []) == []
        assert client.visible("bob", "list", []) == []


def test_an_empty_listing_of_an_unknown_type_is_still_a_mistake(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="did you mean `doc`"):
        client.visible("bob", "list", "dok", [])


# --- the decision point ---


def test_health_and_revision(
    opa: OpaServer, client: Client, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    assert client.health()
    assert client.system == "demo"
    assert client.revision() == Revision(policy="p1", state="s1")
    with Client(raw_server(http_reply("", "500 Internal Server Error")).url) as other:
        assert not other.health()
    with Client("http://127.0.0.1:1") as other:
        assert not other.health()


def test_one_of_several_systems_must_be_named(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], demo: Any
) -> None:
    server = raw_server(http_reply('{"result": true}'))

    class Both(Recorder):
        def get(self, path: str, timeout: Timeout) -> bytes:
            if path.endswith("/privtab_program"):
                return json.dumps({"result": {"demo": demo.program(), "other": demo.program()}}).encode()
            return super().get(path, timeout)

    with Client(transport=Both(server.url)) as client, pytest.raises(UsageError, match="`demo`, `other`: say which"):
        client.check(READ)
    with Client(system="demo", transport=Both(server.url)) as client:
        assert client.check(READ)


def test_a_new_operation_is_learnt_when_the_policy_changes(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url, system="demo") as client:
        assert client.check(READ)
        server.program = {"result": demo.program("p2", archive={"unnamed": False, "with": {}, "flags": []})}
        with pytest.raises(InvalidRequest):
            client.check("alice", "archive", "doc:s/d")  # looked a moment ago
        monkeypatch.setattr(_opa, "RECHECK_SECONDS", 0.0)
        assert client.check("alice", "archive", "doc:s/d")


def test_unknown_names_do_not_flood_opa(raw_server: Callable[..., Any], http_reply: Callable[..., bytes]) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url) as client:
        for _ in range(50):
            with pytest.raises(InvalidRequest):
                client.check("alice", "archive", "doc:s/d")
    assert len(server.requests) == 2  # the program and the state's revision, once


def test_an_unknown_name_stays_a_mistake_while_opa_is_away(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url) as client:
        assert client.check(READ)
        monkeypatch.setattr(_opa, "RECHECK_SECONDS", 0.0)
        server.program = "gone"
        with pytest.raises(InvalidRequest):
            client.check("alice", "archive", "doc:s/d")


def test_a_state_that_goes_away_is_noticed(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url) as client:
        assert client.check(READ)
        server.state = {}
        assert client.check(READ)
        monkeypatch.setattr(_opa, "REFRESH_SECONDS", 0.0)
        with pytest.raises(DecisionUnavailable, match="no state bundle"):
            client.check(READ)


def test_a_package_compiled_under_another_name_goes_by_the_state_of_its_system(
    opa_binary: Path, demo: Any, tmp_path: Path
) -> None:
    bundles = [demo.policy(tmp_path, package="shadow"), demo.write_state(tmp_path)]
    with OpaServer(bundles, binary=opa_binary) as server, Client(server.url) as client:
        assert client.check(READ)
        assert client.check_many([READ]) == [True]
        assert client.system == "shadow"
        assert client.revision() == Revision(policy="p1", state="s1")


# --- connections ---


def test_one_connection_serves_call_after_call(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url) as client:
        assert all(client.check(READ) for _ in range(20))
    assert server.connections == 1
    assert server.requests.count("POST /v1/data/privtab/demo/check") == 20


def test_a_chunked_answer_leaves_the_connection_usable(raw_server: Callable[..., Any]) -> None:
    answer = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"result\r\n8\r\n": true}\r\n0\r\n\r\n'
    server = raw_server(answer)
    with Client(server.url) as client:
        assert all(client.check(READ) for _ in range(5))
    assert server.connections == 1


def test_a_connection_that_opa_closed_is_opened_anew(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    def answer_and_close(connection: Any, _: str) -> None:
        connection.sendall(http_reply('{"result": true}', "200 OK", "Connection: close"))
        connection.close()

    server = raw_server(answer_and_close)
    with Client(server.url) as client:
        assert all(client.check(READ) for _ in range(5))
    assert server.connections == 5


def test_threads_share_a_client(opa: OpaServer) -> None:
    requests, right = world(60, seed=3)
    wrong: list[Request] = []
    with Client(opa.url, pool_size=4) as client:

        def work() -> None:
            wrong.extend(r for r, expected in zip(requests, right, strict=True) if client.check(r) is not expected)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("own_session", [False, True])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_uses_a_connection_of_its_own(
    own_session: bool, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url, session=requests.Session() if own_session else None) as client:
        assert client.check(READ)
        child = os.fork()
        if child == 0:
            os._exit(0 if client.check(READ) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.check(READ)
    assert server.connections == 2


def test_a_client_can_be_pickled(opa: OpaServer) -> None:
    with Client(opa.url, timeout=3, chunk_size=7) as client:
        assert client.check(READ)
        with pickle.loads(pickle.dumps(client)) as copy:  # noqa: S301  (our own bytes)
            assert copy.check(READ)
            assert not copy.check("bob", "read", "doc:s/d")


def test_the_token_is_sent_with_every_call(raw_server: Callable[..., Any], http_reply: Callable[..., bytes]) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url, token="t0ken") as client:  # noqa: S106
        client.check(READ)
    assert len(server.headers) == 3
    assert all("Authorization: Bearer t0ken" in head for head in server.headers)


def test_a_session_of_the_caller_is_used_as_it_is_and_left_open(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with requests.Session() as session:
        session.headers["X-Trace"] = "42"
        with Client(server.url, session=session) as client:
            assert all(client.check(READ) for _ in range(3))
        assert session.get(server.url + "/v1/data/privtab_state/demo/revision", timeout=5).ok
    assert server.connections == 1
    assert all("X-Trace: 42" in head for head in server.headers)


def test_a_session_of_the_caller_follows_no_redirect_either(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    other = raw_server(http_reply('{"result": true}'))
    server = raw_server(http_reply("", "307 Temporary Redirect", f"Location: {other.url}/"))
    with (
        requests.Session() as session,
        Client(server.url, session=session) as client,
        pytest.raises(PolicyError, match="redirect"),
    ):
        client.check(READ)
    assert other.connections == 0


def test_a_proxy_of_the_environment_does_not_see_requests_to_a_sidecar(
    opa: OpaServer, raw_server: Callable[..., Any], http_reply: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = raw_server(http_reply('{"result": true}'))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Client(opa.url) as client:
        assert not client.check("bob", "read", "doc:s/d")
    assert proxy.connections == 0
    with Client("http://opa.invalid:8181", system="demo") as client:
        client.check(READ)
    assert proxy.connections == 1


# --- listings of any kind, effects, duplicates ---


def test_filter_keeps_the_items_that_may_be_acted_on(opa: OpaServer) -> None:
    rows = [{"at": "t/d"}, {"at": "s/a"}, {"at": "s/a"}, {"at": "t/e"}]
    with Client(opa.url, chunk_size=2) as client:
        readable = client.filter("alice", "read", rows, key=lambda row: ("doc", row["at"]))
        assert readable == [rows[1], rows[2]]
        assert readable[0] is rows[1]
        assert client.filter("alice", "read", iter(["doc:s/d", "space:s", "doc:t/d"])) == ["doc:s/d", "space:s"]
        assert client.filter("alice", "read", []) == []
        source = {"source": "doc:s/e"}
        assert client.filter("alice", "copy", ["doc:s/d", "doc:t/d"], with_=source) == ["doc:s/d"]
        assert client.filter("alice", "copy", ["doc:s/d"], with_=source, flags=iter(["force"])) == []
        with pytest.raises(InvalidRequest, match="item 1: "):
            client.filter("alice", "read", ["doc:s/d", "doc:s"])
        with pytest.raises(InvalidRequest, match="unknown flag"):
            client.filter("alice", "read", ["doc:s/d"], flags=["frce"])


def test_effects_are_those_of_an_allow(client: Client) -> None:
    assert client.effects("alice", "create", "doc:s") == ("grant ALL (doc)",)
    with pytest.raises(AccessDenied):
        client.effects("bob", "create", "doc:s")


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_repeated_request_is_sent_once(opa: OpaServer, concurrency: int) -> None:
    requests, right = world(300, seed=5)
    recorder = Recorder(opa.url)
    with Client(opa.url, transport=recorder, chunk_size=7, concurrency=concurrency) as client:
        assert client.check_many(requests) == right
        sent = sum(len(document.get("items", document.get("requests"))) for _, document in recorder.sent)
        assert sent == len({json.dumps(request.to_json()) for request in requests}) < 300
        recorder.sent.clear()
        assert [d.allowed for d in client.decide_many(requests)] == right
        assert sum(len(document["requests"]) for _, document in recorder.sent) == sent
        recorder.sent.clear()
        assert client.visible("bob", "list", "doc", ["t/d", "s/d"] * 20) == ["t/d"] * 20
        assert sum(len(document["items"]) for _, document in recorder.sent) == 2


def test_concurrent_chunks_run_at_once_and_the_first_error_ends_all(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    together = threading.Barrier(3)

    def answer(connection: Any, _: str) -> None:
        together.wait(5)
        connection.sendall(http_reply('{"result": [true]}'))

    requests = [Request(user=f"u{at}", action="read", resource=READ.resource) for at in range(6)]
    with Client(raw_server(answer).url, chunk_size=1, concurrency=3) as client:
        assert client.check_many(requests) == [True] * 6
    server = raw_server(http_reply("", "400 Bad Request"))
    with Client(server.url, chunk_size=1, concurrency=3) as client, pytest.raises(PolicyError):
        client.check_many(requests * 50)
    assert sum(line.startswith("POST") for line in server.requests) <= 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_look_leaves_a_child_that_can_ask(opa: OpaServer) -> None:
    with Client(opa.url, cache_size=10, timeout=2) as client:
        flows = client._client_flows.engine
        assert isinstance(flows, _opa.OpaFlows)
        locks: list[Any] = [flows._io, flows._resilience.breaker, flows._cache]
        for holder in locks:
            assert holder._lock.acquire()  # as another thread would
        child = os.fork()
        if child == 0:
            os._exit(0 if client.check(READ) and not client.check("bob", "read", "doc:s/d") else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for holder in locks:
            holder._lock.release()
        assert client.check(READ)


def test_each_chunk_has_a_budget_of_its_own(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privtab.client._asking.WINDOW", 3)

    def answer(connection: Any, _: str) -> None:
        time.sleep(0.15)
        connection.sendall(http_reply('{"result": [true]}'))

    requests = [Request(user=f"u{at}", action="read", resource=READ.resource) for at in range(8)]
    with Client(raw_server(answer).url, chunk_size=1, timeout=0.5, total=0.5, retries=0) as client:
        assert client.check_many(requests) == [True] * 8
