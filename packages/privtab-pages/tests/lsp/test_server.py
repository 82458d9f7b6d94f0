"""The language server as editors meet it: the real process, asked in the words of the protocol."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from lsp_client import LspClient, RefusedRequest, edited, lsp_client

from privtab.command._app import run
from privtab.language.syntax.expression import RESERVED_WORDS
from privtab.pipeline import resolve_policy
from privtab_pages.lsp.completion import KEYWORDS

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {shop: {shelf: {book:}}}
privileges:
  READ: {title: "die Bücher 📚 lesen"}
  WRITE: {on: [shelf, book], implies: READ}
  USE SHELF: {on: shelf}
sets: {ALL: [READ, WRITE]}
semantics: {inheritance: down, owner: {creator: true}}
tables:
  shop:
    enter: READ (shop)
  shelf:
    look: {requires: READ (shelf), note: "📚📚 Bücher"}
    fill: can look (shelf) and (WRITE (shelf) or owner (shelf))
    use: '"USE SHELF" (shelf)'
  book:
    create: {requires: WRITE (shelf), grants: ALL (book)}
    look, read: READ (book)
    move: {with: {to: shelf}, requires: "can read (book) and can fill (shelf) and WRITE (to)"}
roles:
  clerk: {grants: {shop: [READ], shelf: [ALL]}}
"""
SCENARIOS = """\
scenarios: 1
policy: shop.yaml
state: state.yaml
cases:
  - {user: ann, action: look, resource: shelf:s/a, decision: allow, why: she may look at every shelf}
  - {user: look, action: look, resource: book:s/a/b, decision: deny}
needs:
  - {ask: "fill shelf:s/a", by: [[WRITE (shelf:s/a)], ["READ (shelf:s/a)", "owner (shelf:s/a)"]]}
"""
STATE = """\
grants:
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "shop:s"}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("Bücher und 📚")
    (made / "shop.yaml").write_text(POLICY, encoding="utf-8")
    (made / "shop.scenarios.yaml").write_text(SCENARIOS, encoding="utf-8")
    (made / "state.yaml").write_text(STATE, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[LspClient]:
    with lsp_client(folder) as client:
        yield client


@pytest.fixture
def policy(client: LspClient, folder: Path) -> Iterator[str]:
    uri = client.open(folder / "shop.yaml")
    yield uri
    client.notify("textDocument/didClose", textDocument={"uri": uri})


def places(found: list[dict[str, Any]], folder: Path) -> list[tuple[str, int, str]]:
    """Of each location the file, the line, and the text there."""
    texts = {path.as_uri(): path.read_text(encoding="utf-8") for path in folder.iterdir()}
    result = []
    for one in found:
        uri = next(uri for uri in texts if unquote(uri) == unquote(one["uri"]))
        line = texts[uri].split("\n")[one["range"]["start"]["line"]].encode("utf-16-le")
        text = line[2 * one["range"]["start"]["character"] : 2 * one["range"]["end"]["character"]].decode("utf-16-le")
        result.append((Path(unquote(uri)).name, one["range"]["start"]["line"] + 1, text))
    return sorted(result)


# --- findings ---


def test_findings_are_those_of_lint(client: LspClient, policy: str, tmp_path: Path) -> None:
    expected = resolve_policy(Path(unquote(policy.removeprefix("file://")))).check().findings.kept
    found = client.findings(policy)
    assert [(f["code"], f["range"]["start"]["line"] + 1) for f in found] == [(d.code, d.span.line) for d in expected]
    assert expected, "nothing would be compared"
    assert all(Path(unquote(f["codeDescription"]["href"].removeprefix("file://"))).is_file() for f in found)


def test_a_fix_corrects_what_was_mistyped_beside_characters_of_two_units(client: LspClient, policy: str) -> None:
    wrong = POLICY.replace(
        'look: {requires: READ (shelf), note: "📚📚 Bücher"}', 'look: {note: "📚📚", requires: REDA (shelf)}'
    )
    client.change(policy, wrong)
    (finding,) = (f for f in client.findings(policy) if f["severity"] == 1)
    assert finding["code"] == "P101"
    actions = client.ask(
        "textDocument/codeAction",
        textDocument={"uri": policy},
        range=finding["range"],
        context={"diagnostics": [finding]},
    )
    (action,) = actions
    fixed = edited(wrong, next(iter(action["edit"]["changes"].values())))
    assert fixed == wrong.replace("REDA", "READ")


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "\0",
        "privtab: 1\n{",
        "privtab: [",
        POLICY + "\n\t- x: [",
        "privtab: 1\r\rsystem: \u2028x",
        "privtab: 1\nsystem: &a x",
    ],
)
def test_a_broken_document_has_findings_and_every_other_answer(client: LspClient, policy: str, broken: str) -> None:
    client.change(policy, broken)
    found = client.findings(policy)
    assert bool(found) == broken.startswith("privtab"), "a file without the mark may be anything"
    position = {"line": 1, "character": 3}
    for method in ("hover", "completion", "definition", "prepareRename"):
        client.ask(f"textDocument/{method}", textDocument={"uri": policy}, position=position)
    options = {"tabSize": 2, "insertSpaces": True}
    assert client.ask("textDocument/formatting", textDocument={"uri": policy}, options=options) == []
    client.ask("textDocument/documentSymbol", textDocument={"uri": policy})


def test_settings_that_cannot_be_read_are_no_clean_file(client: LspClient, tmp_path: Path) -> None:
    (tmp_path / "privtab.toml").write_text("[lint]\nfail_on = 1\n")
    (tmp_path / "shop.yaml").write_text(POLICY)
    uri = client.open(tmp_path / "shop.yaml")
    (finding,) = client.findings(uri)
    assert "unknown setting" in finding["message"]
    assert "privtab.toml:2" in finding["message"]


def test_scenarios_have_the_findings_of_their_readers(client: LspClient, folder: Path) -> None:
    uri = client.open(folder / "shop.scenarios.yaml")
    assert client.findings(uri) == []
    client.change(uri, SCENARIOS.replace("action: look, resource: shelf", "action: lock, resource: shelf"))
    (finding,) = client.findings(uri)
    assert (finding["code"], finding["range"]["start"]["line"]) == ("T103", 4)
    client.notify("textDocument/didClose", textDocument={"uri": uri})


# --- what is there ---


def test_hover_tells_of_privileges_sets_types_and_rows(client: LspClient, policy: str) -> None:
    def hover(mark: str) -> str:
        return str(client.at("hover", policy, POLICY, mark)["contents"]["value"])

    assert "die Bücher 📚 lesen" in hover("requires: RE|AD (shelf), note")
    assert "`shelf` and `book`" in hover("fill: can look (shelf) and (WR|ITE (shelf)")
    assert "any of `READ` and `WRITE`" in hover("grants: A|LL (book)")
    assert "path: `shop/shelf`" in hover("requires: READ (she|lf), note")
    fill = hover("can fi|ll (shelf)")
    assert "**shelf/fill**" in fill
    assert "- `WRITE (shelf)`\n- `READ (shelf) and owner (shelf)`" in fill
    assert "**book/create**" in hover("cre|ate: {requires")
    assert client.at("hover", policy, POLICY, "inheri|tance: down") is None


def test_hover_of_a_row_is_that_of_the_last_valid_text(client: LspClient, policy: str) -> None:
    client.at("hover", policy, POLICY, "can fi|ll (shelf)")
    broken = POLICY.replace("enter: READ (shop)", "enter: READ (sho")
    client.change(policy, broken)
    assert "**shelf/fill**" in client.at("hover", policy, broken, "can fi|ll (shelf)")["contents"]["value"]


def completions(client: LspClient, uri: str, text: str, mark: str) -> set[str]:
    client.change(uri, text.replace("|", ""))
    return {item["label"] for item in client.at("completion", uri, text.replace("|", ""), mark)}


@pytest.mark.parametrize(
    ("cell", "some", "none"),
    [
        ("enter: |", {"READ", "USE SHELF", "ALL", "can", "owner", "anyone", "service admin"}, {"shop", "and", "look"}),
        ("enter: READ (|", {"shop", "shelf", "book"}, {"READ", "and", "can"}),
        ("enter: READ (shop) |", {"and", "or", "when"}, {"READ", "shop"}),
        ("enter: READ (shop) or can |", {"enter", "look", "fill", "move"}, {"shop", "anyone"}),
        ('enter: {requires: "READ (shop) and WR|', {"WRITE", "owner"}, {"shop", "requires"}),
        ("enter: {|", {"requires", "each", "grants", "note"}, {"READ", "for"}),
        ("enter: {requires: READ (shop), becomes: x, report: |", {"errors"}, {"READ", "requires"}),
    ],
)
def test_completion_offers_what_may_stand_there(
    client: LspClient, policy: str, cell: str, some: set[str], none: set[str]
) -> None:
    text = POLICY.replace("enter: READ (shop)", cell)
    found = {label.strip('"') for label in completions(client, policy, text, cell)}
    assert some <= found
    assert not none & found


def test_completion_offers_keys_and_words_of_the_language(client: LspClient, policy: str) -> None:
    text = POLICY.replace("semantics: {inheritance: down, owner", "semantics: {inheritance: |, owner")
    assert completions(client, policy, text, "inheritance: |") == {"none", "down"}
    assert {"conflicts", "variants"} <= completions(client, policy, POLICY + "|", "shelf: [ALL]}}\n|")
    assert {"shop", "shelf", "book", "any"} == completions(
        client, policy, POLICY.replace("roles:", "  |"), 'to)"}\n  |'
    )


def test_completion_knows_all_words_of_conditions() -> None:
    assert set(KEYWORDS) == RESERVED_WORDS | {"service admin"}


@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("  - {user: |", {"ann", "look"}, {"READ"}),
        ("  - {user: ann, action: |", {"look", "fill", "read"}, {"READ", "shelf:", "ann"}),
        ("  - {user: ann, action: [look, |", {"look", "fill", "read"}, {"READ"}),
        ("  - {user: ann, action: look, resource: |", {"shelf:", "shelf:s/a", "book:s/a/b"}, {"look"}),
        ("  - {user: ann, action: look, resource: book:s/|", {"book:s/a/b"}, {"look"}),
        ("  - user: ann\n    action: look\n    reason: [|", {"READ", "ALL"}, {"look"}),
        ("  - {|", set(), {"READ", "look"}),
    ],
)
def test_completion_in_scenarios_offers_what_the_key_takes(
    client: LspClient, policy: str, folder: Path, line: str, some: set[str], none: set[str]
) -> None:
    uri = client.open(folder / "shop.scenarios.yaml")
    mark = f"cases:\n{line}"
    try:
        found = completions(client, uri, SCENARIOS.replace("cases:", mark, 1), mark)
    finally:
        client.notify("textDocument/didClose", textDocument={"uri": uri})
    assert some <= found
    assert not none & found


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("memberships:\n  - {user: |", {"ann", "zoe"}),
        ("memberships:\n  - {user: zoe, group: |", {"crew"}),
        ("assignments:\n  - {principal: zoe, role: cl|", {"clerk"}),
        ('assignments:\n  - {principal: "|', {"group:crew", "role:clerk", "user:ann", "user:zoe"}),
        ("owners:\n  - entity: |", {"shop:", "shelf:", "book:", "shop:s", "shelf:s/a"}),
        ("grants:\n  - privilege: |", {"READ", "WRITE", '"USE SHELF"', "ALL"}),
        ("nothing: |", set()),
    ],
)
def test_completion_in_a_state_that_scenarios_name_offers_its_names(
    client: LspClient, policy: str, folder: Path, row: str, found: set[str]
) -> None:
    rows = """\
members:
  - {user: zoe, of: "shelf:s/a"}
x: {user: zoe, group: crew}
y: {principal: "group:crew", role: clerk}
"""
    state, scenarios = client.open(folder / "state.yaml"), client.open(folder / "shop.scenarios.yaml")
    try:
        assert completions(client, state, f"{STATE}{rows}{row}", row) == found
        case = "cases:\n  - {user: |"
        assert {"zoe", "ann", "look"} <= completions(client, scenarios, SCENARIOS.replace("cases:", case, 1), case)
    finally:
        for uri in (state, scenarios):
            client.notify("textDocument/didClose", textDocument={"uri": uri})


def test_definitions_and_references_reach_scenarios(client: LspClient, policy: str, folder: Path) -> None:
    def ask(method: str, mark: str, **more: Any) -> list[tuple[str, int, str]]:
        return places(client.at(method, policy, POLICY, mark, **more), folder)

    assert ask("definition", "can re|ad (book)") == [("shop.yaml", 20, "read")]
    assert ask("definition", "grants: A|LL (book)") == [("shop.yaml", 9, "ALL")]
    assert ask("definition", "can fill (she|lf)") == [("shop.yaml", 4, "shelf")]
    assert ask("references", "    lo|ok: {requires", context={"includeDeclaration": True}) == [
        ("shop.scenarios.yaml", 5, "look"),
        ("shop.yaml", 15, "look"),
        ("shop.yaml", 16, "look"),
    ]
    uses = ask("references", "  USE SHE|LF: {on", context={"includeDeclaration": False})
    assert uses == [("shop.yaml", 17, '"USE SHELF"')]


def test_symbols_are_the_declarations(client: LspClient, policy: str) -> None:
    found = client.ask("textDocument/documentSymbol", textDocument={"uri": policy})
    names = [symbol["name"] for symbol in found]
    assert names == [
        *("shop", "shelf", "book", "READ", "WRITE", "USE SHELF", "ALL", "enter", "look", "fill", "use"),
        *("create", "look", "read", "move"),
    ]


def test_formatting_is_that_of_fmt(client: LspClient, policy: str, tmp_path: Path) -> None:
    messy = POLICY.replace("sets: {ALL: [READ, WRITE]}", "sets:    { ALL: [READ,WRITE] }  # 📚").replace("\n", "\r\n")
    client.change(policy, messy)
    options = {"tabSize": 4, "insertSpaces": False}
    edits = client.ask("textDocument/formatting", textDocument={"uri": policy}, options=options)
    (tmp_path / "messy.yaml").write_text(messy, encoding="utf-8", newline="")
    assert run(["fmt", str(tmp_path / "messy.yaml")]) == 0
    assert edited(messy, edits) == (tmp_path / "messy.yaml").read_text(encoding="utf-8")


# --- renaming ---


def renamed(client: LspClient, folder: Path, mark: str, new: str) -> dict[str, str]:
    answer = client.at("rename", (folder / "shop.yaml").as_uri(), POLICY, mark, newName=new)
    result = {}
    for path in folder.iterdir():
        edits: list[dict[str, Any]] = next(
            (e for uri, e in answer["changes"].items() if unquote(uri) == unquote(path.as_uri())), []
        )
        result[path.name] = edited(path.read_text(encoding="utf-8"), edits)
    return result


@pytest.mark.parametrize(
    ("mark", "new", "changed"),
    [
        ("implies: RE|AD}", "VIEW", {"shop.yaml": 7, "shop.scenarios.yaml": 1, "state.yaml": 1}),
        ("  USE SHE|LF: {on", "OPEN SHELF", {"shop.yaml": 2}),
        ("grants: A|LL (book)", "EVERY", {"shop.yaml": 3}),
        ("{shop: {she|lf: {book", "rack", {"shop.yaml": 13, "shop.scenarios.yaml": 5}),
        ("    lo|ok: {requires", "see", {"shop.yaml": 2, "shop.scenarios.yaml": 1}),
        ("    look, re|ad: READ", "open", {"shop.yaml": 2}),
    ],
)
def test_a_name_is_renamed_everywhere(
    client: LspClient, policy: str, folder: Path, tmp_path: Path, mark: str, new: str, changed: dict[str, int]
) -> None:
    texts = renamed(client, folder, mark, new)
    before = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert {name for name in texts if texts[name] != before[name]} == changed.keys()
    assert {name: texts[name].count(new) for name in changed} == changed
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert run(["test", str(tmp_path / "shop.yaml")]) == 0
    assert "why: she may look at every shelf" in texts["shop.scenarios.yaml"]
    assert "user: look" in texts["shop.scenarios.yaml"]


@pytest.mark.parametrize(
    ("mark", "new", "why"),
    [
        ("implies: RE|AD}", "WRITE", "READ|WRITE"),
        ("implies: RE|AD}", "and", "shop.yaml"),
        ("implies: RE|AD}", "x: [", "shop.yaml"),
        ("implies: RE|AD}", "VIEW # not read", "shop.yaml"),
        ("implies: RE|AD}", "", "shop.yaml"),
        ("{shop: {she|lf: {book", "to", "an object of requests"),
        ("{shop: {she|lf: {book", "parent", "shop.yaml"),
        ("{shop: {she|lf: {book", "user", "something else"),
        ("grants: A|LL (book)", "EVERY THING", "shop.yaml"),
        ("cre|ate: {requires", "make", "something else"),
        ("    lo|ok: {requires", "fill", "shop.yaml"),
        ("inheri|tance: down", "x", "no name"),
    ],
)
def test_a_name_that_is_taken_or_means_something_is_refused(
    client: LspClient, policy: str, folder: Path, mark: str, new: str, why: str
) -> None:
    with pytest.raises(RefusedRequest, match=why):
        renamed(client, folder, mark, new)


def test_a_document_with_errors_is_not_renamed(client: LspClient, policy: str, folder: Path) -> None:
    broken = POLICY.replace("enter: READ (shop)", "enter: READ (sho)")
    client.change(policy, broken)
    with pytest.raises(RefusedRequest, match="has errors"):
        client.at("rename", policy, broken, "implies: RE|AD}", newName="VIEW")


def test_a_state_of_another_policy_is_not_changed(client: LspClient, tmp_path: Path) -> None:
    for name, text in (("shop.yaml", POLICY), ("shop.scenarios.yaml", SCENARIOS), ("state.yaml", STATE)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "old.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "old.scenarios.yaml").write_text(SCENARIOS.replace("shop.yaml", "old.yaml"), encoding="utf-8")
    uri = client.open(tmp_path / "shop.yaml")
    with pytest.raises(RefusedRequest, match=r"also the state of old\.scenarios\.yaml"):
        client.at("rename", uri, POLICY, "implies: RE|AD}", newName="VIEW")


# --- and whatever happens to a text ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "name", "edits"),
    [
        pytest.param("utf-16", "shop.yaml", 10_000, marks=pytest.mark.long),
        ("utf-16", "shop.yaml", 1_000),
        ("utf-8", "shop.scenarios.yaml", 1_000),
        ("utf-32", "shop.yaml", 1_000),
    ],
)
def test_random_edits_never_break_it(folder: Path, encoding: str, name: str, edits: int) -> None:
    original = (folder / name).read_text(encoding="utf-8")
    pieces = ["\n", "\r\n", "\r", " ", "  ", "{", "}", "[", "]", "(", ")", ":", ": ", ",", '"', "'", "#", "- ", "|", ">", "&a", "*a", "!x",
              "📚", "ü", "\u2028", "\x85", "\0", "\x0b", "can ", "READ", " or ", "and", "shelf", "any", "privtab: 1\n", "tables:", "\t", "%", "<<: "]  # fmt: skip
    random_ = random.Random(f"edits/{encoding}")
    with lsp_client(folder, general={"positionEncodings": [encoding]}) as client:
        uri, text = client.open(folder / name), original
        asked = 0
        for _ in range(edits):
            if random_.random() < 0.02 or len(text) > 3 * len(original):
                text = original
            start = random_.randrange(len(text) + 1)
            text = (
                text[:start]
                + random_.choice(pieces) * random_.randrange(2)
                + text[start + random_.choice((0, 1, 1, 5, 40)) :]
            )
            client.change(uri, text)
            if random_.random() < 0.2:
                asked += 1
                position = {"line": random_.randrange(40), "character": random_.randrange(80)}
                method = random_.choice(
                    ["hover", "completion", "definition", "prepareRename", "documentSymbol", "formatting"]
                )
                options = {"options": {"tabSize": 2, "insertSpaces": True}} if method == "formatting" else {}
                client.ask(f"textDocument/{method}", textDocument={"uri": uri}, position=position, **options)
        assert asked > edits / 10
        client.change(uri, original)
        expected = [d.code for d in resolve_policy(folder / name).check().findings.kept] if name == "shop.yaml" else []
        assert [f["code"] for f in client.findings(uri)] == expected
