from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import generated_programs
import pytest
import worlds
from shipped_policies import FEW

from privtab.base import Entity, Request, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program, policy_names
from privtab.reference import Reference
from privtab.state import Assignment, State
from privtab_analysis.entitlements.universe import universe
from privtab_pages.policy import PolicyPage
from privtab_pages.roles import ALLOWED, DENIED, HOLDER, RoleMatrix, default_roles, roles_of_state

HOSTILE = '<script>alert("1")</script> | `x` [y](z) *w*'


class Html(HTMLParser):
    """The names and links of a page, and its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.elements: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []

    def handle_data(self, data: str) -> None:
        self.text += data


GATED = """\
privtab: 1
system: lake
version: 1
entities: {lake: {table: }}
privileges: [READ, WRITE]
sets: {ALL: [READ, WRITE]}
semantics: {inheritance: none, owner: {creator: true}, gate: member (lake)}
tables:
  table:
    either: READ/WRITE (table)
    both: READ + WRITE (table)
    several: owner (lake, table) or READ (entity) and WRITE (parent)
    listed: {each: READ (table) or owner (table)}
    named: ALL (table)
    asks: can either (table)
    absorbed: READ (table) or READ (table) and WRITE (table)
    nested: READ (lake) and (READ (table) or WRITE (table))
    open: {requires: READ (table), gate: none}
    flagged: READ (table) and (WRITE (table) when sure)
    long: READ/WRITE (lake, table) or owner (table)
"""


def test_smallest_sets_are_left_out_where_a_cell_spells_them_out() -> None:
    program = load_program(SourceFile.of("lake.yaml", GATED))
    rows = {
        row.operation: row
        for rows in PolicyPage(program=program, revision="").view()["sections"].values()
        for row in rows
    }
    said = {"either", "both", "several", "listed"}
    assert {name for name, row in rows.items() if not row.sets} == said
    assert rows["open"].sets == ["READ (table)"], "what has no gate says so"
    assert rows["absorbed"].sets == ["member (lake) and READ (table)"]


@pytest.mark.parametrize(("name", "most"), [("cdap/final", 0), ("streams/teracloud", 1), ("gravitino/1.1.0", 59)])
def test_few_rows_of_a_page_repeat_themselves(name: str, most: int) -> None:
    sections = PolicyPage(program=load_program(name), revision="").view()["sections"]
    assert sum(bool(row.sets) for rows in sections.values() for row in rows) <= most


@pytest.mark.parametrize(
    "name", [one if one in FEW else pytest.param(one, marks=pytest.mark.long) for one in policy_names()]
)
def test_links_lead_to_rows_of_the_same_page(name: str) -> None:
    program = load_program(name)
    page = PolicyPage(program=program, revision="", roles=[default_roles(program)])
    html = Html(page.html())
    assert len(html.ids) == len(set(html.ids))
    assert {f"{entity}.{operation}" for entity, operation in program.rules} <= set(html.ids)
    assert {link.removeprefix("#") for link in html.links} <= set(html.ids)
    assert "script" not in html.elements
    markdown = page.markdown()
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', markdown))
    assert set(re.findall(r"\]\(#([^)]+)\)", markdown)) <= anchors
    assert anchors == {f"{entity}.{operation}" for entity, operation in program.rules}
    widths = [line.count("|") - line.count("\\|") for line in markdown.splitlines() if line.startswith("|")]
    assert min(widths) > 2


def test_a_condition_links_to_the_row_it_asks_about() -> None:
    page = PolicyPage(program=load_program("gravitino/1.3.0"), revision="")
    assert "[`can load (schema)`](#schema.load)" in page.markdown()
    assert '<a href="#schema.load">can load (schema)</a>' in page.html()


def test_names_and_texts_are_only_texts(tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(
        f"privtab: 1\nsystem: shop\nversion: '1'\ntitle: '{HOSTILE}'\nentities: {{shop: }}\n"
        f"types: {{shop: {{title: '{HOSTILE}'}}}}\nprivileges: {{READ: {{on: [shop], title: '{HOSTILE}'}}}}\n"
        f"tables: {{shop: {{see: {{requires: READ (shop), note: '{HOSTILE}', title: '{HOSTILE}'}}}}}}\n",
        encoding="utf-8",
    )
    page = PolicyPage(program=load_program(path), revision="")
    html = Html(page.html())
    assert "script" not in html.elements
    assert html.text.count(HOSTILE) == 5
    assert "<script>" not in page.markdown()
    rows = [line for line in page.markdown().splitlines() if "see" in line]
    assert [line.count("|") - line.count("\\|") for line in rows] == [3]


def decided(program: Program, state: State, role: str, scope: Entity | None, user: str) -> Iterator[tuple[str, str]]:
    """The operations without objects that the reference allows to a holder of a role, on each entity that a state names."""
    held = Assignment(principal=f"user:{user}", role=role, scope=scope)
    entities = list(universe(program, state))
    members = (*state.members, *((user, entity) for entity in entities))
    state = replace(state, assignments=(*state.assignments, held), members=members)
    reference = Reference(program, state)
    for entity in entities:
        for rule in program.rules.values():
            if rule.entity == entity.type and not rule.creates and not rule.withs:
                request = Request(
                    user=user, action=rule.operation, resource=entity, flags=worlds.stated_flags(rule, frozenset())
                )
                if reference.decide(request).allowed:
                    yield entity.type, rule.operation


def test_default_roles_are_those_of_the_reference() -> None:
    program = load_program("streams/teracloud")
    matrix = default_roles(program)
    assert matrix is not None
    assert matrix.roles == tuple(program.roles)
    domain, user = (matrix.roles.index(name) for name in ("domain_administrator", "domain_user"))
    assert matrix.cells["domain", "remove"][domain] == ALLOWED
    assert matrix.cells["domain", "remove"][user] == DENIED
    assert matrix.cells["domain_config", "view_tags"][user] == ALLOWED


def one(program: Program, type_: str) -> Entity:
    """An entity whose names are types."""
    return Entity(type_, "/".join(name for name in program.chain(type_) if not program.entities[name].single))


@pytest.mark.parametrize("name", ["streams/teracloud", "polaris/1.7"])
def test_what_a_role_lacks_is_what_the_reference_says(name: str) -> None:
    """A cell in words is what an answer to the holder of the role names as missing, and to others does not."""
    program = load_program(name)
    matrix = default_roles(program)
    assert matrix is not None
    keys = [key for key, rule in program.rules.items() if not (rule.creates or rule.withs or rule.unnamed)]
    seen = 0
    for at, role in enumerate(matrix.roles):
        for type_, operation in keys:
            chain, scope = program.chain(type_), next(iter(program.roles[role].scopes), None)
            resource, within = one(program, type_), one(program, scope) if scope else None
            held = State(assignments=(Assignment(principal="user:ann", role=role, scope=within),))
            request = Request(user="ann", action=operation, resource=resource)
            lacking, others = (
                Reference(program, state).decide(request).context["missing"] for state in (held, State())
            )
            words = [" and ".join(atoms) for atoms in lacking if atoms not in others]
            cell = matrix.cells[type_, operation][at]
            if scope is None or scope in chain:
                said = cell.removeprefix("with ").split(", or ") if cell.startswith("with ") else []
                assert said == [re.sub(r":[\w/]*", "", text) for text in words], (role, type_, operation)
                seen += bool(said)
    assert seen


def test_a_role_stands_where_it_can_be_held(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        "privtab: 1\nsystem: two\nversion: '1'\nentities: {group: , project: }\nprivileges: [OPEN, JOIN]\n"
        "roles:\n  group_guest: {title: Guest, scope: group, grants: {group: [JOIN]}}\n"
        "  project_guest: {title: Guest, scope: project}\n  admin: {title: '" + HOSTILE + "'}\n"
        "tables: {group: {join: JOIN (group)}, project: {open: OPEN (project)}}\n",
        encoding="utf-8",
    )
    program = load_program(path)
    matrix = default_roles(program)
    assert matrix is not None
    sections = {section.entity: section for section in matrix.sections(program)}
    assert [sections[type_].roles for type_ in ("group", "project")] == [["Guest", HOSTILE]] * 2
    assert [cells for _, cells in sections["group"].rows] == [[ALLOWED, DENIED]]
    page = PolicyPage(program=program, revision="", roles=[matrix])
    assert "script" not in Html(page.html()).elements
    assert "<script>" not in page.markdown()


def test_columns_without_texts_are_left_out() -> None:
    program = load_program("gravitino/1.3.0")
    markdown = PolicyPage(program=program, revision="").markdown()
    for header, *rows in re.findall(r"(?m)^\| operation.*\n\|---.*\n(?:\|.*\n)+", markdown):
        cells = [row.split(" | ")[1:] for row in (header, *rows)]
        assert all(map(any, zip(*cells, strict=False)))
    assert "| `member (metalake)` | `member (metalake)` |" not in markdown


@pytest.mark.parametrize("seed", range(30))
def test_roles_of_a_state_are_those_of_the_reference(seed: int) -> None:
    program = generated_programs.program(seed, "hierarchy", "implies")
    state = worlds.state(program, seed)
    matrix = roles_of_state(program, state)
    if matrix is None:
        pytest.skip("nobody holds a role")
    for at, role in enumerate(matrix.roles):
        scopes = [row.scope for row in state.assignments if row.role == role] or [None]
        if len(set(scopes)) > 1:
            continue
        found: dict[tuple[str, str], int] = {}
        for key in decided(program, state, role, scopes[0], HOLDER):
            found[key] = found.get(key, 0) + 1
        for (type_, operation), cells in matrix.cells.items():
            rule = program.rules[type_, operation]
            if not rule.creates and not rule.withs and not rule.unnamed:
                assert cells[at] == str(found.get((type_, operation), DENIED)), (role, type_, operation)


def test_a_holder_is_nobody_whom_the_state_names() -> None:
    program = load_program("streams/teracloud")
    role = next(name for name, declared in program.roles.items() if declared.scope == "domain")
    scope = Entity("domain", "d")
    held = State(assignments=(Assignment(principal=f"user:{HOLDER}", role=role, scope=scope),))
    others = State(assignments=(Assignment(principal="user:someone", role=role, scope=scope),))
    assert cells(roles_of_state(program, held)) == cells(roles_of_state(program, others))


def cells(matrix: RoleMatrix | None) -> object:
    assert matrix is not None
    return matrix.cells


def test_a_policy_without_roles_has_no_matrix() -> None:
    program = load_program("cdap/final")
    assert default_roles(program) is None
    assert roles_of_state(program, State()) is None
    assert "## Roles" not in PolicyPage(program=program, revision="").markdown()
