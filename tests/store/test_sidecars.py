"""Real OPA processes at `privtab store serve --channel`: changes of a store reach their decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
import sidecars
from authzen_server import Server
from lake_policy import POLICY, asks, grant
from sidecars import Opa, configuration, until
from store_server import ask, serve_store, write_tokens

from privtab import Embedded
from privtab.cli._app import run
from privtab.errors import DecisionUnavailable
from privtab.pipeline import load_program
from privtab.store.store import Store

pytestmark = pytest.mark.slow

TOKENS = {"sidecar": "sidecar-token-0123456789", "operator": "operator-token-0123456789"}
Serving = Callable[..., Server]


class Lake:
    """A store of a lake that `root` owns, and servers and sidecars of it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.url, self._stack = folder, folder / "grants.db", stack
        self.policy = folder / "lake.yaml"
        self.policy.write_text(POLICY, encoding="utf-8")
        self.store = Store.create(str(self.url), load_program(self.policy), administrators=["root"])
        self.store.perform(asks("root", "create", "lake:l"))
        self.tokens = write_tokens(folder / "tokens", ["root"])
        self.sidecar_tokens = folder / "sidecars"
        lines = [f"{role} {token} {role}\n" for role, token in TOKENS.items()]
        self.sidecar_tokens.write_text("".join(lines), encoding="utf-8")

    def serve(self, *more: str | Path) -> Server:
        arguments: list[str | Path] = [
            self.url,
            "-p",
            self.policy,
            "--token-file",
            self.tokens,
            "--authorise",
            "owners=grant",
        ]
        arguments += ["--channel", "live", "--sidecar-token-file", self.sidecar_tokens, *more]
        server = serve_store(self.folder, arguments)
        self._stack.callback(ended, server)
        return server

    def opa(self, server: Server, instance: str = "one", **more: Any) -> Opa:
        token = TOKENS["sidecar"]
        config = configuration(server.url, instance=instance, channel="live", system="lake", token=token, **more)
        (opa,) = self._stack.enter_context(sidecars.running(self.folder, config))
        until(lambda: opa.revision("state") and opa.revision("policy"))
        return opa

    def change(self, **changes: Any) -> int:
        return self.store.change(asks("root", "grant", "lake:l"), **changes).number

    def grants(self, server: Server, user: str) -> None:
        answer = ask(server, "POST", "/rows/grants", "root", {"rows": [grant(f"user:{user}", "CREATE", "lake:l")]})
        assert answer.status_code == 200, answer.text


def ended(server: Server) -> None:
    if server.process.poll() is None:
        server.stop()
    assert "Traceback" not in server.log.read_text(), server.log.read_text()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with ExitStack() as stack:
        yield Lake(tmp_path, stack)


def creates(opa: Opa, user: str) -> bool:
    request = {
        "subject": {"type": "user", "id": user},
        "action": {"name": "create"},
        "resource": {"type": "schema", "id": "l/s"},
    }
    answer = opa.session.post(f"{opa.url}/v1/data/privtab/lake/allow", json={"input": request}, timeout=5)
    return bool(answer.json().get("result"))


def operator(server: Server, path: str) -> requests.Response:
    return server.get(path, headers={"Authorization": f"Bearer {TOKENS['operator']}"})


def bundle_type(opa: Opa) -> str | None:
    found: str | None = opa.status()["bundles"]["state"].get("type")
    return found


def waits(server: Server, instance: str = "one") -> bool:
    """Whether a sidecar waits for what comes next."""
    found = {sidecar["id"]: sidecar for sidecar in operator(server, "/fleet").json()["sidecars"]}
    feeds = found.get(instance, {}).get("feeds", {})
    return len(feeds) == 2 and all(feed["waiting"] for feed in feeds.values())


def test_a_change_reaches_a_decision_within_two_seconds_as_a_delta(lake: Lake) -> None:
    server = lake.serve("--delta-from", "0")
    opa = lake.opa(server)
    assert not creates(opa, "ann")
    until(lambda: waits(server))
    lake.grants(server, "ann")
    assert until(lambda: creates(opa, "ann"), 2) < 2
    until(lambda: bundle_type(opa) == "delta")
    until(lambda: waits(server))
    # A change by another process, which the server does not hear of.
    lake.change(
        add={"grants": [grant("user:ben", "CREATE", "lake:l")]},
        remove={"grants": [grant("user:ann", "CREATE", "lake:l")]},
    )
    assert until(lambda: creates(opa, "ben"), 2) < 2
    assert not creates(opa, "ann")


def test_a_sidecar_that_missed_changes_and_a_restart_of_the_server_gets_all_of_them(lake: Lake) -> None:
    server = lake.serve()
    opa = lake.opa(server)
    until(lambda: waits(server))
    port = server.url.rpartition(":")[2]
    server.stop()
    held = opa.revision("state")
    for user in ("ann", "ben"):
        lake.change(add={"grants": [grant(f"user:{user}", "CREATE", "lake:l")]})
    assert not creates(opa, "ann")
    server = lake.serve("--delta-from", "0", "--port", port)
    until(lambda: creates(opa, "ann") and creates(opa, "ben"))
    assert opa.revision("state") != held
    until(lambda: bundle_type(opa) == "snapshot")
    # A restart without a change sends nothing: the bundle is the same.
    until(lambda: waits(server))
    server.stop()
    server = lake.serve("--delta-from", "0", "--port", port)
    until(lambda: waits(server))
    assert 'mode="full"' not in operator(server, "/metrics").text
    lake.grants(server, "eve")
    assert until(lambda: creates(opa, "eve"), 2) < 2
    until(lambda: bundle_type(opa) == "delta")


def test_while_a_small_bundle_is_replaced_no_decision_is_wrong(lake: Lake) -> None:
    """OPA compiles the policy in place when it applies a delta; whole bundles are applied at once."""
    server = lake.serve()
    opa = lake.opa(server)
    lake.grants(server, "ann")
    until(lambda: creates(opa, "ann"))
    for number in range(3):
        until(lambda: waits(server))
        held = opa.revision("state")
        lake.grants(server, f"other{number}")
        answers = {creates(opa, "ann")}
        until(lambda held=held, answers=answers: answers.add(creates(opa, "ann")) or opa.revision("state") != held)  # type: ignore[misc]
        assert answers == {True}
    assert bundle_type(opa) == "snapshot"


def test_a_whole_bundle_is_sent_at_intervals(lake: Lake) -> None:
    server = lake.serve("--delta-from", "0", "--full-after", "0")
    opa = lake.opa(server)
    until(lambda: waits(server))
    lake.grants(server, "ann")
    until(lambda: creates(opa, "ann"), 2)
    assert bundle_type(opa) == "snapshot"


def test_embedded_reads_the_bundles_and_says_when_it_cannot(lake: Lake) -> None:
    server = lake.serve()
    feed = f"{server.url}/channels/live/lake"
    state, token = f"{feed}/state.tar.gz", TOKENS["sidecar"]
    client = Embedded(f"{feed}/policy.tar.gz", state=state, token=token, refresh=0, max_staleness=0.5)
    assert not client.check("ann", "create", "schema:l/s")
    lake.grants(server, "ann")
    assert until(lambda: client.check("ann", "create", "schema:l/s"), 2) < 2
    server.stop()
    with pytest.raises(DecisionUnavailable, match=r"max_staleness is 0\.5"):
        until(lambda: not client.check("ann", "create", "schema:l/s"))


def test_without_tokens_no_bundles_are_served(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["store", "serve", str(lake.url), "-p", str(lake.policy), "--token-file", str(lake.tokens)]
    assert run([*arguments, "--channel", "live"]) == 2
    assert "bundles hold all rows: give `--sidecar-token-file`" in capsys.readouterr().err
    assert run([*arguments, "--sidecar-token-file", str(lake.sidecar_tokens)]) == 2
    assert "is for the bundles of `--channel NAME`" in capsys.readouterr().err


def test_bundles_need_a_token_of_a_sidecar(lake: Lake) -> None:
    server = lake.serve()
    path = "/channels/live/lake/state.tar.gz"
    assert server.get(path).status_code == 401
    assert ask(server, "GET", "/" + path, "root").status_code == 401
    assert operator(server, path).status_code == 403
    sidecar = {"Authorization": f"Bearer {TOKENS['sidecar']}"}
    assert server.get(path, headers=sidecar).status_code == 200
    assert server.get("/metrics", headers=sidecar).status_code == 403
    assert server.get("/channels/other/lake/state.tar.gz", headers=sidecar).status_code == 404
