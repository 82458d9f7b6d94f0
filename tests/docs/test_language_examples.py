"""What the documentation shows is what happens: policies compile, commands print it, answers are those of the engines."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from checkout import ROOT
from documentation_pages import PAGES, Answers, Block, Page, read, whole_policy

from privtab import Client, Entity, InvalidRequest, Request
from privtab.base.diagnostics import Severity
from privtab.bundle.pack import state_bundle
from privtab.command._app import run
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.language.syntax.expression import RESERVED_WORDS
from privtab.language.syntax.keys import KEYS
from privtab.pipeline import load_program, policy_artifacts, resolve_policy
from privtab.reference.evaluate import Reference
from privtab.state.findings import StateFinding
from privtab.state.load import load_raw_state, validate
from privtab.state.nodes import State

DEFAULT_URL = "http://127.0.0.1:8181"
_REVISION = re.compile(r"\b[0-9a-f]{16}\b")
_CURL = re.compile(r"curl -s (?P<path>http://127\.0\.0\.1:8181/\S+)(?: -d '(?P<body>[^']*)')?", re.DOTALL)


def blocks(is_chosen: Callable[[Block], bool]) -> list[Any]:
    """Parameters: the page and each of its blocks that is wanted."""
    return [
        pytest.param(read(path), block, id=f"{path}:{block.line}")
        for path in PAGES
        for block in read(path).blocks
        if is_chosen(block)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of a page go, and where its commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@pytest.mark.parametrize(("page", "block"), blocks(lambda b: b.is_policy))
def test_policies_compile_or_have_the_finding_that_the_page_names(page: Page, block: Block, folder: Path) -> None:
    page.write(folder)
    (folder / "this.yaml").write_text(whole_policy(block, folder), encoding="utf-8")
    checked = resolve_policy("this.yaml").check()
    program, found = checked.program, checked.findings.kept
    wrong = [d.code for d in found if d.severity is Severity.ERROR]
    assert sorted(set(wrong)) == sorted(block.says.get("findings", [])), "\n".join(map(str, found))
    if program is not None:
        assert policy_artifacts(program).bundle()


@pytest.mark.parametrize(("page", "block"), blocks(lambda b: "state" in b.says))
def test_states_hold_good_rows_only(page: Page, block: Block, folder: Path) -> None:
    page.write(folder)
    name, policy = block.names("state")
    _, found = validate(load_program(policy), load_raw_state(Path(name)))
    assert [finding.code for finding in found if finding.severity == "error"] == block.says.get("wrong", [])


@pytest.mark.parametrize(("page", "block"), blocks(lambda b: b.language == "console" and not b.says))
def test_commands_print_what_the_page_shows(
    page: Page, block: Block, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write(folder)
    for command, output in commands(block.text):
        words = shlex.split(command)
        assert words[0] == "privtab", f"{command}: only privtab is shown with its output"
        capsys.readouterr()
        run(words[1:])
        printed = capsys.readouterr()
        actual, shown = tidy(printed.err + printed.out), tidy(output)
        if shown.endswith("\n…"):  # a last line that says: and so on
            shown = shown.removesuffix("…")
            actual = actual[: len(shown)]
        assert actual == shown, command


@pytest.mark.parametrize(("page", "block"), blocks(lambda b: "rego" in b.says))
def test_rego_is_what_the_policy_compiles_to(page: Page, block: Block, folder: Path) -> None:
    page.write(folder)
    (policy,) = block.names("rego")
    modules = policy_artifacts(load_program(policy)).modules
    assert any(block.text.strip() in text for text in modules.values())


@pytest.mark.parametrize(("page", "block"), blocks(lambda b: b.language == "json" and not b.says))
def test_json_that_stands_alone_is_a_request_or_a_decision(page: Page, block: Block) -> None:
    value = json.loads(block.text)
    if "decision" in value:
        assert isinstance(value["decision"], bool)
    else:
        request = Request.from_json(value)
        assert Request.from_json(request.to_json()) == request


@pytest.mark.parametrize(("page", "block"), blocks(lambda b: "served" in b.says))
def test_code_and_calls_get_the_answers_that_the_page_shows(page: Page, block: Block, folder: Path) -> None:
    page.write(folder)
    policy, state = block.names("served")
    program = load_program(policy)
    built = folder / "build" / program.system / program.version  # as `privtab compile` writes them
    built.mkdir(parents=True)
    (built / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (built / "state.tar.gz").write_bytes(state_bundle(program, good(program, state)))
    with OpaServer([built / "policy.tar.gz", built / "state.tar.gz"]) as opa:
        if block.language == "python":
            text = block.text.replace(DEFAULT_URL, opa.url)
            example = doctest.DocTestParser().get_doctest(text, {}, f"{page.path}:{block.line}", page.path, block.line)
            assert example.examples, "write it as a session: `>>> …`"
            result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(example)
            assert result.failed == 0
        else:
            shown = commands(block.text)
            assert shown
            for command, output in shown:
                call = _CURL.fullmatch(command)
                assert call is not None, command
                url = call["path"].replace(DEFAULT_URL, opa.url)
                body = call["body"]
                answer = requests.get(url, timeout=5) if body is None else requests.post(url, data=body, timeout=5)
                assert tidy(json.dumps(answer.json(), ensure_ascii=False)) == json.dumps(
                    json.loads(output), ensure_ascii=False
                )


@pytest.mark.parametrize(("page", "block"), blocks(lambda b: "run" in b.says))
def test_code_runs_as_the_page_shows(page: Page, block: Block, folder: Path) -> None:
    page.write(folder)
    example = doctest.DocTestParser().get_doctest(block.text, {}, f"{page.path}:{block.line}", page.path, block.line)
    assert example.examples, "write it as a session: `>>> …`"
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0


TABLES = [
    pytest.param(read(path), answers, id=f"{path}:{answers.line}") for path in PAGES for answers in read(path).answers
]


@pytest.mark.parametrize(("page", "answers"), TABLES)
def test_answers_are_those_of_the_reference(page: Page, answers: Answers, folder: Path) -> None:
    page.write(folder)
    program = load_program(answers.policy)
    reference = Reference(program, good(program, answers.state))
    assert answers.rows
    for question, shown, why in answers.rows:
        try:
            request = request_of(question.strip("`"))
            vocabulary(program).check(request)
            decision = reference.decide(request)
        except InvalidRequest:
            assert shown == "invalid", question
            continue
        assert ("yes" if decision.allowed else "no") == shown, question
        if why.startswith("effects:"):
            assert re.findall(r"`([^`]*)`", why) == list(decision.effects), question


def language() -> str:
    """The pages of the policy language."""
    pages = [page for page in PAGES if page.startswith("docs/reference/language")]
    return "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("where", [where for where in KEYS if where != "reading"])
def test_every_key_is_explained(where: str) -> None:
    text = language()
    known = set(re.findall(r"`(\w+)`", text))
    # The keys of a source and of a place in one are shown in an example.
    shown = set(re.findall(r"(\w+):", text)) if where in {"source document", "row place"} else known
    assert {key.name for key in KEYS[where]} <= shown


def test_every_word_of_conditions_is_explained() -> None:
    text = language()
    for word in RESERVED_WORDS:
        assert re.search(rf"^\| `[^`]*\b{word}\b[^`]*`", text, re.MULTILINE), word


def test_every_code_of_a_state_finding_has_its_line() -> None:
    text = (ROOT / "docs" / "reference" / "state.md").read_text(encoding="utf-8")
    ranges = re.findall(r"`(S\d+)` to `(S\d+)`", text)
    assert [code for code in StateFinding.NAMES if not any(first <= code <= last for first, last in ranges)] == []


def test_every_way_to_ask_is_shown() -> None:
    text = (ROOT / "docs" / "reference" / "asking.md").read_text(encoding="utf-8")
    methods = {name for name in dir(Client) if callable(getattr(Client, name)) and not name.startswith("_")}
    assert {name for name in methods if f"client.{name}(" not in text} == {"explain"}, "`explain` is `decide`"


def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The fragments of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    for path in (*ROOT.glob("*.md"), *ROOT.glob("[bo]*/README.md"), *(ROOT / "docs").rglob("*.md")):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", prose(path)):
            other = path.parent / target if target else path
            assert other.exists(), f"{path.name}: {target}"
            assert not anchor or other.suffix != ".md" or anchor in anchors(other), f"{path.name}: {target}#{anchor}"


@pytest.mark.parametrize("path", PAGES)
def test_every_block_is_tested_or_a_sketch(path: str) -> None:
    for block in read(path).blocks:
        runs = block.is_policy or block.language in {"console", "json"}
        assert runs or block.says, f"{path}:{block.line}: mark it as a sketch"


def test_sketches_say_that_they_are_not_tested() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        for block in read(str(path.relative_to(ROOT))).blocks:
            marked = re.match(r"(#|--) not tested\n", block.text) is not None
            assert marked == ("sketch" in block.says), f"{path.name}:{block.line}"


INTERNALS = ("internals/", "decisions/", "architecture.md", "CONTRIBUTING.md", "reference/commands.md")
"""Pages for those who change privtab, and the page that is generated as a whole."""
MOST_WORDS = 75_000
"""The words of the pages for users, as `wc -w` counts them; they only fall, but for small pages to come."""


def test_the_pages_for_users_have_few_words() -> None:
    docs = ROOT / "docs"
    pages = [path for path in docs.rglob("*.md") if not str(path.relative_to(docs)).startswith(INTERNALS)]
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in pages)
    assert words <= MOST_WORDS, "move what a user does not need to docs/internals, and say the rest shorter"
    assert words >= MOST_WORDS - 3_000, "lower MOST_WORDS"


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    for path in docs.rglob("*.md"):
        if path.parent.name not in {"rules", "decisions", "language"} and path != docs / "README.md":
            assert f"({path.relative_to(docs)})" in index, path


DECISION = re.compile(
    r"# (?P<number>\d{4}): (?P<title>[A-Z`][^\n]*[^.\n])\n\n"
    r"\*\*Status\.\*\* (?P<status>Accepted(; [a-z]+ superseded by \[\d{4}\]\(\S+\))?|Superseded by \[\d{4}\]\(\S+\))"
    r" \(\d+\.\d+\.\d+, \d{4}-\d\d-\d\d\)\.\n\n"
    r"\*\*Decision\.\*\* .*\n\n\*\*Why\.\*\*.*\n\n\*\*What follows\.\*\*",
    re.DOTALL,
)


def test_every_decision_has_a_status_and_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.glob("[0-9]*.md"):
        found = DECISION.match(path.read_text(encoding="utf-8"))
        assert found, f"{path.name}: # NNNN: title, **Status.**, **Decision.**, **Why.**, **What follows.**"
        assert found["number"] == path.name[:4]
        entry = f"- [{found['number']} {found['title']}]({path.name})"
        marked = " (superseded" if found["status"].startswith("Superseded") else ""
        assert f"{entry}{marked}" in index, path.name


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a console block and what is shown below each of them; a command goes on within quotes."""
    shown: list[tuple[str, str]] = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(n for n in range(1, len(lines) + 1) if "\n".join(lines[:n]).count("'") % 2 == 0)
        shown.append(("\n".join(lines[:end]), "\n".join(lines[end:])))
    return shown


def tidy(text: str) -> str:
    """Without spaces at the ends of lines, which no page can show, and without revisions, which change with every release."""
    return _REVISION.sub("…", "\n".join(line.rstrip() for line in text.strip().splitlines()))


def good(program: Program, state: str) -> State:
    """The good rows of a state."""
    return validate(program, load_raw_state(Path(state)))[0]


def request_of(text: str) -> Request:
    """`ann submit job_group:d/i/g source=table:a/b +override` as a request."""
    user, action, resource, *more = text.split()
    return Request(
        user=user,
        action=action,
        resource=Entity.parse(resource),
        with_={
            name: Entity.parse(e)
            for name, _, e in (word.partition("=") for word in more if "=" in word and word[0] != "+")
        },
        flags=frozenset(word.removeprefix("+") for word in more if word.startswith("+")),
    )
