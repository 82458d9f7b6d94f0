"""The `python` engine: a policy's program over the index of a state, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from privtab.engines.conditions import RESOURCE, Form, Reader
from privtab.engines.explain import Explanation
from privtab.engines.index import Index
from privtab.engines.plan import Caller, Meaning, Plan, beginnings
from privtab.engines.quick import quick
from privtab.request import Decision, Entity, Request

Quick: TypeAlias = Callable[[str, str], bool | None]
"""Answers (user, path) where nothing stands beside them; None: ask the long way, which also says what is wrong."""

_NOTHING: Mapping[str, Iterable[str]] = {}


class PythonEngine:
    """Answers requests whose names were checked. Nothing in it changes, so threads share it; it can be pickled."""

    name = "python"

    def __init__(self, program: Mapping[str, Any], index: Index) -> None:
        """`program` is what the policy bundle carries at `data.privtab_program.<name>`."""
        self.program = program
        self.index = index
        self.meaning = Meaning.read(program)
        self.reader = Reader(program)
        self._start()

    def _start(self) -> None:
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self.shapes: dict[tuple[str, str], tuple[frozenset[str], tuple[str, ...]]] = {
            (type_, operation): (frozenset(rule["flags"]), tuple(rule["with"]))
            for type_, rules in self.program["rules"].items()
            for operation, rule in rules.items()
        }
        """By (type, operation): the flags that are asked about, and the names of the `with` objects."""

    def __getstate__(self) -> tuple[Mapping[str, Any], Index]:
        return self.program, self.index

    def __setstate__(self, state: tuple[Mapping[str, Any], Index]) -> None:
        self.program, self.index = state
        self.meaning = Meaning.read(self.program)
        self.reader = Reader(self.program)
        self._start()

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
        return [self.allow(request) for request in requests]

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

    def quick(self, type_, operation):
        return quick(self.plan_of(type_, operation, frozenset(), {}, named=True))

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
            form = Form(flags=flags, types=types, named=named)
            condition = self.reader.condition(type_, operation, form)
            plan = self._plans[key] = Plan(condition, form, self.reader, self.meaning, self.index)
        return plan

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
