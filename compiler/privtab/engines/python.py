"""The `python` engine: a policy's program over the index of a state, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from privtab.engines import NoQuickWays, Opened
from privtab.engines.conditions import RESOURCE, ConditionReader, RequestShape
from privtab.engines.explain import Explanation
from privtab.engines.index import Index, PrivilegeNumbers, StatePart, in_parts
from privtab.engines.plan import Caller, Plan, Semantics, beginnings
from privtab.engines.quick import Quick, quick
from privtab.errors import DecisionUnavailable, PolicyError
from privtab.request import Decision, Entity, Request

if TYPE_CHECKING:
    from privtab.engines.batches import Batches

MANY = 1000
"""Requests from which on columns pay off."""

_NOTHING: Mapping[str, Iterable[str]] = {}


def _long_way(user: str, path: str) -> None:
    """For requests without a quick way."""


class QuickWays(dict[tuple[str, str], Quick]):
    """Quick ways by (type, operation), each made on first use."""

    def __init__(self, engine: PythonEngine) -> None:
        super().__init__()
        self._engine = engine

    def __missing__(self, key: tuple[str, str]) -> Quick:
        if key not in self._engine.shapes:
            return _long_way
        way = quick(self._engine.plan_of(*key, frozenset(), {}, named=True)) if self._engine.alone(*key) else None
        self[key] = way or _long_way
        return self[key]


class PythonEngine:
    """Decides requests whose names were checked. Threads may share it; it can be pickled."""

    name = "python"

    def __init__(self, program: Mapping[str, Any], index: Index, *, partial: bool = False) -> None:
        """`program` is the document at `data.privtab_program.<name>` of the policy bundle. Raises PolicyError for any other.

        `partial`: the caller does not ask about entities in missing shards; otherwise missing shards raise DecisionUnavailable.
        """
        if index.missing and not partial:
            raise DecisionUnavailable(
                f"{len(index.missing)} shard(s) of the state are missing, as that of `{min(index.missing)}`"
            )
        self.program = program
        self.index = index
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._batches: Batches | Literal[False] | None = None
        """False: numpy or pyarrow is not installed."""
        try:
            self._read()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise PolicyError(f"the program of the policy cannot be read: {error!r}") from error

    def _read(self) -> None:
        self.meaning = Semantics.read(self.program)
        self.reader = ConditionReader(self.program)
        # Number all privileges now, so that threads that make plans later do not change the index.
        for privilege in self.program["privileges"]:
            self.index.numbers.allowed(privilege)
        for type_ in self.program["entities"]:
            self.index.table(type_)
        self.shapes: dict[tuple[str, str], tuple[frozenset[str], tuple[str, ...]]] = {
            (type_, operation): (frozenset(rule["flags"]), tuple(rule["with"]))
            for type_, rules in self.program["rules"].items()
            for operation, rule in rules.items()
        }
        """By (type, operation): the flags that the condition depends on, and the names of the `with` objects."""

    def __getstate__(self) -> tuple[Mapping[str, Any], Index]:
        return self.program, self.index

    def __setstate__(self, state: tuple[Mapping[str, Any], Index]) -> None:
        PythonEngine.__init__(self, *state, partial=True)

    def allow(self, request: Request) -> bool:
        """Whether the request is allowed."""
        resource = request.resource
        paths = {RESOURCE: beginnings(resource.id)}
        plan = self.plan(request, paths[RESOURCE])
        for slot in self.shapes[resource.type, request.action][1]:
            paths[slot] = beginnings(request.with_[slot].id)
        return plan.holds(self.caller(request), paths)

    def allow_many(self, requests: Sequence[Request]) -> list[bool]:
        """Whether each request is allowed, by position."""
        answers = self.columns(requests)
        return answers if answers is not None else [self.allow(request) for request in requests]

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """As `allow_many`, column by column, for unchecked requests; None: decide them one by one.

        Columns need many requests, all of them valid, and numpy and pyarrow.
        """
        if len(requests) < MANY or self._batches is False:
            return None
        try:
            return self.batches().allow_requests(requests)
        except ImportError:
            self._batches = False
            return None

    def batches(self) -> Batches:
        """The evaluator for columns, cached because it holds the index as arrays. Raises ImportError without numpy or pyarrow.

        Raises DecisionUnavailable if shards of the state are missing, since a column cannot express that a decision is unknown.
        """
        if self.index.missing:
            raise DecisionUnavailable(
                f"columns need the whole state: the shard of `{min(self.index.missing)}` is missing"
            )
        if not self._batches:
            from privtab.engines.batches import Batches

            self._batches = Batches(self)
        return self._batches

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the allowed items, ascending; only the type of the request's resource is used."""
        resource = request.resource
        named = beginnings("/".join("x" * self.reader.depth(resource.type)))
        plan = self.plan(request, named)
        paths = {slot: beginnings(request.with_[slot].id) for slot in self.shapes[resource.type, request.action][1]}
        caller = self.caller(request)
        decide, gather = plan.decide, plan.gather
        found = []
        for at, item in enumerate(items):
            paths[RESOURCE] = beginnings(item.id)
            if decide(gather(caller, paths)):
                found.append(at)
        return found

    def decide(self, request: Request) -> Decision:
        """The decision with its explanation."""
        resource = request.resource
        paths = {RESOURCE: beginnings(resource.id)}
        plan = self.plan(request, paths[RESOURCE])
        for slot in self.shapes[resource.type, request.action][1]:
            paths[slot] = beginnings(request.with_[slot].id)
        caller = self.caller(request)
        allowed = plan.holds(caller, paths)
        rule = self.program["rules"][resource.type][request.action]
        told = Explanation(rule, plan.form, caller, paths, self.reader, self.meaning, self.index)
        return Decision(allowed=allowed, context=told.context(self.program.get("revision"), allowed=allowed))

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""
        return [self.decide(request) for request in requests]

    def plan(self, request: Request, path: Sequence[str]) -> Plan:
        """The plan for requests of the same form as this one."""
        resource = request.resource
        flags, slots = self.shapes[resource.type, request.action]
        types = {slot: request.with_[slot].type for slot in slots}
        named = len(path) > self.reader.depth(resource.type)
        return self.plan_of(resource.type, request.action, request.flags & flags, types, named=named)

    def plan_of(
        self, type_: str, operation: str, flags: frozenset[str], withs: Mapping[str, str], *, named: bool
    ) -> Plan:
        """The plan for requests of a form; `withs` are the types of the `with` objects."""
        asked, slots = self.shapes[type_, operation]
        flags = flags & asked
        key = (type_, operation, flags, named, *(withs[slot] for slot in slots))
        plan = self._plans.get(key)
        if plan is None:
            types = {RESOURCE: type_, **{slot: withs[slot] for slot in slots}}
            form = RequestShape(flags=flags, types=types, named=named)
            condition = self.reader.condition(type_, operation, form)
            plan = self._plans[key] = Plan(condition, form, self.reader, self.meaning, self.index)
        return plan

    def alone(self, type_: str, operation: str) -> bool:
        """Whether a request for an operation needs nothing besides its resource."""
        rule = self.program["rules"][type_][operation]
        return not rule["with"] and not rule.get("required_flags")

    def single(self, type_: str) -> bool:
        """Whether an entity of a type has the path of the entity that contains it."""
        chain = self.reader.chains[type_]
        return len(chain) > 1 and chain[-1][1] == chain[-2][1]

    def caller(self, request: Request) -> Caller:
        """The caller of a request."""
        groups = request.groups if self.meaning.request_groups else ()
        index, user = self.index, request.user
        scopes = index.scopes(user, groups) if self.meaning.roles else _NOTHING
        return Caller(user=user, principals=index.principals(user, groups), scopes=scopes)


class Opener:
    """As engines.Opener."""

    takes_wasm = False

    def __init__(self) -> None:
        self._numbers: PrivilegeNumbers | None = None

    def keep(self, document: Mapping[str, Any]) -> Index | StatePart:
        """The index, or a part of it."""
        if not in_parts(document):
            return Index(document)
        # Parts that are loaded one by one become one index, so they must number privileges alike.
        self._numbers = self._numbers or PrivilegeNumbers()
        return StatePart(document, self._numbers)

    def open(self, program: Mapping[str, Any], state: Sequence[Any], module: bytes | None) -> Opened:
        """As engines.Opener.open."""
        del module
        index = state[0] if isinstance(state[0], Index) else Index.of(state)
        engine = PythonEngine(program, index, partial=True)
        quick_ways = NoQuickWays() if index.missing else QuickWays(engine)
        return Opened(engine=engine, revision=index.revision, missing=index.missing, quick=quick_ways)
