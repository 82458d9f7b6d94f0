from __future__ import annotations

from collections.abc import Callable

from generated_programs import read

from privtab.model import Policy

Resolve = Callable[..., Policy]
USES = "tables: {shop: {open: anyone}}\n"


def test_privileges_bind_everywhere_unless_they_say_otherwise(resolve: Resolve) -> None:
    policy = resolve("privileges: {READ: , WRITE: {on: [shop, shelf]}, OPEN: {on: shop}}\n" + USES)
    assert policy.privileges["READ"].on == ("shop", "shelf", "item", "user", "role")
    assert policy.privileges["WRITE"].on == ("shop", "shelf")
    assert policy.privileges["OPEN"].on == ("shop",)


def test_on_is_a_word_and_no_boolean(resolve: Resolve) -> None:
    assert resolve("privileges:\n  on:\n  no:\n  yes: {on: [shop]}\n" + USES).privileges.keys() == {"on", "no", "yes"}


def test_aliases_of_aliases_are_the_privilege(resolve: Resolve) -> None:
    policy = resolve(
        "privileges: {SEE: {alias_of: VIEW}, VIEW: {alias_of: READ, deprecated: use READ}, READ: }\n" + USES
    )
    assert {name: alias.of for name, alias in policy.aliases.items()} == {"SEE": "READ", "VIEW": "READ"}
    assert policy.aliases["VIEW"].deprecated == "use READ"


def test_sets_hold_privileges_aliases_and_sets(resolve: Resolve) -> None:
    policy = resolve(
        "privileges: {READ: , WRITE: , VIEW: {alias_of: READ}}\nsets: {ALL: [SOME, WRITE], SOME: [VIEW, READ]}\n" + USES
    )
    assert policy.sets == {"ALL": ("READ", "WRITE"), "SOME": ("READ",)}
    assert list(policy.sets) == ["ALL", "SOME"]


def test_types_called_like_principals_are_principals(resolve: Resolve) -> None:
    policy = resolve(
        "entities: {user: , group: , role: , account: }\ntypes: {account: {principal: user}, group: {principal: none}}\n"
    )
    assert {n: e.principal for n, e in policy.entities.items()} == {
        "user": "user",
        "group": None,
        "role": "role",
        "account": "user",
    }


def test_semantics_default_to_nothing(resolve: Resolve) -> None:
    semantics = resolve(USES).semantics
    assert (semantics.inheritance, semantics.deny, semantics.owner, semantics.groups, semantics.gate) == (
        "none",
        "none",
        None,
        ("state",),
        None,
    )


def test_owners_hold_the_set_all_or_else_every_privilege(resolve: Resolve) -> None:
    owner = "semantics: {owner: {holds: ALL}}\n"
    every = resolve(owner + USES).semantics.owner
    some = resolve(owner + "sets: {ALL: [WRITE]}\n" + USES).semantics.owner
    assert every is not None
    assert some is not None
    assert (every.kinds, every.creator, every.holds, some.holds) == (("user",), False, ("READ", "WRITE"), ("WRITE",))


def test_role_grants_are_written_out(resolve: Resolve) -> None:
    policy = resolve(
        "sets: {ALL: [READ, WRITE]}\nroles: {boss: {scope: shelf, title: Boss, grants: {shelf: ALL, item: READ}}}\n"
        + USES
    )
    role = policy.roles["boss"]
    assert (role.scope, role.title, role.grants) == (
        "shelf",
        "Boss",
        (("shelf", ("READ", "WRITE")), ("item", ("READ",))),
    )


def test_every_name_keeps_the_place_of_its_declaration(resolve: Resolve) -> None:
    policy = resolve("privileges: {READ: , VIEW: {alias_of: READ}}\nsets: {ALL: [READ]}\n" + USES)
    assert {name: word.span.line for name, word in policy.declared.items()} == {"READ": 1, "VIEW": 1, "ALL": 2}


def test_implication_in_all_steps_reaches_what_implied_privileges_imply() -> None:
    for semantics, expected in (("one_step", ("B",)), ("transitive", ("B", "C", "D"))):
        program, found = read(
            "privtab: 1\nsystem: s\nversion: '1'\nentities: {a:}\n"
            "privileges: {A: {implies: B}, B: {implies: [C, D]}, C: {implies: A}, D: }\n"
            f"semantics: {{implication: {semantics}}}\ntables: {{a: {{w: A (a), x: B (a), y: C (a), z: D (a)}}}}\n"
        )
        assert program is not None, found
        assert program.privileges["A"].implies == expected
        assert program.privileges["C"].implies == (("A",) if semantics == "one_step" else ("A", "B", "D"))
