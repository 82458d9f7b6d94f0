"""The Lakekeeper table against its authorization model: each relation `can_…`, evaluated by itself on random tuples.

`lakekeeper_facts.json` holds the model in a notation of words: `a or b of parent` (b on what `parent` names), `(a but not b)`,
`[user, role#assignee]` for what is written. Relations are followed here as the model says; rows are asked about the same tuples.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ROOT
from seeds import seeds

from privtab.base.attributes import GivenAttributes
from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference
from privtab.state.load import from_tables, validate

POLICY = ROOT / "policy_src" / "lakekeeper" / "4.9.yaml"
FACTS = json.loads((Path(__file__).parent / "lakekeeper_facts.json").read_text(encoding="utf-8"))
MODEL: dict[str, dict[str, str]] = FACTS["types"]
NAMES = {"tag": "catalog_tag", "table": "table", "view": "view", "generic_table": "generic_table"}
MANAGED = ("warehouse:p/w", "namespace:p/w/n", "namespace:p/w/n/m")
LEAVES = [f"{leaf}:{path}/x" for leaf in ("table", "view", "generic_table") for path in ("p/w/n", "p/w/n/m")]
OBJECTS = ["server:", "project:p", "role:p/r", "role:p/q", "tag:p/t", *MANAGED, *LEAVES]
"""The server, a project, a role q that holds the role r, a tag, a warehouse, a namespace in another, and one of each leaf in both."""


def relations(object_: str) -> dict[str, str]:
    """What the model says of an object's type."""
    type_ = object_.partition(":")[0]
    return MODEL[f"lakekeeper_{NAMES[type_]}" if type_ in NAMES else type_]


def container(object_: str) -> str | None:
    """What an object lies in; a project lies in the server."""
    path = object_.partition(":")[2]
    outer = path.rpartition("/")[0]
    found = (one for one in OBJECTS if one.partition(":")[2] == outer) if path else iter(())
    return next(found, None)


class Model:
    """Which relations hold, by the tuples (who, relation, object) that are written and what has managed access."""

    def __init__(self, tuples: set[tuple[str, str, str]], managed: set[str]) -> None:
        self.tuples, self.managed = tuples, managed
        self.known: dict[tuple[str, str], bool] = {}

    def holds(self, relation: str, object_: str) -> bool:
        """Whether ann has the relation to the object."""
        if (relation, object_) not in self.known:
            words = re.findall(r"\[[^]]*\]|[()]|\w+", relations(object_)[relation])
            self.known[relation, object_] = self.expression(words, relation, object_)
            assert not words, words
        return self.known[relation, object_]

    def expression(self, words: list[str], relation: str, object_: str) -> bool:
        part: Callable[[], bool] = lambda: self.part(words, relation, object_)  # noqa: E731
        found, all_ = False, part()
        while words and words[0] != ")":
            match words.pop(0):
                case "or":
                    found, all_ = found or all_, part()
                case "and":
                    all_ &= part()
                case "but":
                    assert words.pop(0) == "not"
                    all_ &= not part()
        return found or all_

    def part(self, words: list[str], relation: str, object_: str) -> bool:
        word = words.pop(0)
        if word == "(":
            found = self.expression(words, relation, object_)
            assert words.pop(0) == ")"
            return found
        if word.startswith("["):
            return object_ in self.managed if "*" in word else self.written(relation, object_)
        if words[:1] != ["of"]:
            return self.holds(word, object_)
        inward = words[1] in ("child", "namespace", "warehouse")
        del words[:2]
        around = [one for one in OBJECTS if container(one) == object_] if inward else [container(object_)]
        return any(self.holds(word, one) for one in around if one and word in relations(one))

    def written(self, relation: str, object_: str) -> bool:
        roles = {who for who, name, on in self.tuples if (name, on) == (relation, object_) and who != "user:ann"}
        return ("user:ann", relation, object_) in self.tuples or any(self.holds("assignee", one) for one in roles)


def random_model(chance: random.Random, managed: set[str]) -> Model:
    """Few tuples. Who owns a role is its assignee, which the table does not say, so that it is written too."""
    share = chance.choice([0.02, 0.06, 0.12])
    tuples = {
        (who, relation, object_)
        for object_ in OBJECTS
        for relation, means in relations(object_).items()
        if "role#assignee" in means and relation != "assignee"
        for who in ("user:ann", "role:p/q", "role:p/r")
        if chance.random() < share
    }
    tuples |= {(who, "assignee", on) for who, relation, on in tuples if relation == "ownership" and on[:4] == "role"}
    tuples |= {("user:ann", "assignee", role) for role in ("role:p/q", "role:p/r") if chance.random() < 0.3}
    tuples -= {
        (who, name, on) for who, name, on in tuples if on[:4] == who[:4] and (who, on) != ("role:p/q", "role:p/r")
    }
    return Model(tuples | {("role:p/q", "assignee", "role:p/r")}, managed)


def reference_of(program: Program, model: Model) -> Reference:
    """The reference on the state that says what the tuples say."""
    rows: dict[str, list[dict[str, str]]] = {"owners": [], "assignments": [], "grants": []}
    for who, relation, object_ in sorted(model.tuples):
        name = who.replace(":p/", ":")
        if relation == "ownership":
            rows["owners"].append({"entity": object_, "owner": name})
        elif relation == "assignee":
            rows["assignments"].append({"principal": name, "role": object_.rpartition("/")[2]})
        else:
            rows["grants"].append({"grantee": name, "effect": "allow", "privilege": relation, "entity": object_})
    state, wrong = validate(program, from_tables(rows, "rows"))
    assert state is not None, wrong
    return Reference(program, state)


def answers(program: Program, model: Model) -> dict[tuple[str, str], tuple[bool, bool]]:
    """For each operation on each object what the table says, and what the model says."""
    reference, found = reference_of(program, model), {}
    for object_ in OBJECTS:
        type_, _, path = object_.partition(":")
        around = [object_]
        while outer := container(around[-1]):
            around.append(outer)
        attributes = GivenAttributes(
            user={}, entity={}, with_={}, request={"unmanaged": not model.managed & set(around[1:])}
        )
        for rule in program.rules.values():
            if rule.entity == type_:
                request = Request(
                    user="ann", action=rule.operation, resource=Entity(type_, path), attributes=attributes
                )
                allowed = reference.decide(request).allowed
                found[object_, rule.operation] = allowed, model.holds(f"can_{rule.operation}", object_)
    return found


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(POLICY)


def test_every_operation_of_the_model_has_a_row(program: Program) -> None:
    operations = {(object_, name) for object_ in OBJECTS for name in relations(object_) if name.startswith("can_")}
    types = {(object_.partition(":")[0], name[4:]) for object_, name in operations}
    assert types == {(rule.entity, rule.operation) for rule in program.rules.values()}


@pytest.mark.parametrize("seed", seeds(range(4), quick=1, full=2))
def test_each_row_says_what_the_model_says(program: Program, seed: int) -> None:
    chance = random.Random(seed)
    both: dict[tuple[str, str], set[bool]] = {}
    for _ in range(25):
        model = random_model(chance, set())
        for asked, (allowed, right) in answers(program, model).items():
            assert allowed == right, (asked, sorted(model.tuples))
            both.setdefault(asked, set()).add(right)
    assert sum(len(seen) == 2 for seen in both.values()) > 0.9 * len(both)


def test_managed_access_never_allows_more(program: Program) -> None:
    """Where nothing around an object is managed, rows say the same; otherwise owners further out may be denied what they have."""
    chance = random.Random(1)
    denied = 0
    for _ in range(60):
        model = random_model(chance, {one for one in MANAGED if chance.random() < 0.4})
        for asked, (allowed, right) in answers(program, model).items():
            around = container(asked[0])
            while around and around not in model.managed:
                around = container(around)
            assert allowed == right or (around and right), (asked, sorted(model.tuples), model.managed)
            denied += right and not allowed
    assert denied
