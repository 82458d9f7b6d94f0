"""What is pushed as policies of Apache Ranger is imported again as the same state."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ranger import LAKE, ranger_policy
from seeds import seeds

from privtab.base import Entity, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import Grant, State
from privtab.state.nodes import Effect
from privtab_connect.errors import PushError
from privtab_connect.importing import document as import_document
from privtab_connect.importing.answers import opened
from privtab_connect.importing.run import ImportResult, run
from privtab_connect.pushdown.document import load
from privtab_connect.pushdown.run import PushReport, push

NAMES = ("sales", "o'rders %25", "naïve", "a%2Fb", 'q"uo')
USERS = ("user:ann", "user:o'neil", "group:hr", "group:temps", "role:intern", "role:ana lyst")


@pytest.fixture(params=["down", "none"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Program:
    path = tmp_path / "lake.yaml"
    path.write_text(LAKE.replace("inheritance: down", f"inheritance: {request.param}"), encoding="utf-8")
    return load_program(path)


Pusher = Callable[..., PushReport]


@pytest.fixture
def pushes(program: Program, tmp_path: Path) -> Pusher:
    document = load("ranger", program, {})

    def call(state: State, **options: object) -> PushReport:
        options = {"pusher": "lake", "apply": True, **options}
        return push(program, state, document, str(tmp_path / "policies.json"), **options)  # type: ignore[arg-type]

    return call


def imported(program: Program, tmp_path: Path) -> ImportResult:
    with opened(str(tmp_path / "policies.json")) as answers:
        return run(import_document.load("ranger"), answers, program)


def random_state(seed: int) -> State:
    rng = random.Random(seed)
    types = ("schema", "table", "column")

    def grant() -> Grant:
        depth = rng.randint(1, 3)
        privilege = "SELECT" if depth == 3 else rng.choice(("SELECT", "UPDATE"))
        path = "/".join(rng.choice(NAMES) for _ in range(depth))
        effect: Effect = rng.choice(("allow", "allow", "deny"))
        return Grant(
            grantee=rng.choice(USERS), effect=effect, privilege=privilege, entity=Entity(types[depth - 1], path)
        )

    return State(grants=tuple(dict.fromkeys(grant() for _ in range(rng.randint(0, 15)))))


@pytest.mark.parametrize("seed", seeds(range(60), quick=6))
def test_a_pushed_state_is_imported_again(program: Program, pushes: Pusher, tmp_path: Path, seed: int) -> None:
    foreign = ranger_policy(1, resources={"database": {"values": ["elsewhere*"]}})
    (tmp_path / "policies.json").write_text(json.dumps([foreign]), encoding="utf-8")
    for state in (random_state(seed + 1000), random_state(seed)):
        pushed = pushes(state)
        assert not pushed.desired.findings
        assert pushed.unread == ("policy 1 `p1`",)
        found = imported(program, tmp_path)
        assert set(found.state.grants) == set(state.grants)
        alone = program.semantics.inheritance == "down"
        expected = ["alone"] if alone else ["wildcard"] * 2
        if alone and not state.grants:
            expected.append("no-rows")  # an import that leaves nothing says so
        assert [item.name for item in found.not_taken] == expected
    assert not pushes(state, apply=False).requests


def test_policies_of_others_stay_and_are_reported(pushes: Pusher, program: Program, tmp_path: Path) -> None:
    resources: dict[str, object] = {"database": {"values": ["sales"]}, "table": {"values": ["orders"]}}
    if program.semantics.inheritance == "down":
        resources["column"] = {"values": ["*"]}
    theirs = [
        ranger_policy(1, resources=resources),
        ranger_policy(2, policyType=1),
        ranger_policy(3, validitySchedules=[{}], resources={"database": {"values": ["hr"]}}),
    ]
    path = tmp_path / "policies.json"
    path.write_text(json.dumps(theirs), encoding="utf-8")
    ann = Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=Entity("table", "sales/orders"))
    found = pushes(State(grants=(ann,)))
    assert not found.plan.changes
    assert list(map(str, found.plan.foreign)) == ["select on table sales/orders to group hr"]
    assert found.unread == ("policy 2 `p2`", "policy 3 `p3`")
    assert found.drifted
    more = replace(ann, effect="deny", grantee="user:eve")
    with pytest.raises(
        PushError, match="policy 1 `p1` is about the same resources as `privtab:lake table sales/orders`"
    ):
        pushes(State(grants=(ann, more)))
    with pytest.raises(PushError, match="are changed in Ranger itself"):
        pushes(State(grants=()), revoke_foreign=True)
    assert json.loads(path.read_text(encoding="utf-8")) == theirs


def test_everyone_is_the_group_public_of_ranger(program: Program, tmp_path: Path) -> None:
    program = replace(program, semantics=replace(program.semantics, everyone="all"))
    state = State(
        grants=(
            Grant(grantee="group:all", effect="allow", privilege="SELECT", entity=Entity("table", "sales/orders")),
            Grant(grantee="group:hr", effect="deny", privilege="SELECT", entity=Entity("table", "sales/orders")),
        )
    )
    path = str(tmp_path / "policies.json")
    pushed = push(program, state, load("ranger", program, {}), path, pusher="lake", apply=True)
    assert pushed.desired.findings == ()
    [policy] = json.loads(Path(path).read_text(encoding="utf-8"))["policies"]
    assert [item["groups"] for item in (*policy["policyItems"], *policy["denyPolicyItems"])] == [["public"], ["hr"]]
    assert not push(program, state, load("ranger", program, {}), path, pusher="lake").plan.changes
    read = imported(program, tmp_path)
    assert set(read.state.grants) == set(state.grants)
    assert read.not_taken == ()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"entity": Entity("table", "sales/o*")}, "stands for several objects"),
        ({"grantee": "group:public"}, "everybody is in the group"),
        ({"grantee": "user:{OWNER}"}, "names somebody or something else for each request"),
    ],
)
def test_names_with_another_meaning_in_ranger_are_findings(
    pushes: Pusher, tmp_path: Path, row: dict[str, object], message: str
) -> None:
    grant = Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=Entity("table", "sales/orders"))
    found = pushes(State(grants=(replace(grant, **row),)))  # type: ignore[arg-type]
    assert [message in finding.message for finding in found.desired.findings] == [True]
    assert not (tmp_path / "policies.json").exists()


def test_objects_that_differ_in_case_only_are_refused(pushes: Pusher) -> None:
    grants = [
        Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=Entity("schema", name))
        for name in ("a", "A")
    ]
    with pytest.raises(UsageError, match="would be one in Ranger"):
        pushes(State(grants=tuple(grants)))


def test_a_file_that_is_no_export_is_not_overwritten(pushes: Pusher, tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    path.write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(PushError, match="no export of Ranger"):
        pushes(State(grants=()))
    assert path.read_text(encoding="utf-8") == '{"a": 1}'
