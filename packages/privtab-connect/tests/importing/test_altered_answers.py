"""Whatever is changed in the answers of a system: it is named, or stops the import, or the state stays as it was."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest
from recorded_answers import ANSWERS, POLICIES, VALUES, RecordedAnswers
from seeds import seeds

from privtab.base import FileError, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_connect.importing.document import ImportStep, load
from privtab_connect.importing.fields import OTHERS, Field, Fields, Many, Type, Word
from privtab_connect.importing.run import ImportResult, run

UNKNOWN = (True, False, 0, 7, "x", ["x"], {"a": 1}, [{"users": ["eve"]}])
ORDERED = {"namespace", "path", "columns"}
"""Lists in which an item twice is another value."""
DOCUMENTS = sorted(ANSWERS)


class Place(NamedTuple):
    """A value in an answer: the object or list that has it, and what the document says of it."""

    around: Any
    key: Any
    field: Field | None
    may_go: bool
    """Whether the system may leave it out."""
    may_be_null: bool


@cache
def program(document: str) -> Program:
    return load_program(SourceFile.of("policy.yaml", POLICIES[document]))


def imported(document: str, answers: Mapping[str, Any]) -> ImportResult:
    return run(load_cached(document), RecordedAnswers(answers), program(document), values=VALUES.get(document, {}))


load_cached = cache(load)


def rows(found: ImportResult) -> dict[str, set[tuple[tuple[str, str], ...]]]:
    return {table: {tuple(sorted(row.items())) for row in of} for table, of in found.state.to_tables().items() if of}


def stops(found: ImportResult) -> list[str]:
    return [str(item) for item in found.refused(strict=False, allow_partial=False)]


@cache
def expected(document: str) -> dict[str, set[tuple[tuple[str, str], ...]]]:
    found = imported(document, ANSWERS[document])
    assert not stops(found)
    return rows(found)


def steps(of: tuple[ImportStep, ...]) -> Iterator[ImportStep]:
    for step in of:
        yield step
        yield from steps(step.steps)


def fields_of(document: str, address: str) -> Fields:
    """What the document says of an answer."""
    for step in steps(load_cached(document).steps):
        asked = "" if step.ask is None else " ".join(step.ask.text.split()).partition("?details")[0]
        parts = address.split("/")
        asks = asked.partition("?")[0].split("/")
        same = len(asks) == len(parts) and all(
            a == p or a.startswith("{") or "}.{" in a for a, p in zip(asks, parts, strict=True)
        )
        if step.fields is not None and (address in asked if step.kind == "sql" else same):
            return step.fields
    raise AssertionError(address)


def places(field: Field | None, value: Any) -> Iterator[Place]:
    """The values in a value of a field."""
    if isinstance(value, dict):
        for name, content in value.items():
            fields = field if isinstance(field, Fields) else Fields(named={})
            of = fields.named.get(name) or fields.named.get(OTHERS)
            yield Place(value, name, of, name not in fields.required, name in fields.nullable)
            if isinstance(of, Fields | Many):
                yield from places(of, content)
    if isinstance(value, list):
        item = field.item if isinstance(field, Many) else field
        for number, content in enumerate(value):
            yield Place(value, number, item, True, False)
            if isinstance(item, Fields | Many):
                yield from places(item, content)


def in_answer(document: str, address: str, answer: Any) -> list[Place]:
    fields = fields_of(document, address)
    if fields.bare and isinstance(answer, list):
        (inner,) = (kind for kind in fields.named.values() if isinstance(kind, Many))
        return list(places(inner, answer))
    return list(places(Many(fields) if fields.listed else fields, answer))


def other_types(value: Any, place: Place) -> list[Any]:
    """The value as one of another type."""
    text = value if isinstance(value, str) else "x"
    found: list[Any] = [[value], {"value": value}, text, 7, 0, True, 1.5, *([] if place.may_be_null else [None])]
    if isinstance(value, int) and not isinstance(value, bool):
        found.append(str(value))
    if isinstance(value, list):
        found.append({str(number): item for number, item in enumerate(value)})
    same = {type(value), *(place.field.classes if isinstance(place.field, Type) else ())}
    return [other for other in found if type(other) not in same]


def altered(random_: random.Random, document: str) -> tuple[dict[str, Any], str, str] | None:
    """Answers with one change, the kind of the change, and the name of what is changed."""
    answers = copy.deepcopy(dict(ANSWERS[document]))
    address = random_.choice([address for address in answers if address != "tables"])
    found = in_answer(document, address, answers[address])
    place = random_.choice(found)
    around, key, name = place.around, place.key, str(place.key)
    match kind := random_.choice(["unknown", "type", "type", "twice", "removed", "item"]):
        case "unknown":
            objects = [answers[address]] + [p.around[p.key] for p in found]
            objects = [each for each in objects if isinstance(each, dict) and each]
            random_.choice(objects)["denyUnless"] = random_.choice(UNKNOWN)
            name = "denyUnless"
        case "type":
            if around is answers[address] and isinstance(around, list):  # the row of a query is one
                return None
            around[key] = random_.choice(other_types(around[key], place))
        case "twice":
            lists = [p for p in found if isinstance(p.around, list)]
            lists = [p for p in lists if isinstance(p.around[p.key], dict) and p.field is not None]
            if not lists:
                return None
            place = random_.choice(lists)
            place.around.append(copy.deepcopy(place.around[place.key]))
        case "removed":
            if isinstance(around, list) or (place.may_go and place.field is not Word.KNOWN):
                return None
            del around[key]
        case "item":
            lists = [p for p in found if isinstance(p.around[p.key], list) and isinstance(p.field, Many)]
            if not lists:
                return None
            place = random_.choice(lists)
            place.around[place.key].append(random_.choice([None, 7, ["x"], {"denyUnless": 1}, {}, True]))
            name = str(place.key)
    return answers, kind, name


def outcome(seed: int) -> str | None:
    """One change in the answers of one system: what became of it; fails if it decides otherwise in silence."""
    random_ = random.Random(seed)
    document = DOCUMENTS[seed % len(DOCUMENTS)]
    change = altered(random_, document)
    if change is None:
        return None
    answers, kind, name = change
    found, refused = None, ""
    try:
        found = imported(document, answers)
    except FileError as error:
        refused = str(error)
    if found is None:
        paged = kind in {"twice", "item"} or name in {"next_page_token", "Resources"}
        assert kind != "unknown", refused
        assert paged or name in refused or not name.isidentifier(), (document, kind, name, refused)
        return "error"
    told = stops(found)
    same = rows(found) == expected(document)
    assert told or same, (document, kind, name, rows(found), expected(document))
    if told and name.isidentifier() and kind not in {"twice", "item"}:
        assert any(name in each for each in told), (document, kind, name, told)
    return "stops" if told else f"same {kind}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_answers_as_they_are_give_rows(document: str) -> None:
    assert expected(document)


def renamed(value: Any, old: str, new: str) -> Any:
    """A value with a name in the place of another."""
    if isinstance(value, dict):
        return {key: renamed(content, old, new) for key, content in value.items()}
    if isinstance(value, list):
        return [renamed(content, old, new) for content in value]
    return new if value == old else value


NAMED = {
    "gravitino": ["ann", "hr", "r"],
    "polaris": ["e", "etl", "c", "p"],
    "ranger": ["ann", "temps", "r"],
    "scim": ["ann", "staff", "temps"],
    "unitycatalog": ["hr", "ann@x"],
}
"""Names of principals, and of what the path of one begins with."""


@pytest.mark.parametrize("prefix", ["user:", "group:", "role:"])
@pytest.mark.parametrize("document", sorted(NAMED.keys() & ANSWERS.keys()))
def test_a_name_that_begins_as_a_kind_is_not_the_name_behind_it(document: str, prefix: str) -> None:
    asked = 0
    for name in NAMED[document]:
        answers = {
            "/".join(prefix + part if part == name else part for part in address.split("/")): renamed(
                answer, name, prefix + name
            )
            for address, answer in ANSWERS[document].items()
        }
        found = rows(imported(document, answers))
        for table, of in found.items():
            about = {row for row in expected(document).get(table, ()) if any(_is_about(cell, name) for _, cell in row)}
            asked += len(about)
            assert not about & of, (document, table, name)
    assert asked


def _is_about(cell: str, name: str) -> bool:
    return name in cell.rpartition(":")[2].split("/")


def outcomes(first: int, count: int) -> Counter[str | None]:
    return Counter(map(outcome, range(first, first + count)))


@pytest.mark.parametrize("seed", seeds(range(8), quick=2, full=4))
def test_no_change_of_an_answer_is_lost(seed: int) -> None:
    found = outcomes(seed * 60, 60)
    assert found["stops"] > found["error"] > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(0, 10_000, 1_000))
def test_no_change_of_many_answers_is_lost(seed: int, search_seed: int) -> None:
    assert outcomes(search_seed + seed, 1_000)["stops"]
