"""The Gravitino tables against a second reading of the documents, written as plain Python, in random worlds.

`Reading` says what each API asks for in the documents' own order, with inheritance, denials, groups and membership done
by hand. It shares nothing with the policy file or the compiler.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from checkout import ROOT

from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference
from privtab.state.nodes import Assignment, Effect, Grant, State

FOLDER = ROOT / "policy_src" / "gravitino"
USERS = ("ann", "ben", "cem")
GROUPS = ("red", "blue")
ROLES = ("r1", "r2", "r3")
LEAVES = ("table", "view", "topic", "fileset", "model", "function")
"""Views come with 1.2.0, functions with 1.3.0."""
BESIDE = ("tag", "policy", "job_template", "job", "role")
ENTITIES = (
    *("metalake:m", "metalake:n", "catalog:m/c", "catalog:m/d", "schema:m/c/s", "schema:m/d/s"),
    *(f"{leaf}:m/c/s/x" for leaf in LEAVES),
    *(f"{leaf}:m/d/s/x" for leaf in LEAVES),
    *(f"{type_}:m/r1" for type_ in BESIDE),
    *(f"user:m/{user}" for user in USERS),
    *(f"group:m/{group}" for group in GROUPS),
)
OLD_NAMES = {"REGISTER_MODEL": "CREATE_MODEL", "LINK_MODEL_VERSION": "CREATE_MODEL_VERSION"}


def up(entity: str, type_: str) -> str:
    """What lies above an entity (or the entity itself), by its type."""
    names = entity.partition(":")[2].split("/")
    return f"{type_}:{'/'.join(names[: {'metalake': 1, 'catalog': 2, 'schema': 3}[type_]])}"


def path(entity: str) -> list[str]:
    """The entity and all that contains it."""
    type_, _, name = entity.partition(":")
    above = {
        "metalake": [],
        "catalog": ["metalake"],
        "schema": ["metalake", "catalog"],
        **{leaf: ["metalake", "catalog", "schema"] for leaf in LEAVES},
    }.get(type_, ["metalake"])
    return [*(up(entity, t) for t in above), f"{type_}:{name}"]


class Reading:
    """One user's rights in one world, as the document tells them."""

    def __init__(self, state: State, user: str, version: str) -> None:
        self.state = state
        self.version = version
        self.user = user
        self.groups = {g for u, g in state.memberships if u == user}
        me = {f"user:{user}", *(f"group:{g}" for g in self.groups)}
        self.owning = me if version == "1.3.0" else {f"user:{user}"}
        self.roles = {a.role for a in state.assignments if a.principal in me}
        self.me = me | {f"role:{r}" for r in self.roles}

    def inside(self, entity: str) -> bool:
        return (self.user, Entity.parse(up(entity, "metalake"))) in self.state.members

    def own(self, *entities: str) -> bool:
        return any((Entity.parse(e), principal) in self.state.owners for e in entities for principal in self.owning)

    def has(self, privilege: str, entity: str) -> bool:
        names = {privilege, OLD_NAMES.get(privilege, privilege)}
        effects = [
            g.effect
            for g in self.state.grants
            if g.grantee in self.me and g.privilege in names and str(g.entity) in path(entity)
        ]
        return "allow" in effects and "deny" not in effects

    def either(self, privileges: str, entity: str) -> bool:
        return any(self.has(p, entity) for p in privileges.split())

    def owners_up(self, entity: str) -> bool:
        return self.own(*path(entity))

    def lake_owner(self, entity: str) -> bool:
        return self.own(up(entity, "metalake"))

    def in_lake(self, privilege: str, entity: str) -> bool:
        return self.has(privilege, up(entity, "metalake")) or self.lake_owner(entity)

    def loads_catalog(self, entity: str) -> bool:
        catalog = up(entity, "catalog")
        return self.inside(entity) and (self.owners_up(catalog) or self.has("USE_CATALOG", catalog))

    def loads_schema(self, entity: str) -> bool:
        schema = up(entity, "schema")
        return self.loads_catalog(entity) and (self.owners_up(schema) or self.has("USE_SCHEMA", schema))

    def loads_leaf(self, entity: str) -> bool:
        privileges = {
            "table": "SELECT_TABLE MODIFY_TABLE",
            "view": "SELECT_VIEW",
            "function": "EXECUTE_FUNCTION MODIFY_FUNCTION",
            "topic": "CONSUME_TOPIC PRODUCE_TOPIC",
            "fileset": "READ_FILESET WRITE_FILESET",
            "model": "USE_MODEL",
        }[entity.partition(":")[0]]
        return self.loads_schema(entity) and (self.owners_up(entity) or self.either(privileges, entity))

    def loads(self, entity: str) -> bool:
        match entity.partition(":")[0]:
            case "metalake":
                return self.inside(entity)
            case "catalog":
                return self.loads_catalog(entity)
            case "schema":
                return self.loads_schema(entity)
            case _:
                return self.loads_leaf(entity)

    def gets(self, privilege: str, entity: str) -> bool:
        return self.inside(entity) and (self.has(privilege, entity) or self.own(entity) or self.lake_owner(entity))

    def manages(self, entity: str) -> bool:
        return self.own(entity) or self.lake_owner(entity)


Check = Callable[[Reading, str, str], bool]
"""(reading, entity, the object in `with` or ""); membership of the entity's metalake is asked beside it."""


def creates(privilege: str) -> Check:
    def check(r: Reading, e: str, _o: str) -> bool:
        schema = up(e, "schema")
        return r.loads_schema(e) and (r.has(privilege, schema) or r.owners_up(schema))

    return check


def alters(privilege: str) -> Check:
    return lambda r, e, _o: r.loads_schema(e) and (r.owners_up(e) or r.has(privilege, e))


def moves(r: Reading, e: str, o: str) -> bool:
    return r.loads_schema(e) and r.loads_schema(o) and r.own(e)


def by_owner(r: Reading, e: str, _o: str) -> bool:
    return r.loads_schema(e) and r.owners_up(e)


def lists_leaf(r: Reading, e: str, _o: str) -> bool:
    return r.loads_schema(e) and (r.own(*path(e)[:-1]) or r.loads_leaf(e))


def loads(r: Reading, e: str, _o: str) -> bool:
    return r.loads(e)


def manages(r: Reading, e: str, _o: str) -> bool:
    return r.manages(e)


def in_lake(privilege: str) -> Check:
    return lambda r, e, _o: r.in_lake(privilege, e)


def sees_role(r: Reading, e: str, _o: str) -> bool:
    return r.in_lake("MANAGE_GRANTS", e) or r.own(e) or e.rpartition("/")[2] in r.roles


def sees_user(r: Reading, e: str, _o: str) -> bool:
    return r.in_lake("MANAGE_USERS", e) or e.rpartition("/")[2] == r.user


def sees_group(r: Reading, e: str, _o: str) -> bool:
    return r.in_lake("MANAGE_GROUPS", e) or e.rpartition("/")[2] in r.groups


def owns_schema(r: Reading, e: str, _o: str) -> bool:
    return r.loads_catalog(e) and r.owners_up(e)


def governs(kind: str) -> dict[tuple[str, str], Check]:
    """Tags and policies, whose rows are the same but for the names of privileges."""
    apply, create = f"APPLY_{kind.upper()}", f"CREATE_{kind.upper()}"
    return {
        (kind, "list"): lambda r, e, _o: r.lake_owner(e) or r.gets(apply, e),
        (kind, "create"): in_lake(create),
        (kind, "get"): lambda r, e, _o: r.gets(apply, e),
        (kind, "alter"): manages,
        (kind, "delete"): manages,
        (kind, "list_objects"): lambda r, e, o: r.gets(apply, e) and r.loads(o),
        (kind, "list_for_object"): lambda r, e, o: r.gets(apply, e) and r.loads(o),
        (kind, "get_for_object"): lambda r, e, o: r.gets(apply, e) and r.loads(o),
        (kind, "associate"): lambda r, e, o: r.has(apply, e) and r.loads(o),
    }


READ: dict[tuple[str, str], Check] = {
    ("metalake", "load"): loads,
    ("metalake", "alter"): lambda r, e, _o: r.own(e),
    ("metalake", "drop"): lambda r, e, _o: r.own(e),
    ("catalog", "create"): in_lake("CREATE_CATALOG"),
    ("catalog", "alter"): manages,
    ("catalog", "drop"): manages,
    ("catalog", "list"): lambda r, e, _o: r.lake_owner(e) or r.loads_catalog(e),
    ("catalog", "load"): loads,
    ("schema", "create"): lambda r, e, _o: (
        (r.has("CREATE_SCHEMA", up(e, "catalog")) and r.has("USE_CATALOG", up(e, "catalog")))
        or r.owners_up(up(e, "catalog"))
    ),
    ("schema", "alter"): owns_schema,
    ("schema", "drop"): owns_schema,
    ("schema", "list"): lambda r, e, _o: r.loads_catalog(e) and (r.owners_up(up(e, "catalog")) or r.loads_schema(e)),
    ("schema", "load"): loads,
    **{(leaf, "list"): lists_leaf for leaf in LEAVES},
    **{(leaf, "load"): loads for leaf in LEAVES},
    **{(leaf, "drop"): by_owner for leaf in LEAVES},
    ("table", "create"): creates("CREATE_TABLE"),
    **{
        ("table", op): alters("MODIFY_TABLE")
        for op in (
            "alter",
            "update_statistics",
            "drop_statistics",
            "update_partition_statistics",
            "drop_partition_statistics",
        )
    },
    ("table", "list_statistics"): loads,
    ("table", "list_partition_statistics"): loads,
    ("table", "rename_across_schema"): lambda r, e, o: moves(r, e, o) and r.has("CREATE_TABLE", o),
    ("view", "create"): creates("CREATE_VIEW"),
    ("view", "alter"): by_owner,
    ("view", "rename_across_schema"): lambda r, e, o: moves(r, e, o) and r.has("CREATE_VIEW", o),
    ("topic", "create"): creates("CREATE_TOPIC"),
    ("topic", "alter"): alters("PRODUCE_TOPIC"),
    ("fileset", "create"): creates("CREATE_FILESET"),
    ("fileset", "alter"): alters("WRITE_FILESET"),
    ("fileset", "list_files"): loads,
    ("model", "register"): creates("REGISTER_MODEL"),
    ("model", "link_version"): lambda r, e, _o: r.loads_leaf(e) and (r.owners_up(e) or r.has("LINK_MODEL_VERSION", e)),
    **{("model", op): by_owner for op in ("alter", "delete_version", "alter_version", "delete_version_alias")},
    **{("model", op): loads for op in ("list_versions", "load_version", "load_version_by_alias")},
    ("function", "register"): creates("REGISTER_FUNCTION"),
    ("function", "alter"): alters("MODIFY_FUNCTION"),
    ("function", "drop"): alters("MODIFY_FUNCTION"),
    ("user", "add"): in_lake("MANAGE_USERS"),
    ("user", "remove"): in_lake("MANAGE_USERS"),
    ("user", "get"): sees_user,
    ("user", "list"): sees_user,
    ("group", "add"): in_lake("MANAGE_GROUPS"),
    ("group", "remove"): in_lake("MANAGE_GROUPS"),
    ("group", "get"): sees_group,
    ("group", "list"): sees_group,
    ("role", "create"): in_lake("CREATE_ROLE"),
    ("role", "delete"): manages,
    ("role", "get"): sees_role,
    ("role", "list"): sees_role,
    ("role", "grant"): in_lake("MANAGE_GRANTS"),
    ("role", "revoke"): in_lake("MANAGE_GRANTS"),
    ("role", "override_privilege"): in_lake("MANAGE_GRANTS"),
    **governs("tag"),
    **governs("policy"),
    **{("policy", op): manages for op in ("set", "enable", "disable")},
    ("job_template", "list"): lambda r, e, _o: r.lake_owner(e) or r.gets("USE_JOB_TEMPLATE", e),
    ("job_template", "register"): in_lake("REGISTER_JOB_TEMPLATE"),
    ("job_template", "get"): lambda r, e, _o: r.gets("USE_JOB_TEMPLATE", e),
    ("job_template", "delete"): manages,
    ("job_template", "alter"): manages,
    ("job", "list"): manages,
    ("job", "run"): lambda r, e, o: (
        r.lake_owner(e) or (r.has("RUN_JOB", up(e, "metalake")) and r.has("USE_JOB_TEMPLATE", o))
    ),
    ("job", "get"): manages,
    ("job", "cancel"): manages,
}


SINCE = {"view": "1.2.0", "rename_across_schema": "1.2.0", "override_privilege": "1.2.0", "function": "1.3.0"}


def entities(version: str) -> list[str]:
    return [e for e in ENTITIES if SINCE.get(e.partition(":")[0], "1.1.0") <= version]


def rows(version: str) -> set[tuple[str, str]]:
    """The rows of `READ` that a version has."""
    return {key for key in READ if all(SINCE.get(word, "1.1.0") <= version for word in key)}


def grants_a_privilege(r: Reading, e: str, _o: str) -> bool:
    if r.version == "1.1.0":
        return r.has("MANAGE_GRANTS", up(e, "metalake")) or r.own(e)
    may_manage_grants = r.has("MANAGE_GRANTS", e if r.version == "1.3.0" else up(e, "metalake"))
    return may_manage_grants or r.own(e) or r.lake_owner(e)


SHARED: dict[str, Check] = {
    "grant_privilege": grants_a_privilege,
    "revoke_privilege": grants_a_privilege,
    "set_owner": lambda r, e, _o: r.own(e),
    "get_credential": loads,
}
"""Operations of many types."""


def expected(reading: Reading, entity: str, operation: str, other: str) -> bool:
    """What the document says."""
    type_ = entity.partition(":")[0]
    if (type_, operation) == ("metalake", "create"):
        return reading.user in reading.state.service_admins
    check = SHARED.get(operation) or READ[type_, operation]
    return reading.inside(entity) and check(reading, entity, other)


def world(rng: random.Random, program: Program) -> State:
    """A state in which conditions hold and fail often: some users are granted much, some little, all are denied something."""
    grantees = [*(f"user:{u}" for u in USERS), *(f"group:{g}" for g in GROUPS), *(f"role:{r}" for r in ROLES)]
    owners = [p for p in grantees if p.startswith("user:" if program.version != "1.3.0" else ("user:", "group:"))]
    supported = {name: p.on for name, p in program.privileges.items()}
    supported |= {name: supported[a.of] for name, a in program.aliases.items()}
    dense = rng.choice((0.05, 0.2))
    grants = []
    for name, on in supported.items():
        for entity in (e for e in entities(program.version) if e.partition(":")[0] in on):
            # Allowed above and denied below is what tells inheritance from a list of targets.
            denied = 0.02 if entity.startswith("metalake:") else 0.1
            for grantee in grantees:
                chance = rng.random()
                effect: Effect = "deny" if chance < denied else "allow"
                if chance < denied + dense:
                    grants.append(Grant(grantee=grantee, effect=effect, privilege=name, entity=Entity.parse(entity)))
    ownable = [e for e in entities(program.version) if e.partition(":")[0] not in ("user", "group")]
    return State(
        members=tuple((u, Entity.parse(m)) for u in USERS for m in ("metalake:m", "metalake:n") if rng.random() < 0.85),
        memberships=tuple((u, g) for u in USERS for g in GROUPS if rng.random() < 0.5),
        assignments=tuple(
            Assignment(principal=p, role=r)
            for p in grantees
            if not p.startswith("role:")
            for r in ROLES
            if rng.random() < 0.3
        ),
        grants=tuple(grants),
        owners=tuple((Entity.parse(e), rng.choice(owners)) for e in ownable if rng.random() < 0.15),
        service_admins=tuple(u for u in USERS if rng.random() < 0.2),
    )


@pytest.fixture(scope="module", params=["1.1.0", "1.2.0", "1.3.0"])
def program(request: pytest.FixtureRequest) -> Program:
    return load_program(FOLDER / f"{request.param}.yaml")


def objects(program: Program, entity: str, operation: str, rng: random.Random) -> dict[str, str]:
    """A random object for each `with` of the row."""
    rule = program.rules[entity.partition(":")[0], operation]
    return {
        w.name: rng.choice([e for e in entities(program.version) if e.partition(":")[0] in w.types]) for w in rule.withs
    }


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_random_world(program: Program, seed: int) -> None:
    rng = random.Random(seed)
    state = world(rng, program)
    reference = Reference(program, state)
    answers = set()
    for user in USERS:
        reading = Reading(state, user, program.version)
        for entity in entities(program.version):
            operations = [op for type_, op in program.rules if type_ == entity.partition(":")[0]]
            for operation in operations:
                with_ = objects(program, entity, operation, rng)
                decision = reference.decide(
                    Request(
                        user=user,
                        action=operation,
                        resource=Entity.parse(entity),
                        with_={name: Entity.parse(e) for name, e in with_.items()},
                    )
                )
                right = expected(reading, entity, operation, next(iter(with_.values()), ""))
                assert decision.allowed is right, (user, operation, entity, with_, decision.context)
                answers.add(right)
    assert answers == {True, False}


def test_the_second_reading_knows_every_row(program: Program) -> None:
    own = {key for key, rule in program.rules.items() if rule.origin == "row" and key[1] not in SHARED}
    assert own == {*rows(program.version), ("metalake", "create")}
