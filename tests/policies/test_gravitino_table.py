"""The Gravitino table, cell by cell: read once more from the document, and compared with the minimal sets of the policy.

Nothing here is taken from the policy file. The table of the support module has one row for each line of the document's API
table, with the smallest sufficient sets written by hand.
"""

from __future__ import annotations

from typing import cast

import pytest
from checkout import ROOT
from gravitino_table import LOADABLE, TABLE_1_1_0, Sets, sets, texts

from privtab.ir.canonical import canonical_form, minimal_sets
from privtab.ir.nodes import ALWAYS, Program, Rule
from privtab.pipeline import load_program, resolve_policy

POLICY = ROOT / "policy_src" / "gravitino" / "1.1.0.yaml"
LINES = range(695, 789)


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(POLICY)


def test_no_findings() -> None:
    findings = resolve_policy(POLICY).check().findings.kept
    assert findings == ()


@pytest.mark.parametrize(("line", "entity", "operation", "call", "item"), TABLE_1_1_0)
def test_cell(program: Program, line: int, entity: str, operation: str, call: str, item: str | None) -> None:
    rule = program.rules[entity, operation]
    types = {w.name: "catalog" if w.name == "object" else w.types[0] for w in rule.withs}
    assert texts(program, rule, minimal_sets(program, rule, types=types), types) == sets(call, entity)
    assert (rule.each is None) == (item is None)
    found = texts(program, rule, canonical_form(program).minimal_sets(rule.item_condition, types=types), types)
    assert found == sets(item or call, entity)
    assert rule.source is not None
    assert rule.source.line == line


def test_create_metalake(program: Program) -> None:
    rule = program.rules["metalake", "create"]
    assert texts(program, rule, minimal_sets(program, rule), {}) == {frozenset({"service admin"})}
    assert [(e.kind, e.what, e.target.type) for e in rule.effects] == [
        ("become", "owner", "metalake"),
        ("become", "member", "metalake"),
    ]


def test_the_table_is_complete(program: Program) -> None:
    expected = {(entity, operation): line for line, entity, operation, _, _ in TABLE_1_1_0} | {
        ("metalake", "create"): 695
    }
    assert {key: rule.source.line for key, rule in program.rules.items() if rule.source} == expected
    assert set(expected.values()) == set(LINES)


def test_titles_are_the_words_of_the_document(program: Program) -> None:
    documented = {717: "load table", 730: "list fileset", 742: "delete model version alias", 769: "list policies"}
    documented |= {776: "associate-object-policies", 780: "register a job template", 788: "get credential"}
    found = {r.source.line: r.title for r in program.rules.values() if r.source and r.source.line in documented}
    assert found == documented


CREATIONS = {
    *(("create", t) for t in ("metalake", "catalog", "schema", "table", "topic", "fileset", "role", "tag", "policy")),
    ("register", "model"),
    ("register", "job_template"),
    ("run", "job"),
}


def test_creators_become_owners(program: Program) -> None:
    """120: the creator of an object automatically becomes its owner; nothing else gives anything."""
    becoming = {(r.operation, r.entity) for r in program.rules.values() if any(e.what == "owner" for e in r.effects)}
    assert becoming == CREATIONS
    assert {(r.operation, r.entity) for r in program.rules.values() if r.effects} == {*CREATIONS, ("remove", "user")}


def test_a_removed_user_loses_roles_and_ownership(program: Program) -> None:
    effects = program.rules["user", "remove"].effects
    assert {(e.kind, e.what, e.target.type) for e in effects} == {
        ("revoke", table, "user") for table in ("members", "assignments", "owners")
    }
    assert all(r.creates for r in program.rules.values() if (r.operation, r.entity) in CREATIONS)


def test_adding_users_and_groups_creates_them(program: Program) -> None:
    created = {(r.operation, r.entity) for r in program.rules.values() if r.creates}
    assert created == CREATIONS | {("add", "user"), ("add", "group")}


SUPPORTED = {
    # 243-344, the columns `Name` and `Supports Securable Object`.
    "metalake": (
        "MANAGE_USERS MANAGE_GROUPS CREATE_ROLE MANAGE_GRANTS CREATE_CATALOG CREATE_TAG CREATE_POLICY "
        "REGISTER_JOB_TEMPLATE RUN_JOB"
    ),
    "metalake catalog": "USE_CATALOG CREATE_SCHEMA",
    "metalake catalog schema": "USE_SCHEMA CREATE_TABLE CREATE_TOPIC CREATE_FILESET REGISTER_MODEL",
    "metalake catalog schema table": "MODIFY_TABLE SELECT_TABLE",
    "metalake catalog schema topic": "PRODUCE_TOPIC CONSUME_TOPIC",
    "metalake catalog schema fileset": "WRITE_FILESET READ_FILESET",
    "metalake catalog schema model": "LINK_MODEL_VERSION USE_MODEL",
    "metalake tag": "APPLY_TAG",
    "metalake policy": "APPLY_POLICY",
    "metalake job_template": "USE_JOB_TEMPLATE",
}


def test_privileges_and_what_they_are_granted_on(program: Program) -> None:
    expected = {p: set(on.split()) for on, names in SUPPORTED.items() for p in names.split()}
    assert {name: set(p.on) for name, p in program.privileges.items()} == expected
    assert {name: a.of for name, a in program.aliases.items()} == {
        "CREATE_MODEL": "REGISTER_MODEL",
        "CREATE_MODEL_VERSION": "LINK_MODEL_VERSION",
    }
    assert all(a.deprecated for a in program.aliases.values())
    assert all(p.title for p in program.privileges.values())


def test_the_objects_of_tags_and_policies_are_what_can_be_loaded(program: Program) -> None:
    withs = {r.id: w.types for r in program.rules.values() for w in r.withs if w.name == "object"}
    assert set(withs.values()) == {LOADABLE}
    assert len(withs) == 8


def loosest(program: Program, key: tuple[str, str]) -> Sets:
    rule = program.rules[key]
    types = {w.name: "catalog" for w in rule.withs if w.name == "object"}
    return texts(program, rule, canonical_form(program).minimal_sets(rule.item_condition, types=types), types)


READINGS = (
    # cell, reading, the set that it lets in or (with a minus) shuts out
    ("schema/create", "owner_for_use", "-C"),
    ("schema/load", "owner_alone", "S"),
    ("table/create", "owner_alone", "S"),
    ("role/grant", "literal", "-M"),
    ("role/revoke", "literal", "-M"),
    ("tag/list_for_object", "all_tags", "x.load"),
    ("tag/associate", "owners_too", "(O) x.load"),
    ("policy/associate", "owners_too", "(O) x.load"),
    ("policy/list_for_object", "first_row", "O"),
    ("policy/list_for_object", "inherited", "x.load"),
    ("group/get", "unchecked", ""),
    ("group/list", "all_groups", ""),
    ("tag/get_for_object", "object_alone", "x.load"),
    ("job/run", "template_owner", "RUN_JOB@metalake owner@template"),
    ("catalog/grant_privilege", "metalake_owner", "M"),
    ("catalog/grant_privilege", "containers", "M"),
    ("table/grant_privilege", "containers", "-O"),
    ("table/revoke_privilege", "metalake_owner", "M"),
    ("table/revoke_privilege", "containers", "UC US O"),
    ("table/set_owner", "containers", "UC S"),
    *((f"{entity}/set_owner", "metalake_owner", "M") for entity in ("role", "tag", "policy", "job_template", "job")),
    *(
        (f"{entity}/{verb}_privilege", "metalake_owner", "M")
        for entity in ("tag", "policy", "job_template")
        for verb in ("grant", "revoke")
    ),
)


@pytest.mark.parametrize(("row", "reading", "change"), READINGS)
def test_other_reading(program: Program, row: str, reading: str, change: str) -> None:
    entity, operation = row.split("/")
    other = load_program(POLICY, readings={row: reading})
    changed = sets(change.lstrip("-"), entity)
    chosen, read = loosest(program, (entity, operation)), loosest(other, (entity, operation))
    without, having = (read, chosen) if change.startswith("-") else (chosen, read)
    assert changed <= having
    assert not changed & without


def test_every_other_reading_is_tested(program: Program) -> None:
    def row(rule: Rule) -> str:
        return f"{rule.entity if rule.origin == 'row' else rule.origin}/{rule.operation}"

    recorded = {
        (row(rule), name) for rule in program.rules.values() if rule.ambiguous for name, _ in rule.ambiguous.readings
    }
    tested = {(row(program.rules[cast("tuple[str, str]", tuple(at.split("/")))]), name) for at, name, _ in READINGS}
    assert recorded == tested


SERVER = {
    "group/get": "unchecked",
    "group/list": "all_groups",
    "tag/associate": "owners_too",
    "tag/get_for_object": "object_alone",
    "policy/associate": "owners_too",
    "job/run": "template_owner",
    **{f"any/{operation}": "containers" for operation in ("set_owner", "grant_privilege", "revoke_privilege")},
    **{f"{entity}/set_owner": "metalake_owner" for entity in ("role", "tag", "policy", "job_template", "job")},
    **{
        f"{entity}/{verb}_privilege": "metalake_owner"
        for entity in ("tag", "policy", "job_template")
        for verb in ("grant", "revoke")
    },
}
"""What the server answers, as readings; all but the policies that an object inherits, which no row can tell apart."""


def test_the_variant_of_the_server_is_the_readings_that_it_follows(program: Program) -> None:
    variant, read = load_program(POLICY, variant="server_1_1_0"), load_program(POLICY, readings=SERVER)
    differing = {
        key
        for key, rule in variant.rules.items()
        if (rule.gate, rule.requires, rule.each, rule.effects)
        != ((other := read.rules[key]).gate, other.requires, other.each, other.effects)
    }
    assert differing == {("group", "get")}, "no reading says that the gate does not hold"
    assert variant.rules["group", "get"].gate == ALWAYS
    ours = {key for key, rule in variant.rules.items() if rule.requires != program.rules[key].requires}
    assert {operation for _, operation in ours} == {row.partition("/")[2] for row in SERVER} - {"list"}
