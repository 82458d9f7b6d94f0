"""The callers that prove a list of ways: few, right, and enough."""

from __future__ import annotations

import generated_programs
import pytest
from seeds import seeds
from shop_policy import POLICY, Reads, Refuses, failed

from privtab.base import NOT_SET, Entity, Request
from privtab.ir import (
    RESOURCE,
    Below,
    Has,
    HasBelow,
    Leaf,
    Member,
    Owner,
    OwnsBelow,
    Target,
    asked_condition,
    canonical_form,
)
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_analysis.rights import Right, about
from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.callers import smallest
from privtab_testing.scenarios.generated import GeneratedCallers
from privtab_testing.scenarios.needs import Callers
from privtab_testing.scenarios.suggest import RequestNames


def answers(plan: CasePlan) -> dict[str, bool]:
    return {case.name.partition(" with ")[2]: case.expected.allowed for case in plan.cases}


def test_each_set_is_enough_each_atom_is_needed_and_nothing_else_lets_in(reads: Reads) -> None:
    plan = reads(
        "needs: [{ask: read item:s/a/x, by: [[READ (item:s/a/x)], [owner (shelf:s/a)], [owner (item:s/a/x)]]}]"
    )
    assert answers(plan) == {
        "READ (item:s/a/x)": True,
        "owner (shelf:s/a)": True,
        "owner (item:s/a/x)": True,
        "nothing": False,
        "everything but owner (item:s/a/x), owner (shelf:s/a); denied READ (item:s/a/x)": False,
    }
    assert failed(plan) == []


@pytest.mark.parametrize("groups", ["state", "request"])
@pytest.mark.parametrize(
    "kinds",
    [
        "grantees: [role]",
        "grantees: [group]",
        "grantees: [role], assignees: [group]",
        "grantees: [user], assignees: [group], owner: {kinds: [role]}",
        "assignees: [group, role], owner: {kinds: [group]}, hierarchy: [roles]",
    ],
)
def test_rows_name_principals_of_the_kinds_that_the_policy_takes(reads: Reads, kinds: str, groups: str) -> None:
    owner = "" if "owner" in kinds else ", owner: {kinds: [user]}"
    policy = POLICY.replace(
        "deny: overrides, owner: {creator: true}}", f"deny: overrides, {kinds}{owner}, groups: [{groups}]}}"
    )
    assert policy != POLICY
    plan = reads(
        """
        needs:
          - {ask: burn item:s/a/x, flags: [really], by: [[WRITE (item:s/a/x), OWN (item:s/a/x)]]}
          - {ask: read item:s/a/x, by: [[READ (item:s/a/x)], [owner (shelf:s/a)], [owner (item:s/a/x)]]}
          - {ask: use role:s/r, by: [[holds (role:s/r)]]}
        """,
        policy,
    )
    assert failed(plan) == []
    for state in plan.worlds:
        _, findings = validate(plan.program, from_tables(state.to_tables(), "generated"))
        assert [str(finding) for finding in findings if finding.severity == "error"] == []


def test_callers_that_lack_one_atom_are_denied(reads: Reads) -> None:
    plan = reads("needs: [{ask: burn item:s/a/x, flags: [really], by: [[WRITE (item:s/a/x), OWN (item:s/a/x)]]}]")
    found = answers(plan)
    assert found["WRITE (item:s/a/x); without OWN (item:s/a/x)"] is False
    assert found["OWN (item:s/a/x); without WRITE (item:s/a/x)"] is False
    assert failed(plan) == []


def test_the_rest_of_a_set_may_hold_another_listed_set(reads: Reads) -> None:
    plan = reads(
        "needs: [{ask: list shelf:s/a, by: [[READ (store:s), READ (shelf:s/a)]]}]",
    )
    lacking = [name for name in answers(plan) if "without" in name]
    # READ on the store gives it on the shelf: only a denial there takes it away.
    assert lacking == [
        "READ (store:s); denied READ (shelf:s/a); without READ (shelf:s/a)",
        "READ (shelf:s/a); without READ (store:s)",
    ]
    assert failed(plan) == []


def test_a_way_that_is_missing_from_the_list_is_found_by_who_has_everything_else(reads: Reads) -> None:
    plan = reads("needs: [{ask: read item:s/a/x, by: [[READ (item:s/a/x)], [owner (item:s/a/x)]]}]")
    assert failed(plan) == ["read item:s/a/x with everything but owner (item:s/a/x); denied READ (item:s/a/x)"]


def test_a_way_that_is_listed_and_not_there_fails(reads: Reads) -> None:
    plan = reads("needs: [{ask: open store:s, by: [[READ (store:s)], [owner (store:s)]]}]")
    assert failed(plan) == ["open store:s with owner (store:s)"]


def test_needs_of_anyone_and_of_impossible_rows(reads: Reads) -> None:
    policy = """\
        privtab: 1
        system: shop
        version: "1"
        entities: {store: }
        privileges: [READ]
        tables: {store: {visit: anyone, open: READ (store)}}
        """
    plan = reads("needs: [{ask: visit store:s, by: [[]]}, {ask: visit store:s, by: anyone}]", policy)
    assert answers(plan) == {"nothing": True}
    assert failed(plan) == []
    assert failed(reads("needs: [{ask: visit store:s, by: []}]", policy)) == [
        "visit store:s with nothing",
        "visit store:s with everything",
    ]


def test_a_caller_who_is_the_resource_gives_it_their_name(reads: Reads) -> None:
    plan = reads("needs: [{ask: get user:s/u, by: [[self], [READ (store:s)]]}]")
    himself = next(case for case in plan.cases if case.name.endswith("with self"))
    assert himself.request.resource.id == f"s/{himself.request.user}"
    assert failed(plan) == []


def test_roles_are_held(reads: Reads) -> None:
    assert failed(reads("needs: [{ask: use role:s/r, by: [[holds (role:s/r)]]}]")) == []
    assert failed(reads("needs: [{ask: use role:s/r, by: [[READ (role:s/r)]]}]")) != []


def test_owners_own_by_what_may_own(reads: Reads) -> None:
    policy = """\
        privtab: 1
        system: shop
        version: "1"
        entities: {store: }
        privileges: [READ]
        semantics: {owner: {kinds: [KINDS]}, groups: [GROUPS]}
        tables: {store: {open: READ (store) or owner (store)}}
        """
    for kinds, groups in (("group", "state"), ("group", "request"), ("role", "state")):
        text = policy.replace("KINDS", kinds).replace("GROUPS", groups)
        plan = reads("needs: [{ask: open store:s, by: [[READ (store:s)], [owner (store:s)]]}]", text)
        assert failed(plan) == [], (kinds, groups)


def test_all_callers_are_one_state(reads: Reads) -> None:
    plan = reads(
        """\
        needs:
          - {ask: [open store:s, "list shelf:s"], by: [[READ (store:s)]]}
          - {ask: create shelf:s/a, by: [[WRITE (store:s)]], effects: ["grant ALL ({resource})", "become owner ({resource})"]}
        """
    )
    assert len(plan.worlds) == 1
    assert failed(plan) == []


def test_callers_who_hold_the_same_are_one_user(reads: Reads) -> None:
    plan = reads("needs: [{ask: [open store:s, 'list shelf:s', 'read item:s/a/x'], by: [[READ (store:s)]]}]")
    users: dict[str, list[str]] = {}
    for case in plan.cases:
        users.setdefault(case.name.partition(" ")[0], []).append(case.request.user)
    assert users["open"] == users["list"]
    assert len(set(users["open"])) == len(users["open"])
    # What an item can be given besides is more, but nothing is nothing, and one privilege is one.
    assert len({*users["open"]} & {*users["read"]}) == 2


def test_a_user_of_several_entries_has_the_groups_of_each(reads: Reads) -> None:
    policy = POLICY.replace("inheritance: down", "inheritance: down, groups: [state, request]", 1)
    entry = "{ask: open store:s, groups: [%s], by: [[READ (store:s)]]}"
    plan = reads(f"needs: [{entry % 'day'}, {entry % 'night'}]", policy)
    assert {case.request.groups for case in plan.cases} == {("day",), ("night",)}
    assert len(plan.cases) == 2 * len({case.name for case in plan.cases})


BELOW = """\
privtab: 1
system: shop
version: v1
entities: {store: {shelf: {item:}}}
TYPES
privileges: {READ: {on: [store, shelf, item]}, WRITE: {on: [store]}}
semantics: {inheritance: INHERITANCE, deny: overrides, owner: {kinds: [user]}}
tables:
  store: {see: READ (store or below) and WRITE (store)}
  shelf: {see: READ (shelf or below) or owner (shelf or below)}
  item: {read: READ (item), near: READ (shelf or below)}
"""


@pytest.mark.parametrize("inheritance", ["none", "down"])
@pytest.mark.parametrize("nested", ["", "nested: true"])
@pytest.mark.parametrize("flat", [False, True])
def test_privileges_held_below(reads: Reads, inheritance: str, nested: str, flat: bool) -> None:
    types = (
        f"types: {{shelf: {{flat: true, {nested}}}, item: {{flat: true}}}}"
        if flat
        else f"types: {{shelf: {{{nested}}}}}"
    )
    policy = BELOW.replace("INHERITANCE", inheritance).replace("TYPES", types)
    shelf, item = ("shelf:a", "item:x") if flat else ("shelf:s/a", "item:s/a/x")
    places = (
        "state: {entities: [{entity: shelf:a, parent: 'store:s'}, {entity: item:x, parent: shelf:a}]}" if flat else ""
    )

    def failing(action: str, ways: str) -> list[str]:
        return failed(reads(f"{places}\nneeds: [{{ask: {action}, by: {ways}}}]\n", policy))

    assert failing("see store:s", "[[READ (store:s or below), WRITE (store:s)]]") == []
    assert failing(f"see {shelf}", f"[[READ ({shelf} or below)], [owner ({shelf} or below)]]") == []
    assert failing(f"read {item}", f"[[READ ({item})]]") == []
    assert failing(f"near {item}", f"[[READ ({shelf} or below)]]") == []
    # A way on an entity below that is missing from the list, and one that is not there.
    assert failing(f"see {shelf}", f"[[READ ({shelf})], [owner ({shelf} or below)]]") != []
    assert failing(f"see {shelf}", f"[[READ ({shelf} or below)], [owner ({shelf})]]") != []
    assert failing(f"read {item}", f"[[READ ({shelf} or below)]]") != []
    assert failing(f"near {item}", f"[[READ ({item})], [READ ({shelf})]]") != []


FLAT = """\
privtab: 1
system: shop
version: v1
entities: {drive: {folder: {document: {comment:}}, user:}}
types: {folder: {nested: true, flat: true}, document: {flat: true}, user: {flat: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  document:
    read: READ (document) or owner (any folder)
    create: {requires: WRITE (folder) and owner (drive), creates: true}
  comment: {read: READ (comment)}
  user: {get: self or READ (drive)}
"""
PLACES = """\
state:
  entities:
    - {entity: folder:f1, parent: "drive:main"}
    - {entity: folder:f9, parent: folder:f1}
    - {entity: document:d7, parent: folder:f9}
    - {entity: user:u, parent: "drive:main"}
"""


def test_the_file_s_state_says_where_flat_ids_lie(reads: Reads) -> None:
    plan = reads(
        f"""{PLACES}
needs:
  - {{ask: read document:d7, by: [[READ (document:d7)], ["owner (folder:f1, folder:f9)"]]}}
  - {{ask: "create document:folder:f9/", by: [["WRITE (folder:f9)", "owner (drive:main)"]]}}
  - {{ask: read comment:d7/c, by: [["READ (comment:d7/c)"]]}}
  - {{ask: get user:u, by: [[self], ["READ (drive:main)"]]}}
""",
        FLAT,
    )
    assert failed(plan) == []
    assert "READ (document:d7)" in answers(plan)
    denied = "everything but owner (folder:f1), owner (folder:f9); denied READ (document:d7)"
    assert answers(plan)[denied] is False
    wrong = reads(
        f'{PLACES}\nneeds: [{{ask: read document:d7, by: [["READ (document:d7)"], ["owner (folder:f9)"]]}}]', FLAT
    )
    assert failed(wrong) == ["read document:d7 with everything but owner (folder:f9); denied READ (document:d7)"]


def test_an_unplaced_entity_is_a_finding(refuses: Refuses) -> None:
    found = refuses(f'{PLACES}\nneeds: [{{ask: read document:d8, by: [["READ (document:d7)"]]}}]', FLAT)
    assert [str(f.message) for f in found] == ["no row of `entities` tells where `document:d8` lies"]


def held(leaf: Leaf, names: RequestNames) -> Right | None:
    """What `needs` lists for an atom of a minimal set."""
    return about(leaf, names.key) if isinstance(leaf, Has | HasBelow | Owner | OwnsBelow | Member) else None


@pytest.mark.parametrize("seed", seeds(range(60), quick=3))
def test_generated_conditions_with_or_below_are_proved(seed: int) -> None:
    program = generated_programs.program(
        seed, "below", *(("implies",) if seed % 2 else ()), *(("nested",) if seed % 3 else ())
    )
    if program.roles:
        return  # roles have privileges that these callers lack
    generated = GeneratedCallers(program)
    asked: list[tuple[Request, bool, str]] = []
    for rule in program.rules.values():
        if rule.withs or "state" not in program.semantics.groups:
            continue
        names = RequestNames(program, {RESOURCE: rule.entity}, {RESOURCE: 2})
        resource = Entity.parse(names.key(Target(slot=RESOURCE, type=rule.entity)))
        condition = asked_condition(program, rule, named=True)
        form = canonical_form(program)
        levels = {RESOURCE: 2 if rule.entity in program.nested_on else 1}
        sets = form.located(form.minimal_sets(condition, frozenset(), {}), levels)
        ways = [[held(leaf, names) for leaf in atoms] for atoms in sets]
        if not any(isinstance(atom, Below) for atoms in sets for atom in atoms):
            continue
        if any(atom is None for way in ways for atom in way):
            continue
        flags = frozenset(f"{flag}{NOT_SET}" for flag in rule.required_flags)
        request = Request(user="x", action=rule.operation, resource=resource, flags=flags)
        listed = smallest(frozenset(atom for atom in way if atom is not None) for way in ways)
        callers = list(Callers(program, request, listed).all())[:40]
        asked += [(generated.add_caller(caller, request), caller.allowed, caller.words) for caller in callers]
    reference = Reference(program, generated.state())
    for request, allowed, words in asked:
        assert reference.decide(request).allowed is allowed, (request, words)
