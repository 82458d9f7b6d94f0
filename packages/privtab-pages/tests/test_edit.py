"""Texts that are edited on a page: what is found in them, who reads them, and what they cannot do."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pysat
import pytest
from explored import HOSTILE, MARKUP, POLICY, Html, encoded, problems, shop, tables
from starlette.testclient import TestClient

from privtab.state import RawReader, read_yaml_rows, validate
from privtab_pages.explore import edited, editing
from privtab_pages.explore.server import Explorer, Scope, application
from privtab_pages.explore.site import PORTABLE, exported
from privtab_pages.explore.views import edit
from privtab_pages.explore.world import LONGEST_TEXT, Query, World
from privtab_server.serving.tokens import Tokens

STATE = """\
memberships: [{user: ann, group: crew}]
assignments: [{principal: group:crew, role: clerk}]
grants:
  - {grantee: role:clerk, effect: allow, privilege: READ, entity: store:s}
"""
ASKED = [["user", "ann"], ["operation", "read"], ["entity", "item:s/a/x"]]
TOKEN = "a-token-of-the-test-0123456789"  # noqa: S105  (made up)


def question(policy: str = POLICY, state: str = STATE, asked: list[list[str]] | None = None) -> dict[str, Any]:
    return {"policy": policy, "state": state, "question": ASKED if asked is None else asked}


def answer(**texts: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(edited.answer_text(json.dumps(question(**texts))))
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[TestClient]:
    with TestClient(application(Explorer(world=world)), base_url="http://127.0.0.1:8080") as asking:
        yield asking


# --- what is found -------------------------------------------------------------------------------------------------------


def test_an_edit_turns_the_decision() -> None:
    before, after = answer(), answer(state=STATE.replace("allow", "deny"))
    assert "ALLOW" in before["answer"]
    assert "role:clerk" in before["answer"]
    assert "DENY" in after["answer"]
    stricter = answer(policy=POLICY.replace("READ (item) or owner", "WRITE (item) or owner"))
    assert "DENY" in stricter["answer"]
    assert before["errors"] == after["errors"] == 0
    assert before["names"]["user"] == ["ann"]
    assert {"read", "create"} <= set(before["names"]["operation"])
    assert answer(asked=[])["answer"] == ""


def test_findings_have_places_and_stop_the_answer() -> None:
    wrong = POLICY.replace("open: READ", "open: REED")
    found = answer(policy=wrong)
    [finding] = (each for each in found["findings"] if each["severity"] == "error")
    line, column, end_line, end_column = finding["place"]
    assert line == end_line
    assert wrong.splitlines()[line - 1][column - 1 : end_column - 1] == "REED"
    assert (finding["where"], finding["severity"], finding["help"]) == ("policy", "error", "did you mean `READ`?")
    assert "P101 unknown-privilege" in finding["text"]
    assert (found["answer"], found["errors"], found["names"]) == ("", 1, {})
    # Of the state likewise: a row that is wrong may be a denial.
    found = answer(state=STATE + "  - {grantee: user:ann, effect: deny, privilege: REED, entity: store:s}\n")
    assert [(f["where"], f["place"][0]) for f in found["findings"] if f["severity"] == "error"] == [("state", 5)]
    assert found["answer"] == ""
    many = answer(state="grants:\n" + "  - {a: b}\n" * 500)
    assert (len(many["findings"]), many["left"] > 0, many["answer"]) == (edited.MOST_FINDINGS, True, "")


def test_a_question_that_cannot_be_answered_says_why() -> None:
    found = answer(asked=[["user", "ann"], ["operation", "reed"], ["entity", "item:s/a/x"]])
    assert "did you mean" in Html(found["answer"]).text
    for text in ("", "[]", "{}", '{"policy": 1}', '{"policy": "", "state": "", "question": [1]}', "\x00"):
        assert "problem" in json.loads(edited.answer_text(text))


def test_the_text_of_a_state_says_what_the_state_does(world: World) -> None:
    values = edit(world, Query())
    reader = RawReader()
    read_yaml_rows(values["texts"]["state"], "state.yaml", reader)
    state, findings = validate(world.program, reader.done())
    assert [f for f in findings if f.severity == "error"] == []
    assert state == world.rows
    long = World(
        program=world.program, shown="", request=world.request, caller=world.caller, texts={"policy": "p" * 300_000}
    )
    assert edit(long, Query())["texts"] == {"policy": ""}


@pytest.mark.parametrize("name", [*HOSTILE, "a\u2028b\u202ec"], ids=range(len(HOSTILE) + 1))
def test_hostile_names_are_text(name: str) -> None:
    user, path = json.dumps(name), json.dumps(f"item:s/{encoded(name)}/{encoded(name)}")
    rows = f"grants: [{{grantee: {json.dumps('user:' + name)}, effect: allow, privilege: READ, entity: {path}}}]\n"
    asked = [["user", name], ["operation", "read"], ["entity", json.loads(path)]]
    for found in (answer(state=rows, asked=asked), answer(state=rows + f"{user}: []"), answer(policy=POLICY + user)):
        html = Html(found.get("answer", ""))
        assert html.all("script", "img", "iframe", "a", "link", "meta") == []
        assert not any(attribute.startswith("on") for _, given in html.elements for attribute in given)


# --- who reads them ------------------------------------------------------------------------------------------------------

NESTED = "a: " + "[" * 50_000
ALIASES = "privtab: 1\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10 if n else ['x'] * 10)}]\n" for n in range(12)
)
TEXTS = {
    "nested": NESTED,
    "aliases": ALIASES,
    "nul": "privtab: 1\x00",
    "control": "privtab: 1\x1b[31m",
    "surrogate": "privtab: \ud800",
    "tags": "privtab: !!python/object/apply:os.system ['touch pwned']",
    "not": "}{",
    "long": "a" * (LONGEST_TEXT - len(STATE) - 1000),
    "keys": "".join(f"k{n}: v\n" for n in range(3_000)),
    "sources": POLICY.replace("title:", "sources: {a: {document: /etc/passwd}}\ntitle:"),
    "markup": MARKUP,
}
OF_STATES = {"aliases", "long", "nested", "tags"}
"""Those by which a reader of states differs from one of policies, if it does."""


@pytest.mark.parametrize(
    ("name", "where"),
    [
        *((name, "policy") for name in TEXTS),
        *(pytest.param(name, "state", marks=() if name in OF_STATES else pytest.mark.long) for name in TEXTS),
    ],
)
def test_hostile_texts_are_findings_or_refused(client: TestClient, name: str, where: str) -> None:
    body = json.dumps({**question(), where: TEXTS[name]})
    sent = client.post("/edit", content=body, headers={"Content-Type": "application/json"})
    assert sent.status_code == 200
    found = sent.json()
    assert found.get("findings") or found.get("problem") or name == "sources"
    assert "root:" not in sent.text
    assert not Path("pwned").exists()


def test_only_the_page_itself_sends_texts(world: World, client: TestClient, tmp_path: Path) -> None:
    body = json.dumps(question())
    json_ = {"Content-Type": "application/json"}
    for headers, status in (
        (json_, 200),
        (json_ | {"Sec-Fetch-Site": "same-origin"}, 200),
        (json_ | {"Sec-Fetch-Site": "cross-site"}, 403),
        (json_ | {"Sec-Fetch-Site": "none"}, 403),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
        (json_ | {"Host": "evil.example"}, 421),
    ):
        assert client.post("/edit", content=body, headers=headers).status_code == status, headers
    assert client.post("/edit", content=" " * (8 * LONGEST_TEXT + 1), headers=json_).status_code == 413
    assert client.put("/edit", content=body, headers=json_).status_code == 405
    (tmp_path / "tokens").write_text(f"me {TOKEN}\n", encoding="utf-8")
    guarded = Explorer(world=world, tokens=Tokens(tmp_path / "tokens", Scope))
    with TestClient(application(guarded), base_url="http://localhost") as asking:
        assert asking.post("/edit", content=body, headers=json_).status_code == 401
        allowed = asking.post("/edit", content=body, headers=json_ | {"Authorization": f"Bearer {TOKEN}"})
        assert "ALLOW" in allowed.json()["answer"]


def test_texts_are_in_no_log_and_no_answer_that_is_kept(world: World, caplog: pytest.LogCaptureFixture) -> None:
    explorer = Explorer(world=world)
    with caplog.at_level(logging.DEBUG), TestClient(application(explorer), base_url="http://localhost") as asking:
        for text in ("secret-text: [", STATE.replace("ann", "secret-text")):
            asking.post("/edit", json=question(state=text, asked=[["user", "secret-text"], *ASKED[1:]]))
        assert "secret-text" not in asking.get("/edit").text
    assert "secret-text" not in caplog.text
    assert not any("secret-text" in kept.text for kept in explorer.answers.values())


def test_a_text_that_takes_too_long_or_too_much_is_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = Explorer(world=world, editing=editing.Editing(seconds=0))
    with TestClient(application(explorer), base_url="http://localhost") as asking:
        assert asking.post("/edit", json=question()).json() == json.loads(editing.TOO_MUCH)
        explorer.editing.seconds = 20
        assert "ALLOW" in asking.post("/edit", json=question()).json()["answer"]
        monkeypatch.setattr(editing, "MOST_WAITING", 0)
        assert asking.post("/edit", json=question()).status_code == 503


def test_texts_that_come_while_a_process_starts_have_one_each() -> None:
    async def together() -> list[bytes]:
        reading = editing.Editing(seconds=60)
        try:
            states = (STATE, STATE.replace("allow", "deny"))
            asked = [json.dumps(question(state=state)).encode() for state in states]
            return await asyncio.gather(*map(reading.answer, asked))
        finally:
            await reading.close()

    allowed, denied = map(json.loads, asyncio.run(together()))
    assert "ALLOW" in allowed["answer"]
    assert "DENY" in denied["answer"]


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("open('written', 'w').write('a' * 10_000)", "File too large"),
        ("bytearray(2 << 30)", "MemoryError"),
        ("while True: pass", ""),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
def test_the_process_is_limited(does: str, says: str, tmp_path: Path) -> None:
    code = f"from privtab_pages.explore import edited\nedited.SECONDS = 1\nedited._limit()\n{does}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert says in ended.stderr
    assert [path for path in tmp_path.iterdir() if path.stat().st_size] == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_knows_no_keys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVTAB_SIGNING_KEY", "secret-key")
    explorer = Explorer(world=world)
    with TestClient(application(explorer), base_url="http://localhost") as asking:
        asking.get("/edit")
        asking.post("/edit", json=question())
        waiting = explorer.editing._next
        assert waiting is not None
        while not waiting.done():
            asking.get("/edit")
        process = waiting.result()
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"secret-key" in bytes(os.environb[b"PRIVTAB_SIGNING_KEY"])
        assert b"secret-key" not in environment
    assert process.returncode is not None, "it ends with the server"


# --- without a server ----------------------------------------------------------------------------------------------------


def test_the_archive_of_a_folder_reads_texts_without_anything_else(world: World, tmp_path: Path) -> None:
    """Python alone, the solver beside it: no other package of this environment can be imported."""
    files = exported(world, [])
    assert exported(world, [])[PORTABLE] == files[PORTABLE]
    with ZipFile(io.BytesIO(files[PORTABLE])) as archive:
        archive.extractall(tmp_path / "app")
    solver = [Path(str(file.locate())) for file in distribution("python-sat").files or () if ".." not in file.parts]
    for path in solver:
        if path.suffix in (".py", ".so"):
            place = tmp_path / "solver" / path.relative_to(Path(pysat.__file__).parents[1])
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path)
    code = "import sys; from privtab_pages.explore.edited import answer_text; print(answer_text(sys.stdin.read()))"
    texts = question(policy=POLICY.replace("open: READ", "open: (READ")), question()
    for asked, says in zip(texts, ("P011", "ALLOW"), strict=True):
        ended = subprocess.run(
            [sys.executable, "-S", "-P", "-c", code],
            input=json.dumps(asked),
            env={"PYTHONPATH": f"{tmp_path / 'app'}{os.pathsep}{tmp_path / 'solver'}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert says in ended.stdout


def test_a_folder_says_of_the_state_only_what_was_asked_for(world: World) -> None:
    page = Html(exported(world, [])["edit.html"].decode())
    assert "role:clerk" not in page.text
    assert "grants: []" in page.text
    assert problems(page) == []
    [policy] = (given["content"] for given in page.all("meta") if given.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith(
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'"
    )


def test_the_page_begins_with_the_texts(client: TestClient) -> None:
    page = client.get("/edit?user=ann&operation=read&entity=item:s/a/x")
    html = Html(page.text)
    assert problems(html) == []
    assert "unsafe" not in page.headers["content-security-policy"].replace("style-src 'unsafe-inline'", "")
    assert "store:s" in html.text
    assert tables()["memberships"][0]["user"] in html.text
    assert client.get("/edit.js").headers["content-type"].startswith("text/javascript")
