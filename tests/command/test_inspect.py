from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import signing_keys

from privtab.bundle.archive import packed_archive

PAIR = signing_keys.pair()


@pytest.fixture
def build(privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path) -> Path:
    key = PAIR.write(tmp_path)[0]
    ran = privtab(
        "compile", policy, "-o", tmp_path / "build", "-s", state, "--signing-key", key, "--signature", "sequence=5"
    )
    assert ran.code == 0, ran.err
    return tmp_path / "build" / "shop" / "1"


def test_a_person_sees_what_is_inside(privtab: Callable[..., Any], build: Path) -> None:
    ran = privtab("bundle", "inspect", build / "state.tar.gz")
    assert ran.code == 0, ran.err
    lines = [line.strip() for line in ran.out.splitlines()]
    shown = {line.split()[0]: line.split(maxsplit=1)[-1] for line in lines}
    assert shown["kind"] == "state"
    assert shown["system"] == "shop"
    assert shown["policy"] == "shop/1"
    assert "1 denial" in lines
    assert shown["signature"].startswith(f"ES256 by {PAIR.signing().id}, sequence 5; not verified")
    assert any(line.endswith("privtab_state/shop/data.json") for line in lines)
    assert all(len(line) < 100 for line in lines[1:])


def test_a_program_sees_all_of_it(privtab: Callable[..., Any], build: Path, tmp_path: Path) -> None:
    ran = privtab(
        "bundle", "inspect", build / "policy.tar.gz", "--verification-key", PAIR.write(tmp_path)[1], "--format", "json"
    )
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    program = json.loads((build / "program.json").read_text())
    assert (found["kind"], found["system"], found["version"]) == ("policy", "shop", "1")
    assert found["revision"] == program["revision"]
    assert found["bytes"] == (build / "policy.tar.gz").stat().st_size
    assert found["signature"]["verified"] is True
    assert list(found["provenance"]["sources"]) == ["shop.yaml"]
    assert {
        "name": ".manifest",
        "bytes": len(signing_keys.files((build / "policy.tar.gz").read_bytes())[".manifest"]),
    } in (found["files"])


def test_a_key_that_does_not_hold_is_a_failed_check(privtab: Callable[..., Any], build: Path, tmp_path: Path) -> None:
    other = signing_keys.pair("ES256", 1).write(tmp_path, "other")[1]
    ran = privtab("bundle", "inspect", build / "policy.tar.gz", "--verification-key", other)
    assert ran.code == 1
    assert "refused: it is signed with another key" in ran.out
    bare = tmp_path / "bare.tar.gz"
    bare.write_bytes(signing_keys.tampered((build / "policy.tar.gz").read_bytes())["a missing signature"])
    ran = privtab("bundle", "inspect", bare, "--verification-key", other)
    assert ran.code == 1
    assert "refused: it is not signed" in ran.out
    assert privtab("bundle", "inspect", bare).code == 0


def test_bundles_of_others_and_what_is_none(privtab: Callable[..., Any], tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    other.write_bytes(packed_archive({f"p{n}.rego": b"package p\n" for n in range(30)} | {"data.json": b"{}"}))
    ran = privtab("bundle", "inspect", other)
    assert ran.code == 0, ran.err
    assert "not one of privtab's" in ran.out
    assert "30 modules" in ran.out
    assert "… and 11 more" in ran.out
    other.write_text("no bundle")
    ran = privtab("bundle", "inspect", other)
    assert ran.code == 3
    assert f"{other}: it is not a complete bundle" in ran.err
    assert privtab("bundle", "inspect", tmp_path / "gone").code == 3
