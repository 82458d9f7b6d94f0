"""Resolve rows, one for each (entity type, operation), and the operations of `conflicts`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field

from privtab.base.diagnostics import Diagnostic
from privtab.base.effects import DELEGATION, PRINCIPAL_TABLES, TABLE_OF_TYPE
from privtab.base.names import ANY_PRIVILEGE, LEFT_OUT, NO_OBJECT
from privtab.base.records import dataclass
from privtab.ir.declarations import Semantics
from privtab.ir.names import undeclared_creation
from privtab.ir.nodes import RESOURCE, Ambiguous, Conflict, Creation, Source, WithSlot
from privtab.language.findings import undeclared, unreadable, unsound_rows
from privtab.language.syntax.expression import Name
from privtab.language.syntax.nodes import ConditionCell, ConflictDecl, EffectCell, RowBody, RowDecl, Tables
from privtab.model import nodes as m
from privtab.model.conditions import Scope, fitting_types, privilege_names
from privtab.model.names import DeclaredNames, unbound
from privtab.model.nodes import PairKey
from privtab.model.select import ChosenRow

_DELEGATED = (ANY_PRIVILEGE, "member", *PRINCIPAL_TABLES)
"""The words that a delegation may name besides privileges, sets and `owner`; most of them only on some types."""


@dataclass(slots=True)
class Rows:
    """Resolves the rows of one file, given the row chosen for each pair."""

    tables: Tables
    names: DeclaredNames
    semantics: Semantics
    pairs: Mapping[m.PairKey, ChosenRow]
    sources: Mapping[str, str]
    rows_unknown: frozenset[str] = frozenset()
    """Types whose rows could not be read; the empty name stands for all types."""
    gates: dict[str, tuple[m.Condition | None, m.Condition | None]] = field(default_factory=dict)
    fitting: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    """The types of `with` objects declared as `any`, which do not depend on the type that the row is for."""
    bodies: dict[tuple[str, str], tuple[m.Condition | None, list[Diagnostic]]] = field(default_factory=dict)
    """The named conditions, resolved for a type."""
    gate_found: list[tuple[Diagnostic, str]] = field(default_factory=list)

    def resolve(self, entity: str, chosen: ChosenRow, found: list[Diagnostic]) -> m.Row | None:
        """The row for a pair; None, with findings, if it is invalid."""
        decl = chosen.decl
        scope = self.scope(entity)
        self._objects(decl, scope)
        gate, alternative = (None, None) if decl.ungated else self.gate(entity)
        requires, each = scope.resolve(decl.body.requires), scope.resolve(decl.body.each)
        outcomes = self._outcomes(decl.operation.value, decl.body, scope)
        source = self._source(decl, scope)
        ambiguous = self._ambiguous(decl, scope)
        creates = self._creates(decl, scope, (gate, requires), each, outcomes)
        found.extend(scope.found)
        if scope.poisoned or decl.poisoned:
            return None
        return m.Row(
            entity=entity,
            operation=decl.operation.value,
            origin=chosen.origin,
            decl=decl,
            gate=gate,
            # Of filters the first that holds applies, so that a condition which suffices for each would choose the first.
            alternative=alternative if decl.sql is None else None,
            requires=requires,
            each=each,
            withs=tuple(
                WithSlot(name=name, types=(*types, LEFT_OUT) if name in scope.optional else types)
                for name, types in scope.objects.items()
            ),
            outcomes=tuple(outcome for outcome in outcomes if outcome.kind not in DELEGATION),
            delegations=tuple(outcome for outcome in outcomes if outcome.kind in DELEGATION),
            creates=creates,
            requires_text=_text(decl.body.requires),
            each_text=_text(decl.body.each),
            report=None if decl.body.report is None else decl.body.report.value,
            source=source,
            ambiguous=ambiguous,
        )

    def check_privileges(self, cells: Iterable[ConditionCell], found: list[Diagnostic]) -> None:
        """Look up only the privileges in some conditions."""
        scope = Scope(entity="", names=self.names, pairs=self.pairs, owners=True)
        for cell in cells:
            for name in privilege_names(cell.expression) if cell.expression is not None else ():
                if name.text not in self.names.conditions:
                    scope.privilege(name, cell.cell)
        found.extend(scope.found)

    def gate(self, entity: str) -> tuple[m.Condition | None, m.Condition | None]:
        """`and` and `or` of the file's gate, resolved for a type; findings go to `gate_found`, once for each type."""
        if entity not in self.gates:
            scope, semantics = self.scope(entity), self.tables.semantics
            self.gates[entity] = scope.resolve(semantics.gate), scope.resolve(semantics.alternative)
            self.gate_found.extend((d, entity) for d in scope.found)
        return self.gates[entity]

    def scope(self, entity: str) -> Scope:
        """The context of the rows of a type."""
        owners = self.semantics.owner is not None or not self.tables.semantics.owner_known
        owner = self.semantics.owner
        return Scope(
            entity=entity,
            names=self.names,
            pairs=self.pairs,
            owners=owners,
            owner_privileges=frozenset(owner.holds) if owner else frozenset(),
            rows_unknown=self.rows_unknown,
            bodies=self.bodies,
        )

    def _objects(self, decl: RowDecl, scope: Scope) -> None:
        names = self.names
        for with_ in decl.withs:
            name = with_.name.value
            if name in ("parent", "entity") or (name in names.entities and names.hierarchy.reaches(scope.entity, name)):
                scope.fail(unsound_rows.object_hides_type(with_.name.span, name, scope.entity))
                scope.poisoned_objects.add(name)
            elif with_.types is None:
                cells = list(decl.body.conditions)
                key = (id(decl.body), name)
                if key not in self.fitting:
                    self.fitting[key] = fitting_types(name, cells, names, self.pairs)
                types = self.fitting[key]
                if types:
                    scope.objects[name] = types
                    continue
                scope.poisoned_objects.add(name)
                scope.poisoned = True
                if all(cell.expression is not None for cell in cells):
                    scope.found.append(unsound_rows.object_without_types(with_.types_span, name))
            else:
                words = [word for word in with_.types if word.value != NO_OBJECT or NO_OBJECT in names.entities]
                known = [word.value for word in words if names.check_type(word, scope.found)]
                if known and len(known) == len(words):
                    scope.objects[name] = tuple(dict.fromkeys(known))
                    scope.optional |= {name} if len(words) < len(with_.types) else set()
                else:
                    scope.poisoned_objects.add(name)
                    if not words:
                        scope.fail(unsound_rows.object_without_types(with_.types_span, name))

    def _outcomes(self, operation: str, body: RowBody, scope: Scope) -> tuple[m.ResolvedEffect, ...]:
        outcomes = [outcome for cell in body.effects for outcome in self._effects(cell, scope)]
        owner = self.semantics.owner
        if owner is not None and owner.creator and operation == "create" and body.becomes is None:
            outcomes.append(
                m.ResolvedEffect(
                    "become", "owner", None, RESOURCE, scope.entity, of_role=owner.creator == "active_role"
                )
            )
        return tuple(outcomes)

    def _effects(self, cell: EffectCell, scope: Scope) -> Iterator[m.ResolvedEffect]:
        delegates = cell.kind in DELEGATION
        for term in cell.terms:
            on = [] if term.targets else [(RESOURCE, scope.entity)]
            for target in term.targets:
                place = scope.place(target, cell.cell, children=True)
                scope.refuse_below("an effect", (target,), cell.cell)
                if place is not None and place.level != "nearest":
                    scope.fail(unsound_rows.effect_on_level(place.spot.span, place.written))
                elif place is not None and place.optional:
                    message, advice = f"`{place.written}` may be left out", "name an object that each request has"
                    scope.refuse(place.spot.span, message, advice)
                elif place is not None and len(place.types) > 1:
                    scope.fail(unsound_rows.effect_on_many_types(place.spot.span, place.written, place.types))
                elif place is not None and delegates and (place.slot, place.types[0]) != (RESOURCE, scope.entity):
                    scope.fail(unsound_rows.wrong_delegation_elsewhere(place.spot.span, place.written, scope.entity))
                elif place is not None:
                    on.append((place.slot, place.types[0]))
            for name in term.names:
                for slot, type_ in on:
                    outcome = self._outcome(cell, name, slot, type_, scope)
                    if outcome is not None:
                        yield outcome

    def _outcome(self, cell: EffectCell, name: Name, slot: str, type_: str, scope: Scope) -> m.ResolvedEffect | None:
        if cell.kind in DELEGATION and name.text in _DELEGATED and name.text not in self.names.declared:
            return self._delegation(cell, name, type_, scope)
        if name.text in ("owner", "member") and name.text not in self.names.declared:
            if cell.kind == "grant":
                advice = f"write `becomes: {name.text}`"
                scope.refuse(cell.cell.at(name), f"`{name.text}` cannot be granted", advice)
                return None
            if name.text == "owner" and not scope.owners:
                scope.fail(unsound_rows.no_owners(cell.cell.at(name), "the effect"))
                return None
            return m.ResolvedEffect(cell.kind, name.text, None, slot, type_)
        if cell.kind == "revoke" and name.text in PRINCIPAL_TABLES:
            if name.text in self.names.declared:
                advice = "rename the privilege: decisions could not say which of the two they revoke"
                scope.refuse(cell.cell.at(name), f"`{name.text}` is also a table of the state", advice)
                return None
            if self.names.entities[type_].principal is None:
                scope.fail(unsound_rows.not_a_principal_without_rows(cell.cell.at(name), name.text, type_))
                return None
            return m.ResolvedEffect(cell.kind, name.text, None, slot, type_)
        if cell.kind == "become":
            scope.fail(unreadable.wrong_value(cell.cell.at(name), "`becomes`", name.text, ("owner", "member")))
            return None
        use = scope.privilege(name, cell.cell)
        if use is None:
            return None
        if wrong := unbound(self.names, use.written, use.members, (type_,), lambda: cell.cell.at(name)):
            scope.fail(*wrong)
        return m.ResolvedEffect(cell.kind, name.text, use, slot, type_)

    def _delegation(self, cell: EffectCell, name: Name, type_: str, scope: Scope) -> m.ResolvedEffect | None:
        """A delegation of rows of the state, or of whichever privilege the request names."""
        span = cell.cell.at(name)
        if name.text == ANY_PRIVILEGE:
            if not any(type_ in privilege.on for privilege in self.names.privileges.values()):
                scope.fail(unsound_rows.privilege_cannot_bind(span, name.text, (name.text,), (type_,), ()))
                return None
        elif name.text != (table := TABLE_OF_TYPE[self.names.entities[type_].principal]):
            scope.fail(unsound_rows.wrong_delegation(span, name.text, type_, table))
            return None
        return m.ResolvedEffect(cell.kind, name.text, None, RESOURCE, type_)

    def _source(self, decl: RowDecl, scope: Scope) -> Source | None:
        found: list[Source] = []
        for ref in decl.source:
            name = ref.name
            if name is None and len(self.sources) == 1:
                name = next(iter(self.sources))
            if name is not None and name in self.sources:
                found.append(Source(document=self.sources[name], line=ref.line))
            elif "sources" not in self.tables.unreadable:
                scope.fail(undeclared.unknown_source(ref.span, name, tuple(self.sources)))
        return found[0] if found else None

    def _ambiguous(self, decl: RowDecl, scope: Scope) -> Ambiguous | None:
        """The readings, each resolved like the row itself, so that mistakes are found before the reading is chosen."""
        if decl.ambiguous is None:
            return None
        for reading in decl.ambiguous.readings:
            scope.resolve(reading.body.requires)
            scope.resolve(reading.body.each)
            self._outcomes("", reading.body, scope)
        return Ambiguous(
            cell=decl.ambiguous.cell,
            readings=tuple((r.name.value, r.text) for r in decl.ambiguous.readings),
            why=decl.ambiguous.why,
        )

    def _creates(
        self,
        decl: RowDecl,
        scope: Scope,
        of_call: tuple[m.Condition | None, ...],
        each: m.Condition | None,
        outcomes: tuple[m.ResolvedEffect, ...],
    ) -> Creation | None:
        """The creation of the entity: as the row declares, or else if it gives something on it, and neither call nor items need anything of it."""

        def need_it(conditions: Iterable[m.Condition | None]) -> bool:
            return any(c is not None and self._refers_to_itself(c, scope.entity) for c in conditions)

        if decl.creates is not None:
            if decl.creates.value and need_it(of_call):
                scope.fail(unsound_rows.created_entity_in_condition(decl.creates.span, scope.entity))
            return "surely" if decl.creates.value else None
        gives = any(o.kind in ("grant", "become") and (o.slot, o.type) == (RESOURCE, scope.entity) for o in outcomes)
        return undeclared_creation(decl.operation.value) if gives and not need_it((*of_call, each)) else None

    def _refers_to_itself(self, condition: m.Condition, entity: str) -> bool:
        """Return whether the condition refers to the entity itself or to a type inside it."""
        inside = self.names.hierarchy.within
        for term in m.walk(condition):
            if isinstance(term, m.IsSelf):
                return True
            places = term.places if isinstance(term, m.Simple) else ()
            at_itself = [p for p in places if p.slot == RESOURCE and p.level in ("nearest", "every")]
            if isinstance(term, m.Named):
                if at_itself and any(self._refers_to_itself(body, entity) for _, body in term.bodies):
                    return True
            elif any(inside(place.types[0], entity) for place in at_itself):
                return True
        return False


def _text(cell: ConditionCell | None) -> str | None:
    return None if cell is None else cell.cell.line


def resolve_conflicts(
    decls: tuple[ConflictDecl, ...],
    names: DeclaredNames,
    pairs: Collection[PairKey],
    rows_unknown: frozenset[str],
    found: list[Diagnostic],
) -> tuple[Conflict, ...]:
    """The conflicts whose operations all exist; add a finding for each operation that does not."""
    resolved: list[Conflict] = []
    for decl in decls:
        operations: list[PairKey] = []
        for word in decl.operations:
            type_, _, operation = word.value.partition("/")
            if not names.check_type(word.part(0, len(type_)), found):
                continue
            if (type_, operation) in pairs:
                operations.append((type_, operation))
            elif not rows_unknown & {type_, ""}:
                known = tuple(op for entity, op in pairs if entity == type_)
                span = word.part(len(type_) + 1, len(word.value)).span
                found.append(undeclared.unknown_operation(span, operation, (type_,), known))
        if len(operations) == len(decl.operations):
            resolved.append(Conflict(operations=tuple(operations), at_most=decl.at_most, span=decl.span, why=decl.why))
    return tuple(resolved)
