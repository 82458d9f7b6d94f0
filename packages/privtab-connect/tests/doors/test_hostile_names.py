"""Ten thousand hostile requests through a door, against a mapping of its own that asks the engine in this process."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from signed_door import DoorServer, door_server
from unusual_names import ALIKE, ALIKE_UNSEEN, CARRIED, INVISIBLE, UNUSABLE

from privtab import Embedded, InvalidRequest
from privtab.base import encode_name

pytestmark = pytest.mark.slow

HELD = tuple(dict.fromkeys([*(n for n in CARRIED if len(n) < 100), *(n for group in ALIKE for n in group)]))
"""Names that a state can hold."""
NAMES = tuple(
    dict.fromkeys([*HELD, *(n for n in INVISIBLE if len(n) < 100), *(n for group in ALIKE_UNSEEN for n in group)])
)
LONG = ("n" * 10_000, "/" * 5_000, "%2F" * 3_000)
BAD = ("", "*", "?", "%", "*?", *(f"a{sign}b" for sign in UNUSABLE if not "\ud800" <= sign <= "\udfff"))
WRONG: tuple[Any, ...] = (None, 5, True, 1.5, [], {}, ["a"], {"name": "a"}, [["a"]], "")
FIELDS = {
    "catalog": ("catalog", ("name",)),
    "schema": ("schema", ("catalogName", "schemaName")),
    "table": ("table", ("catalogName", "schemaName", "tableName")),
    "function": ("function", ("catalogName", "schemaName", "functionName")),
    "user": ("user", ("user",)),
    "session_property": ("systemSessionProperty", ("name",)),
}
TYPES = {
    "AccessCatalog": "catalog",
    "DropCatalog": "catalog",
    "DropSchema": "schema",
    "ShowTables": "schema",
    "InsertIntoTable": "table",
    "FilterTables": "table",
    "SelectFromColumns": "table",
    "ExecuteFunction": "function",
    "ImpersonateUser": "user",
    "SetSystemSessionProperty": "session_property",
}
PRIVILEGES = {
    "catalog": ("DROP", "SELECT"),
    "schema": ("DROP", "SHOW"),
    "table": ("INSERT", "SELECT"),
    "function": ("EXECUTE",),
    "user": ("IMPERSONATE",),
    "session_property": ("SET_SESSION",),
    "column": ("SELECT",),
}
OPEN = {"ShowTables", "FilterTables", "SelectFromColumns"}
"""What everybody who sees the catalog may ask of `information_schema`."""
SLASHED = ("c", "s", "a/b")
"""A table that ann sees."""


class Generator:
    """Requests about what was granted, about what is nearly that, and of any shape."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.granted: list[tuple[str, tuple[str, ...]]] = []

    def state(self) -> dict[str, Any]:
        rows = []
        for _ in range(400):
            type_ = self.random.choice(list(PRIVILEGES))
            length = {"catalog": 1, "schema": 2, "table": 3, "function": 3, "column": 4}.get(type_, 1)
            path = tuple(self.random.choice(HELD) for _ in range(length))
            self.granted.append((type_, path))
            rows.append(
                {
                    "grantee": self.random.choice(["user:ann", "user:ann", "group:hr"]),
                    "effect": "allow",
                    "privilege": self.random.choice(PRIVILEGES[type_]),
                    "entity": f"{type_}:{'/'.join(map(encode_name, path))}",
                }
            )
        entity = f"table:{'/'.join(map(encode_name, SLASHED))}"
        rows.append({"grantee": "user:ann", "effect": "allow", "privilege": "SELECT", "entity": entity})
        return {"grants": rows}

    def name(self) -> str:
        names = self.random.choices((NAMES, BAD, LONG), (8, 1, 1))[0]
        return self.random.choice(names)

    def resource(self, operation: str) -> dict[str, Any]:
        key, fields = FIELDS[TYPES[operation]]
        fitting = [p for t, p in self.granted if t == TYPES[operation] or t == "column" == TYPES.get(operation, "")]
        path = (
            list(self.random.choice(fitting))
            if fitting and self.random.random() < 0.8
            else [self.name() for _ in fields]
        )
        if self.random.random() < 0.4:
            path[self.random.randrange(len(path))] = self.name()
        if len(path) > 1 and self.random.random() < 0.1:  # a name with the separator, instead of two names
            path = ["/".join(path[:2]), *path[2:], path[0]]
        if len(path) > 1 and self.random.random() < 0.05:
            path[1] = "information_schema"
        inner: dict[str, Any] = dict(zip(fields, path, strict=True))
        if operation == "SelectFromColumns":
            inner["columns"] = [self.name() for _ in range(self.random.randrange(4))]
            if columns := [p for t, p in self.granted if t == "column"]:
                *around, column = self.random.choice(columns)
                if self.random.random() < 0.3:
                    inner = {**dict(zip(fields, around, strict=True)), "columns": [column]}
        return {key: self.broken(inner)}

    def broken(self, value: dict[str, Any]) -> Any:
        """Mostly the same; otherwise with a wrong value or without a key."""
        if self.random.random() > 0.1 or not value:
            return value
        key = self.random.choice(list(value))
        return self.random.choice(
            [
                {**value, key: self.random.choice(WRONG)},
                {k: v for k, v in value.items() if k != key},
                self.random.choice(WRONG),
                [value],
            ]
        )

    def request(self) -> Any:
        operation = self.random.choice(list(TYPES))
        user = self.random.choice(["ann", "ann", "ann", "ben", self.name()])
        groups: Any = self.random.choice([[], [], ["hr"], ["hr", "x"]])
        action = {"operation": operation, "resource": self.broken(self.resource(operation))}
        if self.random.random() < 0.03:
            action["operation"] = self.random.choice([*WRONG, "selectfromcolumns", "Fly", "__proto__"])
        if self.random.random() < 0.05:
            groups = self.random.choice([*WRONG, ["a\nb"], [""]])
        identity = self.broken({"user": user, "groups": groups})
        return self.broken({"context": {"identity": identity}, "action": self.broken(action)})


class Mapping:
    """The door's document, told once more: what a request means for the policy, or that it means nothing."""

    def __init__(self, embedded: Embedded) -> None:
        self.embedded = embedded

    def allows(self, request: Any) -> bool:
        try:
            action, identity = request["action"], request["context"]["identity"]
            user, groups = identity["user"], identity["groups"]
            resource = action["resource"]
            operation = action["operation"]
            entities = self.entities(operation, resource)
        except (KeyError, TypeError, ValueError):
            return False
        if not isinstance(user, str) or not isinstance(groups, list) or not entities:
            return False
        if user.startswith(("user:", "group:", "role:")):
            return False
        try:
            return all(self.embedded.check(user, operation, entity, groups=groups) for entity in entities)
        except (InvalidRequest, TypeError, ValueError):
            return False

    def entities(self, operation: str, resource: Any) -> list[str]:
        """The entities that a resource stands for. Raises KeyError, TypeError or ValueError for one that is none."""
        type_ = TYPES[operation]
        key, fields = FIELDS[type_]
        inner = resource[key]
        if operation in OPEN and inner["schemaName"] == "information_schema":
            return [f"information_schema:{self.written([inner['catalogName']])}"]
        path = [inner[field] for field in fields]
        if operation == "SelectFromColumns":
            columns = inner["columns"]
            if not isinstance(columns, list):
                raise TypeError
            if columns:
                return [f"column:{self.written([*path, column])}" for column in columns]
        return [f"{type_}:{self.written(path)}"]

    @staticmethod
    def written(path: list[Any]) -> str:
        if not all(isinstance(name, str) and name for name in path):
            raise TypeError
        return "/".join(map(encode_name, path))


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(476)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, generator: Generator) -> Iterator[DoorServer]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "state.json").write_text(json.dumps(generator.state()), encoding="utf-8")
    with door_server(folder, "trino/476", "trino", folder / "state.json") as server:
        yield server


@pytest.mark.parametrize("count", [3_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_no_request_is_allowed_that_its_meaning_is_not(
    door: DoorServer, generator: Generator, tmp_path: Path, count: int
) -> None:
    mapping = Mapping(door.embedded())
    answers = []
    for _ in range(count):
        request = generator.request()
        expected = mapping.allows(request)
        assert door.ask("allow", request) is expected, request
        answers.append(expected)
    assert answers.count(True) > count / 20
    assert answers.count(False) > count / 20
    (tmp_path / "state.json").write_text(json.dumps(Generator(476).state()), encoding="utf-8")
    replayed = door.replayed("trino/476", tmp_path / "state.json")
    assert replayed.of("unexplained").to_pylist() == []
    assert replayed.count("unexplained") == 0
    assert answers.count(True) <= replayed.allowed
    assert replayed.replayed > count / 3


def test_positions_in_lists_are_those_of_what_is_allowed(door: DoorServer, generator: Generator) -> None:
    mapping = Mapping(door.embedded())
    shown = 0
    for _ in range(100):
        resources = [generator.broken(generator.resource("FilterTables")) for _ in range(100)]
        context = {"identity": {"user": "ann", "groups": ["hr"]}}
        listed = {"context": context, "action": {"operation": "FilterTables", "filterResources": resources}}
        expected = [
            position
            for position, resource in enumerate(resources)
            if mapping.allows({"context": context, "action": {"operation": "FilterTables", "resource": resource}})
        ]
        answer = door.ask("batch", listed)
        assert answer == expected, [ascii(resources[p])[:200] for p in sorted({*answer} ^ {*expected})]
        shown += len(expected)
    assert shown > 500


def test_separators_in_names_do_not_make_up_for_names_that_are_none(door: DoorServer) -> None:
    """A list whose names are all plain is read as one text, in which these are as many as they should be."""
    shown, none = ({"table": dict(zip(FIELDS["table"][1], path, strict=True))} for path in (SLASHED, (5, "s", "t")))
    listed = {"operation": "FilterTables", "filterResources": [shown, none, shown, shown]}
    assert door.ask("batch", {"context": {"identity": {"user": "ann", "groups": []}}, "action": listed}) == [0, 2, 3]


@pytest.mark.parametrize(
    "user", ["user:ann", "group:hr", "role:x", "scoped:x", " ann", "ann ", "ANN", "ann\n", "*", "%", ""]
)
def test_nobody_is_called_like_another(door: DoorServer, generator: Generator, user: str) -> None:
    for type_, path in generator.granted:
        if type_ == "table":
            resource = {"table": dict(zip(FIELDS["table"][1], path, strict=True))}
            for operation in ("InsertIntoTable", "FilterTables"):
                request = {
                    "context": {"identity": {"user": user, "groups": []}},
                    "action": {"operation": operation, "resource": resource},
                }
                assert door.ask("allow", request) is False


@pytest.mark.parametrize("wrong", WRONG)
def test_lists_and_filters_of_wrong_shapes_show_nothing(door: DoorServer, wrong: object) -> None:
    context = {"identity": {"user": "ann", "groups": []}}
    for action in (wrong, {"operation": "FilterTables", "filterResources": wrong}, {"operation": wrong}):
        request = {"context": context, "action": action}
        assert door.ask("batch", request) == []
        assert door.ask("allow", request) is False
        assert door.ask("rowFilters", request) == [{"expression": "FALSE"}]
        assert door.ask("columnMask", request) == {"expression": "NULL"}
    assert door.ask("batch", wrong) == []
