from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WRONG = """\
grants:
  - {grantee: "user:ann", effect: allow, privilege: REED, entity: "item:s/a/x"}
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "item:s"}
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "store:s"}
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG, encoding="utf-8")
    return path


def test_good_rows_are_counted(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("state", "validate", state, "--policy", policy)
    assert ran.code == 0, ran.err
    assert ran.out == "good rows: 0 members, 0 memberships, 1 assignment, 3 grants, 1 owner, 0 service admins\n"


def test_wrong_rows_are_reported_with_their_place(privtab: Callable[..., Any], policy: Path, wrong: Path) -> None:
    ran = privtab("state", "validate", wrong, "--policy", policy)
    assert ran.code == 1
    assert f"{wrong}:2: grants row 1: error[" in ran.err
    assert "REED" in ran.err
    assert f"{wrong}:3: grants row 2: error[" in ran.err
    assert "1 grant," in ran.out


def test_the_first_repetitions_are_shown_and_the_rest_counted(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path
) -> None:
    row = '  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "store:s"}\n'
    repeated = tmp_path / "repeated.yaml"
    repeated.write_text("grants:\n" + row * 16 + "service_admins:\n  - user: ann\n  - user: ann\n", encoding="utf-8")
    ran = privtab("state", "validate", repeated, "--policy", policy)
    assert ran.code == 0
    assert ran.err.count("the row says the same as row 1 of `grants`") == 10
    assert f"{repeated}: grants: warning[S160 duplicate-row]: 5 more rows of `grants`" in ran.err
    assert ran.err.count("of `service_admins`") == 1
    listed = json.loads(privtab("state", "validate", repeated, "--policy", policy, "--format", "json").out)
    assert sum(finding["code"] == "S160" for finding in listed) == 16


def test_findings_for_programs(privtab: Callable[..., Any], policy: Path, wrong: Path) -> None:
    ran = privtab("state", "validate", wrong, "--policy", policy, "--format", "json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert [(finding["table"], finding["row_number"], finding["severity"]) for finding in found] == [
        ("grants", 1, "error"),
        ("grants", 2, "error"),
    ]
    assert found[0]["row"]["privilege"] == "REED"


def test_the_bundle_holds_the_index(privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "state.tar.gz"
    ran = privtab("state", "pack", state, "--policy", policy, "-o", path)
    assert ran.code == 0, ran.err
    with tarfile.open(path) as bundle:
        file = bundle.extractfile("privtab_state/shop/data.json")
        assert file is not None
        index = json.load(io.BytesIO(file.read()))
    assert index["owners"] == {"item:s/a/y": {"user:cleo": True}}


def test_wrong_rows_are_packed_only_on_request(
    privtab: Callable[..., Any], policy: Path, wrong: Path, tmp_path: Path
) -> None:
    path = tmp_path / "state.tar.gz"
    assert privtab("state", "pack", wrong, "--policy", policy, "-o", path).code == 1
    assert not path.exists()
    assert privtab("state", "pack", wrong, "--policy", policy, "-o", path, "--allow-partial").code == 0
    assert path.exists()


def test_a_state_that_is_not_there(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    ran = privtab("state", "validate", tmp_path / "nothing.yaml", "--policy", policy)
    assert ran.code == 3
    assert "nothing.yaml" in ran.err
