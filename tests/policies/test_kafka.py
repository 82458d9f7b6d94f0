"""The Kafka table against Kafka's own StandardAuthorizer, on random ACLs: the same rows are ACLs there and grants here."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from checkout import ROOT
from kafka_server import LATEST, VERSION, java

from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference
from privtab.state.load import from_tables, validate

POLICIES = ROOT / "policy_src" / "kafka"
RELEASES = {"3.9": VERSION, "4.4": LATEST}
"""The release whose authorizer a table is compared with."""
ORACLE = ROOT / "tests" / "support" / "StandardAcls.java"

pytestmark = pytest.mark.xdist_group("kafka")

USERS, EVERYONE = ("ann", "ben", "ANONYMOUS"), "*"
NAMES = {
    "cluster": ("kafka-cluster",),
    "topic": ("orders", "payments"),
    "group": ("bills", "audit"),
    "transactional_id": ("pay", "move"),
    "delegation_token": ("t1", "t2"),
    "user": ("User:ann", "User:ben"),
}
ALSO_CLUSTER = ("CREATE", "DELETE")
"""What brokers and controllers ask about the cluster before they ask about a topic."""

Question = tuple[str, str, str, str]
"""The user, the operation, the type and the name."""


@dataclass
class Acls:
    """Random ACLs, as (effect, user, privilege, type, name); the name `*` is for all of a type."""

    chance: random.Random
    rows: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    def fill(self, program: Program) -> None:
        for _ in range(self.chance.randrange(1, 14)):
            type_ = self.chance.choice([*NAMES, "topic", "topic", "cluster"])
            known = [name for name, found in program.privileges.items() if type_ in found.on] + ["ALL"]
            known = [name for name in known if (type_, name) != ("cluster", "DELETE")]  # no ACL but ALL has it
            name = self.chance.choice(NAMES[type_] if type_ == "cluster" else (*NAMES[type_], "*"))
            effect = self.chance.choice(["allow", "allow", "deny"])
            row = (effect, self.chance.choice([*USERS, EVERYONE]), self.chance.choice(known), type_, name)
            if row not in self.rows:
                self.rows.append(row)

    def reference(self, program: Program) -> Reference:
        grants = [
            {
                "grantee": "group:public" if user == EVERYONE else f"user:{user}",
                "effect": effect,
                "privilege": privilege,
                "entity": "cluster:" if type_ == "cluster" else f"{type_}s:" if name == "*" else f"{type_}:{name}",
            }
            for effect, user, privilege, type_, name in self.rows
        ]
        state, wrong = validate(program, from_tables({"grants": grants}, "rows"))
        assert state is not None, wrong
        return Reference(program, state)

    def lines(self) -> Iterator[str]:
        yield "world"
        for effect, user, privilege, type_, name in self.rows:
            yield f"acl\t{type_.upper()}\t{name}\t{user}\t{privilege}\t{effect.upper()}"


def questions(program: Program) -> list[Question]:
    return [
        (user, rule.operation, rule.entity, name)
        for rule in program.rules.values()
        if rule.entity in NAMES
        for user in USERS
        for name in NAMES[rule.entity]
    ]


def lines_of(question: Question) -> list[str]:
    """What Kafka asks its authorizer for the question; one that is allowed is enough."""
    user, operation, type_, name = question
    asked = [f"ask\t{user}\t{operation}\t{type_.upper()}\t{name}"]
    if type_ == "topic" and operation in ALSO_CLUSTER:
        asked.append(f"ask\t{user}\t{operation}\tCLUSTER\tkafka-cluster")
    if operation == "IDEMPOTENT_WRITE":
        asked.append(f"any\t{user}\tWRITE\tTOPIC")
    return asked


def compared(program: Program, folder: Path, worlds: range) -> list[bool]:
    """Compare every question in every world; the answers."""
    asked, typed, filled = questions(program), [], []
    for seed in worlds:
        acls = Acls(random.Random(seed))
        acls.fill(program)
        filled.append(acls)
        typed += [*acls.lines(), *(line for question in asked for line in lines_of(question))]
        typed += [f"any\t{user}\tWRITE\tTOPIC" for user in USERS]
    run = subprocess.run(
        [*java(folder, RELEASES[program.version]), str(ORACLE)], input="".join(f"{line}\n" for line in typed),
        check=False, text=True, encoding="utf-8", capture_output=True, timeout=600,
    )  # fmt: skip
    if "Module jdk.compiler not found" in run.stderr:
        pytest.skip("this Java cannot compile")
    assert run.returncode == 0, run.stderr
    answers, found = iter(run.stdout.split()), []
    for acls in filled:
        reference = acls.reference(program)
        for user, operation, type_, name in asked:
            lines = lines_of((user, operation, type_, name))
            right = "true" in [next(answers) for _ in lines]
            path = "" if type_ == "cluster" else name
            decision = reference.decide(Request(user=user, action=operation, resource=Entity(type_, path)))
            assert decision.allowed is right, (user, operation, type_, name, acls.rows)
            found.append(right)
        for user in USERS:
            decision = reference.decide(Request(user=user, action="WRITE", resource=Entity("topics", "")))
            assert decision.allowed is (next(answers) == "true"), (user, acls.rows)
    assert next(answers, None) is None
    return found


@pytest.fixture(scope="module", params=RELEASES)
def program(request: pytest.FixtureRequest) -> Program:
    return load_program(POLICIES / f"{request.param}.yaml")


@pytest.mark.slow
def test_each_row_says_what_the_authorizer_says(program: Program, tmp_path: Path) -> None:
    answers = compared(program, tmp_path, range(60))
    assert 0.05 < answers.count(True) / len(answers) < 0.6


@pytest.mark.long
def test_each_row_says_what_the_authorizer_says_in_many_worlds(
    program: Program, tmp_path: Path, search_seed: int
) -> None:
    assert compared(program, tmp_path, range(search_seed, search_seed + 10_000))
