"""Compute a matrix by the index of a state, pair by pair, for policies whose features arrays do not support.

The engine of `Embedded` decides, so no feature of the language has a second implementation here. Only the subjects that something
on the path of an entity concerns are decided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from privtab.engines.attributes import RequestValues
from privtab.engines.conditions import RESOURCE
from privtab.engines.explain import Atom, Explanation
from privtab.engines.index import Index
from privtab.engines.plan import Caller, FormPlan
from privtab.engines.rows import RowEngine
from privtab.names import last_name
from privtab.paths import base_type
from privtab.request import Entity, Request
from privtab.spark.matrix.principals import Subject
from privtab.spark.matrix.question import SCHEMA, Matrix, Question
from privtab.spark.matrix.ways import ADMIN, ANYONE, ATTRIBUTE, GRANT, HOLDS, KINDS, MEMBER, NEEDED, OWNER, ROLE, SELF
from privtab.vocabulary import Vocabulary

BATCH = 10_000
"""Number of rows in a batch."""
NOBODY = Subject(principal="", user=None, principals=(), scopes={}, through={})
KNOWN = 10_000
"""Number of paths whose holders are kept."""


class IndexMatrix(Matrix):
    """The matrix of some subjects, decided pair by pair."""

    def __init__(
        self, program: Mapping[str, Any], index: Index, subjects: Sequence[Subject], question: Question
    ) -> None:
        users = (subject.user for subject in subjects)
        super().__init__(program, Vocabulary.from_program(program), users, index.revision, question)
        self.engine = RowEngine(program, index)
        self.subjects = subjects
        self._by_principal: dict[str, list[int]] = defaultdict(list)
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_scope: dict[str, list[int]] = defaultdict(list)
        self._always: set[int] = set()
        """The subjects that every entity concerns: their memberships are assumed, or what they hold counts everywhere."""
        for number, subject in enumerate(subjects):
            if subject.user is None or subject.user in index.service_admins:
                self._always.add(number)
            names = {subject.user} - {None}
            for principal in subject.principals:
                self._by_principal[principal].append(number)
                role = index.role_of(principal)
                names.add(principal.partition(":")[2] if role is None else role)
                if principal in self.engine.semantics.roles:
                    self._always.add(number)
            for name in names:
                self._by_name[str(name)].append(number)
            for scope in subject.scopes:
                self._by_scope[scope].append(number)
        self._with_attributes = {n for n, subject in enumerate(subjects) if subject.user in index.user_attributes}
        self._holders: dict[str, frozenset[int]] = {}
        self._callers: dict[tuple[str, ...], list[Caller]] = {}

    def of(self, keys: Iterable[str | None]) -> Iterator[pa.RecordBatch]:
        """As Matrix.of."""
        rows: list[dict[str, Any]] = []
        for key in keys:
            entity = self.entity(key)
            if entity is None:
                continue
            for name in self.names(entity.type, named=self.vocabulary.complete(entity)):
                rows += self._entitlements(entity, name)
            if len(rows) >= BATCH:
                yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def _entitlements(self, entity: Entity, operation: str) -> Iterator[dict[str, Any]]:
        slots = self.engine.shapes[entity.type, operation][1]
        withs = {slot: (self.question.withs or {})[slot] for slot in slots}
        request = Request(
            user="",
            action=operation,
            resource=entity,
            with_=withs,
            flags=self.question.flags,
            attributes=self.question.attributes,
        )
        located = self.engine.located(request)
        if located is None:  # no row of the state tells where the entity lies, so nothing is allowed
            return
        plan, paths = located
        rule = self.program["rules"][entity.type][operation]
        reader, semantics, index = self.engine.reader, self.engine.semantics, self.engine.index
        callers = self._callers_of(request, slots)
        for number in self._concerned(callers[-1], plan, paths):
            subject, caller = self.subjects[number], callers[number]
            if subject.user is not None and not plan.holds(caller, paths):
                continue
            entitlement = Entitlement(rule, plan.form, caller, paths, reader, semantics, index, subject)
            ways = entitlement.ways()
            if subject.user is not None and not ways:
                raise AssertionError(
                    f"{entity.type}/{operation}: allowed by its condition and by none of its minimal sets"
                )
            for way in ways[:1] if self.question.ways == "first" else ways:
                yield {
                    "principal": subject.principal,
                    "user": subject.user,
                    "operation": operation,
                    "type": entity.type,
                    "path": entity.id,
                    **entitlement.columns(way),
                }

    def _callers_of(self, request: Request, slots: tuple[str, ...]) -> list[Caller]:
        """Each subject as a caller, and as the last one, somebody who holds nothing. Given attributes depend on the objects, which are the same in all requests."""
        key = slots if request.attributes else ()
        if key not in self._callers:
            index, semantics = self.engine.index, self.engine.semantics
            values = RequestValues.of(request, slots, index)
            self._callers[key] = [
                Caller(
                    user=subject.user or "",
                    principals=subject.principals,
                    scopes=subject.scopes if semantics.roles else {},
                    active=subject.principals,
                    values=_of_user(values, index.user_attributes.get(subject.user or "")),
                )
                for subject in (*self.subjects, NOBODY)
            ]
        return self._callers[key]

    def _concerned(
        self, caller_without_rights: Caller, plan: FormPlan, paths: Mapping[str, list[str]]
    ) -> Sequence[int]:
        """The subjects whose answer may differ from that of a user who holds nothing, or all if that user is allowed."""
        if plan.holds(caller_without_rights, paths):
            return range(len(self.subjects))
        found = set(self._always)
        if any(operand.of == "user" for _, comparison in plan.comparisons for operand in comparison.operands):
            found |= self._with_attributes
        for path in {path for beginnings in paths.values() for path in beginnings}:
            found |= self._holders_of(path)
        return sorted(found)

    def _holders_of(self, path: str) -> frozenset[int]:
        """The subjects that hold something on an entity with this path, or within it as a scope, belong to it, or bear its name."""
        known = self._holders.get(path)
        if known is None:
            if len(self._holders) >= KNOWN:
                self._holders.clear()
            known = self._holders[path] = frozenset(self._find_holders(path))
        return known

    def _find_holders(self, path: str) -> Iterator[int]:
        index = self.engine.index
        # A condition may look at any type that has the path: at a `single` one within the resource, too.
        for type_ in self.program["entities"]:
            key = f"{type_}:{path}"
            below = (entries[key] for entries in index.below.values() if key in entries)
            for holders in (index.table(type_).get(path, {}), index.owned_below.get(key, {}), *below):
                for principal in holders:
                    yield from self._by_principal.get(principal, ())
            for user in index.members.get(type_, {}).get(path, ()):
                yield from self._by_name.get(user, ())
            yield from self._by_scope.get(key, ())
        for name in {last_name(path), path}:
            yield from self._by_name.get(name, ())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_callers": {}, "_holders": {}}


def _of_user(values: RequestValues, of_user: Mapping[str, object] | None) -> RequestValues:
    return values if of_user is None else replace(values, of_user=of_user)


_KINDS = {"self": SELF, "service_admin": ADMIN, "compare": ATTRIBUTE, "owner": OWNER, "member": MEMBER, "holds": HOLDS}
_HELD = ("has", "owner", "has_below", "owns_below")


@dataclass(eq=False)
class Entitlement(Explanation):
    """What one subject may do with one entity by one operation. A group or a role belongs wherever that is needed."""

    subject: Subject

    def ways(self) -> list[Sequence[int]]:
        """The minimal sets that hold, as numbers of atoms."""
        return [numbers for numbers in self.sets if all(map(self.holds, numbers))]

    def columns(self, way: Sequence[int]) -> dict[str, Any]:
        """The columns that say on what a way is based."""
        links = [self._link(self.atoms[number]) for number in way]
        if not links:
            return {"via_kind": ANYONE, "via_principal": None, "via_entity": None, "via": []}
        main = links[min(range(len(way)), key=lambda position: self._rank(self.atoms[way[position]]))]
        return {
            "via_kind": main["kind"],
            "via_principal": main["principal"],
            "via_entity": main["entity"],
            "via": links,
        }

    def _holds(self, atom: Atom) -> bool:
        return self._is_needed(atom) or super()._holds(atom)

    def _is_needed(self, atom: Atom) -> bool:
        """Whether an atom is a membership that a group or a role cannot have."""
        if self.subject.user is not None or atom["kind"] != "member":
            return False
        return self.reader.principal[base_type(atom["type"])] != "group" and self.path(atom) is not None

    def _rank(self, atom: Atom) -> tuple[bool, bool, int]:
        """The smallest is that of the main atom: the privilege or ownership nearest to the resource."""
        type_ = atom.get("type", "")
        depth = len(self.reader.chains[type_]) if type_ else 0
        return atom.get("slot", RESOURCE) != RESOURCE, atom["kind"] not in _HELD, -depth

    def _link(self, atom: Atom) -> dict[str, str | None]:
        kind, principal, entity = self._source(atom)
        return {
            "atom": self.text(atom),
            "kind": KINDS[kind],
            "principal": principal,
            "entity": entity,
            "group": self._group(kind, principal, atom, entity),
        }

    def _source(self, atom: Atom) -> tuple[int, str, str | None]:
        """The kind of what an atom is based on, and its principal and entity."""
        match atom["kind"]:
            case "self" | "service_admin" | "compare":
                return _KINDS[atom["kind"]], self.subject.principal, None
            case "member" if self._is_needed(atom):
                return NEEDED, self.subject.principal, self.key_or_type(atom)
            case "has" if owned := min(self.ownerships(atom), default=None):
                return OWNER, owned.through.removeprefix("owner "), owned.on
            case "has":
                grant = min(self.grants(atom))
                by_row = (grant.on, grant.through) in self._entries("allow", atom)
                return (GRANT if by_row else ROLE), grant.through, grant.on
            case kind:
                through = self._reason(atom)["through"]
                if kind in ("has_below", "owns_below"):
                    owns = kind == "owns_below" or through.startswith("owner ")
                    return (OWNER if owns else GRANT), through.removeprefix("owner "), self.key_or_type(atom)
                return _KINDS[kind], through, self.key_or_type(atom)

    def _group(self, kind: int, principal: str, atom: Atom, entity: str | None) -> str | None:
        """The group through which a role is held; None: directly. Of several holdings, the first that counts there."""
        holdings = self.subject.through.get(principal, ())
        if not holdings:
            return None
        keys: list[str] = []
        if kind in (GRANT, ROLE):
            paths, chain = self.paths[atom["slot"]], self.reader.chains[atom["type"]]
            keys = [f"{base_type(type_)}:{paths[depth]}" for type_, depth in chain]
            if kind == ROLE and entity in keys:
                keys = keys[: keys.index(entity) + 1]
        # Below an entity, roles count that are held within any of what lies there.
        anywhere = kind == HOLDS or atom["kind"] in ("has_below", "owns_below")
        scopes = {"", *keys}
        return next((group or None for group, scope in holdings if anywhere or scope in scopes), None)
