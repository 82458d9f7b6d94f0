"""`privtab registry status`: what runs where."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from failing_servers import free_port
from sidecar_fleet import WIDER, SidecarFleet, outcome

from privtab.command._app import run
from privtab_server.registry import Registry
from privtab_server.registry.nodes import Canary

Privtab = Callable[..., Any]


@contextmanager
def running(folder: Path) -> Iterator[SidecarFleet]:
    """Two sidecars that run what the channel does."""
    with SidecarFleet(folder) as sidecars:
        sidecars.serve()
        first = [
            "deploy",
            str(sidecars.policy),
            "-r",
            sidecars.registry,
            "--state",
            str(sidecars.state),
            "--why",
            "first",
        ]
        assert run(first) == 0
        sidecars.sidecar("one", "zone=a")
        sidecars.sidecar("two", "zone=b")
        sidecars.wait(lambda: [sidecars.decides(name, "ann") for name in sidecars.urls] == [True, True])
        yield sidecars


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarFleet]:
    """For those that only look."""
    with running(tmp_path_factory.mktemp("quiet")) as sidecars:
        yield sidecars


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[SidecarFleet]:
    """For those that change something."""
    with running(tmp_path) as sidecars:
        yield sidecars


def status(privtab: Privtab, fleet: SidecarFleet, *more: object) -> Any:
    return privtab("registry", "status", "-r", fleet.registry, "-c", "dev", "--server", fleet.server, *map(str, more))


@pytest.mark.slow
def test_the_fleet_its_channel_its_history_and_its_decisions(privtab: Privtab, quiet: SidecarFleet) -> None:
    quiet.wait(lambda: quiet.reported()["decisions"])
    ran = status(privtab, quiet, "--check")
    assert ran.code == 0, ran.out
    channel = Registry.open(quiet.registry).channel("dev", "shop")
    assert f"dev/shop: policy {channel.policy}, state {channel.state}" in ran.out
    assert "first" in ran.out
    lines = [line.split() for line in ran.out.splitlines()]
    [first_line] = [line for line in lines if line[:1] == ["one"]]
    assert first_line[1:4] == ["zone=a", "policy", channel.policy]
    assert first_line[-1] == "active"
    assert any(line[:2] == ["shop/item/read", channel.policy] for line in lines)
    report = outcome(status(privtab, quiet, "--format", "json").out)
    assert report["good"] is True
    assert [sidecar["id"] for sidecar in report["sidecars"]] == ["one", "two"]
    assert report["sidecars"][0]["bundles"]["policy"]["revision"] == channel.policy
    assert report["channels"][0]["history"][0]["why"] == "first"
    assert report["decisions"][0]["rule"] == "shop/item/read"
    # What was asked before the first bundle was there has no revision.
    assert {found["kind"]: found["revision"] for found in report["decisions"] if found["revision"] != "unknown"} == {
        "policy": channel.policy,
        "state": channel.state,
    }
    for answer in (ran, privtab("registry", "status", "--server", quiet.server)):
        assert [line.split()[1] for line in answer.out.splitlines() if "shop/item/read" in line] == [channel.policy]


@pytest.mark.slow
def test_sidecars_that_are_behind_are_shown(privtab: Privtab, fleet: SidecarFleet) -> None:
    fleet.end("two", kill=True)
    fleet.policy.write_text(WIDER, encoding="utf-8")
    assert privtab("deploy", fleet.policy, "-r", fleet.registry, "--fail-on", "none").code == 0
    fleet.wait(lambda: fleet.decides("one", "olga"))
    ran = status(privtab, fleet, "--check")
    assert ran.code == 1
    assert "waiting" in ran.out
    assert status(privtab, fleet).code == 0, "without `--check` it only tells"
    report = outcome(status(privtab, fleet, "--format", "json").out)
    assert report["good"] is False
    assert {sidecar["id"]: sidecar["standing"] for sidecar in report["sidecars"]} == {"one": "active", "two": "waiting"}


@pytest.mark.slow
def test_a_canary_runs_what_it_should(privtab: Privtab, fleet: SidecarFleet) -> None:
    registry = Registry.open(fleet.registry)
    before = registry.channel("dev", "shop")
    fleet.policy.write_text(WIDER, encoding="utf-8")
    other = privtab("deploy", fleet.policy, "-r", fleet.registry, "-c", "other")
    assert other.code == 0
    new = registry.channel("other", "shop").policy
    registry.release("dev", "shop", canary=Canary(policy=new, labels={"zone": "b"}))
    fleet.wait(lambda: fleet.decides("two", "olga"))
    ran = status(privtab, fleet, "--check")
    assert ran.code == 0, ran.out
    assert f"canary of zone=b: policy {new}" in ran.out
    assert "zone=b, canary" in ran.out
    assert before.policy in ran.out


def test_opas_that_are_polled_directly(privtab: Privtab, quiet: SidecarFleet) -> None:
    urls = [word for url in quiet.urls.values() for word in ("--opa", url)]
    report = outcome(privtab("registry", "status", *urls, "--format", "json").out)
    assert [sidecar["url"] for sidecar in report["sidecars"]] == list(quiet.urls.values())
    assert report["channels"] == []
    nobody = f"http://127.0.0.1:{free_port()}"
    ran = privtab("registry", "status", "--opa", nobody, "--check")
    assert ran.code == 1
    assert "no answer from" in ran.out


@pytest.mark.slow
def test_a_server_that_does_not_answer(privtab: Privtab, fleet: SidecarFleet) -> None:
    fleet.end("server", kill=True)
    ran = status(privtab, fleet)
    assert ran.code == 3
    assert "no answer from" in ran.err
    assert "dev/shop" in ran.out, "what the registry says is told all the same"


def test_refused_sidecars_are_named() -> None:
    """Such a sidecar cannot report, so nothing else tells of it."""
    from privtab_server.registry.deploy.fleet import fleet_of

    refused = {"instance": "web-1", "path": "/status", "status": 401, "why": "no such token", "times": 3, "last": "now"}
    fleet = fleet_of({"sidecars": [], "refused": [refused]})
    assert fleet.refused == ("web-1 was refused /status: 401 no such token (3 times, last at now)",)


def test_again_and_again_until_ctrl_c(quiet: SidecarFleet) -> None:
    command = [
        sys.executable,
        "-m",
        "privtab",
        "registry",
        "status",
        "-r",
        quiet.registry,
        "--server",
        quiet.server,
        "--watch",
        "0.2",
    ]
    log = quiet.folder / "watch.txt"
    with log.open("wb") as written:
        process = subprocess.Popen([*command, "--format", "json"], stdout=written, stderr=written)
    quiet.wait(lambda: log.read_text(encoding="utf-8").count('"good": true') >= 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    text = log.read_text(encoding="utf-8")
    assert "Traceback" not in text
    decoder, at, looks = json.JSONDecoder(), 0, 0
    while text[at:].strip():
        _, at = decoder.raw_decode(text, at)
        at, looks = at + 1, looks + 1
    assert looks >= 2


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "give `--registry URL`"),
        (["--server", "nowhere"], 2, "write http://"),
        (["--registry", "{folder}/none"], 3, "there is no registry at"),
    ],
)
def test_bad_usage(privtab: Privtab, tmp_path: Path, options: list[str], code: int, message: str) -> None:
    ran = privtab("registry", "status", *(option.format(folder=tmp_path) for option in options))
    assert ran.code == code
    assert message in ran.err
