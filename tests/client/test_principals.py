"""Clients and requests take `user:alice` for alice, and refuse what can be no user."""

from __future__ import annotations

import pytest

from privtab import Embedded, Entity, InvalidRequest, Request
from privtab.bundle.pack import state_bundle
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import from_tables, validate

POLICY = """\
privtab: 1
system: shelves
version: "1"
entities: {shop: {shelf: }, user: }
privileges: [READ]
semantics: {inheritance: down, deny: overrides, groups: [state, request]}
tables:
  shelf: {read: READ (shelf), list: {each: READ (shelf)}}
  user: {show: self}
"""
READ = {"effect": "allow", "privilege": "READ"}
ROWS = {
    "grants": [
        {**READ, "grantee": "user:alice", "entity": "shelf:s/a"},
        {**READ, "grantee": "user:%2A", "entity": "shelf:s/%2A"},
        {**READ, "grantee": "group:hr", "entity": "shelf:s/b"},
    ]
}
NO_USERS = ("user:user:alice", "group:hr", "role:x", "User:alice", "*", "%", "user:*", "user:")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    folder = tmp_path_factory.mktemp("shelves")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    program = load_program(str(policy))
    state, findings = validate(program, from_tables(ROWS, "rows"))
    assert not [f for f in findings if f.severity == "error"]
    for name, content in (("policy", policy_artifacts(program).bundle()), ("state", state_bundle(program, state))):
        (folder / f"{name}.tar.gz").write_bytes(content)
    return Embedded(folder / "policy.tar.gz", folder / "state.tar.gz")


def request(user: str, path: str = "s/a") -> Request:
    return Request(user=user, action="read", resource=Entity("shelf", path))


@pytest.mark.parametrize("user", ["alice", "user:alice"])
def test_a_user_may_be_written_with_the_kind(client: Embedded, user: str) -> None:
    assert client.check(user, "read", "shelf:s/a")
    assert client.decide(user, "read", "shelf:s/a").to_json() == client.decide("alice", "read", "shelf:s/a").to_json()
    assert client.check(request(user))
    assert client.check_many([request(user)] * 3) == [True] * 3
    assert client.visible(user, "list", "shelf", ["s/a", "s/b"]) == ["s/a"]
    assert client.filter(user, "read", ["shelf:s/b", "shelf:s/a"]) == ["shelf:s/a"]
    assert client.check(user, "show", "user:alice")
    assert client.check("bob", "read", "shelf:s/b", groups=["group:hr"])


@pytest.mark.parametrize("user", NO_USERS)
def test_an_invalid_user_is_reported(client: Embedded, user: str) -> None:
    message = "is not a user|only a user can be a subject"
    with pytest.raises(InvalidRequest, match=message):
        client.check(user, "read", "shelf:s/a")
    with pytest.raises(InvalidRequest, match=message):
        client.decide(user, "read", "shelf:s/a")
    with pytest.raises(InvalidRequest, match=message):
        client.check_many([request("alice"), request(user)])
    with pytest.raises(InvalidRequest, match=message):
        client.visible(user, "list", "shelf", ["s/a"])
    with pytest.raises(InvalidRequest, match=message):
        client.filter(user, "read", ["shelf:s/a"])


def test_reading_a_name_twice_is_reading_it_once() -> None:
    once = request("user:alice")
    assert once.user == "alice"
    assert Request.from_json(once.to_json()) == once
    assert request("user:user:alice").user == "user:user:alice"
    assert Request.from_json(request("user:user:alice").to_json()).user == "user:user:alice"


def test_an_entity_that_is_called_like_a_wildcard_has_its_spelling(client: Embedded) -> None:
    assert client.check("%2A", "read", "shelf:s/%2A")
    assert not client.check("alice", "read", "shelf:s/%2A")
    assert not client.check("alice", "read", "shelf:s/a*")
    for path in ("s/*", "s/?", "s/%", "*/a"):
        with pytest.raises(InvalidRequest, match="there are no wildcards"):
            client.check("alice", "read", f"shelf:{path}")
        with pytest.raises(InvalidRequest, match="there are no wildcards"):
            client.check_many([request("alice", path)])
