"""`compile --sharded`, `state pack --shards`: the files, what is tidied away, and that clients and commands read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_service
import pytest

from privtab import Embedded
from privtab.bundle.archive import contents

STATE = """
grants:
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "lake:a%2Fb"}
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "lake:m"}
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    path = tmp_path / "lake.yaml"
    path.write_text(bundle_service.LAKE)
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state.yaml"
    path.write_text(STATE)
    return path


def test_a_state_is_packed_in_parts(privtab: Callable[..., Any], lake: Path, state: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = privtab("state", "pack", state, "--policy", lake, "--shards", "-o", out)
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in out.iterdir()) == [
        "lake.a_2fb.tar.gz",
        "lake.m.tar.gz",
        "people.tar.gz",
        "shards.json",
    ]
    listing = json.loads((out / "shards.json").read_text())
    assert set(listing["shards"]) == {"lake:a%2Fb", "lake:m"}
    for row in (listing["people"], *listing["shards"].values()):
        found = contents((out / row["file"]).read_bytes())
        assert (found.manifest["revision"], found.roots) == (row["revision"], row["roots"])
        assert (out / row["file"]).stat().st_size == row["bytes"]
    assert "2 shards" in ran.out


def test_shards_that_are_gone_are_removed_and_others_stay_byte_for_byte(
    privtab: Callable[..., Any], lake: Path, state: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert privtab("state", "pack", state, "--policy", lake, "--shards", "-o", out).code == 0
    before = (out / "lake.m.tar.gz").read_bytes()
    (out / "foreign.tar.gz").write_bytes(b"not ours")
    state.write_text("\n".join(line for line in STATE.splitlines() if "a%2Fb" not in line))
    assert privtab("state", "pack", state, "--policy", lake, "--shards", "-o", out).code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "foreign.tar.gz",
        "lake.m.tar.gz",
        "people.tar.gz",
        "shards.json",
    ]
    assert (out / "lake.m.tar.gz").read_bytes() == before


def test_parts_need_a_folder(privtab: Callable[..., Any], lake: Path, state: Path, tmp_path: Path) -> None:
    ran = privtab("state", "pack", state, "--policy", lake, "--shards", "-o", tmp_path / "state.tar.gz")
    assert ran.code == 2
    assert "give a folder" in ran.err


def test_compiled_with_its_state_a_folder_is_all_that_an_engine_needs(
    privtab: Callable[..., Any], lake: Path, state: Path, tmp_path: Path
) -> None:
    out = tmp_path / "build"
    ran = privtab("compile", lake, "--sharded", "--state", state, "-o", out, "--format", "json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)
    assert row["state"] == str(out / "lake/1/shards.json")
    assert json.loads((out / "lake/1/program.json").read_text())["state"] == "sharded"
    client = Embedded(out / "lake/1")
    assert client.check("ann", "read", "table:a%2Fb/z/t")
    assert not client.check("ann", "read", "table:n/z/t")
    # Whole and in parts take each other's place.
    assert privtab("compile", lake, "--state", state, "-o", out).code == 0
    assert {path.name for path in (out / "lake/1").glob("*.*")} == {"policy.tar.gz", "program.json", "state.tar.gz"}
    assert Embedded(out / "lake/1").check("ann", "read", "table:a%2Fb/z/t")
    assert privtab("compile", lake, "--sharded", "--state", state, "-o", out).code == 0
    assert not (out / "lake/1/state.tar.gz").exists()
    assert Embedded(out / "lake/1").check("ann", "read", "table:a%2Fb/z/t")


def test_the_bytes_are_the_same_for_the_same_rows(
    privtab: Callable[..., Any], lake: Path, state: Path, tmp_path: Path
) -> None:
    folders = []
    for name in ("one", "two"):
        folders.append(tmp_path / name)
        assert privtab("compile", lake, "--sharded", "--state", state, "-o", folders[-1]).code == 0
    first, second = ({p.relative_to(f): p.read_bytes() for p in sorted(f.rglob("*.tar.gz"))} for f in folders)
    assert first == second
    assert len(first) == 4
