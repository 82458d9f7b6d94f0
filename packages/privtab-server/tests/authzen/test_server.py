"""Servers of every make: tokens, TLS, several systems, bundles that change, an OPA behind, and an end that is orderly."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import requests
from authzen_server import Server
from failing_servers import Authority

from privtab.bundle import state_bundle
from privtab.engines import OpaServer
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import State, load_raw_state, validate

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SUBJECTS = "/access/v1/search/subject"
ASKED = {
    "subject": {"type": "user", "id": "alice"},
    "action": {"name": "read"},
    "resource": {"type": "record", "id": "record-1"},
}
GATEWAY = "gateway-token-0123456789"
CONSOLE = "console-token-0123456789"
OTHER = """\
privtab: 1
system: archive
version: "1"
entities: {record:}
privileges: [READ]
semantics: {groups: [request]}
tables: {record: {read: READ (record)}}
"""
OTHER_STATE = '{"grants": [{"grantee": "group:staff", "effect": "allow", "privilege": "READ", "entity": "record:r"}]}'


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def loaded(files: tuple[Path, Path]) -> tuple[Program, State]:
    program = load_program(files[0])
    state, _ = validate(program, load_raw_state(files[1]))
    return program, state


@pytest.fixture
def built(library_files: tuple[Path, Path], tmp_path: Path) -> Path:
    """Both bundles in a folder."""
    folder = tmp_path / "built"
    folder.mkdir()
    program, state = loaded(library_files)
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, state))
    return folder


# --- tokens --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_good_tokens_are_answered(
    serving: Callable[..., Server], library_files: tuple[Path, Path], tmp_path: Path
) -> None:
    """§11.3: 401 with WWW-Authenticate, and 403 where a token is good for other things."""
    tokens = tmp_path / "tokens"
    hashed = "sha256:80fdd98a0de7ec5a5cf3f4a0e8a0f5bd7d8c2b57c8a3ce2b1f4f9a80f5e6f0f1"
    tokens.write_text(f"gateway {GATEWAY} evaluate\nconsole {CONSOLE}\nother {hashed}\n", encoding="utf-8")
    server = serving("-p", library_files[0], "-s", library_files[1], "--token-file", tokens)
    for path in (EVALUATION, EVALUATIONS, SUBJECTS):
        for headers in ({}, {"Authorization": GATEWAY}, {"Authorization": f"Basic {GATEWAY}"}, bearer("")):
            refused = server.post(path, ASKED, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"] == 'Bearer realm="privtab"'
        for wrong in (GATEWAY[:-1], GATEWAY + "x", GATEWAY.upper(), hashed, "é" * 20):
            refused = server.post(path, ASKED, headers={"Authorization": f"Bearer {wrong}".encode()})
            assert refused.status_code == 401
            assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
    for first, second in ((GATEWAY, CONSOLE), ("x" * 20, GATEWAY), (GATEWAY, GATEWAY)):
        both = [("Authorization", f"Bearer {token}") for token in (first, second)]
        assert httpx.post(server.url + EVALUATION, json=ASKED, headers=both, trust_env=False).status_code == 400
    assert server.answer(EVALUATION, ASKED, headers=bearer(GATEWAY))["decision"] is True
    assert server.answer(EVALUATION, ASKED, headers={"Authorization": f"bearer  {CONSOLE}"})["decision"] is True
    refused = server.post(SUBJECTS, ASKED, headers=bearer(GATEWAY))
    assert refused.status_code == 403
    assert 'scope="search"' in refused.headers["WWW-Authenticate"]
    assert server.answer(SUBJECTS, ASKED, headers=bearer(CONSOLE))["results"]
    # Who has no token is told nothing about the body.
    assert server.post(EVALUATION, data=b"{").status_code == 401
    # What says that the server lives, and where it answers, is open.
    for path in ("/health", "/ready", "/.well-known/authzen-configuration"):
        assert server.get(path).status_code == 200

    tokens.write_text(f"console {CONSOLE}\n", encoding="utf-8")
    until(lambda: server.post(EVALUATION, ASKED, headers=bearer(GATEWAY)).status_code == 401)
    tokens.write_text("wrong\n", encoding="utf-8")
    until(lambda: "were not read again" in server.log.read_text())
    assert server.answer(EVALUATION, ASKED, headers=bearer(CONSOLE))["decision"] is True
    assert server.stop() == 0
    log = server.log.read_text()
    assert '"caller": "gateway"' in log
    assert GATEWAY not in log
    assert CONSOLE not in log


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


# --- TLS -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tls(serving: Callable[..., Server], library_files: tuple[Path, Path], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("pdp")
    server = serving(
        "-p", library_files[0], "-s", library_files[1], "--tls", f"cert={certificate}", "--tls", f"key={key}"
    )
    assert server.url.startswith("https://")
    server.session.verify = str(authority.certificate)
    assert server.answer(EVALUATION, ASKED)["decision"] is True
    document = server.get("/.well-known/authzen-configuration").json()
    assert all(address.startswith("https://") for address in document.values())
    with pytest.raises(requests.exceptions.SSLError):
        requests.post(server.url + EVALUATION, json=ASKED, timeout=20)
    where = urlsplit(server.url)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.deprecated_call():
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((where.hostname, where.port)) as plain, pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(plain)
    assert server.stop() == 0


@pytest.mark.slow
def test_tls_with_certificates_of_callers(
    serving: Callable[..., Server], library_files: tuple[Path, Path], tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("pdp")
    known, stranger = authority.sign("caller"), Authority(tmp_path / "other").sign("stranger")
    options = ("--tls", f"cert={certificate}", "--tls", f"key={key}", "--tls", f"client-ca={authority.certificate}")
    server = serving("-p", library_files[0], "-s", library_files[1], *options)
    server.session.verify = str(authority.certificate)
    for wrong in (None, stranger):
        server.session.cert = wrong and (str(wrong[0]), str(wrong[1]))
        with pytest.raises(requests.exceptions.ConnectionError):
            server.post(EVALUATION, ASKED)
    server.session.cert = (str(known[0]), str(known[1]))
    assert server.answer(EVALUATION, ASKED)["decision"] is True


# --- systems, bundles, an OPA ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_several_systems_stand_under_their_names(
    serving: Callable[..., Server], library_files: tuple[Path, Path], tmp_path: Path
) -> None:
    policy, state = tmp_path / "archive.yaml", tmp_path / "archive.json"
    policy.write_text(OTHER, encoding="utf-8")
    state.write_text(OTHER_STATE, encoding="utf-8")
    server = serving("-p", library_files[0], "-s", library_files[1], "-p", policy, "-s", state)
    archived: dict[str, Any] = {**ASKED, "resource": {"type": "record", "id": "r"}}
    with_groups = {**archived, "subject": {"type": "user", "id": "a", "properties": {"groups": ["staff"]}}}
    assert server.decision(ASKED, prefix="/library")
    assert not server.decision(ASKED, prefix="/archive")
    assert not server.decision(archived, prefix="/archive")
    assert server.decision(with_groups, prefix="/archive")
    assert server.post(EVALUATION, ASKED).status_code == 404
    assert server.get("/ready").json()["systems"] == {"library": True, "archive": True}
    document = server.get("/.well-known/authzen-configuration/archive").json()
    assert document["policy_decision_point"] == f"{server.url}/archive"
    assert server.get("/.well-known/authzen-configuration").status_code == 404
    # Groups that are none might hide a denial.
    for groups in ("staff", [1], None, {"staff": True}):
        subject = {"type": "user", "id": "a", "properties": {"groups": groups}}
        answer = server.answer("/archive" + EVALUATION, {**archived, "subject": subject})
        assert (answer["decision"], answer["context"]["error"]["kind"]) == (False, "invalid_request")


@pytest.mark.slow
def test_newer_bundles_are_taken(serving: Callable[..., Server], built: Path, library_files: tuple[Path, Path]) -> None:
    server = serving("--bundles", built, "--refresh", "0.2", "--max-staleness", "3")
    found = {**ASKED, "subject": {"type": "user"}}
    assert server.decision(ASKED)
    assert [result["id"] for result in server.answer(SUBJECTS, found)["results"]] == ["alice", "bob"]
    program, state = loaded(library_files)
    fewer = State(grants=tuple(grant for grant in state.grants if grant.grantee != "user:alice"))
    replace(built / "state.tar.gz", state_bundle(program, fewer))
    until(lambda: not server.decision(ASKED))
    assert [result["id"] for result in server.answer(SUBJECTS, found)["results"]] == ["bob"]
    # A bundle that is broken leaves the last good one in force, and nobody believes that for long.
    replace(built / "state.tar.gz", b"nonsense")
    until(lambda: server.post(EVALUATION, ASKED).status_code == 503)
    refused = server.post(SUBJECTS, found)
    assert refused.status_code == 503
    assert "true" not in refused.text
    assert server.get("/ready").status_code == 503
    assert server.get("/health").status_code == 200
    replace(built / "state.tar.gz", state_bundle(program, state))
    until(lambda: server.post(EVALUATION, ASKED).status_code == 200)
    assert server.decision(ASKED)
    assert "last good ones stay in force" in server.log.read_text()


def replace(path: Path, content: bytes) -> None:
    staged = path.with_suffix(".new")
    staged.write_bytes(content)
    staged.replace(path)


@pytest.mark.slow
def test_an_opa_decides(serving: Callable[..., Server], built: Path, opa_binary: Path) -> None:
    with OpaServer([built / "policy.tar.gz", built / "state.tar.gz"], binary=opa_binary) as opa:
        server = serving("--opa", opa.url)
        answer = server.answer(EVALUATION, ASKED)
        assert (answer["decision"], answer["context"]["rule"]) == (True, "library/record/read")
        unknown = {**ASKED, "action": {"name": "fly"}}
        body = {"evaluations": [ASKED, unknown, {**ASKED, "action": {"name": "delete"}}, {}, ASKED]}
        decided = server.answer(EVALUATIONS, body)["evaluations"]
        assert [evaluation["decision"] for evaluation in decided] == [True, False, False, False, True]
        # Its state cannot be listed, so it does not say that it can search.
        document = server.get("/.well-known/authzen-configuration").json()
        assert [name for name in document if name.startswith("search")] == ["search_action_endpoint"]
        actions = server.answer("/access/v1/search/action", ASKED)["results"]
        assert actions == [{"name": "read"}, {"name": "write"}]
        for kind in ("subject", "resource"):
            assert server.post(f"/access/v1/search/{kind}", ASKED).status_code == 501
        assert server.get("/ready").status_code == 200
    for path, payload in ((EVALUATION, ASKED), (EVALUATIONS, body), ("/access/v1/search/action", ASKED)):
        refused = server.post(path, payload)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]
        assert "true" not in refused.text
    assert server.get("/ready").status_code == 503
    assert server.stop() == 0


@pytest.mark.slow
def test_an_opa_without_a_policy_decides_nothing(serving: Callable[..., Server], opa_binary: Path) -> None:
    with OpaServer([], binary=opa_binary) as opa:
        server = serving("--opa", opa.url, "--system", "library")
        assert server.post(EVALUATION, ASKED).status_code == 503
        assert server.post("/library" + EVALUATION, ASKED).status_code == 503


@pytest.mark.slow
def test_brief_answers_say_no_more_than_yes_or_no(
    serving: Callable[..., Server], library_files: tuple[Path, Path]
) -> None:
    server = serving("-p", library_files[0], "-s", library_files[1], "--brief", "--quiet")
    assert server.answer(EVALUATION, ASKED) == {"decision": True}
    assert server.answer(EVALUATION, {**ASKED, "action": {"name": "delete"}}) == {"decision": False}
    unknown = server.answer(EVALUATION, {**ASKED, "action": {"name": "raed"}})
    assert unknown["decision"] is False
    assert "read" not in json.dumps(unknown)
    body = {"evaluations": [ASKED, {**ASKED, "action": {"name": "delete"}}]}
    assert server.answer(EVALUATIONS, body) == {"evaluations": [{"decision": True}, {"decision": False}]}
    assert server.stop() == 0
    assert server.log.read_text() == ""


@pytest.mark.slow
def test_an_environment_does_not_turn_it_into_a_yes_to_all(
    serving: Callable[..., Server],
    library_files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A settings file that lies there cannot let everybody pass: the server does not even start."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "privtab.toml").write_text('[client]\nmode = "off"\n', encoding="utf-8")
    with pytest.raises(AssertionError, match="`mode` is not taken from a file in the working directory"):
        serving("-p", library_files[0], "-s", library_files[1])


# --- its life ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_when_what_is_under_way_is_answered(
    serving: Callable[..., Server], library_files: tuple[Path, Path], number: int
) -> None:
    server = serving("-p", library_files[0], "-s", library_files[1])
    where = urlsplit(server.url)
    body = json.dumps(ASKED).encode()
    head = f"POST {EVALUATION} HTTP/1.1\r\nHost: pdp\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((where.hostname, where.port), timeout=20) as connection:
        connection.sendall(head.encode() + body[:10])
        time.sleep(0.3)
        ended: list[int] = []
        stopping = threading.Thread(target=lambda: ended.append(server.stop(number)))
        stopping.start()
        time.sleep(0.5)
        connection.sendall(body[10:])
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        stopping.join()
    assert ended == [0]
    assert "Traceback" not in server.log.read_text()
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(server.url + "/health", timeout=5)


def test_answers_hold_under_many_callers(library: Server) -> None:
    """Threads with connections of their own; each answer is the right one."""
    wrong: list[object] = []

    def call(user: str, expected: bool) -> None:
        session = requests.Session()
        body = {**ASKED, "subject": {"type": "user", "id": user}, "action": {"name": "write"}}
        for turn in range(40):
            name = f"{user}-{turn}"
            response = session.post(library.url + EVALUATION, json=body, headers={"X-Request-ID": name}, timeout=20)
            if response.json()["decision"] is not expected or response.headers["X-Request-ID"] != name:
                wrong.append(response.text)

    threads = [threading.Thread(target=call, args=(u, u == "alice")) for u in ("alice", "bob", "alice", "mallory") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
