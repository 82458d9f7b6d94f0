"""The common base of all kinds of entries: the names of the policy, the states so far, and the reading of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from privtab.base import (
    NOT_SET,
    Attribute,
    Entity,
    FileError,
    GivenAttributes,
    InvalidRequest,
    Locations,
    Request,
    Span,
    UsageError,
)
from privtab.ir import Program, vocabulary
from privtab.language import MappingNode, YamlNode
from privtab.state import (
    TABLE_COLUMNS,
    Placement,
    RawReader,
    RawState,
    RowLocation,
    State,
    StateFinding,
    load_raw_state,
    validate,
)
from privtab_testing.scenarios import Because, Case, Expected
from privtab_testing.scenarios.held_sets import HeldSetsReader
from privtab_testing.scenarios.tree import Combinations, Fields, Params, ScenarioReader, Values


class Worlds:
    """States of one policy, each read once."""

    def __init__(self, reader: ScenarioReader, program: Program, folder: Path) -> None:
        self.reader = reader
        self.program = program
        self.folder = folder
        self._files: dict[Path, State | None] = {}
        self._empty = State()

    def state(self, node: YamlNode | None) -> State | None:
        """The state that `state:` names or contains; empty without a node; None after a finding."""
        match node:
            case None:
                return self._empty
            case MappingNode():
                return self.rows(node)
            case _:
                text = self.reader.text(node, "`state`")
                return None if text is None else self._file(node, self.folder / text.value)

    def rows(self, node: YamlNode) -> State | None:
        """Read tables in the scenario file itself."""
        raw_reader = RawReader()
        mistakes_before = self.reader.mistakes
        for key, value in self.reader.entries(node, "a state"):
            place = RowLocation(path=self.reader.source.path, table=key.text, row=0, line=self._line(key))
            if key.text not in TABLE_COLUMNS:
                raw_reader.unknown_table(key.text, place)
                continue
            for number, row in enumerate(self.reader.items(value, f"`{key.text}`"), start=1):
                cells = self.reader.pairs(row, f"a row of `{key.text}`")
                raw_reader.row(
                    place.path, key.text, number, self._line(row), {key_.value: cell.value for key_, cell in cells}
                )
        return None if self.reader.mistakes > mistakes_before else self._validated(raw_reader.done(), node)

    def _file(self, node: YamlNode, path: Path) -> State | None:
        if path not in self._files:
            try:
                self._files[path] = self._validated(load_raw_state(path), node)
            except (FileError, UsageError) as error:
                self.reader.report("T102", node, str(error))
                self._files[path] = None
        return self._files[path]

    def _validated(self, raw: RawState, node: YamlNode) -> State | None:
        """The state, if all its rows are valid: a scenario on an incomplete state proves nothing."""
        state, found = validate(self.program, raw)
        errors = [finding for finding in found if finding.severity == "error"]
        for finding in errors:
            self._report(finding, node)
        if state.windows and not errors:
            advice = "a scenario proves the same every day: write the rows that hold then, without `from` and `until`"
            self.reader.report("T102", node, "the state has rows that hold only for a time", advice)
            return None
        return None if errors else state

    def _report(self, finding: StateFinding, node: YamlNode) -> None:
        """Report a finding at its row in this file, or at the name of the other file."""
        place = finding.place
        if place.path == self.reader.source.path and place.line is not None:
            source = self.reader.source
            start = source.starts[place.line - 1]
            line = source.text[start:].partition("\n")[0]
            indent = len(line) - len(line.lstrip(" -"))
            self.reader.report("T102", source.span(start + indent, start + len(line)), finding.message, finding.help)
        else:
            line = "" if place.line is None else f":{place.line}"
            self.reader.report("T102", node, f"{place.path}{line}: {finding.message}", finding.help)

    def _line(self, node: YamlNode) -> int:
        return self.reader.source.position(node.start)[0]


def without(state: State, removed: State) -> State:
    """The rows of a state without the rows in `removed`."""
    remaining: Any = {}
    for table in TABLE_COLUMNS:
        dropped = set(getattr(removed, table))
        remaining[table] = tuple(row for row in getattr(state, table) if row not in dropped)
    return State(**remaining)


KINDS = ("user", "entity", "request", "with")


def read_given(
    reader: ScenarioReader, node: YamlNode, program: Program, resource: Entity, objects: Mapping[str, Entity]
) -> GivenAttributes:
    """The values of a node, by their declared types; a value of another type stays a text, which the request's check reports."""
    declared = program.attributes
    fields = reader.fields(node, "`attributes`", KINDS) or {}
    kinds = {"user": declared.user, "request": declared.request, "entity": declared.declared_on(resource.type)}
    found: dict[str, object] = {
        kind: _values(reader, value, kinds[kind]) for kind, value in fields.items() if kind in kinds
    }
    if "with" in fields:
        of_objects = reader.fields(fields["with"], "`with` of `attributes`", tuple(objects)) or {}
        found["with"] = {
            slot: _values(reader, part, declared.declared_on(objects[slot].type)) for slot, part in of_objects.items()
        }
    return GivenAttributes.read(found)


def _values(reader: ScenarioReader, node: YamlNode, declared: Mapping[str, Attribute]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in reader.entries(node, "`attributes`"):
        attribute = declared.get(key.text)
        if attribute is not None and attribute.type == "set":
            found[key.text] = [text.value for text in reader.texts(value, f"`{key.text}`")]
        elif (text := reader.text(value, f"`{key.text}`")) is not None:
            read = None if attribute is None else attribute.read(text.value)
            found[key.text] = text.value if read is None else read
    return found


NEEDS_CONTEXT_KEYS = ("with", "flags", "groups")
CONTEXT_KEYS = (*NEEDS_CONTEXT_KEYS, "active_roles", "attributes")
FROZEN_KEYS = ("effects", "missing", "reason", "rule", "report")
FROZEN_BY_DECISION = {"effects": True, "reason": True, "missing": False}
"""The parts that may be frozen only of an allow, or only of a denial."""
REPORTS = ("errors",)


class Author:
    """Collects the cases of one file for one program."""

    def __init__(
        self,
        reader: ScenarioReader,
        program: Program,
        folder: Path,
        params: Params,
        lets: Mapping[str, YamlNode],
        state: YamlNode | None,
    ) -> None:
        self.reader = reader
        self.program = program
        self.vocabulary = vocabulary(program)
        self.combinations = Combinations(reader, params, lets)
        self.held_sets = HeldSetsReader(reader, program, lets)
        self.worlds = Worlds(reader, program, folder)
        self.file_state = state
        self.states: list[State] = []
        self.cases: list[Case] = []
        self._numbers: dict[int, int] = {}

    def world(self, state: State) -> int:
        """The position of a state among the states of the file."""
        if id(state) not in self._numbers:
            self._numbers[id(state)] = len(self.states)
            self.states.append(state)
        return self._numbers[id(state)]

    def state(self, fields: Fields) -> State | None:
        """The state of an entry: its own, else the file's."""
        return self.worlds.state(fields.get("state", self.file_state))

    def entries(
        self, node: YamlNode, section: str, what: str, keys: Iterable[str], required: Iterable[str] = ()
    ) -> Iterator[tuple[Fields, Span, Values]]:
        """The fields of each entry of a section, with its place, for each combination of the parameters that it uses."""
        for item in self.reader.items(node, f"`{section}`"):
            for entry, values in self.combinations.of(item):
                fields = self.reader.fields(entry, what, keys, required=required)
                if fields is not None:
                    yield fields, self.reader.span(entry), values

    def placements(self) -> tuple[Placement, ...] | None:
        """The places of entities with flat ids in the file's state; None after a finding."""
        if not self.program.flat or self.file_state is None:
            return ()
        state = self.worlds.state(self.file_state)
        if state is None:
            return None
        self.held_sets.names.places = dict(state.texts("entities", "entity", "parent"))
        return tuple(state.entities)

    def placed(self, requests: Iterable[Request], where: Locations, fields: Fields) -> Iterator[Request]:
        """The requests about entities of which the file's state tells where they lie, and a finding for each other one."""
        for request in requests:
            unplaced = {where.unplaced(entity) for entity in (request.resource, *request.with_.values())} - {None}
            if not unplaced:
                yield request
                continue
            node = fields.get("ask") or fields["resource"]
            advice = "write it under `entities` of the file's `state`"
            self.reader.report(
                "T103", node, f"no row of `entities` tells where `{min(map(str, unplaced))}` lies", advice
            )

    def requests(self, fields: Fields, span: Span, user: str) -> list[Request]:
        """The requests of an entry: `action` and `resource`, each a text or a list, with `with` objects and flags."""
        actions = self.reader.texts(fields.get("action"), "`action`")
        resources = self.reader.texts(fields.get("resource"), "`resource`")
        named = [
            (action_text.value, resource_text.value, resource_text.span)
            for action_text, resource_text in product(actions, resources)
        ]
        for text in self.reader.texts(fields.get("ask"), "`ask`"):
            action, space, resource = text.value.partition(" ")
            if space:
                named.append((action, resource.strip(), text.span))
            else:
                help_ = "write the operation and its resource: `load table:m/c/s/t`"
                self.reader.report("T103", text.span, f"`{text.value}` asks nothing", help_)
        if not named and not {"action", "resource", "ask"} & fields.keys():
            self.reader.report("T002", span, "no request is given", "give `action` and `resource`")
        built = (self.request(fields, user, *part) for part in named)
        return [request for request in built if request is not None]

    def request(self, fields: Fields, user: str, action: str, resource: str, span: Span) -> Request | None:
        """One request, checked against the policy's names; None after a finding."""
        try:
            objects = {
                name.value: Entity.parse(text.value) for name, text in self.reader.pairs(fields.get("with"), "`with`")
            }
            request = Request(
                user=user,
                action=action,
                resource=Entity.parse(resource),
                groups=tuple(
                    group.value.removeprefix("group:") for group in self.reader.texts(fields.get("groups"), "`groups`")
                ),
                with_=objects,
                flags=frozenset(flag_text.value for flag_text in self.reader.texts(fields.get("flags"), "`flags`")),
            )
            if "active_roles" in fields:
                if not self.vocabulary.active_roles:
                    raise InvalidRequest(
                        "the policy does not let requests name active roles; write `semantics: {active_roles: request}`"
                    )
                active = self.reader.texts(fields["active_roles"], "`active_roles`")
                request = replace(request, active_roles=tuple(role.value.removeprefix("role:") for role in active))
            if "attributes" in fields:
                values = read_given(self.reader, fields["attributes"], self.program, request.resource, objects)
                request = replace(request, attributes=values)
            self.vocabulary.check(request)
        except (InvalidRequest, ValueError) as error:
            error_text = error.written(r"`with: {\1: TYPE:PATH}`") if isinstance(error, InvalidRequest) else str(error)
            message, _, advice = error_text.partition("; ")
            self.reader.report("T103", span, message, advice or None)
            return None
        unknown = sorted(
            {flag.removesuffix(NOT_SET) for flag in request.flags}
            - self.vocabulary.operations[request.resource.type][action].flags
        )
        if unknown:
            self.reader.report("T103", span, f"`{action}` on `{request.resource.type}` uses no flag `{unknown[0]}`")
            return None
        return request

    def expected(self, fields: Fields, request: Request, *, allowed: bool) -> Expected:
        """The expected answer of an entry, frozen as far as the entry states it."""
        effects = self.texts(fields, "effects", request)
        missing = fields.get("missing")
        reason = fields.get("reason")
        rule = self.reader.text(fields.get("rule"), "`rule`")
        sets = () if missing is None else self.reader.items(missing, "`missing`")
        return Expected(
            allowed=allowed,
            effects=effects if allowed else None,
            missing=None if missing is None else frozenset(frozenset(self._fill_in(atoms, request)) for atoms in sets),
            reason=None if reason is None else tuple(map(_because, self._fill_in(reason, request))),
            rule=None if rule is None else rule.value,
            report=self.reader.word(fields.get("report"), "`report`", REPORTS),
        )

    def check_frozen(self, fields: Fields, *, allowed: bool) -> None:
        """Report frozen parts that cannot occur with the expected decision."""
        for key, only_allow in FROZEN_BY_DECISION.items():
            if key in fields and only_allow is not allowed:
                answers = ("an allow", "a denial") if only_allow else ("a denial", "an allow")
                help_ = f"only {answers[0]} has `{key}`: leave it off, or expect the other decision"
                self.reader.report("T006", fields[key], f"{answers[1]} has no `{key}`", help_)

    def texts(self, fields: Fields, key: str, request: Request) -> tuple[str, ...] | None:
        """A list of texts with `{resource}` and `{user}` filled in; None if the entry has no such key."""
        return None if key not in fields else tuple(self._fill_in(fields[key], request))

    def _fill_in(self, node: YamlNode, request: Request) -> Iterator[str]:
        for text in self.reader.texts(node, "text"):
            yield text.value.replace("{resource}", str(request.resource)).replace("{user}", request.user)

    def tags(self, fields: Fields) -> tuple[str, ...]:
        """The tags of an entry."""
        return tuple(text.value for text in self.reader.texts(fields.get("tags"), "`tags`"))

    def why(self, fields: Fields) -> str | None:
        """The reason that an entry gives, and its source."""
        source = ", ".join(text.value for text in self.reader.texts(fields.get("source"), "`source`"))
        words = [self.optional(fields, "why"), f"from {source}" if source else None]
        return ", ".join(text for text in words if text) or None

    def optional(self, fields: Fields, key: str) -> str | None:
        """A text of an entry; None if it is missing."""
        text = self.reader.text(fields.get(key), f"`{key}`")
        return None if text is None else text.value


def _because(text: str) -> Because:
    grant_text, _, entity = text.partition(" at ")
    atom, _, through = grant_text.partition(" through ")
    return Because(atom=atom.strip(), through=through.strip() or None, on=entity.strip() or None)
