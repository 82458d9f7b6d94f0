"""An entity may be called by wildcards alone, which its path escapes: single requests and batches of every engine take it."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab import Client, Embedded, Entity, Request
from privtab.bundle.pack import state_bundle
from privtab.engines.opa.server import OpaServer
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.nodes import Assignment, Grant, State

NAMES = ("%2A", "%3F%2A", "a*", "*a", "x")


@pytest.fixture
def bundles(tmp_path: Path) -> list[Path]:
    program = load_program("gravitino/1.1.0")
    grants = tuple(
        Grant(grantee="role:reader", effect="allow", privilege=name, entity=Entity("metalake", "m"))
        for name in ("USE_CATALOG", "USE_SCHEMA", "SELECT_TABLE")
    )

    state = State(
        grants=grants,
        assignments=(Assignment(principal="user:ann", role="reader", scope=None),),
        members=(("ann", Entity("metalake", "m")),),
    )
    files = [tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"]
    for file, content in zip(files, (policy_artifacts(program).bundle(), state_bundle(program, state)), strict=True):
        file.write_bytes(content)
    return files


def test_batches_answer_as_single_requests(bundles: list[Path]) -> None:
    requests = [
        Request(user="ann", action="load", resource=Entity("table", f"m/{name}/s/{other}"))
        for name in NAMES
        for other in NAMES
    ]
    with OpaServer(bundles) as opa:
        for client in (Client(opa.url, system="gravitino"), Embedded(bundles[0], state=bundles[1])):
            assert [client.check(r.user, r.action, r.resource) for r in requests] == [True] * len(requests)
            assert client.check_many(requests) == [True] * len(requests)
            assert len(client.visible("ann", "load", "table", [r.resource.id for r in requests])) == len(requests)
