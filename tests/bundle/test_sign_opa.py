"""A real OPA and our signatures: it takes them, refuses what was tampered with, keeps the last good one, and says why."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keyring
import pytest
import requests

from privtab import pipeline
from privtab.bundle import policy_bundle, state_bundle
from privtab.bundle.archive import archive
from privtab.bundle.delta import delta_for
from privtab.bundle.sign import opa_configuration, public_keys, signed
from privtab.errors import OpaError
from privtab.opa.server import OpaServer
from privtab.state.load import from_tables
from privtab.state.validate import validate

POLICY = """
privtab: 1
system: shop
version: '1'
entities: {shop: {box:}}
privileges: [LOOK]
semantics: {inheritance: down}
tables: {box: {look: LOOK (box)}}
"""
SECONDS = 20


class Shop:
    """Signed bundles of one system in a folder, and OPA's configuration that asks for signatures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.yaml").write_text(POLICY, encoding="utf-8")
        self.program = pipeline.load_program(folder / "shop.yaml")
        self.bundles = {"policy": folder / "policy.tar.gz", "state": folder / "state.tar.gz"}

    def state(self, *users: str) -> bytes:
        rows = [
            {"grantee": f"user:{user}", "effect": "allow", "privilege": "LOOK", "entity": "shop:s"} for user in users
        ]
        state, findings = validate(self.program, from_tables({"grants": rows}, "rows"))
        assert not findings
        return state_bundle(self.program, state)

    def put(self, name: str, content: bytes) -> None:
        new = self.bundles[name].with_suffix(".new")
        new.write_bytes(content)
        new.replace(self.bundles[name])

    def config(self, *pairs: keyring.Pair, scope: str = "", **more: Any) -> Path:
        found = opa_configuration(public_keys([pair.public for pair in pairs]), scope, self.bundles)
        path = self.folder / "config.json"
        path.write_text(json.dumps(found | {"status": {"prometheus": True}} | more))
        return path


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def asked(opa: OpaServer, user: str) -> bool | None:
    body = {
        "input": {
            "subject": {"type": "user", "id": user},
            "action": {"name": "look"},
            "resource": {"type": "box", "id": "s/1"},
        }
    }
    answer: bool | None = (
        requests.post(f"{opa.url}/v1/data/privtab/shop/allow", json=body, timeout=5).json().get("result")
    )
    return answer


def status(opa: OpaServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(f"{opa.url}/v1/status", timeout=5).json()["result"]["bundles"][name]
    return found


def refused(opa: OpaServer, last: str) -> str:
    """What OPA says of a state that it does not take; `last`: what it said of the one before."""
    said: list[str] = []

    def another() -> bool:
        told = status(opa, "state")
        said.append(str(told.get("message") or ""))
        return bool(said[-1]) and said[-1] != last and told["code"] == "bundle_error"

    until(another, f"something else than `{last}`")
    return said[-1]


def until(holds: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ES256", "RS256"])
def test_opa_takes_what_we_sign_and_refuses_the_rest(shop: Shop, opa_binary: Path, kind: str) -> None:
    ours, other = keyring.pair(kind), keyring.pair(kind, 1)
    key = ours.signing(scope="prod")
    shop.put("policy", signed(policy_bundle(shop.program), key))
    shop.put("state", signed(shop.state("ann"), key))
    with OpaServer(shop.bundles, binary=opa_binary, config=shop.config(ours, scope="prod")) as opa:
        assert asked(opa, "ann") is True
        good = status(opa, "state")["active_revision"]
        newer = shop.state("ann", "mallory")
        patch = {"op": "upsert", "path": "/privtab_state/shop/allow/LOOK/shop:s/user:mallory", "value": True}
        delta = {".manifest": keyring.files(newer)[".manifest"], "patch.json": json.dumps({"data": [patch]}).encode()}
        spoilt = keyring.tampered(signed(newer, key))
        # In an order in which no two that are refused with the same words follow each other.
        wrong = {
            "a changed byte": spoilt["a changed byte"],
            "another key": signed(newer, other.signing(id=key.id, scope="prod")),
            "an added policy": spoilt["an added policy"],
            "no algorithm": spoilt["no algorithm"],
            "another scope": signed(newer, ours.signing(scope="test")),
            "a public key as a secret": keyring.forged(signed(newer, key), "HS256", ours.public),
            "a removed file": spoilt["a removed file"],
            "a changed payload": spoilt["a changed payload"],
            "a missing signature": spoilt["a missing signature"],
            "a file twice": keyring.doubled(signed(newer, key), ".manifest", b"{}"),
            "an unknown key": signed(newer, other.signing(scope="prod")),
            "no scope": signed(newer, ours.signing()),
            "two signatures": spoilt["two signatures"],
            "a delta": archive(delta),
        }
        if kind == "RS256":
            # One algorithm shows that OPA refuses each; of the other it is enough that signatures count at all.
            wrong = {what: wrong[what] for what in ("a changed byte", "another key")}
        said: dict[str, str] = {}
        for what, content in wrong.items():
            shop.put("state", content)
            said[what] = refused(opa, last=next(reversed(said.values()), ""))
            assert status(opa, "state")["active_revision"] == good, what
            assert (asked(opa, "ann"), asked(opa, "mallory")) == (True, False), what
        assert "digest mismatch" in said["a changed byte"]
        if kind == "ES256":
            assert "not included in bundle signature" in said["an added policy"]
            assert "not found in the target bundle" in said["a removed file"]
            assert "missing .signatures.json" in said["a missing signature"]
            assert "scope mismatch" in said["another scope"]
            assert "delta bundles do not support signature verification" in said["a delta"]
        shop.put("state", signed(newer, key))
        until(lambda: asked(opa, "mallory") is True, "a good one")


@pytest.mark.slow
def test_keys_are_changed_one_after_the_other(shop: Shop, opa_binary: Path) -> None:
    """Both are trusted for a while; the id in the signature says which is meant."""
    old, new = keyring.pair("ES256"), keyring.pair("RS256")
    shop.put("policy", signed(policy_bundle(shop.program), old.signing()))
    shop.put("state", signed(shop.state("ann"), new.signing()))
    with OpaServer(shop.bundles, binary=opa_binary, config=shop.config(old, new)) as opa:
        assert asked(opa, "ann") is True
    with pytest.raises(OpaError, match="verification key corresponding to ID"):
        OpaServer(shop.bundles, binary=opa_binary, config=shop.config(new), timeout=10).start()


@pytest.mark.slow
def test_what_opa_does_not_refuse(shop: Shop, opa_binary: Path) -> None:
    """Keys without `signing` ask for nothing; and an old bundle with a good signature comes back."""
    ours = keyring.pair()
    shop.put("policy", signed(policy_bundle(shop.program), ours.signing()))
    shop.put("state", signed(shop.state("ann", "ben"), ours.signing(sequence=2)))
    config = json.loads(shop.config(ours).read_text())
    del config["bundles"]["policy"]
    shop.put("policy", policy_bundle(shop.program))
    (shop.folder / "config.json").write_text(json.dumps(config))
    with OpaServer(shop.bundles, binary=opa_binary, config=shop.folder / "config.json") as opa:
        assert asked(opa, "ben") is True
        shop.put("state", signed(shop.state("ann"), ours.signing(sequence=1)))
        until(lambda: asked(opa, "ben") is False, "an older one is taken")


@pytest.mark.slow
def test_a_scope_ends_all_that_was_signed_before(shop: Shop, opa_binary: Path) -> None:
    """The way to keep an old bundle from ever coming back to an OPA: the scope counts up."""
    ours = keyring.pair()
    shop.put("policy", signed(policy_bundle(shop.program), ours.signing(scope="prod/2")))
    shop.put("state", signed(shop.state("ann"), ours.signing(scope="prod/1")))
    with pytest.raises(OpaError, match="scope mismatch"):
        OpaServer(shop.bundles, binary=opa_binary, config=shop.config(ours, scope="prod/2"), timeout=10).start()


@pytest.mark.slow
def test_deltas_that_nobody_signed_where_they_are_allowed(shop: Shop, opa_binary: Path) -> None:
    ours = keyring.pair()
    many = [f"user{number}" for number in range(200)]
    before = shop.state(*many)
    shop.put("policy", signed(policy_bundle(shop.program), ours.signing()))
    shop.put("state", signed(before, ours.signing()))
    config = json.loads(shop.config(ours).read_text())
    config["bundles"]["state"]["signing"]["allow_unsigned_delta_bundles"] = True
    (shop.folder / "config.json").write_text(json.dumps(config))
    delta = delta_for(before, shop.state(*many, "ben"))
    assert delta is not None
    with OpaServer(shop.bundles, binary=opa_binary, config=shop.folder / "config.json") as opa:
        assert asked(opa, "ben") is False
        shop.put("state", delta)
        until(lambda: asked(opa, "ben") is True, "the delta is active")
        shop.put("state", shop.state(*many, "mallory"))
        assert "missing .signatures.json" in refused(opa, last="")
        assert asked(opa, "mallory") is False, "whole ones must be signed still"
