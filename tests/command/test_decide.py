from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from installed import install

from privtab.bundle.pack import state_bundle
from privtab.command._engines import ENGINES
from privtab.engines.opa.server import OpaServer
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import load_raw_state, validate

MAIN = "from privtab.command import main; main()"


def ask(user: str, action: str, resource: str, **context: object) -> dict[str, Any]:
    type_, _, path = resource.partition(":")
    request: dict[str, Any] = {
        "subject": {"type": "user", "id": user},
        "action": {"name": action},
        "resource": {"type": type_, "id": path},
    }
    return request | ({"context": context} if context else {})


TO_B = {"to": {"type": "shelf", "id": "s/b"}}
ASKED: Sequence[tuple[dict[str, Any], bool]] = (
    (ask("ann", "read", "item:s/a/x"), True),
    (ask("ben", "read", "item:s/a/x"), False),
    (ask("ben", "read", "item:s/a/y"), True),
    (ask("cleo", "read", "item:s/a/y"), True),
    (ask("cleo", "read", "item:s/a/x"), False),
    (ask("ben", "open", "store:s"), True),
    (ask("ann", "create", "shelf:s"), False),
    (ask("ann", "create", "item:s/a"), True),
    (ask("ann", "list", "shelf:s/a"), True),
    (ask("ann", "move", "item:s/a/x", **{"with": TO_B}), False),
    (ask("ann", "move", "item:s/a/x", **{"with": {"to": {"type": "shelf", "id": "s/a"}}}), True),
    (ask("ann", "burn", "item:s/a/x"), True),
    (ask("ann", "burn", "item:s/a/x", really=True), False),
)


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(request) + "\n" for request, _ in ASKED), encoding="utf-8")
    return path


def answers(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_request_is_answered_in_its_place(
    privtab: Callable[..., Any], policy: Path, state: Path, requests: Path, engine: str
) -> None:
    ran = privtab("decide", "--policy", policy, "--state", state, "--requests", requests, "--engine", engine)
    assert ran.code == 0, ran.err
    assert [answer["decision"] for answer in answers(ran.out)] == [allowed for _, allowed in ASKED]


@pytest.mark.slow
def test_all_engines_write_the_same_lines(
    privtab: Callable[..., Any], policy: Path, state: Path, requests: Path
) -> None:
    output = {
        engine: privtab("decide", "-p", policy, "-s", state, "-r", requests, "-e", engine).out for engine in ENGINES
    }
    assert answers(output["reference"])
    assert set(output.values()) == {output["reference"]}


def test_lines_are_compact_with_sorted_keys(
    privtab: Callable[..., Any], policy: Path, state: Path, requests: Path
) -> None:
    ran = privtab("decide", "-p", policy, "-s", state, "-r", requests)
    for line in ran.out.splitlines():
        assert line == json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    first = answers(ran.out)[0]
    assert first["context"]["rule"] == "shop/item/read"
    assert first["context"]["missing"] == []
    assert first["context"]["revision"]
    assert answers(ran.out)[1]["context"]["missing"] != []


@pytest.mark.parametrize("engine", ENGINES)
def test_invalid_requests_are_denied_in_their_place(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path, engine: str
) -> None:
    good = json.dumps(ask("ann", "read", "item:s/a/x"))
    wrong = [
        "not json",
        "[]",
        "null",
        "{}",
        json.dumps(ask("ann", "reed", "item:s/a/x")),
        json.dumps(ask("ann", "read", "itm:s/a/x")),
        json.dumps(ask("ann", "read", "item:s/a")),
        json.dumps(ask("ann", "read", "item:s//x")),
        json.dumps(ask("", "read", "item:s/a/x")),
        json.dumps(ask("ann", "move", "item:s/a/x")),
        json.dumps(ask("ann", "move", "item:s/a/x", **{"with": {"to": {"type": "store", "id": "s"}}})),
        json.dumps(ask("\ud83d", "read", "item:s/a/x")),
        json.dumps(ask("ann", "\ud83d", "item:s/a/x")),
        "[" * 100_000,
    ]
    path = tmp_path / "asked.jsonl"
    path.write_text("\n".join([good, "", *wrong, "   ", good]), encoding="utf-8")
    ran = privtab("decide", "-p", policy, "-s", state, "-r", path, "-e", engine)
    assert ran.code == 1
    decisions = answers(ran.out)
    assert len(decisions) == len(wrong) + 2
    assert [answer["decision"] for answer in decisions] == [True, *[False] * len(wrong), True]
    for answer in decisions[1:-1]:
        error = answer["context"]["error"]
        assert error["kind"] == "invalid_request"
        assert error["message"]
    assert [line.partition(":")[0] for line in ran.err.splitlines()] == [f"line {n}" for n in range(3, 3 + len(wrong))]
    assert "did you mean `read`?" in decisions[5]["context"]["error"]["message"]


def test_bytes_that_are_no_text_are_an_invalid_request(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path
) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_bytes(b'{"subject": {"type": "user", "id": "\xff\xfe"}}\n' + json.dumps(ASKED[0][0]).encode() + b"\n")
    ran = privtab("decide", "-p", policy, "-s", state, "-r", path)
    assert ran.code == 1
    assert [answer["decision"] for answer in answers(ran.out)] == [False, True]


def test_a_wrong_row_that_can_only_allow_is_left_out_and_reported(
    privtab: Callable[..., Any], policy: Path, state: Path, requests: Path
) -> None:
    text = state.read_text(encoding="utf-8") + 'members: [{user: ann, of: "nowhere:x"}]\n'
    state.write_text(text, encoding="utf-8")
    ran = privtab("decide", "-p", policy, "-s", state, "-r", requests)
    assert ran.code == 1
    assert [answer["decision"] for answer in answers(ran.out)] == [allowed for _, allowed in ASKED]
    assert "nowhere" in ran.err
    assert "answered without them" in ran.err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("effect: deny, privilege: READ", "effect: deny, privilege: RAED"),
        ("effect: deny, privilege: READ", "effect: dney, privilege: READ"),
        ('{principal: "user:ben", role: clerk}', '{principal: "usr:ben", role: clerk}'),
        ("grants:", "grnats:"),
    ],
)
def test_a_wrong_row_that_may_deny_stops_the_answers(
    privtab: Callable[..., Any], policy: Path, state: Path, requests: Path, old: str, new: str
) -> None:
    text = state.read_text(encoding="utf-8")
    assert old in text
    state.write_text(text.replace(old, new), encoding="utf-8")
    ran = privtab("decide", "-p", policy, "-s", state, "-r", requests)
    assert (ran.code, ran.out) == (1, "")
    assert "may carry a denial" in ran.err
    bundle = requests.with_name("state.tar.gz")
    assert privtab("state", "pack", state, "-p", policy, "-o", bundle, "--allow-partial").code == 0
    assert privtab("decide", "-p", policy, "-s", bundle, "-r", requests).code == 0, "as the message says"


def test_an_opa_that_runs_already_is_asked_for_its_own_state(
    privtab: Callable[..., Any], policy: Path, state: Path, requests: Path, tmp_path: Path
) -> None:
    program = load_program(policy)
    loaded, findings = validate(program, load_raw_state(state))
    assert findings == ()
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, loaded))
    with OpaServer([tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"]) as opa:
        ran = privtab("decide", "-p", policy, "--url", opa.url, "-r", requests)
        both = privtab("decide", "-p", policy, "-s", state, "--url", opa.url, "-r", requests)
    assert ran.code == 0, ran.err
    assert [answer["decision"] for answer in answers(ran.out)] == [allowed for _, allowed in ASKED]
    assert both.code == 2
    gone = privtab("decide", "-p", policy, "--url", opa.url, "-r", requests)
    assert (gone.code, gone.out) == (3, "")
    assert "Traceback" not in gone.err


def test_standard_input_is_read_and_answers_come_while_it_is_open(policy: Path, state: Path) -> None:
    command = [sys.executable, "-c", MAIN, "decide", "-p", str(policy), "-s", str(state)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    for request, allowed in ASKED[:2]:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["decision"] is allowed
    process.stdin.close()
    assert process.stdout.read() == ""
    assert process.wait(60) == 0


@pytest.mark.slow
def test_answers_are_utf_8_under_every_locale(policy: Path, state: Path) -> None:
    request = ask("zoë", "create", "item:s/Ä")
    ran = subprocess.run(
        [sys.executable, "-c", MAIN, "decide", "-p", str(policy), "-s", str(state)],
        input=json.dumps(request, ensure_ascii=False).encode(),
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert "item:s/Ä" in ran.stdout.decode() or "shelf:s/Ä" in ran.stdout.decode()


def test_a_pair_of_surrogates_is_a_name_as_any_other(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path
) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text(json.dumps(ask("\N{GRINNING FACE}", "read", "item:s/a/x")), encoding="utf-8")
    assert "\\ud83d" in path.read_text(encoding="utf-8")
    assert privtab("decide", "-p", policy, "-s", state, "-r", path).code == 0


def test_a_missing_file_of_requests_is_the_world_s_fault(
    privtab: Callable[..., Any], policy: Path, state: Path
) -> None:
    ran = privtab("decide", "-p", policy, "-s", state, "-r", "nothing.jsonl")
    assert ran.code == 3
    assert "nothing.jsonl" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_thousands_of_requests_are_answered_in_order(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path, engine: str
) -> None:
    path = tmp_path / "asked.jsonl"
    lines = [json.dumps(request) for request, _ in ASKED]
    path.write_text("\n".join(lines[at % len(lines)] for at in range(5200)), encoding="utf-8")
    ran = privtab("decide", "-p", policy, "-s", state, "-r", path, "-e", engine)
    assert [answer["decision"] for answer in answers(ran.out)] == [allowed for _, allowed in ASKED] * 400


@pytest.mark.parametrize("engine", ["reference", "python"])
def test_a_request_with_two_meanings_is_none(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path, engine: str
) -> None:
    good = json.dumps(ASKED[0][0])
    lines = [
        good.replace('"id": "ann"', '"id": "ben", "id": "ann"'),
        good.replace('"action":', '"action": {"name": "burn"}, "action":'),
        good[:-1] + ', "context": {"really": NaN}}',
        good.replace("item:s/a/x", "x").replace('"ann"', '"ann", "properties": {"groups": ["a"], "groups": ["b"]}'),
        "[" * 100_000,
        good,
    ]
    requests_file = tmp_path / "twice.jsonl"
    requests_file.write_bytes(b"\xef\xbb\xbf" + good.encode() + b"\n" + "\n".join(lines).encode())
    ran = privtab("decide", "-p", policy, "-s", state, "-r", requests_file, "-e", engine)
    assert ran.code == 1
    assert [answer["decision"] for answer in answers(ran.out)] == [True, *[False] * 5, True]
    assert "line 2: not JSON: `id` occurs twice in one object" in ran.err
    assert "line 3: not JSON: `action` occurs twice in one object" in ran.err


TOY = """\
from contextlib import nullcontext

from privtab import Decision
from privtab.command._engines import Answers


def answers(program, state):
    return nullcontext(Answers(lambda requests: [Decision(allowed=False) for request in requests]))
"""


def test_an_entry_point_is_an_engine(
    privtab: Callable[..., Any],
    policy: Path,
    state: Path,
    requests: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    install(plugin, monkeypatch, "[privtab.engines]\ntoy = toy_plugin:answers\n", TOY)
    ran = privtab("decide", "-p", policy, "-s", state, "-r", requests, "-e", "toy")
    assert ran.code == 0, ran.err
    assert not any(answer["decision"] for answer in answers(ran.out))


def test_an_engine_that_nothing_has_stops_the_command(
    privtab: Callable[..., Any], policy: Path, state: Path, requests: Path
) -> None:
    ran = privtab("decide", "-p", policy, "-s", state, "-r", requests, "-e", "phyton")
    assert ran.code == 2
    assert "did you mean `python`?" in " ".join(ran.err.split())
    assert not ran.out


def test_an_engine_that_nothing_has_stops_the_command_also_where_an_opa_decides(
    privtab: Callable[..., Any], policy: Path
) -> None:
    ran = privtab("decide", "-p", policy, "--url", "http://127.0.0.1:9", "--engine", "nonsense", "-r", "/dev/null")
    assert ran.code == 2
    assert "there are `opa`, `python` and `reference`" in " ".join(ran.err.split())
