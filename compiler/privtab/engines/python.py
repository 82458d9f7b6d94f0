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
"""Requests from which on columns are worth their making."""

_NOTHING: Mapping[str, Iterable[str]] = {}


def _long_way(user: str, path: str) -> None:
    """For what no quick way is known of."""


class QuickWays(dict[tuple[str, str], Quick]):
    """Quick answers by (type, operation), each made when it is first asked for."""

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
    """Answers requests whose names were checked. Nothing in it changes, so threads share it; it can be pickled."""

    name = "python"

    def __init__(self, program: Mapping[str, Any], index: Index, *, partial: bool = False) -> None:
        """`program` is what the policy bundle carries at `data.privtab_program.<name>`; PolicyError where it is none.

        `partial`: the caller does not ask about what lies in missing shards; else DecisionUnavailable where there are some.
        """
        if index.missing and not partial:
            raise DecisionUnavailable(
                f"{len(index.missing)} shard(s) of the state are missing, as that of `{min(index.missing)}`"
            )
        self.program = program
        self.index = index
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._batches: Batches | Literal[False] | None = None
        """False: what they need is not installed."""
        try:
            self._read()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise PolicyError(f"the program of the policy cannot be read: {error!r}") from error

    def _read(self) -> None:
        self.meaning = Semantics.read(self.program)
        self.reader = ConditionReader(self.program)
        # All numbers are given now: threads that make plans later change nothing in the index.
        for privilege in self.program["privileges"]:
            self.index.numbers.allowed(privilege)
        for type_ in self.program["entities"]:
            self.index.table(type_)
        self.shapes: dict[tuple[str, str], tuple[frozenset[str], tuple[str, ...]]] = {
            (type_, operation): (frozenset(rule["flags"]), tuple(rule["with"]))
            for type_, rules in self.program["rules"].items()
            for operation, rule in rules.items()
        }
        """By (type, operation): the flags that are asked about, and the names of the `with` objects."""

    def __getstate__(self) -> tuple[Mapping[str, Any], Index]:
        return self.program, self.index

    def __setstate__(self, state: tuple[Mapping[str, Any], Index]) -> None:
        PythonEngine.__init__(self, *state, partial=True)

    def allow(self, request: Request) -> bool:
        """Yes or no."""
        resource = request.resource
        paths = {RESOURCE: beginnings(resource.id)}
        plan = self.plan(request, paths[RESOURCE])
        for slot in self.shapes[resource.type, request.action][1]:
            paths[slot] = beginnings(request.with_[slot].id)
        return plan.holds(self.caller(request), paths)

    def allow_many(self, requests: Sequence[Request]) -> list[bool]:
        """Yes or no, by position."""
        answers = self.columns(requests)
        return answers if answers is not None else [self.allow(request) for request in requests]

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """As `allow_many`, column by column, for requests that nobody has checked; None: ask one by one.

        For that there must be many, numpy and pyarrow have to be installed, and every request has to be one.
        """
        if len(requests) < MANY or self._batches is False:
            return None
        try:
            return self.batches().allow_requests(requests)
        except ImportError:
            self._batches = False
            return None

    def batches(self) -> Batches:
        """For columns; kept, since it holds the index as arrays. Raises ImportError where numpy or pyarrow is missing.

        DecisionUnavailable: shards of the state are missing, and a column has no room for what nobody knows.
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
        """The positions of the items that pass, ascending; the request's resource gives the type alone."""
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
        """The answer with its explanation."""
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
        """Answers with explanations, by position."""
        return [self.decide(request) for request in requests]

    def plan(self, request: Request, path: Sequence[str]) -> Plan:
        """How requests of this one's form are answered."""
        resource = request.resource
        flags, slots = self.shapes[resource.type, request.action]
        types = {slot: request.with_[slot].type for slot in slots}
        named = len(path) > self.reader.depth(resource.type)
        return self.plan_of(resource.type, request.action, request.flags & flags, types, named=named)

    def plan_of(
        self, type_: str, operation: str, flags: frozenset[str], withs: Mapping[str, str], *, named: bool
    ) -> Plan:
        """How requests of a form are answered; `withs` are the types of the `with` objects."""
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
        """Whether a request for an operation needs nothing beside its resource."""
        rule = self.program["rules"][type_][operation]
        return not rule["with"] and not rule.get("required_flags")

    def single(self, type_: str) -> bool:
        """Whether an entity of a type has the path of what contains it."""
        chain = self.reader.chains[type_]
        return len(chain) > 1 and chain[-1][1] == chain[-2][1]

    def caller(self, request: Request) -> Caller:
        """Who asks."""
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
        # Parts that are fetched one by one become one index: they must number privileges alike.
        self._numbers = self._numbers or PrivilegeNumbers()
        return StatePart(document, self._numbers)

    def open(self, program: Mapping[str, Any], state: Sequence[Any], module: bytes | None) -> Opened:
        """As engines.Opener.open."""
        del module
        index = state[0] if isinstance(state[0], Index) else Index.of(state)
        engine = PythonEngine(program, index, partial=True)
        quick_ways = NoQuickWays() if index.missing else QuickWays(engine)
        return Opened(engine=engine, revision=index.revision, missing=index.missing, quick=quick_ways)
