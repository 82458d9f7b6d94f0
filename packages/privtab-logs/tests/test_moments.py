"""Each decision is replayed by the policy and the state of its moment: revisions of a registry, and a store's history."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from example_bundles import POLICY, READS, WIDER, ExampleBundles, bundles
from lake_policy import POLICY as LAKE
from lake_policy import asks, grant

from privtab.base import parse_moment
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import from_tables
from privtab_logs import reading
from privtab_logs.moments import KnownState, Moments, Policy, registered, stored
from privtab_logs.replaying import Replay, replay
from privtab_logs.schema import SCHEMA, Reading
from privtab_server.registry import Registry
from privtab_server.store.store import Store


def row(user: str, action: str, resource: str, answer: bool, **more: Any) -> dict[str, Any]:
    system = "shop" if "item" in resource else "lake"
    cells: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {"time": datetime(2026, 11, 28, tzinfo=UTC), "system": system}
    return cells | {"user": user, "action": action, "resource": resource, "allowed": answer, **more}


def replayed(rows: list[dict[str, Any]], moments: Moments) -> Replay:
    return replay([pa.RecordBatch.from_pylist(rows, SCHEMA)], moments)


def kinds(found: Replay) -> list[tuple[str, str, str]]:
    return sorted((q["kind"], q["user"], q["action"]) for q in found.questions.to_pylist())


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> ExampleBundles:
    return bundles(tmp_path_factory.mktemp("bundles"))


@pytest.fixture
def policies(tmp_path: Path) -> dict[str, Program]:
    found: dict[str, Program] = {}
    for read in (READS, WIDER):
        file = tmp_path / f"{len(found)}.yaml"
        file.write_text(POLICY.format(version="1", read=read), encoding="utf-8")
        found[read] = load_program(file)
    return found


def test_revisions_of_a_registry_decide_their_own_time(
    packed: ExampleBundles, policies: dict[str, Program], tmp_path: Path
) -> None:
    registry = Registry.open(str(tmp_path / "registry"))
    narrow, wide = (registry.put(policy).id for policy in packed.policies[:2])
    state, other = (registry.put(state).id for state in packed.states[:2])
    policy, state_at = registered(registry, "shop")
    moments = Moments(new=Policy.of(policies[READS]), policy=policy, state=state_at)
    item = "item:s/a/i"
    before = {"policy_revision": narrow, "state_revision": state}
    after = {"policy_revision": wide, "state_revision": state}
    found = replayed(
        [
            row("ann", "read", item, answer=True, **before),
            row("olga", "read", item, answer=False, **before),
            row("olga", "read", item, answer=True, **after),
            row("zoe", "read", item, answer=True, **after),
            row("zoe", "read", item, answer=False, policy_revision=wide, state_revision=other),
            row("ann", "read", item, answer=True, policy_revision="0" * 16, state_revision=state),
            row("ann", "read", item, answer=True, policy_revision=wide),
        ],
        moments,
    )
    assert kinds(found) == [("lost", "olga", "read"), ("unexplained", "zoe", "read")]
    assert found.replayed == 5
    assert sorted(found.not_replayed.values()) == [1, 1]
    reasons = " ".join(found.not_replayed)
    assert "keeps no policy revision `0000000000000000`" in reasons
    assert "does not say which revision of the state decided" in reasons


def test_a_state_whose_rows_the_new_policy_does_not_know_is_read_without_them(
    tmp_path: Path, policies: dict[str, Program]
) -> None:
    file = tmp_path / "new.yaml"
    text = (
        POLICY.format(version="2", read="READ (item)")
        .replace("[READ, WRITE]", "[READ]")
        .replace("deny: overrides", "deny: none")
    )
    file.write_text(text.replace("    write: WRITE (item)\n", ""), encoding="utf-8")
    old = Policy.of(policies[READS])
    known = KnownState(rows=from_tables({"grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "site:s"},
        {"grantee": "user:ben", "effect": "allow", "privilege": "WRITE", "entity": "store:s/a"},
    ]}, "rows"))  # fmt: skip
    moments = Moments(new=Policy.of(load_program(file)), policy=lambda _: old, state=lambda _: known)
    item = "item:s/a/i"
    found = replayed([row("ann", "read", item, answer=True), row("ben", "write", item, answer=True)], moments)
    assert kinds(found) == [("lost", "ben", "write")]
    assert len(found.left_out) == 1


def test_a_bundle_of_a_state_is_read_for_a_policy_that_declares_less(packed: ExampleBundles, tmp_path: Path) -> None:
    """The bundle was packed for another policy: its rows are read back, and those of unknown privileges decide nothing."""
    registry = Registry.open(str(tmp_path / "registry"))
    revisions = {
        "policy_revision": registry.put(packed.policies[0]).id,
        "state_revision": registry.put(packed.states[0]).id,
    }
    file = tmp_path / "new.yaml"
    text = (
        POLICY.format(version="2", read="READ (item)")
        .replace("[READ, WRITE]", "[READ]")
        .replace("deny: overrides", "deny: none")
    )
    file.write_text(text.replace("    write: WRITE (item)\n", ""), encoding="utf-8")
    policy, state = registered(registry, "shop")
    moments = Moments(new=Policy.of(load_program(file)), policy=policy, state=state)
    item = "item:s/a/i"
    rows = [row("ann", "read", item, answer=True, **revisions), row("ben", "write", item, answer=True, **revisions)]
    found = replayed(rows, moments)
    assert kinds(found) == [("lost", "ben", "write")]
    assert found.replayed == 2


@pytest.fixture
def store(tmp_path: Path) -> Store:
    policy = tmp_path / "lake.yaml"
    policy.write_text(LAKE, encoding="utf-8")
    return Store.create(str(tmp_path / "grants.db"), load_program(policy), administrators=["root"], actor="setup")


def test_a_store_decides_by_what_it_held_at_the_time(store: Store, tmp_path: Path) -> None:
    program = load_program(tmp_path / "lake.yaml")
    time.sleep(0.05)  # so that the moment before is not before the store
    store.load({"grants": [grant("user:ann", "SELECT", "table:l/s/t")]}, actor="root")
    (number, at, _, _) = list(store.requests())[-1]
    moment = datetime.fromtimestamp(parse_moment(at) / 1e9, UTC)
    old = Policy.of(program)
    state, label = stored(store)
    moments = Moments(new=old, policy=lambda _: old, state=state, label=label)
    table, later, earlier = "table:l/s/t", moment + timedelta(seconds=1), moment - timedelta(milliseconds=1)
    found = replayed(
        [
            row("ann", "read", table, answer=True, time=later),
            row("ann", "read", table, answer=False, time=earlier),
            row("ann", "read", table, answer=True, time=earlier),
            row("ann", "read", table, answer=False, time=moment - timedelta(days=1)),
        ],
        moments,
    )
    assert kinds(found) == [("unexplained", "ann", "read")]
    (question,) = found.questions.to_pylist()
    assert question["state_revision"] == str(number - 1)
    assert list(found.not_replayed) == ["unknown moment: the store had no state at the time of the decision"]


def test_the_journal_of_a_store_is_a_log_that_its_own_states_explain(store: Store, tmp_path: Path) -> None:
    program = load_program(tmp_path / "lake.yaml")
    for resource in ("lake:l", "schema:l/s", "table:l/s/t"):
        store.perform(asks("root", "create", resource))
    state, label = stored(store)
    url, account = f"store:{tmp_path}/grants.db", Reading()
    (batch,) = reading.batches([url], account)
    assert account.other == {"change that was not decided": 1}
    rows = batch.to_pylist()
    assert [(row["resource"], row["allowed"], row["state_revision"]) for row in rows] == [
        ("lake:l", True, "1"),
        ("schema:l/s", True, "2"),
        ("table:l/s/t", True, "3"),
    ]
    assert rows[0]["rule"] == "lake/lake/create"
    file = tmp_path / "new.yaml"
    file.write_text(
        LAKE.replace("create: {requires: CREATE (lake) or owner (lake)", "create: {requires: CREATE (lake)")
    )
    old = Policy.of(program)
    for new, expected in ((program, []), (load_program(file), [("lost", "root", "create")])):
        moments = Moments(new=Policy.of(new), policy=lambda _: old, state=state, label=label)
        found = replay(reading.batches([url], Reading()), moments)
        assert found.replayed == 3
        assert kinds(found) == expected


def test_windows_of_a_state_count_at_the_time_of_each_decision(policies: dict[str, Program]) -> None:
    window = {"from": "2026-11-28T10:00Z", "until": "2026-11-28T12:00Z"}
    known = KnownState(rows=from_tables({"grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "site:s", **window},
    ]}, "rows"))  # fmt: skip
    old = Policy.of(policies[READS])
    moments = Moments(new=old, policy=lambda _: old, state=lambda _: known)
    hours = [datetime(2026, 11, 28, hour, tzinfo=UTC) for hour in (9, 10, 11, 12, 11, 9)]
    rows = [row("ann", "read", "item:s/a/i", answer=hour.hour in (10, 11), time=hour) for hour in hours]
    assert kinds(replayed(rows, moments)) == []
    found = replayed([row("ann", "read", "item:s/a/i", answer=True, time=None)], moments)
    assert (found.replayed, list(found.not_replayed.values())) == (0, [1])
    wrong = [row("ann", "read", "item:s/a/i", answer=True, time=hour) for hour in hours]
    assert replayed(wrong, moments).count("unexplained") == 3


def test_the_index_in_a_bundle_is_made_anew_for_a_policy_that_asks_what_is_held_below(
    packed: ExampleBundles, tmp_path: Path
) -> None:
    """A bundle has what is held below entities only for a policy that asks for it."""
    registry = Registry.open(str(tmp_path / "registry"))
    revisions = {
        "policy_revision": registry.put(packed.policies[0]).id,
        "state_revision": registry.put(packed.states[0]).id,
    }
    file = tmp_path / "below.yaml"
    text = POLICY.format(version="2", read=READS)
    file.write_text(f"{text}  store:\n    open: READ (store) or READ (store or below)\n", encoding="utf-8")
    before = tmp_path / "before.yaml"
    before.write_text(f"{text}  store:\n    open: READ (store)\n", encoding="utf-8")
    _, state = registered(registry, "shop")
    old = Policy.of(load_program(before))
    moments = Moments(new=Policy.of(load_program(file)), policy=lambda _: old, state=state)
    packed_with_item = {**revisions, "state_revision": registry.put(packed.states[1]).id}
    rows = [
        row("ben", "open", "store:s/a", answer=False, system="shop", **packed_with_item),
        row("zoe", "open", "store:s/a", answer=False, system="shop", **packed_with_item),
    ]
    assert kinds(replayed(rows, moments)) == [("gained", "ben", "open")]


def test_what_a_bundle_lacks_for_the_new_policy_is_not_taken_for_nothing(
    packed: ExampleBundles, tmp_path: Path
) -> None:
    """Service administrators are in a bundle only for a policy that asks for them: without them, a denial would be a guess."""
    registry = Registry.open(str(tmp_path / "registry"))
    revisions = {
        "policy_revision": registry.put(packed.policies[0]).id,
        "state_revision": registry.put(packed.states[0]).id,
    }
    file = tmp_path / "new.yaml"
    file.write_text(POLICY.format(version="2", read="READ (item) or service admin"), encoding="utf-8")
    policy, state = registered(registry, "shop")
    new = Policy.of(load_program(file))
    rows = [row("ann", "read", "item:s/a/i", answer=True, **revisions)]
    found = replayed(rows, Moments(new=new, policy=policy, state=state))
    assert found.replayed == 0
    (why,) = found.not_replayed
    assert "service_admins" in why
    given = KnownState(rows=from_tables({"service_admins": [{"user": "ann"}]}, "rows"))
    assert replayed(rows, Moments(new=new, policy=policy, state=state, new_state=given)).replayed == 1
