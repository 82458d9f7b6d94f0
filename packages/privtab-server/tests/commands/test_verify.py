from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import signing_keys
from failing_servers import reply
from proxies import proxy

PAIR, OTHER = signing_keys.pair(), signing_keys.pair("ES256", 1)


@pytest.fixture
def build(privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path) -> Path:
    key = PAIR.write(tmp_path)[0]
    ran = privtab(
        "compile", policy, "-o", tmp_path / "build", "-s", state, "--signing-key", key, "--signature", "sequence=5"
    )
    assert ran.code == 0, ran.err
    return tmp_path / "build" / "shop" / "1"


def test_valid_and_invalid_signatures(privtab: Callable[..., Any], build: Path, tmp_path: Path) -> None:
    key = PAIR.write(tmp_path)[1]
    both = build / "policy.tar.gz", build / "state.tar.gz"
    ran = privtab("bundle", "verify", *both, "--verification-key", key)
    assert ran.code == 0, ran.err
    assert ran.out.count(f"signed with {PAIR.signing().id} (ES256), sequence 5") == 2
    (build / "state.tar.gz").write_bytes(signing_keys.tampered(both[1].read_bytes())["a changed byte"])
    ran = privtab("bundle", "verify", *both, "--verification-key", key, "--format", "json")
    assert ran.code == 1
    good, bad = json.loads(ran.out)
    assert (good["verified"], good["sequence"], good["bundle"]) == (True, 5, str(both[0]))
    assert (bad["verified"], bad["bundle"]) == (False, str(both[1]))
    assert "is not as it was when it was signed" in bad["why"]
    (build / "state.tar.gz").write_bytes(b"nothing")
    ran = privtab("bundle", "verify", *both, "--verification-key", key)
    assert ran.code == 1
    assert "state.tar.gz is refused: it is not a complete bundle" in ran.err


def test_the_key_and_the_scope_must_be_those(
    privtab: Callable[..., Any], build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = build / "policy.tar.gz"
    other = OTHER.write(tmp_path, "other")[1]
    assert privtab("bundle", "verify", bundle).code == 2, "no key"
    assert privtab("bundle", "verify", bundle, "--scope", "prod").code == 2
    assert privtab("bundle", "verify", bundle, "--verification-key", other).code == 1
    ran = privtab(
        "bundle", "verify", bundle, "--verification-key", other, "--verification-key", PAIR.write(tmp_path)[1]
    )
    assert ran.code == 0
    ran = privtab("bundle", "verify", bundle, "--verification-key", PAIR.write(tmp_path)[1], "--scope", "prod")
    assert ran.code == 1
    assert "not for the scope `prod`" in ran.err
    monkeypatch.setenv("PRIVTAB_VERIFICATION_KEY", f"{other},{PAIR.write(tmp_path)[1]}")
    assert privtab("bundle", "verify", bundle).code == 0
    assert privtab("bundle", "verify", tmp_path / "gone.tar.gz").code == 3
    monkeypatch.setenv("PRIVTAB_VERIFICATION_KEY", "")
    for command in ("verify", "inspect"):
        ran = privtab("bundle", command, bundle)
        assert (ran.code, "PRIVTAB_VERIFICATION_KEY is empty" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("version", "configuration", "safe"),
    [
        ("1.20.2", {"result": {"bundles": {"policy": {"signing": {"scope": "prod"}}}}}, False),
        ("1.20.2", {"code": "unauthorized"}, False),
        ("1.20.2", {"result": {"bundles": {"policy": {}}}}, True),
        ("1.22.4", {}, True),
    ],
)
def test_opas_that_accept_unsigned_bundles_are_named(
    version: str,
    configuration: dict[str, Any],
    safe: bool,
    privtab: Callable[..., Any],
) -> None:
    def answer(head: bytes) -> bytes:
        status = {"result": {"labels": {"id": "one", "version": version}, "bundles": {}}}
        body = status if head.startswith(b"GET /v1/status ") else configuration
        return reply(json.dumps(body), "200 OK" if "result" in body else "401 Unauthorized", "Connection: close")

    with proxy(answer) as (where, _):
        opa = ("--opa", f"http://{where}")
        shown = privtab("registry", "status", *opa, "--check", "--format", "json")
    assert shown.code == (0 if safe else 1)
    [sidecar] = json.loads(shown.out)["sidecars"]
    assert sidecar["standing"] == ("active" if safe else "unsafe")
    assert ("is OPA 1.20.2, which may accept unsigned bundles (GHSA-g2pf-6v5v-qcc8)" in shown.out) is not safe


@pytest.mark.slow
def test_older_bundles_are_refused(privtab: Callable[..., Any], build: Path, tmp_path: Path) -> None:
    bundle = build / "policy.tar.gz"
    private, key = PAIR.write(tmp_path)
    newer = tmp_path / "newer.tar.gz"
    privtab("bundle", "sign", bundle, "--signing-key", private, "--signature", "sequence=6", "-o", newer)
    arguments = ("--verification-key", key, "--newer-than")
    assert privtab("bundle", "verify", newer, *arguments, bundle).code == 0
    assert privtab("bundle", "verify", newer, *arguments, "5").code == 0
    ran = privtab("bundle", "verify", bundle, *arguments, newer)
    assert ran.code == 1
    assert "it is not newer: its sequence is 5, and 6 was there before" in ran.err
    assert privtab("bundle", "verify", bundle, *arguments, bundle).code == 1
    privtab("bundle", "sign", bundle, "--signing-key", private, "-o", newer)
    ran = privtab("bundle", "verify", bundle, *arguments, newer)
    assert ran.code == 2
    assert "has no sequence" in ran.err
    newer.write_bytes(signing_keys.tampered(bundle.read_bytes())["a missing signature"])
    assert privtab("bundle", "verify", bundle, *arguments, newer).code == 3
