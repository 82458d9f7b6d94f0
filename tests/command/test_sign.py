from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import signing_keys

from privtab.base.signatures import Trust
from privtab.bundle.sign import verify_bundle

PAIR = signing_keys.pair()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return PAIR.write(tmp_path)[0]


@pytest.fixture
def bundle(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> Path:
    assert privtab("compile", policy, "-o", tmp_path / "build").code == 0
    return tmp_path / "build" / "shop" / "1" / "policy.tar.gz"


def test_a_bundle_is_signed_in_its_place(privtab: Callable[..., Any], bundle: Path, key: Path) -> None:
    before = bundle.read_bytes()
    ran = privtab(
        "bundle",
        "sign",
        bundle,
        "--signing-key",
        key,
        "--signature",
        "scope=prod",
        "--signature",
        "sequence=3",
        "--signature",
        "key-id=mine",
    )
    assert ran.code == 0, ran.err
    assert "signed with mine (ES256)" in ran.out
    assert f"{bundle.stat().st_size:,} bytes" in ran.out
    found = verify_bundle(bundle, Trust.of(PAIR.public, "prod"))
    assert found.sequence == 3
    assert signing_keys.header(bundle.read_bytes())["kid"] == "mine"
    content = {
        name: text for name, text in signing_keys.files(bundle.read_bytes()).items() if name != ".signatures.json"
    }
    assert content == signing_keys.files(before)


def test_another_place_leaves_the_first_one(
    privtab: Callable[..., Any], bundle: Path, key: Path, tmp_path: Path
) -> None:
    before = bundle.read_bytes()
    ran = privtab("bundle", "sign", bundle, "--signing-key", key, "-o", tmp_path / "signed.tar.gz", "--format", "json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)
    assert row["bytes"] == (tmp_path / "signed.tar.gz").stat().st_size
    assert bundle.read_bytes() == before


def test_the_key_comes_from_the_environment(
    privtab: Callable[..., Any], bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVTAB_SIGNING_KEY", PAIR.private)
    assert privtab("bundle", "sign", bundle).code == 0
    assert verify_bundle(bundle, Trust.of(PAIR.public)).key == PAIR.signing().id


@pytest.mark.parametrize("empty", ["variable", "option"])
def test_an_empty_key_signs_nothing(
    empty: str, privtab: Callable[..., Any], bundle: Path, policy: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = bundle.parent / "new"
    signing: tuple[str, ...] = ("--signing-key", "")
    if empty == "variable":
        monkeypatch.setenv("PRIVTAB_SIGNING_KEY", "")
        signing = ()
    for command in (
        ("compile", policy, "-o", built),
        ("state", "pack", state, "-p", policy, "-o", built),
        ("deploy", policy, "--registry", built, "--channel", "prod"),
    ):
        ran = privtab(*command, *signing)
        assert (ran.code, "PRIVTAB_SIGNING_KEY is empty" in ran.err, built.exists()) == (2, True, False)


def test_a_file_that_cannot_be_signed_stays_as_it_is(
    privtab: Callable[..., Any], bundle: Path, key: Path, tmp_path: Path
) -> None:
    before = bundle.read_bytes()
    assert privtab("bundle", "sign", bundle).code == 2, "no key"
    assert privtab("bundle", "sign", bundle, "--signing-key", tmp_path / "gone.pem").code == 3
    assert privtab("bundle", "sign", bundle, "--signing-key", PAIR.write(tmp_path)[1]).code == 2, "a public key"
    assert privtab("bundle", "sign", bundle, bundle, "--signing-key", key, "-o", tmp_path / "one").code == 2
    assert bundle.read_bytes() == before
    bundle.write_bytes(before[:100])
    ran = privtab("bundle", "sign", bundle, "--signing-key", key)
    assert (ran.code, bundle.read_bytes()) == (3, before[:100])
    assert "not a complete bundle" in ran.err
    assert [path.name for path in bundle.parent.iterdir() if path.name.startswith(".")] == [], "nothing half-written"


def test_compile_and_pack_sign_at_once(
    privtab: Callable[..., Any], policy: Path, state: Path, bundle: Path, key: Path, tmp_path: Path
) -> None:
    build = tmp_path / "signed"
    options = ("--signing-key", key, "--signature", "scope=prod", "--signature", "sequence=9")
    ran = privtab("compile", policy, "-o", build, "-s", state, *options)
    assert ran.code == 0, ran.err
    assert f"signed with {PAIR.signing().id}" in ran.out
    for name in ("policy", "state"):
        assert verify_bundle(build / "shop" / "1" / f"{name}.tar.gz", Trust.of(PAIR.public, "prod")).sequence == 9
    privtab("bundle", "sign", bundle, *options)
    assert bundle.read_bytes() == (build / "shop" / "1" / "policy.tar.gz").read_bytes(), "the same, signed later"
    ran = privtab("state", "pack", state, "-p", policy, "-o", tmp_path / "state.tar.gz", *options)
    assert ran.code == 0, ran.err
    assert "3 grants" in ran.out
    assert (tmp_path / "state.tar.gz").read_bytes() == (build / "shop" / "1" / "state.tar.gz").read_bytes()


@pytest.mark.parametrize("claim", ["sequence=soon", "sequence=-1", "sequence=1.5", "id=x", "sequence"])
def test_a_claim_of_a_signature_has_its_form(privtab: Callable[..., Any], bundle: Path, key: Path, claim: str) -> None:
    before = bundle.read_bytes()
    ran = privtab("bundle", "sign", bundle, "--signing-key", key, "--signature", claim)
    assert (ran.code, f"`--signature {claim}`" in ran.err, bundle.read_bytes() == before) == (2, True, True)


def test_signing_options_need_a_key(privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path) -> None:
    for option in (("--signature", "scope=x"), ("--signature", "sequence=1"), ("--signature", "key-id=x")):
        assert privtab("compile", policy, "-o", tmp_path / "build", *option).code == 2
        assert privtab("state", "pack", state, "-p", policy, "-o", tmp_path / "s.tar.gz", *option).code == 2
    assert not (tmp_path / "build").exists()
    assert not (tmp_path / "s.tar.gz").exists()
