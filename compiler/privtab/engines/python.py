"""The `python` engine: a policy's program over the index of a state, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from privtab.engines.conditions import RESOURCE, Form, Reader
from privtab.engines.explain import Explanation
from privtab.engines.index import Index
from privtab.engines.plan import Caller, Meaning, Plan, beginnings
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
        self._flags = {
            (type_, operation): frozenset(rule["flags"])
            for type_, rules in self.program["rules"].items()
            for operation, rule in rules.items()
        }
        self._withs = {
            (type_, operation): tuple(rule["with"])
            for type_, rules in self.program["rules"].items()
            for operation, rule in rules.items()
        }

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
        for slot in self._withs[resource.type, request.action]:
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
        paths = {slot: beginnings(request.with_[slot].id) for slot in self._withs[resource.type, request.action]}
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
        for slot in self._withs[resource.type, request.action]:
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
        type_, operation = request.resource.type, request.action
        flags = request.flags & self._flags[type_, operation]
        withs = self._withs[type_, operation]
        named = len(path) > self.reader.depth(type_)
        key = (type_, operation, flags, named, *(request.with_[slot].type for slot in withs))
        plan = self._plans.get(key)
        if plan is None:
            types = {RESOURCE: type_, **{slot: request.with_[slot].type for slot in withs}}
            form = Form(flags=flags, types=types, named=named)
            condition = self.reader.condition(type_, operation, form)
            plan = self._plans[key] = Plan(condition, form, self.reader, self.meaning, self.index)
        return plan

    def caller(self, request: Request) -> Caller:
        """Who asks."""
        groups = request.groups if self.meaning.request_groups else ()
        index, user = self.index, request.user
        scopes = index.scopes(user, groups) if self.meaning.roles else _NOTHING
        return Caller(user=user, principals=index.principals(user, groups), scopes=scopes)
