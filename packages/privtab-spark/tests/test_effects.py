"""`decide(effects=…)`: what a decision in process lists, as columns, by both plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import creator_role_policy
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab import Embedded
from privtab.base import InvalidRequest, UsageError
from privtab.bundle import state_bundle
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_spark import decide

POLICY = """\
privtab: 1
system: studio
version: "1"
entities: {workspace: {project: {dataset:}, user:}}
privileges: [READ, WRITE, SHARE]
sets: {ALL: [READ, WRITE, SHARE]}
semantics: {inheritance: down, owner: {kinds: [user]}}
tables:
  workspace:
    join: {requires: READ (workspace), becomes: member}
  project:
    create: {requires: WRITE (workspace), becomes: owner}
    adopt: {requires: owner (project), grants: READ (dataset)}
    delete: {requires: owner (project), revokes: [ALL (project), owner]}
  dataset:
    create: {requires: WRITE (project), grants: ALL (dataset), becomes: owner}
    start: {requires: WRITE (project), grants: READ + WRITE (dataset) and READ (project)}
    lend: {with: {to: project}, requires: WRITE (project), grants: READ (to)}
    read: READ (dataset)
  user:
    remove: {requires: WRITE (workspace), revokes: [members, assignments, owners]}
"""
STATE = """\
grants:
  - {grantee: user:ann, effect: allow, privilege: ALL, entity: workspace:w}
owners:
  - {entity: project:w/p, owner: user:ann}
"""
ROWS = [
    ("join", "workspace:w", None),
    ("create", "project:w/new", None),
    ("create", "project:w", None),
    ("adopt", "project:w/p", None),
    ("delete", "project:w/p", None),
    ("create", "dataset:w/p/it's (a) %2F", None),
    ("create", "dataset:w/p", None),
    ("start", "dataset:w/p/d", None),
    ("lend", "dataset:w/p/d", "w/q"),
    ("lend", "dataset:w/p/d", None),
    ("read", "dataset:w/p/d", None),
    ("remove", "user:w/ben", None),
    ("fly", "dataset:w/p/d", None),
    ("create", "w/p", None),
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    policy, state = tmp_path / "studio.yaml", tmp_path / "state.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    state.write_text(STATE, encoding="utf-8")
    return policy, state


@pytest.fixture
def client(files: tuple[Path, Path], tmp_path: Path) -> Embedded:
    program = load_program(files[0])
    state, findings = validate(program, load_raw_state(files[1]))
    assert not findings
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, state))
    return Embedded(str(tmp_path / "policy.tar.gz"), state=str(tmp_path / "state.tar.gz"))


def listed(client: Embedded, user: str, action: str, resource: str, to: str | None) -> list[dict[str, Any]]:
    """The effects of a decision, as the columns have them."""
    try:
        decision = client.decide(user, action, resource, with_={} if to is None else {"to": f"project:{to}"})
    except InvalidRequest:
        return []
    assert all(effect.change for effect in decision.effects)
    return [
        {
            "effect": str(effect),
            "action": effect.change.action,
            "table": effect.change.table,
            "row": None if effect.change.row is None else dict(effect.change.row),
            "about": effect.change.about,
        }
        for effect in decision.effects
        if effect.change
    ]


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_the_effects_of_each_row_are_those_of_a_decision(
    plan: str, spark: SparkSession, files: tuple[Path, Path], client: Embedded
) -> None:
    asked = [(user, *row) for user in ("ann", "user:ann", "o'neil") for row in ROWS]
    df = spark.createDataFrame(asked, "who string, operation string, entity string, target string")
    decided = decide(
        df,
        *files,
        subject="who",
        action=F.col("operation"),
        resource="entity",
        with_={"to": ("project", "target")},
        plan=plan,
        effects="effects",
    )
    assert decided.columns == [*df.columns, "allowed", "reason", "effects"]
    found = {tuple(row)[:4]: [effect.asDict() for effect in row["effects"]] for row in decided.collect()}
    expected = {row: listed(client, *row) for row in asked}
    assert found == expected
    assert sum(map(len, expected.values())) > 20


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_the_first_active_role_owns_what_is_created(plan: str, spark: SparkSession, tmp_path: Path) -> None:
    policy, state = creator_role_policy.files(tmp_path)
    cases = [case for case in creator_role_policy.CASES if case[1] is not None]
    df = spark.createDataFrame(
        [(number, action, list(roles or ())) for number, (action, roles, _, _) in enumerate(cases)],
        "n int, action string, roles array<string>",
    )
    arguments: dict[str, Any] = {"subject": F.lit("ann"), "action": F.col("action"), "plan": plan, "effects": "effects"}
    arguments["resource"] = ("dataset", F.lit("w/new"))
    decided = decide(df, policy, state, active_roles="roles", **arguments).orderBy("n").collect()
    for row, (action, _, allowed, owner) in zip(decided, cases, strict=True):
        assert row["allowed"] is bool(allowed)
        assert (row["reason"] == creator_role_policy.NO_ROLE) is (allowed is None)
        text = creator_role_policy.EFFECT if action == "create" else "become owner (dataset:w/new)"
        assert [(effect["effect"], effect["row"]) for effect in row["effects"]] == (
            [(text, {"entity": "dataset:w/new", "owner": owner})] if allowed else []
        )
    without = decide(df.limit(1), policy, state, **arguments).collect()
    assert [(row["reason"], row["effects"]) for row in without] == [(creator_role_policy.NO_ROLE, [])]


@pytest.mark.slow
def test_effects_of_one_operation_of_one_type(spark: SparkSession, files: tuple[Path, Path]) -> None:
    df = spark.createDataFrame([("ann", "w/p/new"), ("ben", "w/p/new")], "who string, path string")
    arguments: dict[str, Any] = {"subject": "who", "action": "create", "resource": ("dataset", "path")}
    decided = decide(df, *files, **arguments, effects="what")
    rows = decided.select("who", F.expr("transform(what, w -> w.effect)")).collect()
    assert {row[0]: row[1] for row in rows} == {
        "ann": ["grant ALL (dataset:w/p/new)", "become owner (dataset:w/p/new)"],
        "ben": [],
    }


def test_the_column_of_effects_has_a_name_of_its_own(spark: SparkSession, files: tuple[Path, Path]) -> None:
    df = spark.createDataFrame([("ann", "w/p/new")], "who string, path string")
    arguments: dict[str, Any] = {"subject": "who", "action": "create", "resource": ("dataset", "path")}
    with pytest.raises(UsageError, match="`reason` and `effects` are both `reason`"):
        decide(df, *files, **arguments, effects="reason")
    with pytest.raises(UsageError, match="the DataFrame has a column `who`: name the new one by `effects=`"):
        decide(df, *files, **arguments, effects="who")


def test_effects_where_a_type_nests_are_refused(spark: SparkSession, files: tuple[Path, Path]) -> None:
    policy, state = files
    nested = policy.read_text(encoding="utf-8").replace("privileges:", "types: {project: {nested: true}}\nprivileges:")
    policy.write_text(nested, encoding="utf-8")
    df = spark.createDataFrame([("ann", "w/p")], "who string, path string")
    with pytest.raises(UsageError, match="`effects` is not possible where a type nests or ids are flat"):
        decide(df, policy, state, subject="who", action="create", resource=("project", "path"), effects="what")
