"""`privtab replay` and the gate of `privtab deploy`: what a change does to logged decisions, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sidecars
from example_bundles import POLICY, READS, STATES, WIDER

from privtab.pipeline import load_program, policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_server.registry import Registry

Privtab = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two policies, a state, and a log of what the first one answered."""
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text(POLICY.format(version="1", read=WIDER))
    Path("new.yaml").write_text(POLICY.format(version="2", read=READS))
    Path("state.yaml").write_text(STATES[0])
    return tmp_path


def entry(user: str, action: str, *, answer: bool, **revisions: str) -> dict[str, Any]:
    return {
        "decision_id": f"{user}-{action}",
        "bundles": {name: {"revision": revision} for name, revision in revisions.items()},
        "path": "privtab/shop/allow",
        "input": {
            "subject": {"type": "user", "id": user},
            "action": {"name": action},
            "resource": {"type": "item", "id": "s/a/i"},
        },
        "result": answer,
        "timestamp": "2026-11-28T00:22:38Z",
    }


def log(*entries: dict[str, Any]) -> str:
    Path("log.json").write_text("\n".join(map(json.dumps, entries)))
    return "log.json"


def usual(**revisions: str) -> str:
    return log(
        entry("ann", "read", answer=True, **revisions),
        *[entry("olga", "read", answer=True, **revisions)] * 3,
        entry("zoe", "read", answer=False, **revisions),
    )


OLD = ("--old-policy", "old.yaml", "--old-state", "state.yaml")


@pytest.mark.usefixtures("folder")
def test_a_loss_is_shown_with_its_line_its_users_and_why(privtab: Privtab) -> None:
    ran = privtab("replay", usual(), "-p", "new.yaml", *OLD, "--fail-on", "lost-in-use")
    assert ran.code == 1
    assert "5 decisions in 1 file; 5 replayed" in ran.out
    assert "3 lost, 0 gained, 0 unexplained" in ran.out
    assert "item/read: 3 requests of 1 user to 1 entity would be denied" in ran.out
    assert "at new.yaml:9" in ran.out
    assert "owner (item:s/a/i) through user:olga; missing: READ (item:s/a/i)" in ran.out
    assert "failed: lost-in-use" in ran.err
    page = privtab("replay", usual(), "-p", "new.yaml", *OLD, "--format", "html").out.replace("<wbr>", "")
    for said in (
        "5 decisions in 1 file; 5 replayed",
        "item/read: 3 requests of 1 user to 1 entity would be denied",
        "new.yaml:9",
        "owner (item:s/a/i) through user:olga; missing: READ (item:s/a/i)",
        "default-src 'none'",
    ):
        assert said in page
    assert privtab("replay", usual(), "-p", "new.yaml", *OLD, "--fail-on", "gained-in-use,unexplained").code == 0


@pytest.mark.usefixtures("folder")
def test_what_is_possible_and_was_not_seen_is_shown_with_its_witness(privtab: Privtab) -> None:
    ran = privtab("replay", log(entry("ann", "read", answer=True)), "-p", "new.yaml", *OLD, "--fail-on", "any")
    assert ran.code == 0
    assert "possible, not seen" in ran.out
    assert "narrower" in ran.out
    assert "allow → deny, where" in ran.out


@pytest.mark.usefixtures("folder")
def test_an_answer_that_its_moment_does_not_give_is_a_group_of_its_own(privtab: Privtab) -> None:
    file = log(entry("zoe", "read", answer=True), entry("ann", "read", answer=True))
    ran = privtab("replay", file, "-p", "old.yaml", *OLD, "--fail-on", "unexplained")
    assert ran.code == 1
    assert "answered otherwise than their moment explains" in ran.out
    assert "allow → deny → deny" in ran.out


@pytest.mark.usefixtures("folder")
def test_every_format_says_the_same(privtab: Privtab) -> None:
    usual()
    common = ("replay", "log.json", "-p", "new.yaml", *OLD, "--fail-on", "lost-in-use", "--format")
    found = json.loads(privtab(*common, "json").out)
    assert found["lost"] == 3
    (group,) = found["groups"]
    assert (group["rows"], group["requests"], group["where"]) == (["item/read"], 3, "new.yaml:9")
    assert group["by_user"] == [["olga", 3]]
    assert group["through"] == [["user:olga", 3]]
    assert group["samples"][0]["position"] == "log.json:2"
    comment = privtab(*common, "markdown").out
    assert "### item/read: 3 requests of 1 user to 1 entity would be denied (`new.yaml:9`)" in comment
    (result,) = json.loads(privtab(*common, "sarif").out)["runs"][0]["results"]
    assert result["ruleId"] == "U101"
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 9
    metrics = privtab(*common, "prometheus").out
    assert 'privtab_replay_changed_decisions{result="lost",rule="item/read"} 3.0' in metrics
    assert 'privtab_replay_decisions{result="same"} 2.0' in metrics
    assert privtab(*common, "markdown", "--output", "replay.md").code == 1
    assert Path("replay.md").read_text() == comment


@pytest.mark.usefixtures("folder")
def test_a_log_without_a_decision_to_replay_fails_whatever_is_asked(privtab: Privtab) -> None:
    file = log({**entry("ann", "read", answer=True), "path": "privtab/other/allow"})
    ran = privtab("replay", file, "-p", "new.yaml", *OLD, "--fail-on", "gained-in-use")
    assert ran.code == 1
    assert "no decision was replayed" in ran.out
    assert "no decisions of the policy: 1 of another system" in ran.out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "text",
    ["some text\n", '{"decision_id": "d", "pa', '{"user": "ann", "verb": "get", "ok": true}\n', '{"level":"info","msg":"x"}\n', "[]", ""],
)  # fmt: skip
def test_a_replay_that_understood_no_entry_has_not_succeeded(text: str, privtab: Privtab) -> None:
    Path("log.json").write_text(text)
    common = ("replay", "log.json", "-p", "new.yaml", *OLD)
    ran = privtab(*common)
    assert ran.code == 1
    assert "no decision was replayed, which `--accept empty-logs` accepts" in ran.err
    assert privtab(*common, "--accept", "incomplete-logs").code == 1
    assert privtab(*common, "--accept", "empty-logs").code == 0
    read = json.loads(privtab(*common, "--accept", "empty-logs", "--format", "json").out)["read"]
    assert privtab(*common, "--accept", "empty-logs", "--fail-on", "any").code == (1 if read["damaged"] else 0)


@pytest.mark.usefixtures("folder")
def test_entries_in_what_a_container_runtime_keeps_are_replayed(privtab: Privtab) -> None:
    usual()
    lines = Path("log.json").read_text().splitlines()
    Path("log.json").write_text(
        "\n".join(json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "x"}) for line in lines)
    )
    ran = privtab("replay", "log.json", "-p", "new.yaml", *OLD, "--fail-on", "lost-in-use")
    assert ran.code == 1
    assert "5 decisions in 1 file; 5 replayed" in ran.out
    assert "3 lost, 0 gained, 0 unexplained" in ran.out


@pytest.mark.usefixtures("folder")
def test_what_was_skipped_counts_for_nothing_as_kept(privtab: Privtab) -> None:
    common = ("replay", "log.json", "-p", "old.yaml", *OLD)
    usual()
    with Path("log.json").open("a") as file:
        file.write("\n" + json.dumps({**entry("ann", "read", answer=True), "path": "privtab/other/allow"}))
    assert privtab(*common, "--fail-on", "any").code == 0
    with Path("log.json").open("a") as file:
        file.write('\n{"cut": ')
    assert privtab(*common).code == 0
    ran = privtab(*common, "--fail-on", "gained-in-use")
    assert ran.code == 1
    assert ran.err.count("failed: ") == 1
    assert "failed: incomplete" in ran.err
    assert privtab(*common, "--fail-on", "any", "--accept", "incomplete-logs").code == 0
    assert privtab(*common, "--fail-on", "incomplete", "--accept", "incomplete-logs").code == 2


@pytest.mark.usefixtures("folder")
def test_what_decision_points_dropped_is_part_of_the_report(privtab: Privtab, tmp_path: Path) -> None:
    """A real OPA that may log one decision a second, and nowhere to send it, says how many it dropped."""
    usual()
    config = {
        "services": {"logs": {"url": "http://127.0.0.1:9"}},
        "status": {"prometheus": True},
        "decision_logs": {"service": "logs", "reporting": {"max_decisions_per_second": 1}},
    }
    with sidecars.running(tmp_path, config) as (opa,):
        for _ in range(20):
            opa.allows("ann", "read", "s/a/i")
        Path("status.json").write_text(opa.session.get(f"{opa.url}/v1/status", timeout=5).text)
    Path("metrics").write_text('decision_logs_dropped_rate_limit_exceeded{name="x"} 7\n')
    common = ("replay", "log.json", "-p", "old.yaml", *OLD, "--fail-on", "incomplete", "--format", "json")
    ran = privtab(*common, "--metrics", "status.json", "--metrics", "metrics")
    assert ran.code == 1
    assert 7 + 15 <= json.loads(ran.out)["dropped"]["decision_logs_dropped_rate_limit_exceeded"] <= 7 + 20
    assert privtab(*common).code == 0


@pytest.mark.usefixtures("folder")
def test_mistakes_are_told(privtab: Privtab) -> None:
    usual()
    assert "give `--registry`" in privtab("replay", "log.json", "-p", "new.yaml").err
    assert privtab("replay", "none.json", "-p", "new.yaml", *OLD).code == 3
    assert "there are lost-in-use" in privtab("replay", "log.json", "-p", "new.yaml", *OLD, "--fail-on", "lost").err
    ran = privtab("replay", "log.json", "-p", "new.yaml", "--state", "state.yaml")
    assert "3 lost" in ran.out
    assert "counts as a difference, too" in ran.err


def test_a_deployment_stops_where_logged_answers_would_change(privtab: Privtab, folder: Path) -> None:
    registry = Registry.open(str(folder / "registry"))
    old = load_program("old.yaml")
    state, _ = validate(old, load_raw_state("state.yaml"))
    from privtab.bundle import state_bundle

    policy, state_ = registry.put(policy_artifacts(old).bundle()).id, registry.put(state_bundle(old, state)).id
    registry.release("dev", "shop", policy=policy, state=state_)
    usual(policy=policy, state=state_)
    Path("new.scenarios.yaml").unlink(missing_ok=True)
    common = (
        "deploy",
        "new.yaml",
        "-r",
        registry.url,
        "--channel",
        "dev",
        "--dry-run",
        "--accept",
        "untested=none yet",
    )
    ran = privtab(*common, "--replay", "log.json")
    assert ran.code == 1, ran.err
    assert "3 lost" in ran.out + ran.err
    assert "nothing was released" in ran.out
    ran = privtab(*common, "--replay", "log.json", "--accept", "replay=olga left")
    assert ran.code == 0, ran.err
    assert "accepted: olga left" in ran.out + ran.err
    with Path("log.json").open("a") as file:
        file.write('\n{"cut": ')
    ran = privtab(*common, "--replay", "log.json", "--accept", "replay=olga left")
    assert ran.code == 1
    assert "incomplete logs need `--accept incomplete-logs`" in ran.out + ran.err
    ran = privtab(*common, "--replay", "log.json", "--accept", "incomplete-logs")
    assert ran.code == 1, "what differs is not accepted by that"
    log(entry("ann", "read", answer=True, policy=policy, state=state_), {**entry("ben", "read", answer=True)})
    assert privtab(*common, "--replay", "log.json").code == 1
    ran = privtab(*common, "--replay", "log.json", "--accept", "incomplete-logs")
    assert ran.code == 0, ran.err
    assert "accepted: incomplete logs (2 decisions" in ran.out + ran.err
    Path("log.json").write_text("no log\n")
    ran = privtab(*common, "--replay", "log.json", "--accept", "incomplete-logs", "--accept", "replay=why not")
    assert ran.code == 1
    assert "no decision was replayed, which `--accept empty-logs` accepts" in ran.out + ran.err
    assert privtab(*common, "--replay", "log.json", "--accept", "empty-logs").code == 1
    ran = privtab(*common, "--replay", "log.json", "--accept", "incomplete-logs", "--accept", "empty-logs")
    assert ran.code == 0, ran.err
    assert "accepted: empty logs (" in ran.out + ran.err
    usual(policy=policy, state=state_)
    assert (
        privtab("replay", "log.json", "-p", "new.yaml", "--registry", registry.url, "--fail-on", "lost-in-use").code
        == 1
    )
