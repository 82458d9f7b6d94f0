"""Replaying what a real OPA logged: nothing differs where nothing changed, and elsewhere exactly what a fresh OPA answers differently."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import logged_world
import pyarrow as pa
import pytest
import worlds

from privtab import pipeline
from privtab.base import Request
from privtab.client import Embedded
from privtab.ir import Program
from privtab.state import PartText, State, from_tables
from privtab_logs import reading, replaying
from privtab_logs.moments import KnownState, Moments, Policy, registered
from privtab_logs.schema import NO_ANSWER, Reading
from privtab_server.registry import Registry, Revision, names
from privtab_testing.scenarios.mutants import Mutants

PER_RULE = 6


def changed(program: Program, seed: int) -> Program:
    """The policy with a change in about half of its rows."""
    rnd = random.Random(f"changed {seed}")
    mutants = Mutants(program)
    rules = dict(program.rules)
    for pair, rule in program.rules.items():
        found = [mutant.rule for mutant in mutants.shown(rule)]
        if found and rnd.random() < 0.5:
            rules[pair] = rnd.choice(found)
    return replace(program, rules=rules)


def world(tmp_path: Path, seed: int, features: Sequence[str] = ()) -> tuple[Program, State, list[Request]]:
    path = tmp_path / "world.yaml"
    path.write_text(worlds.policy(seed, "world", features), encoding="utf-8")
    program = pipeline.load_program(path)
    requests = worlds.requests(program, seed, PER_RULE)
    return program, worlds.state(program, seed), requests


def moments(new: Program, old: Program, state: State) -> Moments:
    before, known = Policy.of(old), KnownState(rows=from_tables(state.to_tables(), "state"))
    return Moments(new=Policy.of(new), policy=lambda _: before, state=lambda _: known)


def question(row: dict[str, object]) -> tuple[object, ...]:
    names = ("user", "action", "resource", "groups", "active_roles", "with", "flags", "attributes")
    return tuple(json.dumps(row[name]) for name in names)


@pytest.mark.parametrize(
    ("seed", "features"),
    [
        *((2, worlds.FEATURES), (6, ("attributes",))),
        pytest.param(5, ("flat",), marks=pytest.mark.slow),
        *(pytest.param(*world, marks=pytest.mark.long) for world in ((1, ()), (3, ("nested",)), (4, worlds.FEATURES))),
    ],
)
def test_a_log_is_replayed_as_a_fresh_opa_answers(
    seed: int, features: Sequence[str], tmp_path: Path, opa_binary: Path
) -> None:
    program, state, requests = world(tmp_path, seed, features)
    new = changed(program, seed)
    log, answers = logged_world.decided(tmp_path / "old", opa_binary, program, state, requests)
    _, new_answers = logged_world.decided(tmp_path / "new", opa_binary, new, state, requests)
    account = Reading()
    rows = reading.read(log, reading=account)
    packed = logged_world.uploaded(tmp_path / "log.json.gz", logged_world.entries(log))
    assert reading.read(packed).drop(["position"]).equals(rows.drop(["position"]))
    assert account.damaged == 0
    assert account.other["call of no rule that decides"] == 15
    assert set(account.problems) <= {NO_ANSWER}
    batch = rows.filter(pa.compute.is_valid(rows["allowed"])).to_batches()

    same = replaying.replay(batch, moments(program, program, state))
    assert same.replayed > len(requests)
    assert same.questions.num_rows == 0, same.questions.to_pylist()[:3]

    found = replaying.replay(batch, moments(new, program, state))
    # The first call of the log is one batch with all requests, answered by both OPAs in the same order.
    first = rows.filter(pa.compute.equal(rows["decision_id"], rows["decision_id"][0])).to_pylist()
    assert [row["allowed"] for row in first] == answers
    expected: Counter[tuple[object, ...]] = Counter()
    for row, after in zip(first, new_answers, strict=True):
        if row["allowed"] != after:
            expected[("gained" if after else "lost", *question(row))] = 1
    times = Counter(question(row) for row in rows.to_pylist())
    assert {(q["kind"], *question(replaying.request_row(q))) for q in found.questions.to_pylist()} >= set(expected)
    by_request = {question(row): after for row, after in zip(first, new_answers, strict=True)}
    for differing in found.questions.to_pylist():
        key = question(replaying.request_row(differing))
        if key in by_request:
            assert (differing["kind"], *key) in expected
            assert differing["requests"] == times[key]
    assert found.count("unexplained") == 0
    assert expected or seed > 1


@pytest.mark.slow
@pytest.mark.parametrize("features", [pytest.param((), marks=pytest.mark.long), ("attributes",)])
def test_a_state_in_shards_is_put_together_of_the_bundles_that_decided(
    features: Sequence[str], tmp_path: Path, opa_binary: Path
) -> None:
    """Two OPAs of which one has newer shards; then the registry has lost one of these."""
    program, state, requests = world(tmp_path, 8, features)
    # A policy that reads other parts of a state could not be asked about these bundles.
    candidates = (changed(program, number) for number in range(100))
    new = next(other for other in candidates if Policy.of(other).reads == Policy.of(program).reads)
    less = replace(state, grants=state.grants[: len(state.grants) // 2])
    registry = Registry.open(str(tmp_path / "registry"))
    logs, expected, kept = [], Counter[str](), list[Revision]()
    for number, moment in enumerate((state, less)):
        folder = tmp_path / str(number)
        log, answers = logged_world.decided(folder, opa_binary, program, moment, requests, sharded=True)
        kept = [registry.put(bundle.read_bytes()) for bundle in folder.glob("*.tar.gz")]
        logs.append(log)
        _, after = logged_world.decided(tmp_path / f"new{number}", opa_binary, new, moment, requests)
        changes = zip(answers, after, strict=True)
        expected.update("lost" if then else "gained" for then, now in changes if then != now)
    rows = reading.read(*logs)
    assert len(rows["state_revision"].unique()) == 2
    first = pa.compute.is_in(rows["decision_id"], rows["decision_id"].take([0, len(reading.read(logs[0]))]).unique())

    def replayed(table: pa.Table, by: Program) -> replaying.Replay:
        policy, state_at = registered(registry, program.system)
        return replaying.replay(table.to_batches(), Moments(new=Policy.of(by), policy=policy, state=state_at))

    same = replayed(rows, program)
    assert same.replayed == len(rows) - sum(same.not_replayed.values())
    assert set(same.not_replayed) <= {NO_ANSWER}
    assert same.questions.num_rows == 0
    found = replayed(rows.filter(first), new)
    assert {kind: found.count(kind) for kind in replaying.KINDS} == {
        "lost": expected["lost"],
        "gained": expected["gained"],
        "unexplained": 0,
    }
    assert expected

    # `privtab serve` logs one revision of the whole state, which a release of the registry explains.
    last = reading.read(logs[1])
    with Embedded(tmp_path / "1", system=program.system) as served:
        whole = served.revision().state
    position = last.schema.get_field_index("state_revision")
    one = last.set_column(position, "state_revision", pa.array([whole] * len(last), pa.string()))
    assert replayed(one, program).replayed == 0
    (policy,) = (revision.id for revision in kept if revision.kind == "policy")
    shards = {revision.shard: revision.id for revision in kept if revision.kind == "shard"}
    registry.release("prod", program.system, policy=policy, shards=shards)
    by_one, by_parts = replayed(one, new), replayed(last, new)
    assert by_one.replayed == by_parts.replayed > 0
    without_revision = [found.questions.drop(["state_revision"]) for found in (by_one, by_parts)]
    assert without_revision[0].equals(without_revision[1])

    shard = next(kept for kept in registry.revisions(program.system, "shard") if kept.shard != PartText.PEOPLE)
    registry.store.remove(names.revision(program.system, "shard", shard.id, shard.shard))
    left = replayed(rows, program)
    assert left.questions.num_rows == 0
    assert 0 < left.not_replayed["the shard of the state is not known"] < len(rows)
    assert left.replayed + sum(left.not_replayed.values()) == len(rows)
