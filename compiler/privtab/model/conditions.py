"""Expressions → conditions: look up every privilege, target and operation in the context of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import assert_never, cast

from privtab.base.attributes import Attribute, AttributeKind, Operator
from privtab.base.diagnostics import Diagnostic, Span
from privtab.base.hints import nearest
from privtab.base.names import ANY_PRIVILEGE, NAMED_PRIVILEGE, NO_OBJECT, PRIVILEGE_ATTRIBUTE
from privtab.base.paths import SEVERAL, Level
from privtab.base.records import dataclass
from privtab.base.request import ACTIVE_ROLES
from privtab.ir.nodes import RESOURCE
from privtab.language.findings import undeclared, unreadable, unsound_rows
from privtab.language.syntax import expression as x
from privtab.language.syntax.nodes import Cell, ConditionCell
from privtab.model import nodes as m
from privtab.model.names import DeclaredNames
from privtab.model.select import ChosenRow

_SELECTORS: Mapping[str, Level] = {"first": "first", "any": "any", "every": "every"}
"""The words before a target, by the level that they mean."""

_NO_FLAGS = {"with": "the request's objects", ACTIVE_ROLES: "the active roles"}
"""The parts of a context that are no flags."""


@dataclass(slots=True)
class Scope:
    """The context of a row: its entity type, its `with` objects with their possible types, and the file's declarations.

    A `with` object in `poisoned_objects` and not in `objects` already has a finding.
    """

    entity: str
    names: DeclaredNames
    pairs: Mapping[m.PairKey, ChosenRow]
    owners: bool
    """True if conditions may refer to owners."""
    owner_privileges: frozenset[str] = frozenset()
    objects: dict[str, tuple[str, ...]] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    """The `with` objects that requests may leave out."""
    rows_unknown: frozenset[str] = frozenset()
    """Types whose rows could not be read; the empty name stands for all types."""
    poisoned_objects: set[str] = field(default_factory=set)
    bodies: dict[tuple[str, str], tuple[m.Condition | None, list[Diagnostic]]] = field(default_factory=dict)
    """The named conditions, resolved for a type; those that are not valid there are None, with the findings."""
    found: list[Diagnostic] = field(default_factory=list)
    poisoned: bool = False

    def resolve(self, cell: ConditionCell | None) -> m.Condition | None:
        """The condition of a cell; None if the cell is absent or could not be resolved (then `poisoned` is set)."""
        if cell is None:
            return None
        if cell.expression is None:
            self.poisoned = True
            return None
        return self._condition(cell.expression, cell.cell)

    def fail(self, *diagnostics: Diagnostic) -> None:
        """Add findings that make the row invalid."""
        self.found.extend(diagnostics)
        self.poisoned = True

    def refuse(self, span: Span, message: str, advice: str) -> None:
        """Report a value that is wrong in its own way."""
        self.fail(unreadable.wrong_value_other(span, message, advice))

    def _condition(self, expression: x.Expression, cell: Cell) -> m.Condition | None:
        match expression:
            case x.PrivilegeTerm():
                return self._privilege_term(expression, cell)
            case x.Related(kind=kind, targets=targets, word=word):
                return self._related(kind, targets, word, cell)
            case x.CanDo():
                return self._can(expression, cell)
            case x.Word(kind="self", word=word):
                self._principal(word, self.entity, "user", cell)
                return m.IsSelf(self.entity, m.CellPart(cell, word.start, word.end))
            case x.Word(kind="service_admin", word=word):
                return m.IsServiceAdmin(m.CellPart(cell, word.start, word.end))
            case x.Word(kind="nobody"):
                return m.AnyOf()
            case x.Word():
                return m.AllOf()
            case x.AllOf(parts=parts):
                return m.AllOf(tuple(self._parts(parts, cell)))
            case x.AnyOf(parts=parts):
                return m.AnyOf(tuple(self._parts(parts, cell)))
            case x.Required(body=body, flag=flag, word=word):
                inner = self._condition(body, cell)
                if flag.text in _NO_FLAGS:
                    holds = f"the context holds {_NO_FLAGS[flag.text]} under this name"
                    self.refuse(cell.at(flag), f"`{flag.text}` cannot be a flag: {holds}", "choose another word")
                if flag.text in self.names.attributes.request:
                    self.fail(unsound_rows.attribute_hides_flag(cell.at(flag), flag.text))
                spot = m.CellPart(cell, word.start, flag.end)
                if inner is not None and flag.text in self.optional:
                    return m.AnyOf((m.LeftOut(flag.text, self.objects[flag.text], spot), inner))
                if flag.text in self.objects:
                    advice = f"write `[{', '.join(self.objects[flag.text])}, {NO_OBJECT}]` where it is declared"
                    message = f"`{flag.text}` is an object that every request has"
                    self.refuse(cell.at(flag), message, advice)
                return None if inner is None else m.Required(inner, flag.text, spot)
            case x.Comparison():
                condition = _compared(self, expression, cell)
                self.poisoned |= condition is None
                return condition
            case _:
                assert_never(expression)

    def _parts(self, parts: tuple[x.Expression, ...], cell: Cell) -> Iterator[m.Condition]:
        for part in parts:
            condition = self._condition(part, cell)
            if condition is not None:
                yield condition

    def _any_listed(self, name: x.Name, places: tuple[m.TargetSlot, ...], cell: Cell) -> m.Condition:
        """`any privilege` as a list of the privileges that can be granted on each place, where none stands for all of them."""
        spot = m.CellPart(cell, name.start, name.end)
        parts: list[m.Condition] = []
        for place in places:
            uses = [m.PrivilegeUse(p, (p,), is_set=False, spot=spot) for p in self.names.privileges]
            if bound := tuple(use for use in uses if not self._unbound(use, place)):
                parts.append(m.HoldsPrivilege(bound, every=False, places=(place,)))
            else:
                self.fail(unsound_rows.privilege_cannot_bind(spot.span, name.text, (name.text,), place.types, ()))
        return m.AnyOf(tuple(parts))

    def _named(self, name: x.Name, targets: tuple[x.Name, ...], cell: Cell) -> m.Condition | None:
        """`named privilege`, as each privilege that can be granted on the places where the request names it."""
        spot = m.CellPart(cell, name.start, name.end)
        places = self._places(targets, cell)
        attribute = self.names.attributes.request.get(PRIVILEGE_ATTRIBUTE)
        if attribute is None or len(places) < len(targets):
            self.poisoned = True
            return None
        asked = m.TermUse("request", PRIVILEGE_ATTRIBUTE, None, attribute)
        parts: list[m.Condition] = []
        for privilege in self.names.privileges:
            use = m.PrivilegeUse(privilege, (privilege,), is_set=False, spot=spot)
            at = tuple(place for place in places if not self._unbound(use, place))
            if at and attribute.compares_to_constant("=", privilege):
                compared = m.Compared(asked, "=", (privilege,), spot)
                parts.append(m.AllOf((compared, m.HoldsPrivilege((use,), every=False, places=at))))
        if not parts:
            self.fail(unsound_rows.privilege_cannot_bind(spot.span, name.text, (name.text,), places[0].types, ()))
        return m.AnyOf(tuple(parts))

    def _named_terms(self, term: x.PrivilegeTerm, cell: Cell) -> m.Condition | None:
        """A term of which some names are those of conditions."""
        named = [name for name in term.privileges if name.text in self.names.conditions]
        others = tuple(name for name in term.privileges if name not in named)
        found = [self._named_condition(name, term.targets, cell) for name in named]
        found += [self._privilege_term(replace(term, privileges=others), cell)] if others else []
        parts = tuple(part for part in found if part is not None)
        return parts[0] if len(found) == 1 and parts else m.AllOf(parts) if term.every else m.AnyOf(parts)

    def _named_condition(self, name: x.Name, targets: tuple[x.Name, ...], cell: Cell) -> m.Condition | None:
        if name.text in self.names.poisoned:
            self.poisoned = True
            return None
        self.refuse_below(f"`{name.text}`", targets, cell)
        places = self._places(targets, cell)
        bodies: dict[str, m.Condition] = {}
        for place in places:
            if place.level != "nearest":
                self.fail(unsound_rows.misplaced_nested_can(place.spot.span, place.written))
            resolved = {type_: self._body(name.text, type_) for type_ in place.types}
            valid = {type_: body for type_, (body, _) in resolved.items() if body is not None}
            bodies |= valid
            if not valid:  # an object may be of types for which it means nothing, as with `can`
                self.fail(*resolved[place.types[0]][1])
        self.poisoned |= len(places) < len(targets)
        return m.Named(name.text, places, tuple(bodies.items()), m.CellPart(cell, name.start, name.end))

    def _body(self, name: str, type_: str) -> tuple[m.Condition | None, list[Diagnostic]]:
        """The named condition for an entity of a type."""
        key = name, type_
        if key not in self.bodies:
            of_type = replace(
                self, entity=type_, objects={}, optional=set(), poisoned_objects=set(), found=[], poisoned=False
            )
            body = of_type.resolve(self.names.conditions[name])
            self.bodies[key] = None if of_type.poisoned or of_type.found else body, of_type.found
        return self.bodies[key]

    def _privilege_term(self, term: x.PrivilegeTerm, cell: Cell) -> m.Condition | None:
        if any(name.text in self.names.conditions for name in term.privileges):
            return self._named_terms(term, cell)
        if term.privileges[0].text == NAMED_PRIVILEGE:
            return self._named(term.privileges[0], term.targets, cell)
        if term.privileges[0].text == ANY_PRIVILEGE and ANY_PRIVILEGE not in self.names.privileges:
            return self._any_listed(term.privileges[0], self._places(term.targets, cell), cell)
        uses = tuple(use for name in term.privileges if (use := self.privilege(name, cell)) is not None)
        places = self._places(term.targets, cell)
        if len(uses) < len(term.privileges) or len(places) < len(term.targets):
            self.poisoned = True
        for place in places:
            for use in uses:
                wrong = self._unbound(use, place)
                if wrong:
                    on = self.names.privileges[wrong[0]].on
                    span = use.spot.span
                    self.fail(unsound_rows.privilege_cannot_bind(span, use.written, wrong, place.types, on))
                if place.below and not wrong and len(place.types) == 1:
                    self._check_below(use, place.types[0])
                by_default = self._given_by_default(use) if place.below else None
                if by_default is not None:
                    self.fail(unsound_rows.below_not_exact_by_default(use.spot.span, use.written, by_default))
        return m.HoldsPrivilege(uses, term.every, places) if uses and places else None

    def _check_below(self, use: m.PrivilegeUse, type_: str) -> None:
        """Report a privilege that nothing below can hold: `or below` would add nothing."""
        under = self.names.hierarchy.below(type_)
        by_ownership = self.owner_privileges if under else frozenset()
        idle = [p for p in use.members if self.names.binds[p].isdisjoint(under) and p not in by_ownership]
        if idle:
            self.fail(unsound_rows.below_not_exact_nothing_below(use.spot.span, idle[0], type_))

    def _given_by_default(self, use: m.PrivilegeUse) -> str | None:
        """A declared role that gives one of the privileges by default: for which entities, no row says."""
        roles = ((r, {p for _, privileges in r.grants for p in privileges}) for r in self.names.roles.values())
        return next((role.name for role, granted in roles if not granted.isdisjoint(use.members)), None)

    def _unbound(self, use: m.PrivilegeUse, place: m.TargetSlot) -> tuple[str, ...]:
        binds = self.names.binds
        if place.level == "parent":
            outer = self.names.entities[place.types[0]].parent
            return tuple(p for p in use.members if not binds[p].issuperset((*place.types, outer)))
        return tuple(p for p in use.members if binds[p].isdisjoint(place.types))

    def privilege(self, name: x.Name, cell: Cell) -> m.PrivilegeUse | None:
        """The privilege, alias or set of that name."""
        if name.text in self.names.conditions:
            advice = "conditions use it, as in `requires`; effects name privileges and sets"
            self.refuse(cell.at(name), f"`{name.text}` is a condition, and no privilege", advice)
            return None
        members = self.names.members(name.text)
        if members is None or any(member in self.names.poisoned for member in members):
            if self.names.unknown(name.text):
                span = cell.at(name)
                known = (*self.names.declared, *self.names.conditions)
                make = partial(undeclared.unknown_privilege, span, name.text, known)
                self.found.append(self.names.finding_for(("privilege", name.text), span, make))
            self.poisoned = True
            return None
        return m.PrivilegeUse(name.text, members, name.text in self.names.sets, m.CellPart(cell, name.start, name.end))

    def _places(self, targets: tuple[x.Name, ...], cell: Cell) -> tuple[m.TargetSlot, ...]:
        return tuple(place for target in targets if (place := self.place(target, cell)) is not None)

    def place(self, target: x.Name, cell: Cell, *, children: bool = False) -> m.TargetSlot | None:
        """The object that a target names; with `children`, also a type directly inside the row's entity type."""
        name, spot = target.text, m.CellPart(cell, target.start, target.end)
        if target.selector is not None:
            return self._selected(target, target.selector, cell)
        if name in self.objects:
            return m.TargetSlot(name, self.objects[name], name, spot, target.below, optional=name in self.optional)
        if name in self.poisoned_objects:
            self.poisoned = True
            return None
        hierarchy = self.names.hierarchy
        type_: str | None = name
        level: Level = "nearest"
        if name == "entity":
            type_ = self.entity
        elif name == "parent" and hierarchy.entities[self.entity].nested:
            type_, level = self.entity, "parent"
        elif name == "parent":
            type_ = hierarchy.entities[self.entity].parent
        if type_ is not None and type_ in hierarchy.entities:
            inside = children and hierarchy.entities[type_].parent == self.entity
            if inside or hierarchy.reaches(self.entity, type_):
                return m.TargetSlot(RESOURCE, (type_,), name, spot, target.below, level)
        self.poisoned = True
        if self.names.absent(name, "entities"):
            key = ("target", name, self.entity, *self.objects)
            self.found.append(self.names.finding_for(key, spot.span, lambda: self._unresolved(name, spot)))
        return None

    def _selected(self, target: x.Name, selector: x.Name, cell: Cell) -> m.TargetSlot | None:
        """The target after a word that says which level of a type that nests is meant."""
        span = cell.part(selector.start, target.end)
        if selector.text not in _SELECTORS:
            self.fail(
                unsound_rows.selector_without_nesting_unknown(span, selector.text, target.text, tuple(_SELECTORS))
            )
            return None
        place = self.place(replace(target, selector=None), cell)
        if place is None:
            return None
        nests = place.slot == RESOURCE and place.level == "nearest" and self.names.entities[place.types[0]].nested
        if not nests:
            self.fail(unsound_rows.selector_without_nesting(span, selector.text, target.text))
            return None
        spot = m.CellPart(cell, selector.start, target.end)
        return replace(place, level=_SELECTORS[selector.text], written=f"{selector.text} {target.text}", spot=spot)

    def _unresolved(self, name: str, spot: m.CellPart) -> Diagnostic:
        entities = self.names.entities
        targets = self.names.hierarchy.targets(self.entity)
        if name in entities or name == "parent":
            return undeclared.target_not_on_path(spot.span, name, self.entity, targets)
        if (
            name not in undeclared.ITSELF
            and nearest(name, self.objects) is None
            and nearest(name, entities) is not None
        ):
            return undeclared.unknown_type(spot.span, name, entities)
        return undeclared.undefined_object(spot.span, name, tuple(self.objects), targets)

    def _related(
        self, kind: x.RelatedKind, targets: tuple[x.Name, ...], word: x.Name, cell: Cell
    ) -> m.Condition | None:
        if kind == "owner" and not self.owners:
            self.fail(unsound_rows.no_owners(cell.at(word), "the condition"))
            return None
        places = self._places(targets, cell)
        if kind != "owner":
            self.refuse_below(f"`{kind}`", targets, cell)
        if kind == "holds":
            for place in places:
                if place.level != "nearest":
                    self.fail(unsound_rows.misplaced_nested_holder(place.spot.span, "holds", place.written))
                    continue
                if not any(self.names.entities[t].principal == "role" for t in place.types):
                    self._principal(x.Name("holds", place.spot.start, place.spot.end), place.types[0], "role", cell)
        return m.Related(kind, places) if places else None

    def refuse_below(self, what: str, targets: tuple[x.Name, ...], cell: Cell) -> None:
        """Report targets with `or below` where only privileges and owners may have it."""
        for target in targets:
            if target.below:
                self.fail(unsound_rows.below_not_exact_not_of(cell.at(target), what, target.text))

    def _principal(self, word: x.Name, type_: str, kind: str, cell: Cell) -> None:
        if self.names.entities[type_].principal != kind:
            self.fail(unsound_rows.not_a_principal(cell.at(word), word.text, type_, kind))

    def _can(self, term: x.CanDo, cell: Cell) -> m.Condition | None:
        operation = term.operation.text
        spot = m.CellPart(cell, term.operation.start, term.operation.end)
        places = self._places(term.targets, cell)
        self.refuse_below("`can`", term.targets, cell)
        valid: list[m.TargetSlot] = []
        for place in places:
            chosen = [self.pairs[t, operation] for t in place.types if (t, operation) in self.pairs]
            objects = sorted({w.name.value for c in chosen if c.decl.withs for w in c.decl.withs})
            if place.level != "nearest":
                self.fail(unsound_rows.misplaced_nested_can(place.spot.span, place.written))
            elif not chosen and (unreadable := self.rows_unknown & {*place.types, ""}):
                self.poisoned = bool(unreadable)
            elif not chosen:
                known = {op: None for type_, op in self.pairs if type_ in place.types}
                self.fail(
                    undeclared.unknown_operation(
                        spot.span, operation, place.types, tuple(known), is_privilege=operation in self.names.declared
                    )
                )
            elif objects and all(c.decl.withs for c in chosen):
                self.fail(unsound_rows.can_with_objects(spot.span, operation, place.types, objects))
            else:
                valid.append(place)
        return m.CanDo(operation, tuple(valid), spot) if valid else None


def fitting_types(
    name: str, cells: list[ConditionCell], names: DeclaredNames, pairs: Mapping[m.PairKey, ChosenRow]
) -> tuple[str, ...]:
    """The entity types that every mention of the `with` object `name` allows."""
    tests: list[Callable[[str], bool]] = []
    for cell in cells:
        if cell.expression is not None:
            tests += (test for term in x.walk_expression(cell.expression) for test in _tests(term, name, names, pairs))
    return tuple(type_ for type_ in names.entities if all(test(type_) for test in tests))


def privilege_names(expression: x.Expression) -> Iterator[x.Name]:
    """Every privilege, alias or set that an expression names."""
    return (
        name for term in x.walk_expression(expression) if isinstance(term, x.PrivilegeTerm) for name in term.privileges
    )


def _tests(
    term: x.Expression, name: str, names: DeclaredNames, pairs: Mapping[m.PairKey, ChosenRow]
) -> Iterator[Callable[[str], bool]]:
    match term:
        case x.PrivilegeTerm(privileges=privileges, every=every, targets=targets):
            if any(t.text == name for t in targets):
                members = [names.members(p.text) for p in privileges]
                known = [m_ for m_ in members if m_ is not None]
                choose = all if every else any
                if len(known) == len(members):
                    yield lambda t: choose(all(t in names.binds[p] for p in group) for group in known)
        case x.CanDo(operation=operation, targets=targets):
            exists = any((t, operation.text) in pairs for t in names.entities)
            if exists and any(t.text == name for t in targets):
                yield lambda t: (t, operation.text) in pairs and not pairs[t, operation.text].decl.withs
        case x.Related(kind="holds", targets=targets):
            if any(t.text == name for t in targets):
                yield lambda t: names.entities[t].principal == "role"
        case _:
            return


def _compared(scope: Scope, comparison: x.Comparison, cell: Cell) -> m.Compared | None:
    """A comparison with its attributes looked up and their types checked; None after a finding."""
    left = term(scope, comparison.left, cell)
    right = term(scope, comparison.right, cell) if isinstance(comparison.right, x.Name) else comparison.right
    if left is None or right is None:
        return None
    spot = m.CellPart(cell, comparison.left.start, comparison.left.end)
    several = [use for use in (left, right) if isinstance(use, m.TermUse) and use.place and use.place.level in SEVERAL]
    if len(several) > 1:
        scope.fail(unsound_rows.misplaced_nested_compared_twice(spot.span, comparison.left.text))
        return None
    wrong = _mismatch(comparison, left, right, cell)
    if wrong is not None:
        scope.fail(wrong)
        return None
    operand = right if isinstance(right, m.TermUse) else tuple(constant.value for constant in right)
    return m.Compared(left, cast("Operator", comparison.relation), operand, spot)


def term(scope: Scope, written: x.Name, cell: Cell) -> m.TermUse | None:
    """The attribute that a name such as `user.department` or `schema.class` means."""
    if "attributes" in scope.names.tables.unreadable:
        scope.poisoned = True
        return None
    head, _, name = written.text.partition(".")
    span = cell.at(written)
    place = None
    kind: AttributeKind = "entity"
    if head in ("user", "request") and head not in scope.objects:
        kind = "user" if head == "user" else "request"
    else:
        place = scope.place(x.Name(head, written.start, written.start + len(head), selector=written.selector), cell)
        if place is None:
            return None
    if (place is None and written.selector is not None) or (place is not None and place.level == "parent"):
        scope.fail(unsound_rows.misplaced_nested_compared(span, head))
        return None
    declared = scope.names.attributes.of(kind)
    if name not in declared:
        scope.fail(undeclared.unknown_attribute(span, written.text, name, tuple(declared)))
        return None
    attribute = declared[name]
    for type_ in place.types if place is not None else ():
        if type_ not in attribute.on:
            scope.fail(undeclared.unknown_attribute_not_on(span, name, type_, attribute.on))
            return None
    contains = (
        place is not None and place.slot == RESOURCE and (place.types[0], place.level) != (scope.entity, "nearest")
    )
    if place is not None and contains and "state" not in attribute.origins:
        scope.fail(undeclared.unknown_attribute_not_given(span, name, place.types[0]))
        return None
    return m.TermUse(kind, name, place, attribute)


def _mismatch(
    comparison: x.Comparison, left: m.TermUse, right: m.TermUse | tuple[x.Constant, ...], cell: Cell
) -> Diagnostic | None:
    """The finding for values that do not compare."""
    word, relation = comparison.left, comparison.relation
    span = cell.at(word)
    own = left.type
    if isinstance(right, tuple) and right[0].word == word and own.type != "bool":
        return undeclared.wrong_comparison_truth(span, word.text, own.describe())
    refused = _refused(own, relation, word.text) if isinstance(right, tuple) or relation != "in" else None
    if refused is not None:
        return undeclared.wrong_comparison_relation(span, word.text, own.describe(), relation, refused)
    if isinstance(right, tuple):
        wrong = (constant.word for constant in right if not own.compares_to_constant(relation, constant.value))
        return next(
            (undeclared.wrong_comparison_constant(cell.at(w), word.text, w.text, own.describe()) for w in wrong), None
        )
    if own.compares_to(relation, right.type):
        return None
    assert isinstance(comparison.right, x.Name)
    texts = own.describe(), comparison.right.text, right.type.describe()
    return undeclared.wrong_comparison_different_types(span, word.text, *texts)


def _refused(type_: Attribute, relation: str, written: str) -> str | None:
    """The advice against a relation that does not suit values of the type; None if it does."""
    if type_.type == "set":
        return None if relation == "contains" else f"compare the other way round: `VALUE in {written}`"
    if relation == "contains":
        return f"only sets have words in them: write `{written} = VALUE`"
    return None if type_.has_relation(relation) else "only whole numbers have an order; write `=` or `in {A, B}`"
