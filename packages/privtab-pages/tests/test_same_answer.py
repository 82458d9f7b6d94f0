"""One question, one answer: commands, their JSON, the pages of `explore` and of logs, and AuthZEN say the same in generated worlds."""

from __future__ import annotations

import asyncio
import csv
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from random import Random
from time import time_ns
from typing import Any

import generated_programs
import pytest
import worlds
from checkout import ROOT
from explored import world_in

from privtab import Embedded, Request
from privtab.base import Decision, SourceFile, Span, moment_text
from privtab.bundle import state_bundle
from privtab.bundle.contents import program_in
from privtab.ir import And, Or, Program
from privtab.language import read_policy
from privtab.model import DeclaredNames
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import Places, load_raw_state, validate
from privtab_analysis.row_sentences import row_sentence
from privtab_pages.explore.site import answer
from privtab_pages.explore.views import MOST_LINES
from privtab_pages.explore.world import World, linked
from privtab_pages.lsp.hover import hover
from privtab_pages.lsp.occurrences import Occurrence
from privtab_pages.policy import PolicyPage
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

Privtab = Callable[..., Any]
OPTIONS = {
    "with": "--with={}",
    "group": "--caller=group:{}",
    "active-role": "--caller=role:{}",
    "no-active-roles": "--caller=no-roles",
}
"""The options of commands for the words of an address."""
WORLDS = [(4,), (8, "flat", "implies"), (8, "nested", "hierarchy"), (9, "active")]
"""Seeds and features of worlds with denials that something would turn, and that nothing would."""
LISTS = [(3,), (3, "flat"), (11, "nested"), (3, "hierarchy")]
"""Worlds in which every kind of list has lines."""
PLAIN = re.compile(r"[\w/:.@-]+")
"""Names that a terminal and a page show as they are."""
REMEDY = re.compile("what would allow it|no grant, |no role of |nothing was found ")


def options_of(request: Request) -> list[tuple[str, str]]:
    """The parts of a request beside user, operation and entity, by the names of options."""
    found = [("with", f"{name}={entity}") for name, entity in request.with_.items()]
    found += [("group", name) for name in request.groups]
    found += [("active-role", name) for name in request.active_roles or ()]
    return found + ([("no-active-roles", "1")] if request.active_roles == () else [])


def asked(world: World, seed: int, most: int, per_rule: int = 2) -> Iterator[Request]:
    """Some requests that can be written as options, with as many denials as there are."""
    found = worlds.requests(world.program, seed, per_rule=per_rule)
    Random(seed).shuffle(found)
    plain = [
        request
        for request in found
        if not request.flags
        and not request.attributes
        and PLAIN.fullmatch(request.user + str(request.resource))
        and not request.user.startswith("-")
        and all(PLAIN.fullmatch(f"{name}{entity}") for name, entity in request.with_.items())
    ]
    allowed = [request for request in plain if world.reference.decide(request).allowed]
    denied = [request for request in plain if request not in allowed]
    yield from (*allowed[: most // 2], *denied[:most])


def made(folder: Path, seed: int, *features: str) -> World:
    """A generated policy and state as files, and the world of the pages."""
    program = generated_programs.program(seed, *features)
    rows = worlds.state(program, seed).to_tables()
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "state.json").write_text(json.dumps({table: found for table, found in rows.items() if found}))
    return world_in(program, validate(program, load_raw_state(folder / "state.json"))[0])


def plain_text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).strip()


def of_page(text: str) -> tuple[str, list[str], str, list[str]]:
    """The verdict with the question, the titles of the reasons, the title of the ways, and the ways."""
    verdict = re.search(r'role="status">(.*?)</p>', text)
    assert verdict is not None
    why = text.partition('<h2 id="why">')[2].partition("</section>")[0]
    title, _, ways = text.partition('<h2 id="ways">')[2].partition("</section>")[0].partition("</h2>")
    items = re.findall(r"<li>(.*?)(?: <span class=\"dim\">| · <a |\n)", ways)
    titles = [plain_text(found).replace("`", "") for found in re.findall(r"<h3>(.*?)</h3>", why)]
    return plain_text(verdict[1]), titles, plain_text(title), list(map(plain_text, items))


def of_terminal(out: str) -> tuple[str, list[str], str, list[str]]:
    """The same from the output of the command."""
    lines = out.splitlines()
    titles = [b.replace("`", "") for a, b in pairwise(lines) if not a and b[:1].strip()]
    titles = [title for title in titles if not title.startswith(("rule  ", "from  "))]
    allowed = lines[0].startswith("ALLOW")
    ways: list[str] = []
    for line in lines if not allowed else ():
        if number := re.match(r" +\d+  (.*)", line):
            ways.append(number[1])
        elif ways and line.strip().startswith("and ") and not line.strip().startswith("and that"):
            ways[-1] += f", {line.strip()}"
    ways = [re.sub(r"  \S*state\.json.*", "", way) for way in ways]
    remedy = [title for title in titles if REMEDY.match(title)]
    return re.sub(" +", " ", lines[0]), [title for title in titles if title not in remedy], "".join(remedy), ways


@pytest.mark.parametrize("of", WORLDS, ids=str)
def test_a_page_says_what_the_command_says(privtab: Privtab, tmp_path: Path, of: tuple[Any, ...]) -> None:
    seed, denied = of[0], 0
    world = made(tmp_path, *of)
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(world.program, world.rows))
    files = ["-p", tmp_path / "policy.tar.gz", "-s", tmp_path / "state.json"]
    point = LocalDecisionPoint(Embedded(tmp_path))
    service = Service(point, system=world.program.system)
    for request in asked(world, seed, 3):
        options = options_of(request)
        flags = [OPTIONS[name].format(value) for name, value in options]
        question = [request.user, request.action, str(request.resource), *flags]
        ran = privtab("explain", *question, *files)
        assert ran.code == 0, ran.err
        pairs = [("user", request.user), ("operation", request.action), ("entity", str(request.resource)), *options]
        page = answer(world, "decision", pairs)
        assert page is not None
        shown, told = of_page(page.text), of_terminal(ran.out)
        # A page shows more ways than a terminal, which says how many it leaves out.
        assert (*shown[:3], shown[3][: len(told[3])]) == told, question
        document = json.loads(privtab("explain", *question, *files, "--format", "json").out)
        assert document["remedy"] == told[2]
        assert document["decision"] is told[0].startswith("ALLOW")
        served = asyncio.run(service.evaluation(request.to_json()))
        assert served["decision"] is document["decision"]
        assert served["context"].get("missing", []) == document["context"]["missing"]
        if not document["decision"]:
            reason = Decision(allowed=False, context=document["context"]).describe(request)
            assert served["context"]["reason_admin"] == {"en": reason}
        denied += not document["decision"]
    assert denied >= 2


def logged(world: World, requests: Iterable[Request], path: Path) -> None:
    """Write a log of the decisions of a world."""
    entries = [
        {
            "decision_id": f"d{number}",
            "path": f"privtab/{world.program.system}/allow",
            "input": request.to_json(),
            "result": world.reference.decide(request).allowed,
            "timestamp": f"2026-10-{1 + number:02d}T10:00:00Z",
        }
        for number, request in enumerate(requests)
    ]
    path.write_text("\n".join(map(json.dumps, entries)))


def words_of(request: Request) -> list[str]:
    """A request as replays show it."""
    return [
        request.user,
        request.action,
        str(request.resource),
        *(f"{name}={of}" for name, of in request.with_.items()),
    ]


@pytest.mark.parametrize("seed", [4, 9])
def test_the_page_of_a_log_says_what_the_command_says(privtab: Privtab, tmp_path: Path, seed: int) -> None:
    world, compared = made(tmp_path, seed), 0
    requests = list(asked(world, seed, 8))
    logged(world, requests, tmp_path / "log.jsonl")
    files = ["-p", tmp_path / "policy.tar.gz", "-s", tmp_path / "state.json"]
    ran = privtab("unused", tmp_path / "log.jsonl", *files, "--html", tmp_path / "report.html")
    assert ran.code == 0, ran.err
    for cell in re.findall(r'data-name="most frequent">(.+?)</td>', (tmp_path / "report.html").read_text()):
        question, *said = map(plain_text, cell.split("<br>"))
        request = next(r for r in requests if question.startswith(f"user:{r.user} {r.action} {r.resource}"))
        options = [OPTIONS[name].format(value) for name, value in options_of(request)]
        told = of_terminal(
            privtab("explain", request.user, request.action, str(request.resource), *options, *files).out
        )
        assert said == [told[2], *told[3][:1]], question
        compared += 1
    assert compared >= 2
    report = (tmp_path / "report.html").read_text()
    numbers = re.findall(r"^unused rows of the state: (\S+)", ran.out, re.MULTILINE)
    assert re.findall(r"<b>(.*?)</b><span>unused rows of the state</span>", report) == (numbers or ["0"])
    idle = re.findall(r'<tr><td>\w+</td><td class="mono">(.*?)</td></tr>', report)
    assert len(idle) == int(numbers[0] if numbers else 0)
    for text in map(plain_text, idle):
        assert re.search(rf"^[- ] {re.escape(text)}(  |$)", ran.out, re.MULTILINE), text


def cells(text: str, *names: str) -> list[tuple[str, ...]]:
    """The rows of a table of a page, by the names of their cells."""
    row = "".join(rf'<td data-name="{name}"[^>]*>(.*?)' for name in names)
    return [tuple(map(plain_text, found)) for found in re.findall(rf"{row}</tr>", text, re.DOTALL)]


@pytest.mark.parametrize("of", LISTS, ids=str)
def test_a_list_on_a_page_is_that_of_the_command(privtab: Privtab, tmp_path: Path, of: tuple[Any, ...]) -> None:
    seed, users, principals, lines, filters = of[0], 0, 0, 0, 0
    made(tmp_path, *of)
    # As the command has it: in its order of smallest sets.
    program, _ = program_in((tmp_path / "policy.tar.gz").read_bytes(), "policy")
    world = world_in(program, validate(program, load_raw_state(tmp_path / "state.json"))[0])
    files = ["-p", tmp_path / "policy.tar.gz", "-s", tmp_path / "state.json"]

    def page(name: str, words: Iterable[tuple[str, str]]) -> str:
        made_page = answer(world, name, list(words))
        assert made_page is not None
        return made_page.text

    def told(*words: str) -> str:
        ran = privtab(*words, *files)
        assert ran.code == 0, ran.err
        return str(ran.out)

    for request in asked(world, seed, 8):
        question = (request.action, str(request.resource))
        options = [f"--with={name}={entity}" for name, entity in request.with_.items()]
        pairs = [("operation", question[0]), ("entity", question[1])]
        pairs += [("with", f"{name}={entity}") for name, entity in request.with_.items()]
        listed = list(csv.reader(told("who-can", *question, *options, "--format", "csv").splitlines()))[1:]
        # A spreadsheet would take `-0` for a formula, so CSV puts an apostrophe before it.
        assert cells(page("who-can", pairs), "user", "through") == [
            tuple(cell.removeprefix("'") for cell in row) for row in listed
        ]
        users += len(listed)
        suffice = told("who-can", *question, *options, "--by", "principal")
        for row in cells(page("who-can", [*pairs, ("by", "principal")]), "principal", "within", "besides"):
            if not all(re.fullmatch(r"[\w/:.@() -]*", cell, re.ASCII) and "  " not in cell for cell in row):
                continue
            assert re.search(" +".join(re.escape(cell) for cell in row if cell) + " *$", suffice, re.MULTILINE), row
            principals += 1
        if (user := request.user) and request.active_roles is None and not request.groups:
            text = page("what-can", [("user", user)])
            ran = privtab("what-can", user, *files)
            if ran.code == 0:
                (number,) = re.findall(r"<p>(<strong>[\d,]+</strong> of .*? entit\S+)</p>", text)
                assert plain_text(number) == ran.out.splitlines()[1].replace("1 entity", "1 entities")
                for path, words in re.findall(r"<code>(.*?)</code><td[^>]*>(.*?)</tr>", text, re.DOTALL):
                    if PLAIN.fullmatch(path := plain_text(path)):
                        first = plain_text(words.partition("</")[0])
                        assert re.search(rf"^  {re.escape(path)} +{re.escape(first)}( |$)", ran.out, re.MULTILINE), path
                        lines += 1
            else:
                assert "needs the flag" in ran.err
                assert "needs the flag" in text
        if not request.with_ and request.active_roles is None and not request.groups:
            asked_for = (user, request.action, request.resource.type)
            ran = privtab("filter", *asked_for, *files)
            shown = page("filter", zip(("user", "operation", "type"), asked_for, strict=True))
            sql = re.search(r'<pre class="sql"[^>]*><code>(.*?)</code>', shown, re.DOTALL)
            assert (ran.code == 0) == (sql is not None)
            if sql is not None:
                assert html.unescape(sql[1]) in ran.out
                filters += 1
    assert min(users, principals, lines, filters) > 0


def gained_and_lost(out: str) -> list[tuple[str, ...]]:
    """The lines of `diff --state`: change, subjects, operations, entities."""
    found: list[tuple[str, ...]] = []
    change = subject = ""
    for line in out.splitlines():
        if heading := re.fullmatch(r"(gained|lost) by", line):
            change = heading[1]
        elif change and re.match(r" {6}\S", line):
            found.append((change, subject, *line.strip().rsplit("  ", 1)))
        elif change and re.match(r" {4}\S", line) and not re.match(r" {4}[+-] ", line):
            subject = line.strip()
    return found


def is_shown_alike(row: tuple[str, ...]) -> bool:
    """Return whether a terminal shows the cells of a row as a page does."""
    return all(re.fullmatch(r"[ -~]*", cell) and "  " not in cell for cell in row)


def shown_changes(text: str) -> list[tuple[str, ...]]:
    """The lines of a page about what changes for whom."""
    return [row[:4] for row in cells(text, "change", "who", "operations", "on", "by")]


@pytest.mark.parametrize("of", [(5,), (4, "flat"), (8, "nested", "hierarchy"), (11, "implies")], ids=str)
def test_what_changes_on_a_page_is_what_the_command_says(privtab: Privtab, tmp_path: Path, of: tuple[Any, ...]) -> None:
    made(tmp_path, *of)
    program, _ = program_in((tmp_path / "policy.tar.gz").read_bytes(), "policy")
    rows, random = json.loads((tmp_path / "state.json").read_text()), Random(of[0])
    fewer = {table: random.sample(found, max(1, len(found) // 2)) for table, found in rows.items()}
    (tmp_path / "other.json").write_text(json.dumps(fewer | {"entities": rows.get("entities", [])}))
    loaded = [validate(program, load_raw_state(tmp_path / name))[0] for name in ("state.json", "other.json")]
    moment = time_ns()
    world = replace(world_in(program, loaded[0], states={"other": (loaded[1], Places.NONE)}), moment=moment)
    options = ["-p", tmp_path / "policy.tar.gz", "--at", moment_text(moment), "--limit", "0"]
    removed = [
        (row_sentence(table, row), linked(table, row.items()))
        for table in ("grants", "assignments", "owners")
        for row in rows.get(table, ())[:2]
        if is_shown_alike(tuple(row.values()))
    ]
    without = [word for sentence, _ in removed for word in ("--without", sentence)]
    compared = 0
    for name, pairs, asked_for in (
        ("compare", [("state", "other")], ["-s", tmp_path / "other.json", "-s", tmp_path / "state.json"]),
        ("what-if", [("remove", text) for _, text in removed], ["-s", tmp_path / "state.json", *without]),
    ):
        shown = answer(world, name, pairs)
        ran = privtab("diff", *asked_for, *options)
        assert shown is not None
        assert (shown.status, ran.code) == (200, 0), ran.err
        totals = [plain_text(chip) for chip in re.findall(r'<li class="chip [^>]*>([^<]*)', shown.text)]
        assert totals == [line for line in ran.out.splitlines() if re.match("(gained|lost): ", line)]
        told = gained_and_lost(ran.out)[:MOST_LINES]
        assert list(filter(is_shown_alike, shown_changes(shown.text))) == list(filter(is_shown_alike, told))
        compared += len(told)
    assert compared > 2


def operations_named(text: str) -> Iterator[str]:
    """The operations that `{a, b}/list, c/{get, put}` stands for."""
    for part in re.findall(r"(?:\{[^}]*\}|[^,/ ])+/(?:\{[^}]*\}|[^, ])+", text):
        sides = [side.strip("{}").split(", ") for side in part.split("/")]
        yield from ("/".join(pair) for pair in product(*sides))


def swapped(program: Program) -> Program:
    """A program in which operations of one type require what the next operation requires."""
    plain = [rule for rule in program.rules.values() if not (rule.withs or "Can(" in repr(rule.requires))]
    changed = {
        (one.entity, one.operation): replace(one, requires=two.requires)
        for one, two in pairwise(plain)
        if one.entity == two.entity
    }
    return replace(program, rules={**program.rules, **changed})


@pytest.mark.parametrize("seed", [3, 8])
def test_two_policies_differ_on_a_page_as_the_command_says(privtab: Privtab, tmp_path: Path, seed: int) -> None:
    world = made(tmp_path, seed)
    (other := tmp_path / "other").mkdir()
    (other / "policy.tar.gz").write_bytes(policy_artifacts(swapped(world.program)).bundle())
    before, after = (program_in((at / "policy.tar.gz").read_bytes(), "policy")[0] for at in (tmp_path, other))
    page = answer(world_in(before, world.rows, versions={"other": lambda: after}), "compare", [("version", "other")])
    ran = privtab("diff", tmp_path / "policy.tar.gz", other / "policy.tar.gz", "--format", "json")
    assert page is not None
    assert (page.status, ran.code) == (200, 0), ran.err
    (document,) = json.loads(ran.out)["comparisons"]
    told = {
        f"{row['entity']}/{row['operation']}": row["verdict"]
        for row in document["operations"]
        if row["verdict"] != "equal"
    }
    headings = re.findall(r'<h2><span class="\w*">(\S+)</span> <code>(.*?)</code></h2>', page.text)
    shown = {name: verdict for verdict, names in headings for name in operations_named(plain_text(names))}
    assert shown == told
    assert told
    said = privtab("diff", tmp_path / "policy.tar.gz", other / "policy.tar.gz").out
    assert re.findall(r"<p>(\d+ of .* operations? changed.*)\.</p>", page.text) == [said.splitlines()[1]]


ANSWERS = ("recorded", "then", "now")


def asking_otherwise(world: World, requests: Iterable[Request]) -> Program:
    """A program in which half of the rows of allowed requests ask for more, and those of other requests are content with less."""
    rules = dict(world.program.rules)
    asked_for: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for request in requests:
        key = (request.resource.type, request.action)
        if not (rules[key].withs or rules[key].each):
            asked_for[world.reference.decide(request).allowed].append(key)
    narrower = set(asked_for[True][::2])
    for key in dict.fromkeys(asked_for[True] + asked_for[False]):
        plain = [
            rule
            for rule in world.program.rules.values()
            if rule.entity == key[0] and not (rule.withs or "Can(" in repr(rule))
        ]
        others = [rule.requires for rule in plain]
        combine = And.of if key in narrower else Or.of
        rules[key] = replace(rules[key], requires=combine(rules[key].requires, *others[:2]))
    return replace(world.program, rules=rules)


@pytest.mark.parametrize("of", [pytest.param((8,), marks=pytest.mark.long), (9, "nested", "hierarchy")], ids=str)
def test_the_page_of_a_replay_says_what_the_commands_say(privtab: Privtab, tmp_path: Path, of: tuple[Any, ...]) -> None:
    world = made(tmp_path, *of)
    requests = list(asked(world, of[0], 40, per_rule=20))
    (tmp_path / "next").mkdir()
    (tmp_path / "next" / "policy.tar.gz").write_bytes(policy_artifacts(asking_otherwise(world, requests)).bundle())
    state = tmp_path / "state.json"
    logged(world, requests, tmp_path / "log.jsonl")
    policies = {"then": tmp_path / "policy.tar.gz", "now": tmp_path / "next" / "policy.tar.gz"}
    old = ["--old-policy", policies["then"], "--old-state", state]
    told = {}
    for form in ("html", "json", "text"):
        ran = privtab("replay", tmp_path / "log.jsonl", "-p", policies["now"], *old, "--format", form)
        assert ran.code == 0, ran.err
        told[form] = ran.out
    document = json.loads(told["json"])
    figures = re.findall(r"<b>(.*?)</b><span>(.*?)</span>", told["html"])
    assert figures == [(str(document["replayed"]), "decisions replayed")] + [
        (str(document[kind]), kind) for kind in ("lost", "gained", "unexplained")
    ]
    groups = re.split("<details[^>]*>", told["html"].partition("<h2>Possible")[0])[1:]
    compared = 0
    for page, group in zip(groups, document["groups"], strict=True):
        (headline,) = re.findall('<span class="what">(.*?)</span>', page)
        assert plain_text(headline) in told["text"]
        counted = re.findall(r'<span class="mono">(\S+)</span> \((\d+)\)', page)
        named = [pair for name in ("by_user", "through", "by_entity") for pair in group[name]]
        assert [(plain_text(name), int(number)) for name, number in counted] == [tuple(pair) for pair in named]
        shown = cells(page, "request", "times", *ANSWERS, "why")
        for row, sample in zip(shown, group["samples"], strict=True):
            answers = ["allow" if sample[name] else "deny" for name in ANSWERS]
            assert row[:-1] == (sample["request"], str(sample["requests"]), *answers)
            request = next(request for request in requests if row[0].split() == words_of(request))
            options = [OPTIONS[name].format(value) for name, value in options_of(request)]
            question = [request.user, request.action, str(request.resource), *options]
            because: list[str] = []
            for policy, answer_ in (("then", row[3]), ("now", row[4])):
                ran = privtab("explain", *question, "-p", policies[policy], "-s", state, "--format", "json")
                explained = json.loads(ran.out)
                assert explained["decision"] is (answer_ == "allow")
                if explained["decision"]:
                    reasons = explained["context"]["reasons"]
                    because = [f"{found['atom']} through {found['through']}" for found in reasons if "through" in found]
                else:
                    assert sample["missing"] == [" and ".join(way) for way in explained["context"]["missing"]]
            assert row[-1].startswith("; ".join(because))
            compared += 1
    assert [plain_text(found) for found in re.findall('data-name="witness">(.*?)</td>', told["html"])] == [
        found["witness"] for found in document["possible"]
    ]
    assert compared >= 2
    assert min(document["lost"], document["gained"]) > 0


def bullets(text: str) -> list[str]:
    return re.findall("^- `(.*)`$", text, re.MULTILINE)


def test_an_editor_says_what_the_page_of_a_policy_and_the_command_say(privtab: Privtab) -> None:
    name, compared = "gravitino/1.1.0", 0
    program = load_program(name)
    tables, _ = read_policy(SourceFile.of(name, (ROOT / "policy_src" / f"{name}.yaml").read_text()))
    assert tables is not None
    names = DeclaredNames.of(tables, [])
    described = json.loads(privtab("describe", name, "--format", "json").out)["operations"]
    sections = PolicyPage(program=program, revision="").view()["sections"]
    shown = {row.anchor: row for rows in sections.values() for row in rows}
    for row in described:
        span = Span(path=name, line=0, column=0, end_line=0, end_column=0)
        place = Occurrence(kind="operation", name=row["operation"], span=span, types=frozenset({row["entity"]}))
        text = hover(place, names, program)
        assert text is not None
        sets = [*row["minimal_sets"], *(row["each_minimal_sets"] or ())]
        if "when" in row or "each_when" in row or not row["minimal_sets"]:
            continue
        said = [" and ".join(atoms) or "anyone" for atoms in sets if atoms or row["requires"]]
        assert bullets(text) == said, row
        on_page = [set_.removeprefix("each: ") for set_ in shown[f"{row['entity']}.{row['operation']}"].sets]
        assert on_page in ([], said)
        compared += bool(on_page)
    assert compared > 3
