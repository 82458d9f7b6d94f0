"""Each word of the language on Spark: a table of features, the requests that show them, and what is expected."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from request_frames import frame, slots
from spark_plans import WAYS

from privtab import pipeline
from privtab.base import Entity, Request
from privtab.ir import Program, rule_flags
from privtab.reference import Reference
from privtab.state import State, load_raw_state, validate
from privtab_spark import decide

Case: TypeAlias = tuple[str, str, str, str, dict[str, Any], bool]
"""What is shown, then user, operation, entity and more of the request, and the answer."""

DOWN = """\
privtab: 1
system: down
version: "1"
entities:
  lake:
    catalog: {schema: {table: }}
    settings:
    user:
    group:
    role:
    tag:
types: {settings: {single: true}}
privileges: {USE: , READ: , WRITE: , TUNE: , TAG: , OLD: {alias_of: READ, deprecated: use READ}}
sets: {BOTH: [READ, WRITE]}
semantics:
  inheritance: down
  deny: overrides
  owner: {kinds: [user, group, role], creator: true, holds: [WRITE]}
  gate: member (lake)
  groups: [state, request]
roles:
  keeper: {scope: catalog, grants: {catalog: [USE], table: [READ]}}
tables:
  table:
    create: {requires: USE (schema), becomes: owner}
    read: USE (catalog) and READ (table)
    write: {requires: WRITE (table), gate: none}
    drop: {requires: "owner (schema, table)", gate: none}
    sweep: {requires: "READ (table) and (WRITE (table) when hard)", gate: none}
    copy: {with: {to: [schema, table]}, requires: READ (table) and WRITE (to), gate: none}
    list: {requires: USE (schema), each: can read (table), gate: none}
    tune: {requires: TUNE (settings), gate: none}
  schema: {peek: {requires: TAG (schema or below), gate: none}}
  catalog: {tour: {requires: WRITE (catalog or below), gate: none}, keep: {requires: owner (catalog or below), gate: none}}
  user: {see: {requires: self, gate: none}}
  group: {join: {requires: member (group), gate: none}}
  role: {wear: {requires: holds (role), gate: none}}
  lake: {stop: {requires: service admin, gate: none}, look: {requires: anyone, gate: none}}
  tag: {set: {with: {object: any}, requires: TAG (tag) or TAG (object), gate: none}}
"""

STATE = """\
members:
  - {user: ann, of: lake:l}
  - {user: bob, of: lake:l}
  - {user: kim, of: lake:l}
  - {user: gus, of: group:l/hr}
memberships:
  - {user: bob, group: hr}
  - {user: una, group: a/b}
assignments:
  - {principal: user:ann, role: reader}
  - {principal: group:hr, role: reader}
  - {principal: group:it, role: reader}
  - {principal: user:kim, role: keeper, scope: catalog:l/c}
  - {principal: user:sam, role: writer, scope: schema:l/c/s}
  - {principal: user:tom, role: lister, scope: catalog:l/c}
  - {principal: user:una, role: x/y}
grants:
  - {grantee: role:reader, effect: allow, privilege: USE, entity: lake:l}
  - {grantee: role:reader, effect: allow, privilege: OLD, entity: catalog:l/c}
  - {grantee: role:reader, effect: deny, privilege: READ, entity: schema:l/c/closed}
  - {grantee: user:ann, effect: allow, privilege: READ, entity: table:l/c/closed/t}
  - {grantee: user:pat, effect: allow, privilege: BOTH, entity: schema:l/c/s}
  - {grantee: user:pat, effect: deny, privilege: READ, entity: table:l/c/s/secret}
  - {grantee: user:odd, effect: deny, privilege: WRITE, entity: table:l/c/s/own}
  - {grantee: user:tim, effect: allow, privilege: TUNE, entity: settings:l}
  - {grantee: role:writer, effect: allow, privilege: WRITE, entity: catalog:l/c}
  - {grantee: role:lister, effect: allow, privilege: READ, entity: table:l/c/s/t}
  - {grantee: role:lister, effect: allow, privilege: WRITE, entity: table:l/d/s/t}
  - {grantee: user:ted, effect: allow, privilege: TAG, entity: table:l/c/s/t}
  - {grantee: user:zed, effect: allow, privilege: TAG, entity: table:l/d/s/z}
  - {grantee: group:it, effect: deny, privilege: TAG, entity: catalog:l/d}
  - {grantee: group:qa, effect: deny, privilege: TAG, entity: table:l/d/s/other}
owners:
  - {entity: table:l/c/s/own, owner: user:odd}
  - {entity: schema:l/c/team, owner: group:hr}
  - {entity: table:l/c/s/roled, owner: role:reader}
service_admins: [{user: root}]
"""

CASES: list[Case] = [
    # feature, user, operation, entity, more, expected
    ("grant by an alias, inherited, through a role", "ann", "read", "table:l/c/s/t", {}, True),
    ("role through a group of the state", "bob", "read", "table:l/c/s/t", {}, True),
    ("role through a group of the request", "ann2", "list", "table:l/c/s/t", {}, False),
    ("role through a group of the request", "new", "sweep", "table:l/c/s/t", {"groups": ("it",)}, True),
    ("group of the request of which nobody knows", "new", "sweep", "table:l/c/s/t", {"groups": ("xx", "yy")}, False),
    ("gate: no member of the root", "new", "read", "table:l/c/s/t", {"groups": ("it",)}, False),
    ("other root", "ann", "read", "table:m/c/s/t", {}, False),
    ("denial above a grant, by another principal", "ann", "read", "table:l/c/closed/t", {}, False),
    ("grant by a set", "pat", "sweep", "table:l/c/s/t", {"flags": frozenset({"hard"})}, True),
    ("denial below a grant", "pat", "sweep", "table:l/c/s/secret", {}, False),
    ("denial of one privilege leaves the other", "pat", "write", "table:l/c/s/secret", {}, True),
    ("flag asks for more", "ann", "sweep", "table:l/c/s/t", {"flags": frozenset({"hard"})}, False),
    ("flag not set", "ann", "sweep", "table:l/c/s/t", {}, True),
    ("flag that nobody asks about", "ann", "sweep", "table:l/c/s/t", {"flags": frozenset({"odd"})}, True),
    ("owner", "odd", "drop", "table:l/c/s/own", {}, True),
    ("owner of another", "odd", "drop", "table:l/c/s/t", {}, False),
    ("owner holds, in spite of a denial", "odd", "write", "table:l/c/s/own", {}, True),
    ("owner is a group", "bob", "drop", "table:l/c/team/t", {}, True),
    ("owner is a group, of the request", "new", "drop", "table:l/c/team/t", {"groups": ("hr",)}, True),
    ("owner is a group, which holds below", "bob", "write", "table:l/c/team/t", {}, True),
    ("owner is a role", "ann", "drop", "table:l/c/s/roled", {}, True),
    ("declared role within its scope", "kim", "read", "table:l/c/s/t", {}, True),
    ("declared role outside its scope", "kim", "read", "table:l/d/s/t", {}, False),
    ("scoped role, grant above the scope", "sam", "write", "table:l/c/s/t", {}, True),
    ("scoped role, grant above, outside the scope", "sam", "write", "table:l/c/other/t", {}, False),
    ("scoped role, grant within the scope", "tom", "sweep", "table:l/c/s/t", {}, True),
    ("scoped role, grant outside the scope", "tom", "write", "table:l/d/s/t", {}, False),
    ("single type off the path", "tim", "tune", "table:l/c/s/t", {}, True),
    ("single type of another root", "tim", "tune", "table:m/c/s/t", {}, False),
    ("self", "a/b%", "see", "user:l/a%2Fb%25", {}, True),
    ("another self", "ann", "see", "user:l/bob", {}, False),
    ("member of a group by memberships", "bob", "join", "group:l/hr", {}, True),
    ("member of a group with a slash", "una", "join", "group:l/a%2Fb", {}, True),
    ("member of a group by members", "gus", "join", "group:l/hr", {}, True),
    ("member of a group of the request", "new", "join", "group:l/qa", {"groups": ("qa",)}, True),
    ("no member of a group", "ann", "join", "group:l/hr", {}, False),
    ("holds a role", "ann", "wear", "role:l/reader", {}, True),
    ("holds a role through a group", "bob", "wear", "role:l/reader", {}, True),
    ("holds a role within a scope", "kim", "wear", "role:l/keeper", {}, True),
    ("holds a role with a slash", "una", "wear", "role:l/x%2Fy", {}, True),
    ("holds no such role", "ann", "wear", "role:l/keeper", {}, False),
    ("service admin", "root", "stop", "lake:l", {}, True),
    ("no service admin", "ann", "stop", "lake:l", {}, False),
    ("anyone", "nobody", "look", "lake:zzz", {}, True),
    ("object of a type", "pat", "copy", "table:l/c/s/t", {"with_": {"to": "schema:l/c/s"}}, True),
    ("object of another type", "pat", "copy", "table:l/c/s/t", {"with_": {"to": "table:l/c/s/t2"}}, True),
    ("object where nothing is held", "pat", "copy", "table:l/c/s/t", {"with_": {"to": "schema:l/c/s2"}}, False),
    ("object of any type", "ted", "set", "tag:l/x", {"with_": {"object": "table:l/c/s/t"}}, True),
    ("object of any type, elsewhere", "ted", "set", "tag:l/x", {"with_": {"object": "schema:l/c/s"}}, False),
    ("create that names the entity", "bob", "create", "table:l/c/s/new", {}, True),
    ("create that leaves off the name", "bob", "create", "table:l/c/s", {}, True),
    ("create elsewhere", "ann", "create", "table:m/c/s", {}, False),
    ("below: a grant", "ted", "peek", "schema:l/c/s", {}, True),
    ("below: a grant on another", "ted", "peek", "schema:l/c/s2", {}, False),
    ("below: denied to somebody else", "zed", "peek", "schema:l/d/s", {}, True),
    ("below: denied above to a group of the request", "zed", "peek", "schema:l/d/s", {"groups": ("it",)}, False),
    ("below: denied elsewhere below", "zed", "peek", "schema:l/d/s", {"groups": ("qa",)}, True),
    ("below: an owner who holds, in spite of a denial", "odd", "tour", "catalog:l/c", {}, True),
    ("below: a scoped role", "sam", "tour", "catalog:l/c", {}, True),
    ("below: a scoped role, elsewhere", "sam", "tour", "catalog:l/d", {}, False),
    ("below: an owner", "bob", "keep", "catalog:l/c", {}, True),
    ("below: an owner elsewhere", "bob", "keep", "catalog:l/d", {}, False),
    ("listing, the call itself", "ann", "list", "table:l/c/closed", {}, True),
    ("listing, an item", "ann", "list", "table:l/c/closed/t", {}, False),
]  # fmt: skip

FLAT = """\
privtab: 1
system: flat
version: "1"
entities: {site: {room: {desk: }}}
privileges: [SIT, OPEN]
semantics: {inheritance: none, deny: none, owner: {kinds: [user], creator: true, holds: ALL}}
roles:
  host: {scope: site, grants: {room: [OPEN]}}
  boss: {grants: {desk: [SIT], room: [OPEN]}}
tables:
  room: {open: OPEN (room)}
  desk: {sit: "SIT (desk) and OPEN (room)"}
"""

FLAT_STATE = """\
assignments:
  - {principal: user:hal, role: host, scope: site:s}
  - {principal: user:bea, role: boss}
  - {principal: user:rob, role: renter, scope: room:s/r}
grants:
  - {grantee: user:ann, effect: allow, privilege: OPEN, entity: site:s}
  - {grantee: user:ann, effect: allow, privilege: OPEN, entity: room:s/r}
  - {grantee: role:renter, effect: allow, privilege: SIT, entity: desk:s/r/d}
  - {grantee: role:renter, effect: allow, privilege: OPEN, entity: room:s/r}
  - {grantee: role:renter, effect: allow, privilege: SIT, entity: desk:s/q/d}
owners:
  - {entity: room:s/mine, owner: user:own}
"""

FLAT_CASES: list[Case] = [
    ("nothing is inherited", "ann", "open", "room:s/q", {}, False),
    ("grant on the entity itself", "ann", "open", "room:s/r", {}, True),
    ("default grant within the scope", "hal", "open", "room:s/r", {}, True),
    ("default grant outside the scope", "hal", "open", "room:t/r", {}, False),
    ("default grant everywhere", "bea", "sit", "desk:t/r/d", {}, True),
    ("scoped role at its scope and below", "rob", "sit", "desk:s/r/d", {}, True),
    ("scoped role outside its scope", "rob", "sit", "desk:s/q/d", {}, False),
    ("owner holds all, there", "own", "open", "room:s/mine", {}, True),
    ("owner holds nothing below", "own", "sit", "desk:s/mine/d", {}, False),
]


def world(folder: Path, policy: str, state: str) -> tuple[Program, State]:
    (folder / "policy.yaml").write_text(policy, encoding="utf-8")
    (folder / "state.yaml").write_text(state, encoding="utf-8")
    program = pipeline.load_program(folder / "policy.yaml")
    rows, findings = validate(program, load_raw_state(folder / "state.yaml"))
    assert not [f.message for f in findings if f.severity == "error"]
    return program, rows


def request(user: str, action: str, entity: str, more: dict[str, Any]) -> Request:
    objects = {name: Entity.parse(text) for name, text in more.get("with_", {}).items()}
    return Request(user=user, action=action, resource=Entity.parse(entity), **{**more, "with_": objects})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("policy", "state", "cases"),
    [
        pytest.param(DOWN, STATE, CASES, marks=pytest.mark.slow, id="down"),
        pytest.param(FLAT, FLAT_STATE, FLAT_CASES, marks=pytest.mark.slow, id="flat"),
    ],
)
def test_features(
    way: str,
    policy: str,
    state: str,
    cases: list[Case],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    program, rows = world(tmp_path, policy, state)
    requests = [request(user, action, entity, more) for _, user, action, entity, more, _ in cases]
    reference = Reference(program, rows)
    known = sorted({flag for rule in program.rules.values() for flag in rule_flags(program, rule)})
    decided = decide(
        frame(spark, requests, known), program, rows, subject="user", action=F.col("action"), resource="entity",
        with_={slot: slot for slot in slots(requests)}, flags={flag: flag for flag in known}, groups="groups", **WAYS[way],
    )  # fmt: skip
    found = decided.select("number", "allowed", "reason").toArrow().sort_by("number").to_pylist()
    answers = [(row["allowed"], row["reason"]) for row in found]
    for (feature, *_, expected), requested, (allowed, reason) in zip(cases, requests, answers, strict=True):
        assert reference.decide(requested).allowed is expected, f"the table is wrong: {feature}"
        assert (allowed, reason) == (expected, None if expected else "not granted"), feature


def test_every_feature_is_shown_once_or_more() -> None:
    answers = Counter(expected for *_, expected in (*CASES, *FLAT_CASES))
    assert min(answers.values()) >= 20
