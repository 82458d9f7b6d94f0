"""The Unity Catalog table against the facts about its server: each endpoint's condition, read by itself, on random rights of a caller.

`unitycatalog_facts.json` holds what each endpoint requires, in a notation of words: `(OWNER or SELECT) on table`, `no x`, `some x`,
`operation == 'READ' ? … : …`; `also` is what it requires beside the expression of the endpoint. What is held is computed here:
ownership of an object itself, privileges on it or on what it lies in within its catalog. So is what the server makes of a path.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from checkout import ROOT
from seeds import seeds

from privtab.base.attributes import GivenAttributes
from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program, Rule
from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference
from privtab.state.load import from_tables, validate

POLICY = ROOT / "policy_src" / "unitycatalog" / "0.6.yaml"
FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "unitycatalog_facts.json").read_text(encoding="utf-8"))
ENDPOINTS: dict[str, dict[str, Any]] = FACTS["endpoints"]
TABLES: dict[str, dict[str, Any]] = yaml.safe_load(POLICY.read_text(encoding="utf-8"))["tables"]
LEAVES = ("table", "volume", "function", "registered_model")
PATHS = {"metastore": "", "credential": "k", "external_location": "x", "user": "u", "catalog": "c", "schema": "c/s"}
PATHS |= {leaf: f"c/s/{leaf}" for leaf in LEAVES}
AROUND = {"schema": ["catalog"]} | {leaf: ["schema", "catalog"] for leaf in LEAVES}
"""What an object lies in, as far as privileges reach."""
STAGING = "c/s/staging"
DATA = ("table", "volume", "registered_model")
PATH_ROWS = {"create_at": "external_location", "create_external_at": "external_location", "create_external": "nothing"}
"""What a row is about whose path is not its own object's."""
Truth: TypeAlias = Callable[[Mapping[str, Any], str], bool]


class Notation:
    """Reads a condition of the facts to a function of what is the case and of the object that privileges are about."""

    def __init__(self, text: str) -> None:
        self.words = re.findall(r"'[^']*'|==|!=|[?:()]|\w+", text)

    def take(self, *words: str) -> str | None:
        return self.words.pop(0) if self.words and self.words[0] in words else None

    def whole(self) -> Truth:
        found = self.choice()
        assert not self.words, self.words
        return found

    def choice(self) -> Truth:
        condition = self.joined("or", lambda: self.joined("and", self.part, all), any)
        if not self.take("?"):
            return condition
        then = self.choice()
        assert self.take(":")
        other = self.choice()
        return lambda case, on: then(case, on) if condition(case, on) else other(case, on)

    def joined(self, word: str, read: Callable[[], Truth], how: Callable[[Iterator[bool]], bool]) -> Truth:
        parts = [read()]
        while self.take(word):
            parts.append(read())
        return lambda case, on: how(part(case, on) for part in parts)

    def part(self) -> Truth:
        if self.take("("):
            found = self.choice()
            assert self.take(")")
        else:
            word = self.words.pop(0)
            if word in ("no", "some"):
                named, wanted = self.words.pop(0), word == "some"
                return lambda case, _: (named in case["named"]) == wanted
            if relation := self.take("==", "!="):
                value, equal = self.words.pop(0).strip("'"), relation == "=="
                return lambda case, _: (case[word] == value) == equal
            found = lambda case, on: case[word] if word.islower() else (word, on) in case["held"]  # noqa: E731
        if self.take("on"):
            object_ = self.words.pop(0)
            return lambda case, _: found(case, object_)
        return found


def held(rows: Mapping[str, list[dict[str, str]]]) -> set[tuple[str, str]]:
    """What the rows give on each object: (privilege or OWNER, object)."""
    types = {f"{type_}:{path}": type_ for type_, path in PATHS.items()} | {f"table:{STAGING}": "staging"}
    owned = {("OWNER", types[row["entity"]]) for row in rows["owners"]}
    granted = {(row["privilege"], types[row["entity"]]) for row in rows["grants"]}
    reached = {(name, inner) for name, on in granted for inner, outer in AROUND.items() if on in outer}
    return owned | granted | reached


@dataclass(frozen=True)
class Place:
    """What lies around a path: objects at it or above, and whether anything lies below."""

    data: tuple[str, ...]
    locations: int
    below: bool

    def resolved(self) -> str | None:
        """The object that the server takes the path for, by `getMapResourceIdsForPath`; None if it refuses the path."""
        if self.below or len(self.data) > 1 or (not self.data and self.locations > 1):
            return None
        return next(iter(self.data), "external_location" if self.locations else "nothing")

    def attributes(self) -> dict[str, str]:
        """The same as the policy's attributes say it."""
        found = self.data or ("external_location",) * self.locations or ("nothing",)
        return {"above": found[0] if len(found) == 1 else "several", "below": "something" if self.below else "nothing"}


def random_place(chance: random.Random) -> Place:
    """Mostly one object, now and then none or several."""
    data = chance.choices(DATA, k=chance.choice([0, 0, 0, 0, 1, 1, 1, 2]))
    return Place(tuple(data), chance.choice([0, 0, 1, 1, 1, 2]), chance.random() < 0.2)


def path_of(rule: Rule) -> str | None:
    """What the path of a row's request is to belong to; None for rows without a path."""
    if rule.operation.startswith("path_"):
        return "nothing" if rule.entity == "metastore" else rule.entity
    return PATH_ROWS.get(rule.operation)


def case_of(rule: Rule, rows: Mapping[str, list[dict[str, str]]], resolved: str) -> dict[str, Any]:
    """What a request for a row says, in the words of the facts. `resolved`: what its path belongs to."""
    name = rule.operation
    named = {"principal"} | {slot.types[0] for slot in rule.withs if slot.types[0] == "credential"}
    named |= {"storage_root"} if name == "create_at" else set()
    named |= {resolved} if path_of(rule) else set()
    read = {"table": "READ", "volume": "READ_VOLUME", "registered_model": "READ_MODEL_VERSION"}
    operation = (
        name.upper() if name.startswith("path_") else read.get(rule.entity) if name == "read_credentials" else "WRITE"
    )
    kind = "EXTERNAL" if "external" in name else "MANAGED"
    case = {"held": held(rows), "named": named, "operation": operation, "table_type": kind, "volume_type": kind}
    return case | {"no_overlap_with_data_securable": resolved not in DATA}


def random_rows(program: Program, chance: random.Random) -> dict[str, list[dict[str, str]]]:
    """Few rights of ann, so that conditions are met and not met."""
    share = chance.choice([0.1, 0.25, 0.5])
    entities = {type_: f"{type_}:{path}" for type_, path in PATHS.items()}
    entities["staging"] = f"table:{STAGING}"
    owners = [{"entity": entity, "owner": "user:ann"} for entity in entities.values() if chance.random() < share / 2]
    grants = [
        {"grantee": "user:ann", "effect": "allow", "privilege": privilege.name, "entity": entities[type_]}
        for privilege in program.privileges.values()
        for type_ in privilege.on
        if chance.random() < share
    ]
    return {"owners": owners, "grants": grants}


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(POLICY)


def endpoints_of(rule: Rule) -> list[str]:
    """The numbers of the endpoints that a row is for."""
    source = TABLES[rule.entity][rule.operation]["source"]
    return [str(number) for number in (source if isinstance(source, list) else [source])]


def test_every_endpoint_has_a_row(program: Program) -> None:
    assert {number for rule in program.rules.values() for number in endpoints_of(rule)} == set(ENDPOINTS)


@pytest.mark.parametrize("seed", seeds(range(108), quick=2, full=4))
def test_each_row_says_what_its_endpoint_requires(program: Program, seed: int) -> None:
    chance = random.Random(seed)
    conditions = {
        number: [
            Notation(text.replace("deny", "no principal")).whole()
            for text in (facts["requires"], facts.get("also"))
            if text
        ]
        for number, facts in ENDPOINTS.items()
    }
    answers: set[tuple[str, bool]] = set()
    for _ in range(40):
        rows, place = random_rows(program, chance), random_place(chance)
        resolved = place.resolved()
        state, wrong = validate(program, from_tables(rows, "rows"))
        assert state is not None, wrong
        reference = Reference(program, state)
        for rule in program.rules.values():
            request = Request(
                user="ann",
                action=rule.operation,
                resource=Entity(rule.entity, PATHS[rule.entity]),
                with_={
                    s.name: Entity(s.types[0], STAGING if s.name == "staging" else PATHS[s.types[0]])
                    for s in rule.withs
                },
                attributes=GivenAttributes(user={}, entity={}, request=place.attributes(), with_={}),
            )
            allowed = reference.decide(request).allowed
            for number in endpoints_of(rule):
                case = case_of(rule, rows, resolved or "nothing")
                right = path_of(rule) in (None, resolved) and all(holds(case, "") for holds in conditions[number])
                assert allowed == right, (rule.id, ENDPOINTS[number], rows, place)
            answers.add((rule.id, allowed))
    both = {name for name, allowed in answers if allowed} & {name for name, allowed in answers if not allowed}
    assert len(both) > 60


def test_a_list_is_filtered_where_the_server_filters_it(program: Program) -> None:
    for rule in program.rules.values():
        filtered = {ENDPOINTS[number]["filtered"] for number in endpoints_of(rule)}
        assert (rule.each is not None) == (True in filtered), rule.id
