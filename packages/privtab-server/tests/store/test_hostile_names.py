"""Names of any kind through every layer of a store: REST, the journal, commands, bundles, OPA, AuthZEN, Embedded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sidecars
from authzen_server import Server
from lake_policy import POLICY, asks, grant
from sidecars import Opa, configuration, until
from store_server import EVERYTHING, ask, serve_store, write_tokens

from privtab import Embedded
from privtab.base import encode_name
from privtab.command._app import run
from privtab.pipeline import load_program, policy_artifacts
from privtab_server.store.store import Store

pytestmark = pytest.mark.slow

NAMES = (
    "o'neil",
    'say "x"; drop table journal; --',
    "a/b",
    "a%2Fb 100%",
    "..",
    "\\",
    "~1~0",
    "名前 é\U0001f512",
    "e\u0301",
    "x" * 10_000,
    "/" * 3_000,
)
SIDECAR = "sidecar-token-0123456789"


class Layers:
    """A store with a server, an OPA and a client in process, which all answer the same question."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.url, self.policy = folder / "grants.db", folder / "lake.yaml"
        self.policy.write_text(POLICY, encoding="utf-8")
        program = load_program(self.policy)
        self.store = Store.create(str(self.url), program, administrators=["root"])
        self.store.perform(asks("root", "create", "lake:l"))
        (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
        (folder / "sidecars").write_text(f"one {SIDECAR} sidecar\n", encoding="utf-8")
        tokens = write_tokens(folder / "tokens", ["root"], EVERYTHING)
        arguments: list[str | Path] = [self.url, "-p", self.policy, "--token-file", tokens, "--channel", "live"]
        arguments += ["--sidecar-token-file", folder / "sidecars"]
        self.server: Server = serve_store(folder, arguments)
        stack.callback(self.server.stop)
        config = configuration(self.server.url, instance="one", channel="live", system="lake", token=SIDECAR)
        self.opa: Opa = stack.enter_context(sidecars.running(folder, config))[0]
        until(lambda: self.opa.revision("state") and self.opa.revision("policy"))
        self.client = Embedded(str(folder / "policy.tar.gz"), state=f"store:{self.url}", refresh=0)

    def asked(self, method: str, path: str, body: Any = None) -> Any:
        answer = ask(self.server, method, path, "root", body)
        assert answer.status_code == 200, answer.text[:2_000]
        return answer.json()

    def answers(self, user: str, table: str) -> set[bool]:
        """Whether a user may read a table, by everything that decides."""
        request = {
            "subject": {"type": "user", "id": user},
            "action": {"name": "read"},
            "resource": {"type": "table", "id": table},
        }
        by_opa = self.opa.session.post(f"{self.opa.url}/v1/data/privtab/lake/allow", json={"input": request}, timeout=5)
        return {
            bool(by_opa.json().get("result")),
            self.asked("POST", "//access/v1/evaluation", request)["decision"],
            self.client.check(user, "read", f"table:{table}"),
        }


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[Layers]:
    with ExitStack() as stack:
        yield Layers(tmp_path, stack)


def test_names_pass_every_layer_unharmed(layers: Layers, capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, dict[str, str]] = {}
    for name in NAMES:
        schema = f"schema:l/{encode_name(name)}"
        layers.asked("POST", "/operations", {"operation": "create", "resource": schema})
        row = grant(f"user:{name}", "SELECT", schema)
        made = layers.asked("POST", "/rows/grants", {"rows": [row]})
        assert [change["row"] for change in made["changes"]] == [row]
        given[name] = row
    listed = {entry["row"]["grantee"]: entry for entry in layers.asked("GET", "/rows/grants?limit=1000")["rows"]}
    assert {grantee: entry["row"] for grantee, entry in listed.items()} == {
        f"user:{name}": given[name] for name in NAMES
    }
    for name, row in given.items():
        about = layers.asked("GET", f"/rows/grants?about={quote(f'user:{name}', safe='')}")["rows"]
        assert [entry["row"] for entry in about] == [row]
    table = {name: f"l/{encode_name(name)}/t" for name in NAMES}
    until(lambda: layers.answers(NAMES[-1], table[NAMES[-1]]) == {True})
    for name in NAMES:
        others = {user: layers.answers(user, table[name]) for user in NAMES}
        assert others == {user: {user == name} for user in NAMES}
    # Commands on the store: rows as JSON, who may read, and each change.
    url = str(layers.url)
    assert run(["store", "show", url, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["grants"] == list(given.values())
    for name in NAMES:
        command = ["who-can", "read", f"table:{table[name]}", "-p", str(layers.policy), "-s", f"store:{url}"]
        assert run([*command, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {user["user"] for user in found["users"]} == {name}
    # The row of each goes by its id, and takes the right of its user alone.
    for name in NAMES:
        entry = listed[f"user:{name}"]
        layers.asked("DELETE", f"/rows/grants/{entry['id']}")
        layers.asked("DELETE", f"/entities?entity={quote(entry['row']['entity'], safe='')}")
        assert not layers.client.check(name, "read", f"table:{table[name]}")
    until(lambda: layers.answers(NAMES[-1], table[NAMES[-1]]) == {False})
    assert {frozenset(layers.answers(name, table[name])) for name in NAMES} == {frozenset({False})}
    assert layers.store.rows()["owners"] == [{"entity": "lake:l", "owner": "user:root"}]
    assert layers.store.verify() == []
