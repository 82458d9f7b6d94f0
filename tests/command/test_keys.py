from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import signing_keys

from privtab.base.signatures import verification_keys
from privtab.bundle.sign import SigningKey


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
def test_a_new_key_has_two_halves(privtab: Callable[..., Any], tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "prod.pem", tmp_path / "prod.pub.pem"
    ran = privtab("bundle", "keys", private, "--new", algorithm)
    assert ran.code == 0, ran.err
    assert private.stat().st_mode & 0o777 == 0o600
    key = SigningKey.of(private)
    assert key.algorithm == algorithm
    assert [found.id for found in verification_keys(public)] == [key.id]
    assert key.id in ran.out
    before = private.read_bytes()
    again = privtab("bundle", "keys", private, "--new", "ES256")
    assert (again.code, private.read_bytes()) == (2, before)
    shown = privtab("bundle", "keys", private, public)
    assert shown.out.count(key.id) == 2
    assert privtab("bundle", "keys", private, "--format", "pem").out == public.read_text()
    rows = json.loads(privtab("bundle", "keys", public, "--format", "json").out)
    assert rows[0]["algorithms"][0] == algorithm


def test_a_key_with_a_password(privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVTAB_SIGNING_KEY_PASSWORD", "open sesame")
    assert privtab("bundle", "keys", tmp_path / "p.pem", "--new", "ES256").code == 0
    assert privtab("bundle", "keys", tmp_path / "p.pem").code == 0
    monkeypatch.delenv("PRIVTAB_SIGNING_KEY_PASSWORD")
    ran = privtab("bundle", "keys", tmp_path / "p.pem")
    assert ran.code == 2
    assert "PRIVTAB_SIGNING_KEY_PASSWORD" in ran.err
    monkeypatch.setenv("PRIVTAB_SIGNING_KEY_PASSWORD", "")
    assert privtab("bundle", "keys", tmp_path / "plain.pem", "--new", "ES256").code == 2
    assert not (tmp_path / "plain.pem").exists()


def test_the_key_configuration_for_opa(privtab: Callable[..., Any], tmp_path: Path) -> None:
    pair, other = signing_keys.pair(), signing_keys.pair("RS256")
    files = [key_pair.write(tmp_path, name)[1] for name, key_pair in (("ec", pair), ("rsa", other))]
    ran = privtab("bundle", "keys", *files, "--format", "opa", "--scope", "prod", "--bundle", "policy")
    assert "no `keyid`: OPA before 1.21.3 accepts unsigned bundles" in ran.err
    found = json.loads(ran.out)
    assert found["bundles"] == {"policy": {"signing": {"scope": "prod"}}}
    assert [key["algorithm"] for key in found["keys"].values()] == ["ES256", "RS256"]
    assert found["keys"][pair.signing().id]["key"] == pair.public


def test_a_single_key_is_named_which_older_opas_need(privtab: Callable[..., Any], tmp_path: Path) -> None:
    pair = signing_keys.pair()
    ran = privtab("bundle", "keys", pair.write(tmp_path)[1], "--format", "opa", "--scope", "prod")
    assert ran.err == ""
    signing = {"keyid": pair.signing().id, "scope": "prod"}
    assert json.loads(ran.out)["bundles"] == {"policy": {"signing": signing}, "state": {"signing": signing}}


def test_keys_of_other_tools(privtab: Callable[..., Any], tmp_path: Path) -> None:
    private, public = tmp_path / "k.pem", tmp_path / "k.pub"
    commands: tuple[list[str | Path], ...] = (
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private],
        ["openssl", "ec", "-in", private, "-pubout", "-out", public],
    )
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("needs the openssl command")
    from_private, from_public = privtab("bundle", "keys", private), privtab("bundle", "keys", public)
    assert from_private.code == 0, from_private.err
    assert from_private.out.split()[0] == from_public.out.split()[0]


def test_files_that_are_no_keys(privtab: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    assert privtab("bundle", "keys", tmp_path / "text").code == 2
    assert privtab("bundle", "keys", tmp_path / "gone").code == 3
