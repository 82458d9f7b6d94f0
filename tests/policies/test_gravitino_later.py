"""Gravitino 1.2.0 and 1.3.0, cell by cell: read from their documents, and compared with the minimal sets of the policies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from checkout import ROOT
from gravitino_table import LOADABLE, TABLE_1_2_0, TABLE_1_3_0, Line, Sets, sets, texts

from privtab.ir.canonical import canonical_form, minimal_sets
from privtab.ir.nodes import Program, Rule
from privtab.pipeline import load_program, resolve_policy

FOLDER = ROOT / "policy_src" / "gravitino"
IN = frozenset({frozenset({"member (metalake)"})})
METALAKES = "gravitino/metalake/create"
"""The only row without the gate."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the document: its API table, with its first and last line, and what a securable object can be."""

    name: str
    table: tuple[Line, ...]
    first: int
    last: int
    leaves: tuple[str, ...]

    @property
    def policy(self) -> Path:
        return FOLDER / f"{self.name}.yaml"


VERSIONS = (
    Version("1.2.0", TABLE_1_2_0, 1260, 1361, ("table", "view", "topic", "fileset", "model")),
    Version("1.3.0", TABLE_1_3_0, 1275, 1381, ("table", "view", "topic", "fileset", "model", "function")),
)


@cache
def program_of(name: str, readings: tuple[tuple[str, str], ...] = ()) -> Program:
    return load_program(FOLDER / f"{name}.yaml", readings=dict(readings))


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def version(request: pytest.FixtureRequest) -> Version:
    found: Version = request.param
    return found


def types_of(rule: Rule) -> dict[str, str]:
    """One type for each further object: a catalog where it may be many."""
    return {w.name: "catalog" if w.name == "object" else w.types[0] for w in rule.withs}


def call(program: Program, rule: Rule) -> Sets:
    types = types_of(rule)
    return texts(program, rule, minimal_sets(program, rule, types=types), types)


def item(program: Program, rule: Rule) -> Sets:
    types = types_of(rule)
    return texts(program, rule, canonical_form(program).minimal_sets(rule.item_condition, types=types), types)


def test_no_findings(version: Version) -> None:
    findings = resolve_policy(version.policy).check().findings.kept
    assert findings == ()


ENTITIES = sorted({(v.name, entity) for v in VERSIONS for _, entity, *_ in v.table})


@pytest.mark.parametrize(("name", "entity"), ENTITIES)
def test_cells(name: str, entity: str) -> None:
    program = program_of(name)
    table = next(v.table for v in VERSIONS if v.name == name)
    rules = {r.operation: r for r in program.rules.values() if r.entity == entity and r.id != METALAKES}
    found = {o: (r.source and r.source.line, call(program, r), r.each and item(program, r)) for o, r in rules.items()}
    assert found == {
        operation: (line, sets(of_call, entity), of_item and sets(of_item, entity))
        for line, of, operation, of_call, of_item in table
        if of == entity
    }


def test_only_service_administrators_create_metalakes(version: Version) -> None:
    rule = program_of(version.name).rules["metalake", "create"]
    assert call(program_of(version.name), rule) == {frozenset({"service admin"})}
    assert rule.source is not None
    assert rule.source.line == version.first


def test_every_line_is_a_row_and_every_row_a_line(version: Version) -> None:
    expected = {(entity, operation): line for line, entity, operation, _, _ in version.table}
    expected["metalake", "create"] = version.first
    rules = program_of(version.name).rules
    assert {key: rule.source.line for key, rule in rules.items() if rule.source} == expected
    assert set(expected.values()) == set(range(version.first, version.last + 1))


def test_titles_are_the_words_of_the_document() -> None:
    documented = {
        "1.2.0": {1276: "rename table across schema", 1291: "load view", 1331: "override privilege"},
        "1.3.0": {
            1330: "register function",
            1333: "list functions",
            1362: "list policies",
            1371: "get policy for object",
        },
    }
    for name, titles in documented.items():
        rules = program_of(name).rules.values()
        assert {r.source.line: r.title for r in rules if r.source and r.source.line in titles} == titles


# The columns `Supports Securable Object`: 257-389 of 1.2.0, 253-394 of 1.3.0. What is not here is as in 1.1.0.
SUPPORTED = {
    "1.2.0": {
        "MANAGE_GRANTS": "metalake",
        "CREATE_VIEW": "metalake catalog schema",
        "SELECT_VIEW": "metalake catalog schema view",
    },
    "1.3.0": {
        "MANAGE_GRANTS": "metalake catalog schema table view topic fileset model function",
        "CREATE_VIEW": "metalake catalog schema",
        "SELECT_VIEW": "metalake catalog schema view",
        "REGISTER_FUNCTION": "metalake catalog schema",
        "EXECUTE_FUNCTION": "metalake catalog schema function",
        "MODIFY_FUNCTION": "metalake catalog schema function",
    },
}


def test_privileges_and_what_they_are_granted_on(version: Version) -> None:
    before, now = program_of("1.1.0"), program_of(version.name)
    expected = {name: set(p.on) for name, p in before.privileges.items()}
    expected |= {name: set(on.split()) for name, on in SUPPORTED[version.name].items()}
    assert {name: set(p.on) for name, p in now.privileges.items()} == expected
    assert now.aliases.keys() == before.aliases.keys()
    assert all(p.title for p in now.privileges.values())


def test_groups_own_from_1_3_on() -> None:
    """139 and 178 of 1.2.0: users alone; 137 of 1.3.0: groups too."""
    owners = {v.name: program_of(v.name).semantics.owner for v in VERSIONS}
    kinds = {name: set(owner.kinds) for name, owner in owners.items() if owner}
    assert kinds == {"1.2.0": {"user"}, "1.3.0": {"user", "group"}}


def test_creators_become_owners(version: Version) -> None:
    """134 of both: the creator of an object automatically becomes its owner; nothing else gives anything."""
    rules = program_of(version.name).rules.values()
    creations = {("register", t) for t in ("model", "job_template", "function")} | {("run", "job")}
    creations |= {("create", t) for t in ("metalake", "catalog", "schema", *version.leaves, "role", "tag", "policy")}
    becoming = {(r.operation, r.entity) for r in rules if any(e.what == "owner" for e in r.effects)}
    assert becoming == {
        (operation, t) for operation, t in creations if (t, operation) in program_of(version.name).rules
    }
    assert {(r.operation, r.entity) for r in rules if r.effects} == becoming | {("remove", "user")}


def test_the_objects_of_tags_and_policies_are_what_can_be_loaded(version: Version) -> None:
    withs = {r.id: set(w.types) for r in program_of(version.name).rules.values() for w in r.withs if w.name == "object"}
    assert len(withs) == 8
    assert all(types == {*LOADABLE, *version.leaves} for types in withs.values())


FAR = "member (target.metalake); owner (target.metalake)"
# Version, cell, reading, the set that it lets in or (with a minus) shuts out; `=`: the atoms, separated by semicolons.
NEW_WORDS = (
    ("view/create", "owner_alone", "S"),
    ("table/rename_across_schema", "owners_of_containers", f"=owner (metalake); CREATE_TABLE (target); {FAR}"),
    ("table/rename_across_schema", "owners_of_target", f"=owner (metalake); owner (table); {FAR}"),
    ("view/rename_across_schema", "owners_of_containers", f"=owner (catalog); CREATE_VIEW (target); {FAR}"),
    ("view/rename_across_schema", "owners_of_target", f"=owner (catalog); owner (view); {FAR}"),
    ("role/override_privilege", "role_owner", "O"),
)
READINGS = (
    *(("1.2.0", *reading) for reading in NEW_WORDS),
    ("1.2.0", "table/grant_privilege", "containers", "C"),
    ("1.2.0", "view/revoke_privilege", "containers", "UC S"),
    ("1.2.0", "view/load", "servers", "UC US CREATE_VIEW@schema"),
    *(("1.3.0", *reading) for reading in NEW_WORDS),
    ("1.3.0", "table/grant_privilege", "containers", "C"),
    ("1.3.0", "view/revoke_privilege", "containers", "UC S"),
    ("1.3.0", "function/drop", "owners_only", "-UC US MODIFY_FUNCTION@function"),
    ("1.3.0", "function/grant_privilege", "containers", "UC S"),
    ("1.3.0", "function/revoke_privilege", "containers", "C"),
    ("1.3.0", "function/set_owner", "containers", "C"),
)


@pytest.mark.parametrize(("name", "row", "reading", "change"), READINGS)
def test_other_reading_of_a_cell_that_is_new(name: str, row: str, reading: str, change: str) -> None:
    entity, operation = row.split("/")
    what = change.lstrip("-")
    changed = (
        frozenset({frozenset({"member (metalake)", *what[1:].split("; ")})}) if what[0] == "=" else sets(what, entity)
    )
    chosen, other = (program_of(name, readings) for readings in ((), ((row, reading),)))
    without, having = (item(p, p.rules[entity, operation]) for p in (chosen, other))
    if change.startswith("-"):
        without, having = having, without
    assert changed <= having
    assert not changed & without


LISTINGS = (
    *(f"{t}/list" for t in ("schema", "table", "view", "topic", "fileset", "model", "function")),
    *(f"{t}/{operation}" for t in ("tag", "policy") for operation in ("list_objects", "list_for_object")),
)


def test_no_listing_fails_by_the_page_that_was_rewritten() -> None:
    """239 of that page: whoever is in the metalake may list, and sees what they saw before."""
    chosen, other = program_of("1.3.0"), program_of("1.3.0", tuple((row, "never_fails") for row in LISTINGS))
    for row in LISTINGS:
        entity, operation = row.split("/")
        rule = other.rules[entity, operation]
        assert call(other, rule) == IN
        assert item(other, rule) == item(chosen, chosen.rules[entity, operation])
    assert [r.id for r in other.rules.values() if r.each is not None and call(other, r) != IN] == []


def readings_of(name: str) -> set[tuple[str, str]]:
    """The other readings of a version, by row (`any` for those of many types) and name."""
    rules = [rule for rule in program_of(name).rules.values() if rule.ambiguous]
    of_rows = {rule.id: rule.entity if rule.origin == "row" else rule.origin for rule in rules}
    return {(f"{of_rows[r.id]}/{r.operation}", n) for r in rules if r.ambiguous for n, _ in r.ambiguous.readings}


def test_ambiguous_rows_are_still_ambiguous(version: Version) -> None:
    """All readings of 1.1.0 are there, but those of grants that the document decided in 1.2.0; the new ones are tested above."""
    decided = {
        (f"{t}/{verb}_privilege", "metalake_owner")
        for t in ("tag", "policy", "job_template", "any")
        for verb in ("grant", "revoke")
    }
    new = {(row, reading) for name, row, reading, _ in READINGS if name == version.name}
    new = {
        (
            f"any/{row.partition('/')[2]}"
            if row.split("/")[0] in ("table", "view") and reading == "containers"
            else row,
            reading,
        )
        for row, reading in new
    }
    if version.name == "1.3.0":
        new |= {(row, "never_fails") for row in LISTINGS}
    assert readings_of(version.name) == (readings_of("1.1.0") - decided) | new
