"""The Gravitino table, cell by cell: read once more from the document, and compared with the minimal sets of the policy.

Nothing here is taken from the policy file. The table below has one row for each line of the document's API table, with the
smallest sufficient sets written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from privtab.ir.canonical import MinimalSets, atom_text, canonical, minimal_sets
from privtab.ir.formula import item_condition
from privtab.ir.nodes import ALWAYS, Program, Rule
from privtab.pipeline import check_policy, load_program

POLICY = Path(__file__).parents[2] / "policy_src" / "gravitino" / "1.1.0.yaml"
LINES = range(695, 789)
LOADABLE = ("metalake", "catalog", "schema", "table", "topic", "fileset", "model")
GRANTABLE = (*LOADABLE, "tag", "policy", "job_template")
OWNED = (*GRANTABLE, "role", "job")

# Notation: `|` between sets, blanks between atoms. `M C S` own the metalake, catalog, schema; `O` owns the entity itself;
# `UC` is USE_CATALOG (catalog), `US` is USE_SCHEMA (schema), `P@t` is P (t); `x.` before one of them: of the object in
# `with`, here a catalog. `in` is membership of the metalake, which every set below has beside what is written.
CATALOG = "M | C | UC"
SCHEMA = "M | C | UC S | UC US"
OWNED_SCHEMA = "M | C | UC S"
OWNED_LEAF = "M | C | UC S | UC US O"
ADMIN = "M | O"

TABLE: tuple[tuple[int, str, str, str, str | None], ...] = (
    # line, entity, operation, what the call takes, what an item of a listing takes (together with the call)
    (696, "metalake", "load", "in", None),
    (697, "metalake", "alter", "M", None),
    (698, "metalake", "drop", "M", None),
    (699, "catalog", "create", "CREATE_CATALOG@metalake | M", None),
    (700, "catalog", "alter", "M | C", None),
    (701, "catalog", "drop", "M | C", None),
    (702, "catalog", "list", "in", CATALOG),
    (703, "catalog", "load", CATALOG, None),
    (704, "schema", "create", "M | C | UC CREATE_SCHEMA@catalog", None),
    (705, "schema", "alter", OWNED_SCHEMA, None),
    (706, "schema", "drop", OWNED_SCHEMA, None),
    (707, "schema", "list", CATALOG, SCHEMA),
    (708, "schema", "load", SCHEMA, None),
    (709, "table", "create", OWNED_SCHEMA + " | UC US CREATE_TABLE@schema", None),
    (710, "table", "alter", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (711, "table", "update_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (712, "table", "drop_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (713, "table", "update_partition_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (714, "table", "drop_partition_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (715, "table", "drop", OWNED_LEAF, None),
    (716, "table", "list", SCHEMA, OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table"),
    (717, "table", "load", OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table", None),
    (718, "table", "list_statistics", OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table", None),
    (
        719,
        "table",
        "list_partition_statistics",
        OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table",
        None,
    ),
    (720, "topic", "create", OWNED_SCHEMA + " | UC US CREATE_TOPIC@schema", None),
    (721, "topic", "alter", OWNED_LEAF + " | UC US PRODUCE_TOPIC@topic", None),
    (722, "topic", "drop", OWNED_LEAF, None),
    (723, "topic", "list", SCHEMA, OWNED_LEAF + " | UC US CONSUME_TOPIC@topic | UC US PRODUCE_TOPIC@topic"),
    (724, "topic", "load", OWNED_LEAF + " | UC US CONSUME_TOPIC@topic | UC US PRODUCE_TOPIC@topic", None),
    (725, "fileset", "create", OWNED_SCHEMA + " | UC US CREATE_FILESET@schema", None),
    (726, "fileset", "alter", OWNED_LEAF + " | UC US WRITE_FILESET@fileset", None),
    (727, "fileset", "drop", OWNED_LEAF, None),
    (728, "fileset", "list", SCHEMA, OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset"),
    (729, "fileset", "load", OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset", None),
    (730, "fileset", "list_files", OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset", None),
    (731, "model", "register", OWNED_SCHEMA + " | UC US REGISTER_MODEL@schema", None),
    (732, "model", "link_version", OWNED_LEAF + " | UC US USE_MODEL@model LINK_MODEL_VERSION@model", None),
    (733, "model", "alter", OWNED_LEAF, None),
    (734, "model", "drop", OWNED_LEAF, None),
    (735, "model", "list", SCHEMA, OWNED_LEAF + " | UC US USE_MODEL@model"),
    (736, "model", "load", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (737, "model", "list_versions", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (738, "model", "load_version", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (739, "model", "load_version_by_alias", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (740, "model", "delete_version", OWNED_LEAF, None),
    (741, "model", "alter_version", OWNED_LEAF, None),
    (742, "model", "delete_version_alias", OWNED_LEAF, None),
    (743, "user", "add", "MANAGE_USERS@metalake | M", None),
    (744, "user", "remove", "MANAGE_USERS@metalake | M", None),
    (745, "user", "get", "MANAGE_USERS@metalake | M | self", None),
    (746, "user", "list", "in", "MANAGE_USERS@metalake | M | self"),
    (747, "group", "add", "MANAGE_GROUPS@metalake | M", None),
    (748, "group", "remove", "MANAGE_GROUPS@metalake | M", None),
    (749, "group", "get", "MANAGE_GROUPS@metalake | M | in_group", None),
    (750, "group", "list", "in", "MANAGE_GROUPS@metalake | M | in_group"),
    (751, "role", "create", "CREATE_ROLE@metalake | M", None),
    (752, "role", "delete", ADMIN, None),
    (753, "role", "get", "MANAGE_GRANTS@metalake | M | O | held", None),
    (754, "role", "list", "in", "MANAGE_GRANTS@metalake | M | O | held"),
    (755, "role", "grant", "MANAGE_GRANTS@metalake | M", None),
    (756, "role", "revoke", "MANAGE_GRANTS@metalake | M", None),
    (760, "tag", "list", "in", "APPLY_TAG@tag | M | O"),
    (761, "tag", "create", "CREATE_TAG@metalake | M", None),
    (762, "tag", "get", "APPLY_TAG@tag | M | O", None),
    (763, "tag", "alter", ADMIN, None),
    (764, "tag", "delete", ADMIN, None),
    (765, "tag", "list_objects", "APPLY_TAG@tag | M | O", "(APPLY_TAG@tag | M | O) x.load"),
    (766, "tag", "list_for_object", "x.load", "(APPLY_TAG@tag | M | O) x.load"),
    (767, "tag", "get_for_object", "(APPLY_TAG@tag | M | O) x.load", None),
    (768, "tag", "associate", "(APPLY_TAG@tag) x.load", None),
    (769, "policy", "list", "in", "APPLY_POLICY@policy | M | O"),
    (770, "policy", "create", "CREATE_POLICY@metalake | M", None),
    (771, "policy", "get", "APPLY_POLICY@policy | M | O", None),
    (772, "policy", "alter", ADMIN, None),
    (773, "policy", "set", ADMIN, None),
    (773, "policy", "enable", ADMIN, None),
    (773, "policy", "disable", ADMIN, None),
    (774, "policy", "delete", ADMIN, None),
    (775, "policy", "list_objects", "APPLY_POLICY@policy | M | O", "(APPLY_POLICY@policy | M | O) x.load"),
    (776, "policy", "associate", "(APPLY_POLICY@policy) x.load", None),
    (777, "policy", "list_for_object", "x.load", "(APPLY_POLICY@policy | M | O) x.load"),
    (778, "policy", "get_for_object", "(APPLY_POLICY@policy | M | O) x.load", None),
    (779, "job_template", "list", "in", "USE_JOB_TEMPLATE@job_template | M | O"),
    (780, "job_template", "register", "REGISTER_JOB_TEMPLATE@metalake | M", None),
    (781, "job_template", "get", "USE_JOB_TEMPLATE@job_template | M | O", None),
    (782, "job_template", "delete", ADMIN, None),
    (783, "job_template", "alter", ADMIN, None),
    (784, "job", "list", "in", ADMIN),
    (785, "job", "run", "M | RUN_JOB@metalake USE_JOB_TEMPLATE@template", None),
    (786, "job", "get", ADMIN, None),
    (787, "job", "cancel", ADMIN, None),
    *((757, t, "grant_privilege", "MANAGE_GRANTS@metalake | O", None) for t in GRANTABLE),
    *((758, t, "revoke_privilege", "MANAGE_GRANTS@metalake | O", None) for t in GRANTABLE),
    *((759, t, "set_owner", "O", None) for t in OWNED),
    (788, "metalake", "get_credential", "in", None),
    (788, "catalog", "get_credential", CATALOG, None),
    (788, "schema", "get_credential", SCHEMA, None),
    (788, "table", "get_credential", OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table", None),
    (788, "topic", "get_credential", OWNED_LEAF + " | UC US CONSUME_TOPIC@topic | UC US PRODUCE_TOPIC@topic", None),
    (
        788,
        "fileset",
        "get_credential",
        OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset",
        None,
    ),
    (788, "model", "get_credential", OWNED_LEAF + " | UC US USE_MODEL@model", None),
)

Sets = frozenset[frozenset[str]]
CREATE_METALAKE = (695, "metalake", "create")
"""The only row without the gate."""


def atom(token: str, entity: str) -> str:
    """The text of an atom in the notation above."""
    short = {
        "in": "member (metalake)",
        "M": "owner (metalake)",
        "C": "owner (catalog)",
        "S": "owner (schema)",
        "O": f"owner ({entity})",
        "UC": "USE_CATALOG (catalog)",
        "US": "USE_SCHEMA (schema)",
        "self": "self",
        "held": "holds (role)",
        "in_group": "member (group)",
    }
    if token in short:
        return short[token]
    privilege, _, type_ = token.partition("@")
    return f"{privilege} ({type_})"


def sets(text: str, entity: str) -> Sets:
    """The sets in the notation above, each with the membership that the gate asks for."""
    own, loads_object, _ = text.partition("x.load")
    ways = own.strip().strip("()")
    read = {frozenset({"member (metalake)", *(atom(t, entity) for t in way.split())}) for way in ways.split("|")}
    if not loads_object:
        return frozenset(read)
    catalog = ("owner (object.metalake)", "owner (object)", "USE_CATALOG (object)")
    return frozenset(way | {"member (object.metalake)", how} for way in read for how in catalog)


def texts(program: Program, rule: Rule, found: MinimalSets, types: Mapping[str, str]) -> Sets:
    """Minimal sets as texts."""
    return frozenset(frozenset(atom_text(a, rule, types) for a in way) for way in found)


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(POLICY)


def test_no_findings() -> None:
    _, findings = check_policy(POLICY)
    assert findings == ()


@pytest.mark.parametrize(("line", "entity", "operation", "call", "item"), TABLE)
def test_cell(program: Program, line: int, entity: str, operation: str, call: str, item: str | None) -> None:
    rule = program.rules[entity, operation]
    types = {w.name: "catalog" if w.name == "object" else w.types[0] for w in rule.withs}
    assert texts(program, rule, minimal_sets(program, rule, types=types), types) == sets(call, entity)
    assert (rule.each is None) == (item is None)
    found = texts(program, rule, canonical(program).minimal_sets(item_condition(rule), types=types), types)
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
    expected = {(entity, operation): line for line, entity, operation, _, _ in TABLE} | {("metalake", "create"): 695}
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


def test_who_creates_owns(program: Program) -> None:
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
    return texts(program, rule, canonical(program).minimal_sets(item_condition(rule), types=types), types)


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
