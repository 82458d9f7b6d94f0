"""Real OPA processes at `privtab serve store:… --channel`: changes of a store reach their decisions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import requests
import sidecars
from authzen_server import Server
from lake_policy import POLICY, asks, grant
from sidecars import Opa, configuration, until
from signing_keys import claims, pair
from store_server import ask, serve_store, write_tokens

from privtab import Embedded
from privtab.base import DecisionUnavailable
from privtab.base.errors import SignatureRefused
from privtab.bundle.sign import opa_configuration, public_keys
from privtab.command._app import run
from privtab.pipeline import load_program
from privtab_server.store.store import Store

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

    def opa(self, server: Server, instance: str = "one") -> Opa:
        opa = self.started(self.configuration(server, instance))
        until(lambda: opa.revision("state") and opa.revision("policy"))
        return opa

    def configuration(self, server: Server, instance: str = "one") -> dict[str, Any]:
        token = TOKENS["sidecar"]
        return configuration(server.url, instance=instance, channel="live", system="lake", token=token)

    def verifying(self, server: Server, public: Path, **signing: Any) -> dict[str, Any]:
        """The configuration of a sidecar that accepts only bundles signed with a key."""
        config = self.configuration(server)
        asks = opa_configuration(public_keys([public]), "live", ["policy", "state"])
        config["keys"] = asks["keys"]
        for name, bundle in config["bundles"].items():
            bundle["signing"] = asks["bundles"][name]["signing"] | signing
        return config

    def started(self, config: dict[str, Any]) -> Opa:
        (opa,) = self._stack.enter_context(sidecars.running(self.folder, config))
        return opa

    def bundle(self, server: Server, kind: str) -> bytes:
        """A bundle that the server serves."""
        sidecar = {"Authorization": f"Bearer {TOKENS['sidecar']}"}
        answer = server.get(f"/channels/live/lake/{kind}.tar.gz", headers=sidecar)
        assert answer.status_code == 200, answer.text
        return answer.content

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


def waits(server: Server, instance: str = "one") -> bool:
    """Whether a sidecar waits for what comes next."""
    found = {sidecar["id"]: sidecar for sidecar in operator(server, "/fleet").json()["sidecars"]}
    feeds = found.get(instance, {}).get("feeds", {})
    return len(feeds) == 2 and all(feed["waiting"] for feed in feeds.values())


def test_a_change_reaches_a_decision_within_two_seconds(lake: Lake) -> None:
    server = lake.serve()
    opa = lake.opa(server)
    assert not creates(opa, "ann")
    until(lambda: waits(server))
    lake.grants(server, "ann")
    assert until(lambda: creates(opa, "ann"), 2) < 2
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
    server = lake.serve("--listen", port)
    until(lambda: creates(opa, "ann") and creates(opa, "ben"))
    assert opa.revision("state") != held
    # A restart without a change sends nothing: the bundle is the same.
    until(lambda: waits(server))
    server.stop()
    server = lake.serve("--listen", port)
    until(lambda: waits(server))
    assert "privtab_registry_bundles_served_total{" not in operator(server, "/metrics").text
    lake.grants(server, "eve")
    assert until(lambda: creates(opa, "eve"), 2) < 2


def test_while_a_small_bundle_is_replaced_no_decision_is_wrong(lake: Lake) -> None:
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


def test_while_the_store_cannot_be_read_or_is_an_older_copy_sidecars_keep_what_they_run(lake: Lake) -> None:
    server = lake.serve()
    opa = lake.opa(server)

    def stale() -> bool:
        sidecar = {"Authorization": f"Bearer {TOKENS['sidecar']}"}
        return "X-Privtab-Stale" in server.get("/channels/live/lake/state.tar.gz", headers=sidecar).headers

    with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(lake.url)) as database:
        database.backup(copy)
        lake.grants(server, "ann")
        until(lambda: creates(opa, "ann"))
        assert not stale()
        database.execute("alter table head rename to gone")
        until(stale)
        assert creates(opa, "ann")
        database.execute("alter table gone rename to head")
        until(lambda: not stale())
        lake.grants(server, "ben")
        until(lambda: creates(opa, "ben"))
        copy.backup(database)
        until(stale)
        assert creates(opa, "ben")


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


def test_a_sidecar_that_verifies_runs_the_signed_bundles_of_each_change(lake: Lake) -> None:
    private, public = pair().write(lake.folder)
    server = lake.serve("--signing-key", private, "--signature", "scope=live")
    opa = lake.started(lake.verifying(server, public))
    until(lambda: opa.revision("state") and opa.revision("policy"))
    for user in ("ann", "ben"):
        until(lambda: waits(server))
        lake.grants(server, user)
        assert until(lambda user=user: creates(opa, user), 2) < 2  # type: ignore[misc]
    # A restarted server signs the same bundles with the same bytes: the sidecar, which waits for the next, keeps its own.
    until(lambda: waits(server))
    server.stop()
    server = lake.serve(
        "--signing-key", private, "--signature", "scope=live", "--listen", server.url.rpartition(":")[2]
    )
    until(lambda: waits(server))
    assert "privtab_registry_bundles_served_total{" not in operator(server, "/metrics").text
    # Whoever answers in its place has another key: the sidecar keeps what it runs.
    server.stop()
    other, _ = pair(number=1).write(lake.folder, "other")
    held = opa.revision("state")
    forged = ("--signing-key", other, "--signature", f"key-id={pair().signing().id}", "--signature", "scope=live")
    server = lake.serve(*forged, "--listen", server.url.rpartition(":")[2])
    lake.grants(server, "eve")
    until(lambda: "failed to verify JWT signature" in opa.status()["bundles"]["state"].get("message", ""))
    assert opa.revision("state") == held
    assert creates(opa, "ann")
    assert not creates(opa, "eve")


def test_a_sidecar_that_verifies_refuses_bundles_without_signatures(lake: Lake) -> None:
    opa = lake.started(lake.verifying(lake.serve(), pair().write(lake.folder)[1]))
    until(lambda: "bundle missing .signatures.json file" in opa.status()["bundles"]["state"].get("message", ""))
    assert not creates(opa, "root")


def test_the_sequence_of_a_signed_state_grows_with_each_change_and_each_policy(lake: Lake) -> None:
    private, public = pair().write(lake.folder)
    signing = ("--signing-key", private, "--signature", "scope=live")
    server = lake.serve(*signing, "--signature", "sequence=7")
    number = lake.store.head().number
    assert claims(lake.bundle(server, "policy"))["sequence"] == 7
    assert claims(lake.bundle(server, "state"))["sequence"] == 7 + number
    feed = f"{server.url}/channels/live/lake"
    settings: dict[str, Any] = {"token": TOKENS["sidecar"], "refresh": 0}
    client = Embedded(
        f"{feed}/policy.tar.gz",
        state=f"{feed}/state.tar.gz",
        verification_key=public,
        verification_scope="live",
        **settings,
    )
    lake.grants(server, "ann")
    until(lambda: client.check("ann", "create", "schema:l/s"), 2)
    assert claims(lake.bundle(server, "state"))["sequence"] == 7 + number + 1
    # A new policy comes with a raised number, and so does the state, although no row changed.
    server.stop()
    lake.policy.write_text(POLICY.replace("create: {requires: CREATE (lake) or ", "create: {requires: "))
    port = server.url.rpartition(":")[2]
    server = lake.serve(*signing, "--signature", "sequence=8", "--listen", port)
    assert claims(lake.bundle(server, "state"))["sequence"] == 8 + number + 1
    until(lambda: not client.check("ann", "create", "schema:l/s"))
    assert client.problem is None
    # The policy from before is refused, although its signature is valid.
    server.stop()
    lake.policy.write_text(POLICY)
    server = lake.serve(*signing, "--signature", "sequence=7", "--listen", port)
    until(lambda: not client.check("ann", "create", "schema:l/s") and "is older than what runs" in str(client.problem))
    _, other = pair(number=1).write(lake.folder, "other")
    with pytest.raises(SignatureRefused):
        Embedded(f"{feed}/policy.tar.gz", state=f"{feed}/state.tar.gz", verification_key=other, **settings)


def test_options_about_signatures_need_what_they_are_about(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    private, _ = pair().write(lake.folder)
    arguments = ["serve", f"store:{lake.url}", "-p", str(lake.policy), "--token-file", str(lake.tokens)]
    for options in (["--signing-key", str(private)], ["--signature", "scope=live"]):
        assert run([*arguments, *options]) == 2
        assert f"`{options[0]}` is for the bundles of `--channel NAME`" in capsys.readouterr().err
    arguments += ["--channel", "live", "--sidecar-token-file", str(lake.sidecar_tokens)]
    assert run([*arguments, "--signature", "sequence=1"]) == 2
    assert "`--signature` says how to sign: give `--signing-key`" in capsys.readouterr().err
    assert run([*arguments, "--signing-key", str(lake.tokens)]) == 2
    assert "is not a private key in PEM" in capsys.readouterr().err


def test_without_tokens_no_bundles_are_served(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["serve", f"store:{lake.url}", "-p", str(lake.policy), "--token-file", str(lake.tokens)]
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
