from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import parse_qsl, quote, urljoin, urlsplit
from urllib.request import urlopen

import generated_programs
import pytest
import required_flag_policy
import worlds
from checkout import ROOT
from documentation_pages import read
from explored import HOSTILE, LONG, PLAIN, POLICY, Html, encoded, problems, shop, tables, url, world_in, world_of
from starlette.testclient import TestClient

from privtab.base import Entity, Request
from privtab.pipeline import load_program
from privtab.state import Assignment, State, from_tables, load_raw_state, validate
from privtab_analysis import what_can
from privtab_analysis.answer_view import answered
from privtab_analysis.permissions import questions
from privtab_analysis.rights_map import rights_map
from privtab_analysis.state_diff import state_diff
from privtab_analysis.state_diff.subjects import ANY_OTHER
from privtab_pages.explore.changes import compare, what_if
from privtab_pages.explore.picture import picture
from privtab_pages.explore.server import Explorer, Scope, application, names_of
from privtab_pages.explore.site import answer, exported
from privtab_pages.explore.views import decision, heat
from privtab_pages.explore.world import LONGEST, Query, World, linked
from privtab_server.serving.tokens import Tokens

CONTROLS = "a\x1b[31m\x00\x7f\r\nX: y\ud800"
"""What no state may name."""
TOKEN = "a-token-of-the-test-0123456789"  # noqa: S105  (made up)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[TestClient]:
    with TestClient(
        application(Explorer(world=world)), base_url="http://127.0.0.1:8080", follow_redirects=False
    ) as asking:
        yield asking


def test_every_page_is_sound_and_every_link_leads_somewhere(client: TestClient) -> None:
    waiting, seen = [*PLAIN], set[str]()
    while waiting and len(seen) < 400:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answered = client.get(path)
        assert answered.status_code in ((200, 400) if path in PLAIN else (200,)), (path, answered.text[-300:])
        assert "script-src 'self'" in answered.headers["content-security-policy"]
        html = Html(answered.text)
        assert problems(html) == [], path
        waiting += [urljoin(path, link).partition("#")[0] for link in html.links if len(link) < 2_000]
    assert len(seen) > 100


@pytest.mark.parametrize("name", [*HOSTILE, CONTROLS], ids=range(len(HOSTILE) + 1))
def test_hostile_names_are_text(client: TestClient, name: str) -> None:
    entity = f"item:s/{encoded(name)}/{encoded(name)}"
    pages = (
        url("decision", user=name, operation="read", entity=entity),
        url("decision", user="ann", operation="read", entity=entity),
        url("decision", user=name, operation=name, entity=name),
        url("who-can", operation="create", entity=entity),
        url("who-can", operation="read", entity=entity),
        url("what-can", user=name),
        url("what-can", user=f"role:{name}", entity=f"shelf:s/{encoded(name)}"),
        url("heat", within=f"shelf:s/{encoded(name)}", user=name[:100]),
        url("what-if", about=f"user:{name}"),
        url("what-if", add=linked("memberships", [("user", name), ("group", name)])),
        url("what-if", remove=linked("memberships", [("user", name), ("group", name)])),
        url("what-if", add=name, reading=name),
        url("compare", version=name, state=name),
        url("filter", user=name, operation="read", type="item"),
        url("filter", user=name, operation="read", type=name, dialect=name),
    )
    shown = 0
    for path in pages:
        answered = client.get(path)
        assert answered.status_code in (200, 400)
        html = Html(answered.text)
        assert problems(html) == [], path[:200]
        shown += name[:20] in html.text
    assert shown >= 5 or name == CONTROLS


def test_the_first_page_has_a_question_that_is_allowed(client: TestClient, world: World) -> None:
    html = Html(client.get("/").text)
    given = {field["name"]: field["value"] for field in html.all("input")}
    request = Request(user=given["user"], action=given["operation"], resource=Entity.parse(given["entity"]))
    assert request.resource.type == "item", "the deepest"
    assert world.reference.decide(request).allowed
    empty = answer(world_in(world.program, State()), "", [])
    assert empty is not None
    assert {field["value"] for field in Html(empty.text).all("input")} == {""}


def test_only_looking_is_possible(client: TestClient, world: World) -> None:
    before = {table: list(getattr(world.rows, table)) for table in ("grants", "memberships", "assignments", "owners")}
    for path in ("/", "/what-if", "/decision", "/explore.js"):
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert client.request(method, path).status_code == 405
        assert client.head(path).status_code == 200
    assert {table: list(getattr(world.rows, table)) for table in before} == before
    assert client.get("/../etc/passwd").status_code == 404
    assert client.get("/explore/style.html.j2").status_code == 404


def test_names_of_other_sites_are_refused(client: TestClient, world: World) -> None:
    for host in (
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "a b",
        "[::1",
    ):
        assert client.get("/", headers={"Host": host}).status_code == 421, host
    for host in ("localhost", "localhost:9", "127.0.0.1:8080", "[::1]:8080"):
        assert client.get("/", headers={"Host": host}).status_code == 200, host
    hosts = names_of("Pages.example", "https://look.example:8443/a")
    with TestClient(application(Explorer(world=world, hosts=hosts))) as other:
        for host, status in (("look.example", 200), ("pages.example:1", 200), ("example", 421)):
            assert other.get("/explore.js", headers={"Host": host}).status_code == status


def test_a_token_is_a_password_too_and_is_in_no_log(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tokens").write_text(f"me {TOKEN}\n", encoding="utf-8")
    explorer = Explorer(world=world, tokens=Tokens(tmp_path / "tokens", Scope))
    basic = "Basic " + base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
    wrong = "Basic " + base64.b64encode(b"anyone:another-token-0123456789").decode()
    with caplog.at_level(logging.INFO), TestClient(application(explorer), base_url="http://localhost") as asking:
        refused = asking.get("/")
        assert (refused.status_code, refused.headers["www-authenticate"].split()[0]) == (401, "Basic")
        for header, status in (
            (basic, 200),
            (f"Bearer {TOKEN}", 200),
            (wrong, 401),
            ("Basic !", 401),
            ("Basic ", 401),
            (f"Bearer {TOKEN}x", 401),
        ):
            assert asking.get("/explore.js", headers={"Authorization": header}).status_code == status, header
        both = [("Authorization", basic), ("Authorization", wrong)]
        assert asking.get("/", headers=both).status_code == 400
        asking.get(
            url("decision", user="secret-user", operation="read", entity="item:s/a/x"), headers={"Authorization": basic}
        )
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("privtab"))
    assert "/decision" in logged
    assert not any(secret in logged for secret in (TOKEN, basic[6:], "secret-user"))


def test_limits(client: TestClient, world: World) -> None:
    assert client.get("/decision?user=" + "a" * 50_000).status_code == 414
    assert client.get("/decision?" + "a=1&" * 200).status_code == 400
    assert client.get("/decision?" + "a=1&" * 60).status_code == 400
    assert "characters at most" in client.get(url("decision", user="a" * (LONGEST + 1))).text
    with TestClient(application(Explorer(world=world, seconds=0)), base_url="http://localhost") as hasty:
        assert hasty.get("/table").status_code == 503


def test_what_is_not_sure_is_said(world: World, tmp_path: Path) -> None:
    partial = world_in(world.program, world.rows, partial=True)
    for name in ("", "heat", "who-can", "table"):
        found = answer(partial, name, [])
        assert found is not None
        assert "Wrong rows of the state were left out" in found.text
    policy, state = required_flag_policy.files(tmp_path, required_flag_policy.POLICY + "    open: READ (file)\n")
    program = load_program(policy)
    flags = world_in(program, validate(program, load_raw_state(state))[0])
    refused = answer(flags, "what-can", [("user", "ann")])
    assert refused is not None
    assert "needs the flag pii" in Html(refused.text).text
    page = heat(flags, Query([("type", "file")]))["found"]
    assert ([rule.operation for rule, _ in page.columns], [rule.operation for rule in page.left_out]) == (
        ["open"],
        ["read"],
    )
    everybody = answer(world, "who-can", [("operation", "read"), ("entity", "item:s/a/x"), ("group", "crew")])
    assert everybody is not None
    assert "leave group out" in Html(everybody.text).text


def test_errors_are_on_the_page_with_advice(client: TestClient) -> None:
    text = Html(client.get(url("decision", user="dan", operation="reed", entity="item:s/a/x")).text).text
    assert "did you mean read?" in text
    row = "grants?grantee=user:dan&effect=allow&privilege=REED&entity=shelf:s/a"
    assert "did you mean READ?" in Html(client.get(url("what-if", add=row)).text).text
    assert "no row of the state is" in client.get(url("what-if", remove="memberships?user=dan&group=crew")).text
    for path in (
        url("what-if", add="grants?grantee=user:dan"),
        url("what-if", add="nothing?a=b"),
        url("filter", user="ann", operation="read", type="itm"),
    ):
        assert client.get(path).status_code == 400


# --- what the pages say is what the tools say ----------------------------------------------------------------------------


def asked(path: str) -> Query:
    return Query(parse_qsl(urlsplit(path).query))


def test_what_would_allow_a_request_does_so(world: World) -> None:
    """Each proposal links to what changes with it, and the request is among what is gained."""
    path = url("decision", user="dan", operation="read", entity="item:s/a/x")
    ways = decision(world, asked(path))["ways"]
    assert len(ways) > 3
    for way, link in ways:
        if link:
            page = what_if(world, asked(link))
            gained = [change for change in page["diff"]["diff"].access if change.gained]
            assert any(
                "user:dan" in change.subjects
                and change.rule.operation == "read"
                and Entity("item", "s/a/x") in list(change.entities)
                for change in gained
            ), way


def test_rows_added_and_gone_change_what_state_diff_says(world: World) -> None:
    row = "assignments?principal=user:dan&role=clerk"
    gone = "memberships?user=ann&group=crew"
    page = what_if(world, Query([("add", row), ("remove", gone)]))["diff"]["diff"]
    after = world.rows.with_row("assignments", Assignment(principal="user:dan", role="clerk"))
    after = State(
        **{table: getattr(after, table) for table in ("grants", "assignments", "owners")},
        memberships=[pair for pair in after.memberships if pair != ("ann", "crew")],
    )
    assert page == state_diff(world.program, world.rows, after, moment=world.moment, alike_together=True)
    assert page.count(gained=True) > 0 < page.count(gained=False)


def test_a_form_leads_to_a_link(client: TestClient) -> None:
    sent = client.get(
        "/what-if?new=grants&grantee=user%3Adan&effect=allow&privilege=READ&entity=shelf%3As%2Fa&about=user:ann"
    )
    assert sent.status_code == 303
    kept = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
    assert kept == {
        "about": "user:ann",
        "add": "grants?grantee=user%3Adan&effect=allow&privilege=READ&entity=shelf%3As%2Fa",
    }
    assert client.get("/" + sent.headers["location"]).status_code == 200
    crafted = client.get("/what-if?new=memberships&user=" + quote("a\r\nSet-Cookie: b") + "&group=c")
    assert "set-cookie" not in crafted.headers


@pytest.mark.parametrize(
    "choice", [("reading", "item/read=writers"), ("reading", "item/read=owners"), ("variant", "strict")]
)
def test_another_policy_changes_for_whom_decisions_say(world: World, choice: tuple[str, str]) -> None:
    whom = what_if(world, Query([choice]))["policy"]["whom"]["diff"]
    assert whom.undecided == ()
    assert world.chosen is not None
    name, value = choice
    other = world.chosen(value if name == "variant" else None, dict([value.split("=")]) if name == "reading" else {})
    changed = world_in(other, world.rows)
    expected: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for user in (*world.users, "somebody-new"):
        for entity in world.universe.by_type["item"].values():
            request = Request(user=user, action="read", resource=entity)
            before, after = (side.reference.decide(request).allowed for side in (world, changed))
            if before != after:
                expected[after].add((ANY_OTHER if user == "somebody-new" else f"user:{user}", str(entity)))
    found = {
        gained: {
            (s, str(e))
            for change in whom.access
            if change.gained is gained
            for s in change.subjects
            for e in change.entities
        }
        for gained in (True, False)
    }
    assert found == expected
    assert expected[True] or expected[False]


OTHER_TYPES = """\
privtab: 1
system: shop
version: "2"
entities: {store: {shelf: {item: , box: }, till: }}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, groups: state, owner: {creator: true}}
tables:
  store:
    open: WRITE (store)
  item:
    read: WRITE (item)
  box:
    read: READ (box)
  till:
    open: READ (till)
"""


@pytest.mark.parametrize("backwards", [False, True])
def test_policies_with_other_types_are_compared_on_the_types_of_both(tmp_path: Path, backwards: bool) -> None:
    (tmp_path / "1.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "2.yaml").write_text(OTHER_TYPES, encoding="utf-8")
    programs = [load_program(tmp_path / name) for name in ("1.yaml", "2.yaml")]
    before, after = reversed(programs) if backwards else programs
    rows = tables()
    if backwards:  # a row about a type that the other policy lacks, beside rows that both have
        rows["grants"] += [
            {"grantee": "user:ann", "effect": "allow", "privilege": "WRITE", "entity": "till:s/t"},
            {"grantee": "user:cleo", "effect": "deny", "privilege": "READ", "entity": "box:s/a/b"},
        ]
    explored = world_of(before, rows, versions={"other": lambda: after})
    state, _ = validate(after, from_tables(rows, "state.yaml"))
    changed = world_in(after, state)
    page = compare(explored, Query([("version", "other")]))["policy"]
    assert page["whom_problem"] == ""
    whom = page["whom"]["diff"]
    assert ("box, till" in whom.notes[0], len(whom.notes)) == (True, 2 if backwards else 1)
    found = {
        (change.gained, subject, change.rule.operation, str(entity))
        for change in whom.access
        for subject in change.subjects
        for entity in change.entities
    }
    expected = set()
    for type_, operation in (("store", "open"), ("item", "read")):
        for user, entity in product((*explored.users, "somebody-new"), explored.universe.by_type[type_].values()):
            request = Request(user=user, action=operation, resource=entity)
            was, becomes = (side.reference.decide(request).allowed for side in (explored, changed))
            if was != becomes:
                subject = ANY_OTHER if user == "somebody-new" else f"user:{user}"
                expected.add((becomes, subject, operation, str(entity)))
    assert found == expected
    assert len(expected) > 3


def agrees(explored: World) -> int:
    """The heat map says of every user what `what-can` says; returns how much is allowed."""
    total, program = 0, explored.program
    found_of = {user: what_can(explored.reference, explored.rows, user) for user in explored.users}
    for type_ in program.entities:
        subjects = [f"user:{user}" for user in explored.users]
        for outer in (None, next(iter(explored.universe), None)):
            keys = {
                str(e): set(explored.reference.holdings.locations.keys(e))
                for e in explored.universe.by_type[type_].values()
            }
            inside = {key for key, around in keys.items() if outer is None or str(outer) in around}
            found = rights_map(explored.comparison, subjects, type_, outer)
            assert found.entities == len(inside)
            for user in explored.users:
                expected = Counter(
                    may.operation
                    for may in found_of[user].allowed
                    if not may.unnamed and not may.with_ and str(may.resource) in inside
                )
                for rule, unnamed in found.columns:
                    if not unnamed and rule.entity == type_:
                        assert found.count(f"user:{user}", (rule, unnamed)) == expected[rule.operation], (user, rule.id)
                        total += expected[rule.operation]
            assert {rule.id for rule, _ in found.columns} | {rule.id for rule in found.left_out} == {
                rule.id for rule, _ in questions(program, type_)
            }
    return total


def test_the_heat_map_counts_what_a_user_may_do(world: World) -> None:
    assert agrees(world) > 0
    values = heat(world, Query([("within", "store:s"), ("type", "item")]))
    assert values["rows"][-1][0] == ANY_OTHER
    assert dict(values["children"])["shelf:s/a"] == 2
    # Users who may do most come first, and users who may do nothing are counted alone.
    totals = [sum(number for _, number in cells) for _, cells in values["rows"][:-1]]
    assert totals == sorted(totals, reverse=True)
    assert all(totals)
    assert len(totals) + values["nothing"] == len(world.users)


def test_a_long_table_is_folded_by_type() -> None:
    program = load_program("gravitino/1.1.0")
    found = answer(world_in(program, State()), "table", [])
    assert found is not None
    html = Html(found.text)
    assert problems(html) == []
    folds = [given for given in html.all("details") if given.get("class") == "fold"]
    assert len(folds) == 2 + len({rule.entity for rule in program.rules.values()}), (
        "privileges, readings, and the types"
    )
    assert not any("open" in given for given in folds)
    assert {f"{rule.entity}.{rule.operation}" for rule in program.rules.values()} <= {
        given["id"] for given in html.all("tr") if "id" in given
    }


@pytest.mark.parametrize("name", ["gravitino/1.1.0", "cdap/final", "polaris/1.7"])
def test_the_heat_map_of_shipped_policies(name: str) -> None:
    program = load_program(name)
    path = ROOT / "policy_src" / name.partition("/")[0] / "state.yaml"
    assert agrees(world_in(program, validate(program, load_raw_state(path))[0])) > 0


@pytest.mark.parametrize("features", [(), ("flat",), ("nested",), ("below",), ("hierarchy", "implies")], ids="-".join)
def test_the_heat_map_of_generated_worlds(features: tuple[str, ...]) -> None:
    allowed = 0
    for seed in range(4):
        program = generated_programs.program(seed, *features)
        allowed += agrees(world_in(program, worlds.state(program, seed)))
    assert allowed > 0


KEYS = ("store:s", "shelf:s/a", "item:s/a/x")


def test_pictures_lead_from_the_user_to_the_object(world: World) -> None:
    for user, denied in (("ann", False), ("ben", True)):
        request = Request(user=user, action="read", resource=Entity("item", "s/a/x"))
        drawn = picture(answered(world.reference, request, world.rows, world.places), KEYS)
        assert drawn is not None
        assert drawn.boxes[0].name == f"user:{user}"
        assert {"group:crew", "role:clerk", "store:s", "item:s/a/x"} <= {box.name for box in drawn.boxes}
        assert any(arrow.style == "denied" for arrow in drawn.arrows) is denied
        places = {(box.x, box.y) for box in drawn.boxes}
        assert len(places) == len(drawn.boxes)
        assert all(box.x < drawn.width and box.y < drawn.height for box in drawn.boxes)
    # Of a user who holds nothing, what is missing is drawn: the first way to an allow, up to the object.
    nobody = Request(user="dan", action="read", resource=Entity("item", "s/a/x"))
    drawn = picture(answered(world.reference, nobody, world.rows, world.places), KEYS)
    assert drawn is not None
    assert {arrow.style for arrow in drawn.arrows} <= {"missing", "within"}
    assert {"user:dan", "item:s/a/x"} <= {box.name for box in drawn.boxes}
    assert next(style for style, _ in drawn.legend) == "missing"


def test_no_label_of_a_picture_covers_another(tmp_path: Path) -> None:
    read("README.md").write(tmp_path)
    program = load_program(str(tmp_path / "lake.yaml"))
    lake = world_in(program, validate(program, load_raw_state(tmp_path / "state.yaml"))[0])
    request = Request(user="alice", action="load", resource=Entity("table", "hive/sales/payroll"))
    drawn = picture(
        answered(lake.reference, request, lake.rows, lake.places),
        ("catalog:hive", "schema:hive/sales", "table:hive/sales/payroll"),
    )
    assert drawn is not None
    labels = [(arrow.x, arrow.y) for arrow in drawn.arrows if arrow.label]
    assert len(set(labels)) == len(labels) == 4


# --- as a folder, and as a process ---------------------------------------------------------------------------------------


def test_a_folder_needs_no_server(world: World) -> None:
    files = exported(world, ["item:s/a/x", f"item:s/{encoded(HOSTILE[0])}/{encoded(HOSTILE[0])}"])
    assert {"index.html", "table.html", "who-can-1.html", "compare-1.html", "compare-2.html"} <= files.keys()
    assert exported(world, ["item:s/a/x"])["who-can-1.html"] == files["who-can-1.html"]
    for name, content in files.items():
        if not name.endswith(".html"):
            assert name in ("edit.js", "edit-worker.js", "find.js", "privtab.zip")
            continue
        html = Html(content.decode())
        assert problems(html) == [], name
        assert (html.all("form", "input") == []) is (name != "edit.html")
        assert (html.all("script") == []) is (name not in ("edit.html", "table.html"))
        assert {link.partition("#")[0] or name for link in html.links} <= files.keys(), name
    assert LONG not in files["index.html"].decode()


def test_the_command_serves_and_ends(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "privtab",
        "explore",
        "cdap/final",
        "-s",
        "policy_src/cdap/state.yaml",
        "--listen",
        "0",
    ]
    running = subprocess.Popen(
        [*command, "--no-open", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        base = json.loads(running.stdout.readline())["url"]
        with urlopen(f"{base}/table") as page:  # noqa: S310  (the server of this test)
            assert problems(Html(page.read().decode())) == []
    finally:
        running.terminate()
        running.communicate(timeout=20)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "0.0.0.0:0"], "--token-file"),
        (["--listen", "0.0.0.0:0", "--insecure"], "--token-file"),
        (["--entity", "namespace:a"], "--export"),
        (["--since-state", "policy_src/cdap/state.yaml"], "--state"),
        (["--since", "cdap/nothing"], "cdap/nothing"),
    ],
)
def test_bad_usage(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    from privtab.command._app import run

    assert run(["explore", "cdap/final", "--no-open", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_variant_is_explored_and_its_text_is_not_edited(tmp_path: Path) -> None:
    from privtab.command._app import run

    assert run(["explore", "cdap/final@server", "--export", str(tmp_path / "pages")]) == 0
    assert "cdap/final@server" in (tmp_path / "pages" / "index.html").read_text(encoding="utf-8")
    edit = (tmp_path / "pages" / "edit.html").read_text(encoding="utf-8")
    assert "privtab: 1" not in edit, "it would be read without the variant"


def test_without_a_state_the_table_and_differences_are_there(world: World) -> None:
    bare = World(
        program=world.program, shown="shop", request=world.request, caller=world.caller, versions=world.versions
    )
    for name, query, status in (
        ("", [], 200),
        ("table", [], 200),
        ("compare", [("version", "older")], 200),
        ("what-can", [("user", "a")], 400),
    ):
        found = answer(bare, name, query)
        assert found is not None
        assert found.status == status
        assert problems(Html(found.text)) == []
