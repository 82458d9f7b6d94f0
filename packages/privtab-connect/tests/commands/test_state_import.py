"""`privtab state import`: what is written, and what stops it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranger import LAKE, ranger_policy

from privtab_connect import documents


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    path = tmp_path / "lake.yaml"
    path.write_text(LAKE, encoding="utf-8")
    return path


def test_the_command_writes_a_state_that_it_can_read(privtab: Callable[..., Any], tmp_path: Path, lake: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([ranger_policy(1), ranger_policy(2, policyType=1)]), encoding="utf-8")
    arguments = ("state", "import", "ranger", path, "--policy", lake, "-o", tmp_path / "out")
    refused = privtab(*arguments)
    assert refused.code == 1
    assert "1 thing cannot be expressed: without it the state could allow more; to do without: --accept data-mask" in (
        " ".join(refused.err.split())
    )
    assert not (tmp_path / "out").exists()
    ran = privtab(*arguments, "--accept", "data-mask")
    assert ran.code == 0, ran.err
    assert ran.out == f"{tmp_path / 'out'}: 2 grants\n"
    assert "data-mask: policy 2 `p2`: a data mask" in ran.err
    checked = privtab("state", "validate", tmp_path / "out", "--policy", lake)
    assert checked.code == 0, checked.err
    assert "2 grants" in checked.out


def test_strict_writes_nothing(privtab: Callable[..., Any], tmp_path: Path, lake: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([ranger_policy(1), ranger_policy(2, policyType=1)]), encoding="utf-8")
    ran = privtab("state", "import", "ranger", path, "--policy", lake, "-o", tmp_path / "out.json", "--accept", "none")
    assert ran.code == 1
    assert "1 thing cannot be expressed" in ran.err
    assert not (tmp_path / "out.json").exists()
    ran = privtab(
        "state", "import", "ranger", path, "-p", lake, "-o", tmp_path / "o", "--accept", "none", "--accept", "all"
    )
    assert (ran.code, "`--accept none` accepts nothing" in ran.err) == (2, True)


def test_a_lost_denial_writes_nothing(privtab: Callable[..., Any], tmp_path: Path, lake: Path) -> None:
    item = {"accesses": [{"type": "drop"}], "users": ["eve"]}
    path = tmp_path / "export.json"
    path.write_text(json.dumps([ranger_policy(1, denyPolicyItems=[item])]), encoding="utf-8")
    arguments = ("state", "import", "ranger", path, "--policy", lake, "-o", tmp_path / "out.json")
    ran = privtab(*arguments)
    assert ran.code == 1
    assert "unknown privilege `DROP`" in ran.err
    assert "--accept unknown-privilege" in ran.err
    assert not (tmp_path / "out.json").exists()
    assert privtab(*arguments, "--accept", "all").code == 0
    assert len(json.loads((tmp_path / "out.json").read_text())["grants"]) == 2


@pytest.mark.parametrize("query", ["", "?mode=ro&uri=true"])
def test_the_address_of_a_database_keeps_its_slashes(
    privtab: Callable[..., Any], tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.executescript("""
            create table members ("user", "of"); create table memberships ("user", "group");
            create table assignments (principal, role); create table owners (entity, owner);
            create table service_admins ("user"); create table grants (grantee, effect, privilege, entity, note);
            insert into grants values ('user:ann', 'allow', 'SELECT', 'schema:sales', 'x');
        """)
    monkeypatch.chdir(tmp_path)
    file = "file:" if query else ""
    for address in (f"sqlite:///{file}state.db{query}", f"sqlite:///{file}{tmp_path / 'state.db'}{query}"):
        asked = ("explain", "ann", "read", "table:sales/orders", "--policy", lake)
        refused = privtab(*asked, "--state", f"import:tables:{address}")
        assert refused.code == 1
        assert "grants.note" in refused.err
        ran = privtab(*asked, "--state", f"import:tables?accept=grants.note:{address}")
        assert ran.out.startswith("ALLOW"), ran.err
        listed = privtab("state", "validate", f"import:tables?accept=grants.note:{address}", "--policy", lake)
        assert listed.code == 0, listed.err


@pytest.mark.parametrize("command", ["import", "push"])
def test_only_help_looks_for_documents(
    command: str, privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def names(kind: str) -> str:
        looked.append(kind)
        return "there"

    monkeypatch.setattr(documents, "names", names)
    assert privtab("state", command, "no-such-document").code == 2
    assert looked == []
    assert "a name (there) or" in privtab("state", command, "--help").out
    assert len(looked) == 1
