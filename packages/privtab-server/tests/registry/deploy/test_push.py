"""Pushing into a real OPA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from failing_servers import POLICY, ROWS, free_port

from privtab import Client
from privtab.base import UsageError
from privtab.bundle import PolicyArtifacts, state_bundle
from privtab.engines import OpaServer
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import from_tables, index_document, validate
from privtab_server.errors import FleetError
from privtab_server.registry.deploy.push import push


def program(folder: Path, text: str = POLICY) -> Program:
    path = folder / "studio.yaml"
    path.write_text(text, encoding="utf-8")
    return load_program(path)


def state(of: Program, rows: dict[str, Any] = ROWS) -> dict[str, Any]:
    found, _ = validate(of, from_tables(rows, "rows"))
    return dict(index_document(of, found))


@pytest.fixture
def opa() -> Iterator[OpaServer]:
    with OpaServer() as server:
        yield server


def test_a_pushed_policy_decides_and_a_later_push_says_what_it_replaced(opa: OpaServer, tmp_path: Path) -> None:
    first = program(tmp_path)
    artifacts = policy_artifacts(first)
    pushed = push(opa.url, artifacts, state(first))
    assert (pushed.policy_before, pushed.state_before) == (None, None)
    assert len(pushed.added) == len(artifacts.modules)
    with Client(opa.url, system="studio") as client:
        assert client.check("ann", "read", "dataset:web/clicks")
        assert not client.check("ben", "read", "dataset:web/salaries")

        second = program(tmp_path, POLICY.replace("READ (dataset) or", "WRITE (dataset) or"))
        again = push(opa.url, policy_artifacts(second), None)
        assert again.policy_before == artifacts.revision
        assert again.state is None
        assert again.state_before == pushed.state
        assert again.replaced
        assert "privtab_push/studio/lib/lib" in again.unchanged
        assert not client.check("ben", "read", "dataset:web/clicks"), "the new rule, the old state"
        assert client.check("ann", "read", "dataset:web/clicks")

        more = {"grants": [*ROWS["grants"], {**ROWS["grants"][0], "grantee": "user:ben", "privilege": "WRITE"}]}
        third = push(opa.url, policy_artifacts(second), state(second, more))
        assert (third.added, third.replaced, third.removed) == ((), (), ())
        assert third.state_before != third.state
        assert client.check("ben", "read", "dataset:web/clicks")


def test_a_module_that_the_new_policy_has_not_is_removed(opa: OpaServer, tmp_path: Path) -> None:
    filtered = "dialect: postgres\ntypes:\n  dataset:\n    row_filters: {all: {requires: READ (dataset), sql: 'TRUE'}}\ntables:"
    push(opa.url, policy_artifacts(program(tmp_path, POLICY.replace("tables:", filtered))), None)
    pushed = push(opa.url, policy_artifacts(program(tmp_path)), None)
    assert pushed.removed == ("privtab_push/studio/filters",)


def test_policies_of_active_bundles_are_left_alone(tmp_path: Path) -> None:
    pushed = program(tmp_path)
    bundle = tmp_path / "policy.tar.gz"
    bundle.write_bytes(policy_artifacts(pushed).bundle())
    changed = policy_artifacts(program(tmp_path, POLICY.replace("READ (dataset) or", "")))
    with OpaServer([bundle]) as opa, Client(opa.url, system="studio") as client:
        with pytest.raises(FleetError, match="runs bundles"):
            push(opa.url, changed, state(pushed))
        assert client.health()


def test_a_refused_push_leaves_the_rules_that_were_there(tmp_path: Path) -> None:
    pushed = program(tmp_path)
    bundle = tmp_path / "state.tar.gz"
    bundle.write_bytes(state_bundle(pushed, validate(pushed, from_tables(ROWS, "rows"))[0]))
    changed = policy_artifacts(program(tmp_path, POLICY.replace("READ (dataset) or", "")))
    with OpaServer([bundle]) as opa, Client(opa.url, system="studio") as client:
        push(opa.url, policy_artifacts(pushed), None)
        assert client.check("ann", "read", "dataset:web/clicks")
        with pytest.raises(FleetError, match="owned by bundle"):
            push(opa.url, changed, state(pushed))
        assert client.check("ann", "read", "dataset:web/clicks")


def test_an_opa_that_is_not_there(tmp_path: Path) -> None:
    artifacts: PolicyArtifacts = policy_artifacts(program(tmp_path))
    with pytest.raises(FleetError, match="no answer"):
        push(f"http://127.0.0.1:{free_port()}", artifacts, None)


@pytest.mark.parametrize("url", ["127.0.0.1:8181", "ftp://x", "http://x/v1", "http://"])
def test_an_address_is_checked_first(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--push"):
        push(url, policy_artifacts(program(tmp_path)), None)
