"""`privtab deploy` against a real registry server and real sidecars."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from failing_servers import free_port
from sidecar_fleet import POLICY, STATE, WIDER, SidecarFleet, outcome

from privtab import Client
from privtab.engines import OpaServer
from privtab_server.registry import Registry
from privtab_server.registry.deploy import rollout as watching

Privtab = Callable[..., Any]


@pytest.fixture
def idle_fleet(tmp_path: Path) -> Iterator[SidecarFleet]:
    with SidecarFleet(tmp_path) as sidecars:
        yield sidecars


@pytest.fixture
def fleet(idle_fleet: SidecarFleet) -> SidecarFleet:
    """A server and two sidecars that have nothing yet."""
    idle_fleet.serve()
    idle_fleet.sidecar("one", "zone=a")
    idle_fleet.sidecar("two", "zone=b")
    return idle_fleet


def deploy(privtab: Privtab, idle_fleet: SidecarFleet, *more: object, watched: bool = True) -> Any:
    server = ["--server", idle_fleet.server, "--wait", f"sidecars={len(idle_fleet.urls)}"] if watched else []
    if watched and not any(str(word).startswith("seconds=") for word in more if "--wait" in more):
        server += ["--wait", "seconds=40"]
    return privtab("deploy", idle_fleet.policy, "-r", idle_fleet.registry, *map(str, server), *map(str, more))


@pytest.mark.slow
def test_from_tables_to_sidecars_that_decide_by_them(privtab: Privtab, fleet: SidecarFleet) -> None:
    ran = deploy(privtab, fleet, "--state", fleet.state, "--why", "the first one")
    assert ran.code == 0, ran.err
    assert "dev/shop: release 1" in ran.out
    assert "2 of 2 sidecars active" in ran.err
    assert [fleet.decides(name, "ann") for name in ("one", "two")] == [True, True]
    assert fleet.decides("one", "olga") is False

    fleet.policy.write_text(WIDER, encoding="utf-8")
    ran = deploy(privtab, fleet)
    assert ran.code == 1
    assert "item/read" in ran.out
    assert "stopped; nothing was released" in ran.out
    assert fleet.decides("one", "olga") is False

    ran = deploy(privtab, fleet, "--fail-on", "none", "--format", "json")
    assert ran.code == 0, ran.err
    report = outcome(ran.out)
    assert report["outcome"] == "deployed"
    assert report["before"]["policy"] != report["after"]["policy"]
    assert report["after"]["state"] == report["before"]["state"]
    assert [gate["outcome"] for gate in report["gates"]] == ["passed"] * 3
    assert report["gates"][2]["diff"]["operations"][0]["verdict"] == "wider"
    assert report["watched"]["all"]["active"] == 2
    assert {"lint", "tests", "diff", "pack", "put", "release", "watch"} <= report["seconds"].keys()
    assert [fleet.decides(name, "olga") for name in ("one", "two")] == [True, True]

    ran = deploy(privtab, fleet)
    assert ran.code == 0
    assert "nothing to release" in ran.out


def test_a_state_by_which_users_gain_sensitive_operations_stops(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    idle_fleet.policy.write_text(
        POLICY.replace("write: WRITE (item)", "delete: {requires: WRITE (item), destructive: true}"), encoding="utf-8"
    )
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False).code == 0

    row = "  - {grantee: user:bea, effect: allow, privilege: READ, entity: site:s}"
    idle_fleet.state.write_text(STATE.replace("grants:", f"grants:\n{row}"), encoding="utf-8")
    ran = deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False)
    assert ran.code == 0, ran.out
    assert "1 row changed: 1 added; gained: 1 permission of 1 user; lost: nothing" in ran.out
    assert "+ READ granted to user:bea at site:s" in ran.out

    idle_fleet.state.write_text(STATE.replace("grants:", f"grants:\n{row.replace('READ', 'WRITE')}"), encoding="utf-8")
    ran = deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False)
    assert ran.code == 1
    assert "gained: 1 permission of 1 user, 1 of them sensitive; lost: 1 permission of 1 user" in ran.out
    assert "delete (sensitive)  item:s/a/i" in ran.out
    assert "stopped; nothing was released" in ran.out
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, "--fail-on", "any", watched=False).code == 1

    accepted = ("--accept", "gains=bea cleans up", "--format", "json")
    report = outcome(deploy(privtab, idle_fleet, "--state", idle_fleet.state, *accepted, watched=False).out)
    assert report["after"]["release"] == 3
    assert "bea cleans up" in report["after"]["why"]
    assert report["gates"][-1]["outcome"] == "skipped"
    assert report["gates"][-1]["state"]["summary"]["gained"]["sensitive"] == 1


def test_a_waived_change_passes_and_stands_in_the_history(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False).code == 0
    idle_fleet.policy.write_text(WIDER, encoding="utf-8")
    waivers = idle_fleet.folder / "waivers.yaml"
    waivers.write_text(
        "waivers:\n  - {operation: item/read, change: wider, who: ada, why: owners read, until: 2999-01-01}\n",
        encoding="utf-8",
    )
    ran = deploy(privtab, idle_fleet, "--waivers", waivers, "--accept", "untested=they ran before", watched=False)
    assert ran.code == 0, ran.err
    assert "not watching" in ran.out
    [_, last] = Registry.open(idle_fleet.registry).history("dev", "shop")
    assert last.why == "tests left out: they ran before; wider and waived: item/read (ada: owners read)"


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (
            lambda idle_fleet: idle_fleet.policy.write_text(POLICY.replace("READ (item)", "REED (item)")),
            "unknown privilege",
        ),
        (lambda idle_fleet: idle_fleet.state.write_text(STATE.replace("READ", "REED")), "REED"),
        (
            lambda idle_fleet: (idle_fleet.folder / "shop.scenarios.yaml").write_text(
                "scenarios: 1\nstate: state.yaml\n"
                "cases: [{user: ann, action: read, resource: 'item:s/a/i', decision: deny, why: a test}]\n"
            ),
            "1 failed",
        ),
    ],
    ids=["lint", "state", "tests"],
)
def test_a_bundle_that_fails_a_gate_is_neither_stored_nor_released(
    privtab: Privtab, idle_fleet: SidecarFleet, break_it: Callable[[SidecarFleet], object], message: str
) -> None:
    break_it(idle_fleet)
    ran = deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False)
    assert ran.code == 1
    assert message in ran.out + ran.err
    registry = Registry.open(idle_fleet.registry)
    assert registry.channel("dev", "shop").sequence == 0
    assert registry.revisions("shop") == []


def test_a_state_that_was_made_with_other_names_is_packed_anew(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    with_set = POLICY.replace("privileges: [READ, WRITE]", "privileges: [READ, WRITE]\nsets: {ALL: [READ, WRITE]}")
    idle_fleet.policy.write_text(with_set, encoding="utf-8")
    idle_fleet.state.write_text(STATE.replace("privilege: READ", "privilege: ALL"), encoding="utf-8")
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False).code == 0
    idle_fleet.policy.write_text(with_set.replace("{ALL: [READ, WRITE]}", "{ALL: [READ]}"), encoding="utf-8")
    ran = deploy(privtab, idle_fleet, "--fail-on", "none", watched=False)
    assert ran.code == 1
    assert "made with another set ALL" in ran.out
    registry = Registry.open(idle_fleet.registry)
    assert registry.channel("dev", "shop").sequence == 1
    with_kept_state = deploy(
        privtab, idle_fleet, "--fail-on", "none", "--accept", "kept-state=nobody has it", watched=False
    )
    assert with_kept_state.code == 0, with_kept_state.err
    assert "kept though set ALL changed: nobody has it" in registry.channel("dev", "shop").why
    assert deploy(privtab, idle_fleet, "--fail-on", "none", "--state", idle_fleet.state, watched=False).code == 0
    assert len({entry.state for entry in registry.history("dev", "shop")}) == 2


def test_a_dry_run_keeps_nothing(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    ran = deploy(privtab, idle_fleet, "--dry-run", watched=False)
    assert ran.code == 0
    assert "nothing was released" in ran.out
    assert not Path(idle_fleet.registry).exists()


@pytest.mark.slow
def test_a_sidecar_that_does_not_come_is_named_and_all_go_back(privtab: Privtab, fleet: SidecarFleet) -> None:
    assert deploy(privtab, fleet, "--state", fleet.state).code == 0
    before = Registry.open(fleet.registry).channel("dev", "shop")
    fleet.end("two", kill=True)
    fleet.policy.write_text(WIDER, encoding="utf-8")
    ran = deploy(privtab, fleet, "--fail-on", "none", "--wait", "seconds=3", "--rollback-on-failure")
    assert ran.code == 3
    assert "two: waiting: still runs policy " + str(before.policy) in ran.err
    assert "(last seen" in ran.err
    assert "back to policy " + str(before.policy) in ran.out
    after = Registry.open(fleet.registry).channel("dev", "shop")
    assert (after.policy, after.state, after.sequence) == (before.policy, before.state, 3)
    fleet.wait(lambda: fleet.decides("one", "olga") is False)


@pytest.mark.slow
def test_opas_that_are_polled_directly(privtab: Privtab, fleet: SidecarFleet) -> None:
    direct = [word for url in fleet.urls.values() for word in ("--opa", url)]
    ran = deploy(privtab, fleet, "--state", fleet.state, *direct, watched=False)
    assert ran.code == 0, ran.err
    assert f"{fleet.urls['one']} active" in ran.err
    nobody = f"http://127.0.0.1:{free_port()}"
    ran = deploy(privtab, fleet, *direct, "--opa", nobody, "--wait", "seconds=1", watched=False)
    assert ran.code == 3
    assert f"{nobody}: unreachable: no answer" in ran.err


@pytest.mark.slow
def test_a_server_that_comes_back_is_waited_for(privtab: Privtab, fleet: SidecarFleet) -> None:
    assert deploy(privtab, fleet, "--state", fleet.state).code == 0
    fleet.end("server", kill=True)
    again = threading.Timer(1.0, fleet.serve)
    again.start()
    fleet.policy.write_text(WIDER, encoding="utf-8")
    ran = deploy(privtab, fleet, "--fail-on", "none")
    again.join()
    assert ran.code == 0, ran.err
    assert [fleet.decides(name, "olga") for name in ("one", "two")] == [True, True]


def asked_without_end(idle_fleet: SidecarFleet, user: str) -> threading.Event:
    """Somebody asks every sidecar again and again, until the event is set."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.02):
            for name in idle_fleet.urls:
                idle_fleet.decides(name, user)

    threading.Thread(target=ask, daemon=True).start()
    return stop


@pytest.mark.slow
def test_a_canary_goes_first_and_its_decisions_tell(privtab: Privtab, fleet: SidecarFleet) -> None:
    """Owners may read now, and then no more: nothing changes for ann; that olga is refused suddenly is seen."""
    assert deploy(privtab, fleet, "--state", fleet.state).code == 0
    registry = Registry.open(fleet.registry)
    before = registry.channel("dev", "shop")
    tried = [
        "--fail-on",
        "none",
        "--canary",
        "zone=b",
        "--canary-limit",
        "seconds=20",
        "--canary-limit",
        "decisions=40",
    ]
    for user, tables in (("ann", WIDER), ("olga", POLICY)):
        fleet.policy.write_text(tables, encoding="utf-8")
        stop = asked_without_end(fleet, user)
        try:
            ran = deploy(privtab, fleet, *tried, "--format", "json")
        finally:
            stop.set()
        report = outcome(ran.out)
        assert report["watched"]["canary"]["active"] == 1
        assert [row["rule"] for row in report["canary"]["compared"]] == ["shop/item/read"]
        after = registry.channel("dev", "shop")
        assert (after.canary, after.policy != before.policy) == (None, True)
        if user == "ann":
            assert (ran.code, report["outcome"]) == (0, "deployed"), ran.err
        else:
            assert (ran.code, report["outcome"]) == (1, "canary-refused")
            assert "moved: shop/item/read: allowed 0.0%" in report["canary"]["says"]
        assert [fleet.decides(name, "olga") for name in ("one", "two")] == [True, True]


@pytest.mark.parametrize(
    "limit", ["seconds=soon", "decisions=0", "decisions=00", "decisions=1.5", "tolerance=2", "minutes=1", "seconds"]
)
def test_a_limit_of_a_canary_is_a_number_of_its_kind(privtab: Privtab, tmp_path: Path, limit: str) -> None:
    ran = privtab("deploy", "cdap/final", "-r", tmp_path, "--canary", "10%", "--canary-limit", limit)
    assert (ran.code, f"`--canary-limit {limit}`" in ran.err) == (2, True)


@pytest.mark.slow
def test_a_canary_without_callers_goes_back_unless_that_is_fine(
    privtab: Privtab, fleet: SidecarFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "GRACE", 0.3)
    assert deploy(privtab, fleet, "--state", fleet.state).code == 0
    fleet.policy.write_text(WIDER, encoding="utf-8")
    few = ["--fail-on", "none", "--canary", "zone=b", "--canary-limit", "seconds=0.2"]
    ran = deploy(privtab, fleet, *few)
    assert ran.code == 1
    assert "too few to compare" in ran.out
    assert fleet.decides("two", "olga") is False
    everybody = deploy(privtab, fleet, "--fail-on", "none", "--canary", "100%")
    assert everybody.code == 1
    assert "all 2 sidecars are in that part: there are none to compare with" in everybody.out
    nobody = deploy(privtab, fleet, "--fail-on", "none", "--canary", "zone=elsewhere", "--wait", "seconds=5")
    assert nobody.code != 0
    assert "no sidecar is in that part" in nobody.out
    assert deploy(privtab, fleet, *few, "--accept", "quiet-canary").code == 0
    assert [fleet.decides(name, "olga") for name in ("one", "two")] == [True, True]


@pytest.mark.slow
def test_an_interrupted_canary_is_rolled_back(privtab: Privtab, fleet: SidecarFleet) -> None:
    assert deploy(privtab, fleet, "--state", fleet.state).code == 0
    fleet.policy.write_text(WIDER, encoding="utf-8")
    command = [sys.executable, "-m", "privtab", "deploy", str(fleet.policy), "-r", fleet.registry]
    command += ["--server", fleet.server, "--fail-on", "none", "--canary", "zone=b"]
    for number, sequence in ((signal.SIGINT, 3), (signal.SIGTERM, 5)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        fleet.wait(lambda: fleet.decides("two", "olga"))
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
        assert process.returncode != 0
        assert b"the canary was aborted" in output
        assert b"Traceback" not in output
        channel = Registry.open(fleet.registry).channel("dev", "shop")
        assert (channel.sequence, channel.canary) == (sequence, None)
        fleet.wait(lambda: fleet.decides("two", "olga") is False)


@pytest.mark.slow
def test_on_a_terminal_the_fleet_is_followed_in_place(privtab: Privtab, fleet: SidecarFleet) -> None:
    import pty

    command = [sys.executable, "-m", "privtab", "deploy", str(fleet.policy), "--state", str(fleet.state)]
    command += ["-r", fleet.registry, "--server", fleet.server, "--wait", "sidecars=2"]
    main, other = pty.openpty()
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, close_fds=True) as process:
        os.close(other)
        output = b""
        while True:
            try:
                more = os.read(main, 65536)
            except OSError:
                break
            if not more:
                break
            output += more
    os.close(main)
    text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", output).decode()
    assert process.returncode == 0, text
    assert "watching: 2 of 2 sidecars active after" in text
    assert "standing" in text
    assert text.count("Traceback") == 0
    assert privtab("registry", "status", "-r", fleet.registry, "--server", fleet.server, "--check").code == 0


@pytest.mark.slow
def test_a_state_in_shards(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    ran = deploy(privtab, idle_fleet, "--state", idle_fleet.state, "--sharded", watched=False)
    assert ran.code == 0, ran.err
    channel = Registry.open(idle_fleet.registry).channel("dev", "shop")
    assert set(channel.shards) == {"people", "site:s"}
    assert channel.state is None
    assert (
        "nothing to release" in deploy(privtab, idle_fleet, "--state", idle_fleet.state, "--sharded", watched=False).out
    )
    ran = deploy(privtab, idle_fleet, "--accept", "kept-state=why not", watched=False)
    assert ran.code == 1
    assert "the state that runs is in shards: deploy with `--sharded`, or give `--state`" in ran.out
    assert Registry.open(idle_fleet.registry).channel("dev", "shop") == channel


def test_signed_bundles_in_the_order_of_releases(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    key = idle_fleet.folder / "key.pem"
    assert privtab("bundle", "keys", key, "--new", "ES256").code == 0
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, "--signing-key", key, watched=False).code == 0
    registry = Registry.open(idle_fleet.registry)
    channel = registry.channel("dev", "shop")
    assert registry.revision("shop", "policy", str(channel.policy)).signed
    assert registry.revision("shop", "state", str(channel.state)).signed


@pytest.mark.slow
def test_a_registry_that_requires_signatures_says_so_first(
    privtab: Privtab, idle_fleet: SidecarFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "theirs"):
        assert privtab("bundle", "keys", idle_fleet.folder / f"{name}.pem", "--new", "ES256").code == 0
    asks = ("--verification-key", idle_fleet.folder / "ours.pub.pem", "--scope", "prod")
    assert privtab("registry", "init", idle_fleet.registry, *asks).code == 0
    ran = deploy(privtab, idle_fleet, "--dry-run", watched=False)
    assert ran.code == 2
    assert "accepts only signed bundles: give `--signing-key FILE`" in ran.err
    ran = deploy(privtab, idle_fleet, "--dry-run", "--signing-key", idle_fleet.folder / "theirs.pem", watched=False)
    assert ran.code == 1
    assert "this one is refused" in ran.err
    # It signs for the scope that the registry asks for, unless another one is given.
    monkeypatch.setenv("PRIVTAB_SIGNING_KEY", str(idle_fleet.folder / "ours.pem"))
    assert deploy(privtab, idle_fleet, "--dry-run", watched=False).code == 0
    assert (
        "not for the scope `prod`"
        in deploy(privtab, idle_fleet, "--dry-run", "--signature", "scope=test", watched=False).err
    )
    assert Registry.open(idle_fleet.registry).revisions("shop") == []


def test_a_release_whose_writer_died_is_completed(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False).code == 0
    copy = Path(idle_fleet.registry) / "channels/dev/shop/policy.tar.gz"
    whole = copy.read_bytes()
    copy.write_bytes(b"of the release before")
    assert "nothing to release" in deploy(privtab, idle_fleet, watched=False).out
    assert copy.read_bytes() == whole


def test_two_at_once_do_not_overwrite_each_other(
    privtab: Privtab, idle_fleet: SidecarFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, watched=False).code == 0
    other = Registry.open(idle_fleet.registry)
    put = Registry.put

    def meanwhile(self: Registry, bundle: bytes, **more: Any) -> Any:
        other.release("dev", "shop", policy=other.channel("dev", "shop").policy, why="somebody else")
        return put(self, bundle, **more)

    idle_fleet.policy.write_text(WIDER, encoding="utf-8")
    monkeypatch.setattr(Registry, "put", meanwhile)
    ran = deploy(privtab, idle_fleet, "--fail-on", "none", watched=False)
    assert ran.code == 1
    assert "was released to in the meantime" in ran.err
    assert other.channel("dev", "shop").why == "somebody else"


def test_a_dry_run_of_a_push_has_the_report_of_its_gates(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    push = ("deploy", idle_fleet.policy, "--push", "http://127.0.0.1:9", "--dry-run")
    assert "nothing was pushed" in privtab(*push).out
    ran = privtab(*push, "--format", "json")
    assert ran.code == 0, ran.err
    assert outcome(ran.out)["outcome"] == "dry-run"
    assert [gate["gate"] for gate in outcome(ran.out)["gates"]] == ["lint", "tests"]


@pytest.mark.slow
def test_straight_into_an_opa(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    with OpaServer() as opa, Client(opa.url, system="shop") as client:
        first = privtab("deploy", idle_fleet.policy, "--state", idle_fleet.state, "--push", opa.url)
        assert first.code == 0, first.err
        assert "policy none → 1" in first.out
        assert client.check("ann", "read", "item:s/a/i")
        idle_fleet.policy.write_text(WIDER, encoding="utf-8")
        ran = privtab("deploy", idle_fleet.policy, "--push", opa.url, "--format", "json")
        assert ran.code == 0, ran.err
        pushed = outcome(ran.out)["pushed"]
        assert pushed["replaced"]
        assert pushed["state"] is None
        assert client.check("olga", "read", "item:s/a/i")
        broken = POLICY.replace("READ (item)", "REED (item)")
        idle_fleet.policy.write_text(broken, encoding="utf-8")
        assert privtab("deploy", idle_fleet.policy, "--push", opa.url).code == 1
        assert client.check("olga", "read", "item:s/a/i")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no registry: give `--registry URL`"),
        (["-r", "x", "--fail-on", "narrower"], "'wider', 'any', 'none'"),
        (["-r", "x", "--accept", "untested= "], "say why"),
        (["-r", "x", "--engine", "spark"], "'reference', 'opa', 'both'"),
        (["-r", "x", "--canary", "10%"], "--server URL"),
        (["-r", "x", "--canary", "many", "--server", "http://127.0.0.1:9"], "write a share"),
        (["-r", "x", "--server", "127.0.0.1:9"], "write http://"),
        (["-r", "x", "--opa", "http://127.0.0.1:9?a=b"], "write http://"),
        (["-r", "x", "--canary-limit", "seconds=5"], "give `--canary PART`"),
        (["--push", "http://127.0.0.1:9", "--canary", "10%"], "leave that off"),
        (["--push", "http://127.0.0.1:9", "--canary-limit", "seconds=5"], "without --canary-limit"),
        (["--push", "http://127.0.0.1:9", "--fail-on", "any"], "without --fail-on"),
        (["--push", "http://127.0.0.1:9", "--waivers", "waivers.yaml"], "without --waivers"),
        (["--push", "http://127.0.0.1:9", "--rollback-on-failure"], "without --rollback-on-failure"),
        (["--push", "http://127.0.0.1:9", "--accept", "gains=olga leads"], "without --accept gains"),
        (["--push", "http://127.0.0.1:9", "--signature", "scope=prod"], "leave that off"),
        (["--push", "http://127.0.0.1:9", "--signing-key", "k.pem"], "without --signing-key: leave that off"),
        (["--push", "http://127.0.0.1:9", "--opa", "http://127.0.0.1:9"], "without --opa: leave that off"),
        (["--push", "http://127.0.0.1:9", "--wait", "sidecars=1"], "without --wait: leave that off"),
        (["--push", "http://127.0.0.1:9", "--why", "it"], "without --why: leave that off"),
        (["--dry-run", "--wait", "sidecars=1.5"], "write a whole number"),
        (["--dry-run", "--wait", "seconds=0"], "write a number from 0.1"),
        (["--push", "http://127.0.0.1:9", "--sharded"], "leave that off"),
    ],
)
def test_bad_usage(privtab: Privtab, idle_fleet: SidecarFleet, options: list[str], message: str) -> None:
    ran = privtab("deploy", idle_fleet.policy, *options)
    assert ran.code == 2, ran.out + ran.err
    assert message in ran.err


@pytest.mark.slow
def test_the_token_is_sent(privtab: Privtab, idle_fleet: SidecarFleet) -> None:
    tokens = idle_fleet.folder / "tokens"
    tokens.write_text(f"ops {'o' * 40} operator\n", encoding="utf-8")
    idle_fleet.extra = ("--token-file", str(tokens))
    idle_fleet.serve()
    mine = idle_fleet.folder / "mine"
    mine.write_text("o" * 40 + "\n", encoding="utf-8")
    assert deploy(privtab, idle_fleet, "--state", idle_fleet.state, "--token-file", mine).code == 0
    mine.write_text("wrong" * 10, encoding="utf-8")
    ran = deploy(privtab, idle_fleet, "--token-file", mine, "--wait", "seconds=1")
    assert ran.code == 3
    assert "401" in ran.err


def test_the_help_shows_how(privtab: Callable[..., Any]) -> None:
    shown = privtab("deploy", "--help").out
    assert "privtab deploy lake.yaml -r registry/ --dry-run" in shown
