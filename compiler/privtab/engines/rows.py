"""Decide requests one by one: a policy's program over the index of a state.

A decision is explained by the minimal sets in the program: the same context that OPA returns, word for word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from privtab.base.effects import with_changes
from privtab.base.errors import DecisionUnavailable, PolicyError
from privtab.base.names import unencoded_name
from privtab.base.paths import Locations, base_type, ids, not_placed
from privtab.base.request import Decision, Entity, Request, roles_not_held, smallest_sets
from privtab.base.sql_text import (
    DIALECTS,
    FILTER_KINDS,
    AppliedFilter,
    denial,
    identifier,
    literal,
    operation_of,
    written,
)
from privtab.engines.conditions import RESOURCE, Atom, ConditionReader, RequestShape, RequestValues, words
from privtab.engines.index import Index, require_kept
from privtab.engines.plan import Caller, FormPlan, GrantSemantics, beginnings, named_prefix


class MinimalSets:
    """The minimal sets of a rule's condition for one form of request, as numbers of atoms."""

    def __init__(self, rule: Mapping[str, Any], plan: FormPlan) -> None:
        """`rule`: as in the program's JSON. `sets` is empty if there are too many forms to list."""
        self.rule = rule
        self.plan = plan
        form, self._depth = plan.form, plan.reader.depth
        withs: Mapping[str, Sequence[str]] = rule["with"]
        types = [f"{slot}={form.types[slot]}" for slot in sorted(withs) if len(withs[slot]) > 1]
        kind, variant = "item" if form.named else "call", " ".join([*sorted(form.flags), *types])
        self.sets: Sequence[Sequence[int]] = rule["minimal"][kind].get(variant, ())
        self.complete = variant in rule["minimal"][kind] and variant not in rule.get("minimal_cut", {}).get(kind, ())
        """Whether these are all minimal sets."""
        self._listed: Sequence[Mapping[str, Any]] = rule["atoms"]
        if plan.reader.nested:
            self._listed, self.sets = plan.reader.located(rule, form, self.sets)
        self.atoms: Sequence[Atom] = list(map(plan.reader.atom, self._listed))
        self._effects = [(effect["text"], plan.reader.place(effect["target"], form)) for effect in rule["effects"]]

    def effects(self, paths: Mapping[str, list[str]]) -> list[str]:
        """The changes on success, in words, for a request about objects with these paths."""
        return [f"{text} ({self._key_or_type(target, paths)})" for text, target in self._effects]

    def text(self, number: int, paths: Mapping[str, list[str]]) -> str:
        """An atom with the request's entities: `READ (namespace:i/n)`."""
        return words(self._listed[number], lambda target: self._key_or_type(target, paths))

    def _key_or_type(self, target: Mapping[str, Any], paths: Mapping[str, list[str]]) -> str:
        """The key of a target's entity, or its type alone if the request does not name it."""
        path = named_prefix(paths[target["slot"]], self._depth(target["type"]))
        type_: str = base_type(target["type"])
        return type_ if path is None else f"{type_}:{path}"


class Explanation:
    """Explains the decision for one request."""

    def __init__(self, listed: MinimalSets, caller: Caller, paths: Mapping[str, list[str]]) -> None:
        self.listed = listed
        self.caller = caller
        self.paths = paths
        self._held: dict[int, bool] = {}

    def context(self, revision: str | None, *, allowed: bool) -> dict[str, Any]:
        """Rule, source and revision; reasons and effects if allowed, what is missing if denied."""
        unheld = self.caller.unheld
        context = _context(
            self.listed.rule,
            revision,
            missing=[] if allowed or unheld else self.missing(),
            reasons=self.reasons() if allowed else [],
            effects=self.listed.effects(self.paths) if allowed else [],
            **({"error": roles_not_held(self.caller.user, unheld)} if unheld else {}),
            **({} if self.listed.complete else {"minimal_sets_complete": False}),
        )
        return with_changes(context, self.caller.user, self.caller.active_roles)

    def missing(self) -> list[list[str]]:
        """The smallest sets of atoms that would turn a denial into an allow, smallest first; denials to remove are listed as such."""
        return smallest_sets(
            [text for number in numbers for text in self._missing_of(number)] for numbers in self.listed.sets
        )

    def _missing_of(self, number: int) -> list[str]:
        if self.holds(number):
            return []
        atom, plan = self.listed.atoms[number], self.listed.plan
        denials = plan.denials(atom, self.caller, self.paths)
        denied = [f"deny {atom.privilege} ({denial.on}) to {denial.through}" for denial in denials]
        if any(plan.grants(atom, self.caller, self.paths)):
            return denied
        return [self.listed.text(number, self.paths), *denied]

    def reasons(self) -> list[dict[str, str]]:
        """Each atom of the first minimal set that holds: on which entity and through which principal."""
        for numbers in self.listed.sets:
            if all(map(self.holds, numbers)):
                return list(map(self._reason, numbers))
        return []

    def _reason(self, number: int) -> dict[str, str]:
        atom = self.listed.atoms[number]
        source = min(self.listed.plan.sources(atom, self.caller, self.paths))
        on = {"on": source.on} if atom.type and atom.kind != "self" else {}
        return {"atom": self.listed.text(number, self.paths), **on, "through": source.through}

    def holds(self, number: int) -> bool:
        """Return whether an atom holds."""
        known = self._held.get(number)
        if known is None:
            sources = self.listed.plan.sources(self.listed.atoms[number], self.caller, self.paths)
            known = self._held[number] = any(sources)
        return known


def _context(rule: Mapping[str, Any], revision: str | None, **parts: Any) -> dict[str, Any]:
    always = {"rule": rule["id"], "missing": [], "reasons": [], "effects": [], "source": rule["source"]}
    return always | parts | ({} if revision is None else {"revision": revision})


_NOTHING: Mapping[str, Iterable[str]] = {}


class Place(NamedTuple):
    """The place of an entity: the ids on its path by their number of names, and the levels of the type that nests there, or 0."""

    path: list[str]
    levels: int


class RowEngine:
    """Decides requests whose names were checked. Threads may share it; it can be pickled.

    Example: `RowEngine(program_document, index).decide(request).allowed`.
    """

    def __init__(self, program: Mapping[str, Any], index: Index, *, partial: bool = False) -> None:
        """`program` is the document at `data.privtab_program.<name>` of the policy bundle. Raises PolicyError for any other.

        `partial`: the caller does not ask about entities in missing shards; otherwise missing shards raise DecisionUnavailable.
        """
        if index.missing and not partial:
            raise DecisionUnavailable(
                f"{len(index.missing)} shard(s) of the state are missing, such as that of `{min(index.missing)}`"
            )
        if index.windows:
            raise PolicyError("rows of the state hold for a time, and the engine has no moment for them")
        self.program = program
        self.index = index
        self._plans: dict[tuple[Any, ...], FormPlan] = {}
        self._listed: dict[FormPlan, MinimalSets] = {}
        try:
            self._read()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise PolicyError(f"the program of the policy cannot be read: {error!r}") from error

    def _read(self) -> None:
        self.semantics = GrantSemantics.read(self.program)
        self.index.everyone = self.semantics.everyone
        self.reader = ConditionReader(self.program)
        self.locations = Locations(self.reader.shapes, self.index.places, self.index.containers)
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
        RowEngine.__init__(self, *state, partial=True)

    def allow(self, request: Request) -> bool:
        """Return whether the request is allowed."""
        located = self.located(request)
        if located is None:
            return False
        caller = self.caller(request)
        return not caller.unheld and located[0].holds(caller, located[1])

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the allowed items, ascending; only the type of the request's resource is used."""
        resource = request.resource
        if not items:
            return []
        if self.reader.flat:
            return [n for n, item in enumerate(items) if self.allow(replace(request, resource=item))]
        plan = self._plan(request, self._levels(request, items[0]), named=True)
        paths = {slot: beginnings(entity.id) for slot, entity in self._objects(request).items()}
        caller = self.caller(request)
        if caller.unheld:
            return []
        decide, gather = plan.decide, plan.gather
        found = []
        nests = resource.type in self.reader.nested
        for position, item in enumerate(items):
            if nests:
                plan = self._plan(request, self._levels(request, item), named=True)
                decide, gather = plan.decide, plan.gather
            paths[RESOURCE] = beginnings(item.id)
            if decide(gather(caller, paths)):
                found.append(position)
        return found

    def decide(self, request: Request) -> Decision:
        """The decision with its explanation."""
        rule = self.program["rules"][request.resource.type][request.action]
        located = self.located(request)
        if located is None:
            return self._unplaced(request, rule)
        plan, paths = located
        caller = self.caller(request)
        allowed = not caller.unheld and plan.holds(caller, paths)
        explanation = Explanation(self.minimal_sets(rule, plan), caller, paths)
        return Decision(allowed=allowed, context=explanation.context(self.program.get("revision"), allowed=allowed))

    def minimal_sets(self, rule: Mapping[str, Any], plan: FormPlan) -> MinimalSets:
        """The minimal sets of a rule, as in the program's JSON, for requests of one form."""
        found = self._listed.get(plan)
        if found is None:
            found = self._listed[plan] = MinimalSets(rule, plan)
        return found

    def values(self, request: Request, index: Index) -> RequestValues:
        """The attributes that a request gives, and those that an index has."""
        return RequestValues.of(request, self.shapes[request.resource.type, request.action][1], index)

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""
        return [self.decide(request) for request in requests]

    def applied(self, request: Request) -> AppliedFilter:
        """The row filter or the column mask that applies, and its SQL; the action of the request is the kind."""
        kind = next(kind for kind in FILTER_KINDS if kind == request.action)
        dialect = self.program["filters"]["dialect"]
        if dialect not in DIALECTS:
            raise PolicyError(f"the filters of the policy are in the dialect {dialect!r:.80}, which is not known here")
        require_kept(self.program["filters"].get("needs", ()), self.index.keeps)
        filters = {one["name"]: one["sql"] for one in self.program["filters"][kind][request.resource.type]}
        asked = {name: replace(request, action=operation_of(kind, name)) for name in filters}
        name = next((name for name in filters if self.allow(asked[name])), None)
        text = None if name is None else written(filters[name], partial(self._sql_value, asked[name]))
        return denial(kind) if text is None else AppliedFilter(name, text)

    def _sql_value(self, request: Request, placeholder: Mapping[str, Any]) -> str | None:
        """The value of a placeholder as SQL; None if there is none."""
        dialect = self.program["filters"]["dialect"]
        caller = self.caller(request)
        match placeholder.get("word"):
            case "user":
                return literal(request.user, dialect)
            case "groups":
                groups = [name for kind, _, name in (p.partition(":") for p in caller.principals) if kind == "group"]
                return literal(groups, dialect)
            case "column":
                return identifier(unencoded_name(request.resource.names[-1]), dialect)
            case _:
                located = self.located(request)
                if located is None:
                    return None
                plan, paths = located
                [operand] = self.reader.operands(placeholder, RESOURCE, plan.form)
                return literal(caller.values.value(operand, plan.path(operand, paths)), dialect)

    def _objects(self, request: Request) -> dict[str, Entity]:
        return request.objects(self.shapes[request.resource.type, request.action][1])

    def located(self, request: Request) -> tuple[FormPlan, dict[str, list[str]]] | None:
        """The plan for a request, and the beginnings of the paths of its objects; None if no row places one of these."""
        if self.reader.flat:
            return self._located(request)
        return self.plan(request), {slot: beginnings(entity.id) for slot, entity in self._objects(request).items()}

    def _located(self, request: Request) -> tuple[FormPlan, dict[str, list[str]]] | None:
        """The plan for a request, and the ids on the paths of its objects; None if no row places one of these."""
        paths: dict[str, list[str]] = {}
        levels: dict[str, int] = {}
        for slot, entity in self._objects(request).items():
            place = self.place(entity)
            if place is None:
                return None
            paths[slot] = place.path
            if place.levels:
                levels[slot] = place.levels
        named = self.reader.shapes[request.resource.type].named(request.resource.id)
        return self._plan(request, levels, named=named), paths

    def place(self, entity: Entity) -> Place | None:
        """The place of an entity; None if no row places it."""
        shape = self.reader.shapes[entity.type]
        if not self.reader.flat:
            return Place(beginnings(entity.id), 0 if shape.nested is None else shape.levels(entity.id))
        keys = self.locations.find(entity)
        if keys is None:
            return None
        count = self.locations.levels(entity, keys)
        path = ids(keys, [depth for _, depth in shape.links(count)])
        if shape.nested is None:
            return Place(path, 0)
        return Place(path if shape.named(entity.id) else [*path, f"{entity.id.removesuffix('/')}/"], count)

    def _unplaced(self, request: Request, rule: Mapping[str, Any]) -> Decision:
        """The denial of a request about entities that no row places."""
        unplaced = [self.locations.unplaced(entity) for entity in self._objects(request).values()]
        error = not_placed([key for key in unplaced if key is not None])
        return Decision(allowed=False, context=_context(rule, self.program.get("revision"), error=error))

    def plan(self, request: Request) -> FormPlan:
        """The plan for requests of the same form as this one."""
        resource = request.resource
        named = self.reader.shapes[resource.type].named(resource.id)
        return self._plan(request, self._levels(request, resource), named=named)

    def _plan(self, request: Request, levels: Mapping[str, int], *, named: bool) -> FormPlan:
        resource = request.resource
        flags, slots = self.shapes[resource.type, request.action]
        types = request.types(slots)
        has_attributes = bool(request.attributes)
        return self.plan_of(
            resource.type,
            request.action,
            request.flags & flags,
            types,
            named=named,
            levels=levels,
            attributes=has_attributes,
        )

    def _levels(self, request: Request, resource: Entity) -> Mapping[str, int]:
        """By slot, the number of levels on the paths on which a type nests."""
        if not self.reader.nested:
            return {}
        entities = {**self._objects(request), RESOURCE: resource}
        shapes = self.reader.shapes
        return {s: shapes[e.type].levels(e.id) for s, e in entities.items() if e.type in self.reader.nested}

    def plan_of(
        self,
        type_: str,
        operation: str,
        flags: frozenset[str],
        withs: Mapping[str, str],
        *,
        named: bool,
        levels: Mapping[str, int] | None = None,
        attributes: bool = False,
    ) -> FormPlan:
        """The plan for requests of a form; `withs` are the types of the `with` objects, the rest as in RequestShape."""
        levels = levels or {}
        flag_names, slots = self.shapes[type_, operation]
        flags = flags & flag_names
        key = (type_, operation, flags, named, attributes, *(withs[slot] for slot in slots), *levels.items())
        plan = self._plans.get(key)
        if plan is None:
            types = {RESOURCE: type_, **{slot: withs[slot] for slot in slots}}
            form = RequestShape(flags=flags, types=types, named=named, levels=levels, attributes=attributes)
            condition = self.reader.condition(type_, operation, form)
            plan = self._plans[key] = FormPlan(condition, form, self.reader, self.semantics, self.index)
        return plan

    def needs_only_resource(self, type_: str, operation: str) -> bool:
        """Return whether a request for an operation needs nothing besides its resource."""
        rule = self.program["rules"][type_][operation]
        return not (rule["with"] or rule.get("required_flags") or rule.get("needs_active_role"))

    def single(self, type_: str) -> bool:
        """Return whether an entity of a type has the path of the entity that contains it."""
        chain = self.reader.chains[type_]
        return len(chain) > 1 and chain[-1][1] == chain[-2][1]

    def caller(self, request: Request) -> Caller:
        """The caller of a request."""
        groups = request.groups if self.semantics.request_groups else ()
        index, user = self.index, request.user
        scopes = index.scopes(user, groups) if self.semantics.roles else _NOTHING
        values = self.values(request, index)
        principals = index.principals(user, groups)
        if request.active_roles is None or not self.semantics.active_roles:
            return Caller(user=user, principals=principals, scopes=scopes, active=principals, values=values)
        active = index.active(principals, request.active_roles)
        unheld = set(request.active_roles).difference(map(index.role_of, principals))
        if scopes:
            scopes = _scopes_of(index, active)
        return Caller(
            user=user,
            principals=principals,
            scopes=scopes,
            active=active,
            active_roles=tuple(request.active_roles),
            unheld=tuple(unheld),
            values=values,
        )


def _scopes_of(index: Index, principals: Iterable[str]) -> Mapping[str, Iterable[str]]:
    """The roles for which principals stand within scopes, by the key of the scope."""
    found: dict[str, list[str]] = {}
    for principal in principals:
        if principal in index.within:
            role, scope = index.within[principal]
            found.setdefault(scope, []).append(role)
    return found
