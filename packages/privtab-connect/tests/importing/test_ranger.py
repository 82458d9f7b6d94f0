"""What policies of Apache Ranger mean beside allow and deny items: none of it makes a state that allows more, and all of it is named.

The facts are those of Ranger's own engine: `RangerPolicy.java`, `RangerDefaultPolicyEvaluator.java`, and the results in
`agents-common/src/test/resources/policyengine` of apache/ranger, each named below. The policies here are our own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from privtab.base import Entity, Request
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import load
from privtab_connect.importing.run import ImportResult, run

HIVE = """\
privtab: 1
system: hive
version: "1"
entities: {schema: {table: {column:}}}
privileges:
  SELECT: {on: [schema, table, column]}
  CREATE: {on: [schema, table]}
  ALL: {on: [schema, table, column]}
semantics: {inheritance: down, deny: overrides}
tables:
  schema: {create: CREATE (schema)}
  table: {select: SELECT (table)}
  column: {select: SELECT (column)}
"""
ENTITIES = [Entity("table", "db/t"), Entity("table", "db/u"), Entity("column", "db/t/c"), Entity("column", "db/t/ssn")]
T, C, SSN = ENTITIES[0], ENTITIES[2], ENTITIES[3]


def item(users: str = "", groups: str = "", access: str = "select", **more: object) -> dict[str, Any]:
    return {"users": users.split(), "groups": groups.split(), "accesses": [{"type": access}], **more}


def policy(allow: Sequence[object] = (), deny: Sequence[object] = (), **more: object) -> dict[str, object]:
    """A policy on all of db.t. `more`: in place of or beside its keys."""
    resources = {"database": {"values": ["db"]}, "table": {"values": ["t"]}, "column": {"values": ["*"]}}
    id_ = {"id": 7, "name": "p7", "isEnabled": True, "service": "hive"}
    return {**id_, "resources": resources, "policyItems": allow, "denyPolicyItems": deny, **more}


ANN = policy([item("ann", "staff")])


class Case(NamedTuple):
    """`policies` beside one that lets ann and the group staff select from db.t; what Ranger decides for ann, who is in staff."""

    policies: Sequence[Mapping[str, object]]
    stops: str
    """The name by which the import is stopped; empty: it is not."""
    allowed: Mapping[Entity, bool]
    lost: str = ""
    """The name of what is reported, beside."""


DENY = {"users": ["ann"], "accesses": [{"type": "select"}]}
CASES = {
    "plain": Case([], "", {T: True, C: True}),
    "denied": Case([policy(deny=[DENY])], "", {T: False, C: False}),
    "disabled": Case([policy(deny=[DENY], isEnabled=False, isDenyAllElse=True, policyType=2)], "", {T: True}),
    "an access that is not allowed is no item": Case(
        [policy(deny=[{"users": ["ann"], "accesses": [{"type": "select", "isAllowed": False}]}])], "", {T: True}
    ),
    # test_policyengine_hive_any_access_priority.json
    "denied to everyone": Case([policy(deny=[item(groups="public")])], "everyone", {T: False}),
    "allowed to everyone": Case([policy([item(groups="public")])], "", {T: True}, "everyone"),
    "an override": Case([policy([item("ann")], policyPriority=1)], "", {T: True}, "policies.policyPriority"),
    # test_policyengine_owner.json
    "denied to owners": Case([policy(deny=[item("{OWNER}")])], "macro", {T: False}),
    "allowed to whoever asks": Case([policy([item("{USER}")])], "", {T: True}, "macro"),
    "a table of each user": Case(
        [policy(deny=[DENY], resources={"database": {"values": ["db_{USER}"]}})],
        "macro",
        {T: True},
        "alone",
    ),
    # test_policyengine_hive.json
    "everything else is denied": Case([policy(isDenyAllElse=True)], "policies.isDenyAllElse", {T: False}),
    "excluded columns": Case(
        [policy(deny=[DENY], resources={"database": {"values": ["db"]}, "table": {"values": ["t"]},
                                        "column": {"values": ["c"], "isExcludes": True}})],
        "policies.resources.column.isExcludes",
        {C: True, SSN: False},
    ),
    "no excluded columns": Case(
        [policy(deny=[DENY], resources={"database": {"values": ["db"], "isExcludes": 0}, "table": {"values": ["t"]}})],
        "",
        {T: False},
        "alone",
    ),
    "exceptions from allow": Case(
        [policy([item("bob")], allowExceptions=[item("bob")])], "policies.allowExceptions", {T: True}
    ),
    "the right to grant on": Case(
        [policy([item("ann", delegateAdmin=True)])], "", {T: True}, "policies.policyItems.delegateAdmin"
    ),
    # test_policyengine_conditions.json, test_policyengine_geo.json
    "an item under a condition": Case(
        [policy([item("bob", conditions=[{"type": "country", "values": ["US"]}])])],
        "policies.policyItems.conditions",
        {T: True},
    ),
    "a policy under a condition": Case(
        [policy([item("bob")], conditions=[{"type": "expression", "values": ["false"]}])],
        "policies.conditions",
        {T: True},
    ),
    "a denial under a condition": Case(
        [policy(deny=[{**DENY, "conditions": [{"type": "country", "values": ["US"]}]}])],
        "",
        {T: False},
        "policies.denyPolicyItems.conditions",
    ),
    # validityscheduler/test-validity-schedules-valid-and-applicable.json
    "at some times": Case(
        [policy([item("bob")], validitySchedules=[{"endTime": "2027/01/01 00:00:00"}])],
        "policies.validitySchedules",
        {T: True},
    ),
    # test_policyengine_hdfs_zones.json, test_policyengine_tag_hive.json, test_policyengine_hive_mask_filter.json
    "in a zone": Case([policy([item("bob")], zoneName="eu")], "policies.zoneName", {T: True}),
    "denied by a tag": Case([policy(deny=[DENY], resources={"tag": {"values": ["PII"]}})], "other-resources", {T: False}),
    "denied a function": Case(
        [policy(deny=[DENY], resources={"database": {"values": ["db"]}, "udf": {"values": ["f"]}})],
        "other-resources",
        {T: True},
    ),
    "no resource at all": Case([policy(deny=[DENY], resources={})], "other-resources", {T: True}),
    "an empty name": Case(
        [policy(deny=[DENY], resources={"database": {"values": ["db"]}, "table": {"values": ["", "t"]}})],
        "other-resources",
        {T: True},
    ),
    "a mask": Case([policy(policyType=1, dataMaskPolicyItems=[item("ann")])], "data-mask", {T: True}),
    "a filter": Case([policy(policyType=2, rowFilterPolicyItems=[item("ann")])], "row-filter", {T: True}),
    "audit filters": Case([policy([item("bob")], policyType=3)], "policy-type", {T: True}),
    "another type": Case([policy(policyType=4)], "policy-type", {T: True}),
    # test_policyengine_hdfs_resourcespec.json: a policy is about each of its resources
    "more resources": Case(
        [policy(deny=[DENY], resources={"database": {"values": ["x"]}}, additionalResources=[ANN["resources"]])],
        "",
        {T: False, C: False},
        "alone",
    ),
    "another case of a name": Case(
        [policy(deny=[DENY], resources={"database": {"values": ["DB"]}, "table": {"values": ["T*"]},
                                        "column": {"values": ["SSN"]}})],
        "",
        {C: True, SSN: False},
    ),
    # RangerDefaultPolicyResourceMatcher: a database is no table, and a table no column
    "a database alone": Case(
        [policy([item("bob")], resources={"database": {"values": ["db"]}})], "", {T: True}, "alone"
    ),
    "all, where ALL is something else": Case([policy(deny=[item("ann", access="all")])], "all-access", {T: False}),
    "denied what no privilege is": Case([policy(deny=[item("ann", access="drop")])], "unknown-privilege", {T: True}),
    "two services": Case([policy(service="hive2")], "several-services", {T: True}),
    "options": Case([policy([item("bob")], options={"x": 1})], "policies.options", {T: True}),
    "an unknown field": Case([policy(denyUnless={"x": 1})], "policies.denyUnless", {T: True}),
    "an unknown field of an item": Case(
        [policy([item("ann", itemType=1)])], "policies.policyItems.itemType", {T: True}
    ),
}  # fmt: skip


def imported(tmp_path: Path, answer: object, **values: str) -> ImportResult:
    (tmp_path / "hive.yaml").write_text(HIVE, encoding="utf-8")
    (tmp_path / "export.json").write_text(json.dumps(answer), encoding="utf-8")
    with opened(str(tmp_path / "export.json")) as answers:
        program = load_program(tmp_path / "hive.yaml")
        return run(load("ranger"), answers, program, entities=ENTITIES, values=values)


def decided(tmp_path: Path, found: ImportResult, user: str, entity: Entity, groups: Sequence[str] = ()) -> bool:
    program = load_program(tmp_path / "hive.yaml")
    tables = found.state.to_tables() | {"memberships": [{"user": user, "group": group} for group in groups]}
    state, _ = validate(program, from_tables(tables, "state"))
    return Reference(program, state).decide(Request(user=user, action="select", resource=entity)).allowed


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_state_cannot_say_stops_the_import_by_name(tmp_path: Path, case: Case) -> None:
    found = imported(tmp_path, {"policies": [ANN, *case.policies]})
    stops = {skipped.name for skipped in found.refused(strict=False, allow_partial=False)}
    assert stops == ({case.stops} if case.stops else set())
    assert {skipped.name for skipped in found.not_taken} - stops == ({case.lost} if case.lost else set())
    assert not found.refused(strict=True, allow_partial=False, accept=[case.stops, case.lost])
    for entity, allowed in case.allowed.items():
        if not case.stops:
            assert decided(tmp_path, found, "ann", entity, ["staff", "public"]) == allowed, entity
    assert not decided(tmp_path, found, "bob", T), "nobody gets more by what is accepted"


@pytest.mark.parametrize(
    "answer",
    [{"message": "session expired"}, {"policies": None}, {"policies": {}}, [None], "no", {"policies": [[]]}],
    ids=str,
)
def test_an_answer_without_policies_is_an_error(tmp_path: Path, answer: object) -> None:
    from privtab.base import FileError

    with pytest.raises(FileError, match="service/plugins/policies"):
        imported(tmp_path, answer)


def test_one_of_several_services_is_taken_with_the_tags(tmp_path: Path) -> None:
    tagged = policy(deny=[DENY], resources={"tag": {"values": ["PII"]}}, service="tags")
    export = {"policies": [ANN, policy([item("eve")], service="hive2"), tagged]}
    found = imported(tmp_path, export, serviceName="hive")
    assert [skipped.name for skipped in found.not_taken] == ["other-resources"]
    assert {grant.grantee for grant in found.state.grants} == {"user:ann", "group:staff"}
    assert [skipped.name for skipped in imported(tmp_path, [ANN], serviceName="hvie").not_taken] == ["no-such-service"]


def test_a_list_that_may_have_been_cut_is_an_error(tmp_path: Path) -> None:
    """Ranger's public API gives 200 policies unless it is asked for pages, and no total."""
    from privtab.base import FileError

    policies = [policy(deny=[DENY], id=number) for number in range(201)]
    with pytest.raises(FileError, match="200 items, a whole page, and no total"):
        imported(tmp_path, policies[:200])
    for whole in (policies, {"metaDataInfo": {"Exported by": "admin"}, "policies": policies[:200]}):
        assert imported(tmp_path, whole).taken == {"grants": 1}
    with pytest.raises(FileError, match="one page of several"):
        imported(tmp_path, {"totalCount": 250, "policies": policies[:200]})
