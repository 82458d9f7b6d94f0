"""A real OPA and our signatures: it takes them, refuses what was tampered with, keeps the last good one, and says why."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import signing_keys

from privtab import pipeline
from privtab.base.errors import OpaError
from privtab.bundle import state_bundle
from privtab.bundle.archive import packed_archive
from privtab.bundle.sign import opa_configuration, public_keys
from privtab.engines.opa.server import OpaServer
from privtab.pipeline import policy_artifacts
from privtab.state.load import from_tables, validate

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


class SignedBundles:
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

    def config(self, *pairs: signing_keys.KeyPair, scope: str = "", **more: Any) -> Path:
        found = opa_configuration(public_keys([pair.public for pair in pairs]), scope, self.bundles)
        path = self.folder / "config.json"
        path.write_text(json.dumps(found | {"status": {"prometheus": True}} | more))
        return path


@pytest.fixture
def signed_bundles(tmp_path: Path) -> SignedBundles:
    return SignedBundles(tmp_path)


def decision(opa: OpaServer, user: str) -> bool | None:
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


def data(opa: OpaServer, system: str) -> object:
    return requests.get(f"{opa.url}/v1/data/privtab_state/{system}", timeout=5).json().get("result")


def refused(opa: OpaServer, name: str) -> str:
    """What OPA says of a bundle that it does not take."""
    reports: list[dict[str, Any]] = []

    def complained() -> bool:
        reports.append(status(opa, name))
        return reports[-1].get("code") == "bundle_error" and bool(reports[-1].get("message"))

    until(complained, f"`{name}` is refused")
    return str(reports[-1]["message"])


def until(holds: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


def renamed(bundle: bytes, name: str) -> bytes:
    """The same state as one of another system, so that one OPA holds both."""
    inside = signing_keys.files(bundle)
    manifest = json.loads(inside.pop(".manifest")) | {"roots": [f"privtab_state/{name}"]}
    (data,) = inside.values()
    return packed_archive({".manifest": json.dumps(manifest).encode(), f"privtab_state/{name}/data.json": data})


def spoilt(newer: bytes, ours: signing_keys.KeyPair, other: signing_keys.KeyPair) -> dict[str, bytes]:
    """A newer state, by what is wrong with it or its signature."""
    key = ours.signing(scope="prod")
    patch = {"op": "upsert", "path": "/privtab_state/shop/allow/LOOK/shop:s/user:mallory", "value": True}
    delta = {".manifest": signing_keys.files(newer)[".manifest"], "patch.json": json.dumps({"data": [patch]}).encode()}
    tampered = signing_keys.tampered(key.sign(newer))
    return {
        "a changed byte": tampered["a changed byte"],
        "another key": other.signing(id=key.id, scope="prod").sign(newer),
        "an added policy": tampered["an added policy"],
        "no algorithm": tampered["no algorithm"],
        "another scope": ours.signing(scope="test").sign(newer),
        "a public key as a secret": signing_keys.forged(key.sign(newer), "HS256", ours.public),
        "a removed file": tampered["a removed file"],
        "a changed payload": tampered["a changed payload"],
        "a missing signature": tampered["a missing signature"],
        "a file twice": signing_keys.doubled(key.sign(newer), ".manifest", b"{}"),
        "an unknown key": other.signing(scope="prod").sign(newer),
        "no scope": ours.signing().sign(newer),
        "two signatures": tampered["two signatures"],
        "a delta": packed_archive(delta),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ES256", "RS256"])
def test_opa_takes_what_we_sign_and_refuses_the_rest(
    signed_bundles: SignedBundles, opa_binary: Path, kind: str
) -> None:
    """Each in a place of its own, so that one look of OPA refuses all of them."""
    ours, other = signing_keys.pair(kind), signing_keys.pair(kind, 1)
    key = ours.signing(scope="prod")
    newer = signed_bundles.state("ann", "mallory")
    # One algorithm shows that OPA refuses each; of the other it is enough that signatures count at all.
    names = list(spoilt(newer, ours, other))[: 2 if kind == "RS256" else None]
    places = {what: what.replace(" ", "_") for what in names}
    signed_bundles.bundles |= {place: signed_bundles.folder / f"{place}.tar.gz" for place in places.values()}
    signed_bundles.put("policy", key.sign(policy_artifacts(signed_bundles.program).bundle()))
    signed_bundles.put("state", key.sign(signed_bundles.state("ann")))
    for place in places.values():
        signed_bundles.put(place, key.sign(renamed(signed_bundles.state("ann"), place)))
    with OpaServer(signed_bundles.bundles, binary=opa_binary, config=signed_bundles.config(ours, scope="prod")) as opa:
        assert decision(opa, "ann") is True
        before = {what: (status(opa, place)["active_revision"], data(opa, place)) for what, place in places.items()}
        good = status(opa, "state")["active_revision"]
        assert all(revision and document for revision, document in before.values())
        for what, place in places.items():
            signed_bundles.put(place, spoilt(renamed(newer, place), ours, other)[what])
        signed_bundles.put("state", spoilt(newer, ours, other)["a changed byte"])
        errors = {what: refused(opa, place) for what, place in places.items()}
        assert "digest mismatch" in refused(opa, "state")
        assert status(opa, "state")["active_revision"] == good
        assert (decision(opa, "ann"), decision(opa, "mallory")) == (True, False)
        for what, place in places.items():
            assert (status(opa, place)["active_revision"], data(opa, place)) == before[what], what
        assert "digest mismatch" in errors["a changed byte"]
        if kind == "ES256":
            assert "not included in bundle signature" in errors["an added policy"]
            assert "not found in the target bundle" in errors["a removed file"]
            assert "missing .signatures.json" in errors["a missing signature"]
            assert "scope mismatch" in errors["another scope"]
            assert "delta bundles do not support signature verification" in errors["a delta"]
        signed_bundles.put("state", key.sign(newer))
        until(lambda: decision(opa, "mallory") is True, "a good one")


@pytest.mark.slow
def test_keys_are_changed_one_after_the_other(signed_bundles: SignedBundles, opa_binary: Path) -> None:
    """Both are trusted for a while; the id in the signature says which is meant."""
    old, new = signing_keys.pair("ES256"), signing_keys.pair("RS256")
    signed_bundles.put("policy", old.signing().sign(policy_artifacts(signed_bundles.program).bundle()))
    signed_bundles.put("state", new.signing().sign(signed_bundles.state("ann")))
    with OpaServer(signed_bundles.bundles, binary=opa_binary, config=signed_bundles.config(old, new)) as opa:
        assert decision(opa, "ann") is True
    with pytest.raises(OpaError, match="failed to verify JWT signature"):
        OpaServer(signed_bundles.bundles, binary=opa_binary, config=signed_bundles.config(new), timeout=10).start()


@pytest.mark.slow
def test_signatures_that_opa_accepts(signed_bundles: SignedBundles, opa_binary: Path) -> None:
    """Keys without `signing` ask for nothing; and an old bundle with a good signature comes back."""
    ours = signing_keys.pair()
    signed_bundles.put("policy", ours.signing().sign(policy_artifacts(signed_bundles.program).bundle()))
    signed_bundles.put("state", ours.signing(sequence=2).sign(signed_bundles.state("ann", "ben")))
    config = json.loads(signed_bundles.config(ours).read_text())
    del config["bundles"]["policy"]
    signed_bundles.put("policy", policy_artifacts(signed_bundles.program).bundle())
    (signed_bundles.folder / "config.json").write_text(json.dumps(config))
    with OpaServer(signed_bundles.bundles, binary=opa_binary, config=signed_bundles.folder / "config.json") as opa:
        assert decision(opa, "ben") is True
        signed_bundles.put("state", ours.signing(sequence=1).sign(signed_bundles.state("ann")))
        until(lambda: decision(opa, "ben") is False, "an older one is taken")


@pytest.mark.slow
def test_a_scope_ends_all_that_was_signed_before(signed_bundles: SignedBundles, opa_binary: Path) -> None:
    """The way to keep an old bundle from ever coming back to an OPA: the scope counts up."""
    ours = signing_keys.pair()
    signed_bundles.put("policy", ours.signing(scope="prod/2").sign(policy_artifacts(signed_bundles.program).bundle()))
    signed_bundles.put("state", ours.signing(scope="prod/1").sign(signed_bundles.state("ann")))
    with pytest.raises(OpaError, match="scope mismatch"):
        OpaServer(
            signed_bundles.bundles, binary=opa_binary, config=signed_bundles.config(ours, scope="prod/2"), timeout=10
        ).start()
