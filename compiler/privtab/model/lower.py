"""`Policy` → `Program`: sets and aliases become privileges, targets become slots and types; also of rows that it could have had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias, assert_never

from privtab.base.caching import once
from privtab.base.names import ANY_PRIVILEGE, LEFT_OUT
from privtab.base.paths import Level
from privtab.base.sql_text import FilterWord, Placeholder
from privtab.ir import nodes as ir
from privtab.ir.formula import move_to_slot, references
from privtab.ir.nodes import Origin
from privtab.language.syntax.nodes import Reading, RowDecl, rows_of
from privtab.model import nodes as m
from privtab.model.names import DeclaredNames
from privtab.model.rows import Rows
from privtab.model.select import ChosenRow, find_variant, read_as, select

_Pair: TypeAlias = tuple[str, str]


@once
def lower(policy: m.Policy) -> ir.Program:
    """Lower a valid policy to a program; rows keep the order of the file."""
    lowering = Lowering(policy)
    rules = {pair: lowering.rule(row) for pair, row in policy.rows.items()}
    return ir.Program(
        system=policy.system,
        version=policy.version,
        title=policy.title,
        entities=policy.entities,
        privileges=policy.privileges,
        aliases=policy.aliases,
        sets=policy.sets,
        roles=policy.roles,
        semantics=policy.semantics,
        rules=_with_required_flags(policy, rules),
        sources=policy.sources,
        conflicts=policy.conflicts,
        attributes=policy.attributes,
        filters=tuple(map(lowering.filter, policy.filters)),
        dialect=policy.tables.dialect or "",
        conditions={d.name.value: d.condition.cell.line for d in policy.tables.conditions},
    )


def _with_required_flags(policy: m.Policy, rules: dict[_Pair, ir.Rule]) -> dict[_Pair, ir.Rule]:
    """Add the flags that requests must state, also flags behind a `can`: there, a request that omits one would also need less."""
    required = {pair: {f.name.value for f in row.decl.flags if f.required} for pair, row in policy.rows.items()}
    for listed in {(one.entity, one.kind): None for one in policy.filters}:
        # A filter that does not hold for want of a flag would leave the caller to the next one, so a list has one set of flags.
        pairs = [pair for pair in required if pair[0] == listed[0] and pair[1].startswith(f"{listed[1]}.")]
        required |= dict.fromkeys(pairs, set().union(*(required[pair] for pair in pairs)))
    waiting = [pair for pair, flags in required.items() if flags]
    if not waiting:
        return rules
    referrers: dict[_Pair, set[_Pair]] = {}
    for pair, rule in rules.items():
        for can in references(rule.item_condition):
            referrers.setdefault((can.target.type, can.operation), set()).add(pair)
    while waiting:
        reached = waiting.pop()
        for pair in referrers.get(reached, ()):
            if not required[reached] <= required[pair]:
                required[pair] |= required[reached]
                waiting.append(pair)
    return {pair: replace(rule, required_flags=tuple(sorted(required[pair]))) for pair, rule in rules.items()}


class Lowering:
    """Lowers rows of one policy; equal targets share one object, and so do the most frequent conditions on them."""

    def __init__(self, policy: m.Policy) -> None:
        self.policy = policy
        self.targets: dict[tuple[str, str, Level], ir.Target] = {}
        self._atoms: dict[tuple[object, ...], ir.Formula] = {}

    def _shared(self, kind: Callable[..., ir.Formula], target: ir.Target, **names: str) -> ir.Formula:
        """Make a condition on a shared target, once for each kind and its names."""
        key = kind, *names.values(), id(target)
        return self._atoms.get(key) or self._atoms.setdefault(key, kind(target=target, **names))

    def rule(self, row: m.Row) -> ir.Rule:
        """Lower one row."""
        decl = row.decl
        # What suffices for a row is an alternative to each of its conditions: `(A or C) and (B or C)` is `A and B or C`.
        alternative = None if row.alternative is None else self.formula(row.alternative)

        def lowered(condition: m.Condition | None) -> ir.Formula:
            formula = ir.ALWAYS if condition is None else self.formula(condition)
            return formula if alternative is None else ir.Or.of(formula, alternative)

        return ir.Rule(
            id=f"{self.policy.system}/{row.entity}/{row.operation}",
            entity=row.entity,
            operation=row.operation,
            title=decl.title or row.operation.replace("_", " "),
            origin=row.origin,
            gate=lowered(row.gate),
            requires=lowered(row.requires),
            each=None if row.each is None else lowered(row.each),
            span=decl.span,
            withs=row.withs,
            report=row.report,
            effects=tuple(map(self.effect, row.outcomes)),
            delegations=tuple(map(self.effect, row.delegations)),
            creates=row.creates,
            destructive=decl.destructive,
            sensitive=decl.destructive or decl.sensitive,
            requires_text=row.requires_text,
            each_text=row.each_text,
            note=decl.note,
            deprecated=decl.deprecated,
            renamed_from=decl.renamed_from,
            source=row.source,
            ambiguous=row.ambiguous,
        )

    def filter(self, filter_: m.Filter) -> ir.SqlFilter:
        """Lower the text of one row filter or column mask."""

        def lowered(part: str | Placeholder | m.TermUse) -> str | FilterWord | ir.Term:
            if isinstance(part, m.TermUse):
                return self.term(part)
            return part if isinstance(part, str) else FilterWord(part.words)

        parts = tuple(map(lowered, filter_.parts))
        return ir.SqlFilter(kind=filter_.kind, entity=filter_.entity, name=filter_.name, parts=parts)

    def effect(self, outcome: m.ResolvedEffect) -> ir.Effect:
        """Lower one effect."""
        granted = self.policy.privileges.items() if outcome.what == ANY_PRIVILEGE else ()
        delegated = tuple(name for name, p in granted if p.granted and outcome.type in p.on)
        return ir.Effect(
            kind=outcome.kind,
            what=outcome.what,
            privileges=delegated if outcome.use is None else outcome.use.members,
            target=self.target(outcome.slot, outcome.type),
            of_role=outcome.of_role,
        )

    def target(self, slot: str, type_: str, level: Level = "nearest") -> ir.Target:
        """The shared target of a slot, a type and a level."""
        key = (slot, type_, level)
        if key not in self.targets:
            self.targets[key] = ir.Target(slot=slot, type=type_, level=level)
        return self.targets[key]

    def formula(self, condition: m.Condition) -> ir.Formula:
        """Lower one condition."""
        match condition:
            case m.HoldsPrivilege(uses=uses, every=every, places=places):
                terms = [_any([_all([self.has(p, place) for p in use.members]) for place in places]) for use in uses]
                return _all(terms) if every else _any(terms)
            case m.Related(kind="owner", places=places):
                return _any(map(self.owner, places))
            case m.Related(kind="member", places=places):
                return _any(self.at_place(place, lambda t: ir.Member(target=t), "member") for place in places)
            case m.Related(places=places):
                return _any(self.at_place(p, lambda t: ir.Holds(target=t), "holds", self.is_role) for p in places)
            case m.IsSelf(type=type_):
                return ir.Self(target=self.target(ir.RESOURCE, type_))
            case m.IsServiceAdmin():
                return ir.ServiceAdmin()
            case m.CanDo(operation=operation, places=places):
                return _any(self.can(operation, place) for place in places)
            case m.Named(name=name, places=places, bodies=bodies):
                of_type = dict(bodies)

                def of_target(target: ir.Target) -> ir.Formula:
                    return move_to_slot(self.formula(of_type[target.type]), target.slot)

                return _any(self.at_place(place, of_target, name, of_type.__contains__) for place in places)
            case m.Compared():
                return self.compared(condition)
            case m.AllOf(parts=parts):
                return _all([self.formula(part) for part in parts])
            case m.AnyOf(parts=parts):
                return _any([self.formula(part) for part in parts])
            case m.Required(body=body, flag=flag):
                return ir.When(flag=flag, body=self.formula(body))
            case m.LeftOut(slot=slot):
                return ir.ByType(slot=slot, cases=((LEFT_OUT, ir.ALWAYS),), text=f"no {slot}")
            case _:
                assert_never(condition)

    def compared(self, condition: m.Compared) -> ir.Formula:
        """A comparison, with a case for each type of an object whose type is known only from the request."""
        for place in condition.places:
            if place.polymorphic:
                cases = tuple((t, self.compared(_narrowed(condition, place.slot, t))) for t in place.types)
                return ir.ByType(slot=place.slot, cases=cases, text=f"attribute ({place.slot})")
        right = condition.right
        operand = self.term(right) if isinstance(right, m.TermUse) else right
        return ir.Compare(left=self.term(condition.left), operator=condition.operator, right=operand)

    def term(self, use: m.TermUse) -> ir.Term:
        """An attribute of a comparison."""
        place = use.place
        target = None if place is None else self.target(place.slot, place.types[0], place.level)
        return ir.Term(kind=use.kind, attribute=use.name, target=target)

    def has(self, privilege: str, place: m.TargetSlot) -> ir.Formula:
        """A privilege on a place, for the types that it can be granted on."""
        on = self.policy.privileges[privilege].on

        def atom(target: ir.Target) -> ir.Formula:
            under = self.policy.hierarchy.below(target.type) if place.below else ()
            if under and (not under.isdisjoint(on) or self.owners_have(privilege)):
                return ir.HasBelow(privilege=privilege, target=self.outermost_of(target))
            return self._shared(ir.Has, target, privilege=privilege)

        return self.at_place(place, atom, privilege, lambda type_: type_ in on)

    def owners_have(self, privilege: str) -> bool:
        """Return whether ownership gives a privilege."""
        owner = self.policy.semantics.owner
        return owner is not None and privilege in owner.holds

    def owner(self, place: m.TargetSlot) -> ir.Formula:
        """Ownership of a place, or of something below it."""

        def atom(target: ir.Target) -> ir.Formula:
            below = place.below and self.policy.hierarchy.below(target.type)
            return ir.OwnsBelow(target=self.outermost_of(target)) if below else self._shared(ir.Owner, target)

        return self.at_place(place, atom, "owner")

    def outermost_of(self, target: ir.Target) -> ir.Target:
        """One level in the place of several: below the first level are all of them, and the nearest is below each."""
        one_level: dict[Level, Level] = {"any": "first", "every": "nearest"}
        return self.target(target.slot, target.type, one_level.get(target.level, target.level))

    def can(self, operation: str, place: m.TargetSlot) -> ir.Formula:
        """An operation on a place, for the types whose row for it needs no `with` objects."""
        rows = self.policy.rows
        return self.at_place(
            place,
            lambda target: self._shared(ir.Can, target, operation=operation),
            f"can {operation}",
            lambda type_: (type_, operation) in rows and not rows[type_, operation].withs,
        )

    def is_role(self, type_: str) -> bool:
        """Return whether entities of the type are roles."""
        return self.policy.entities[type_].principal == "role"

    def at_place(
        self,
        place: m.TargetSlot,
        make: Callable[[ir.Target], ir.Formula],
        text: str,
        accepts: Callable[[str], bool] = lambda _: True,
    ) -> ir.Formula:
        """The formula at a place; if the type is known only from the request, with a case for each fitting type."""
        if not place.polymorphic:
            return make(self.target(place.slot, place.types[0], place.level))
        cases = tuple((type_, make(self.target(place.slot, type_))) for type_ in place.types if accepts(type_))
        return ir.ByType(slot=place.slot, cases=cases, text=f"{text} ({place.slot})")


def _narrowed(condition: m.Compared, slot: str, type_: str) -> m.Compared:
    """The comparison where the object in a slot has a type."""

    def narrowed(use: m.TermUse) -> m.TermUse:
        fits = use.place is not None and use.place.slot == slot
        return replace(use, place=replace(use.place, types=(type_,), optional=False)) if fits and use.place else use

    right = condition.right
    return replace(
        condition, left=narrowed(condition.left), right=narrowed(right) if isinstance(right, m.TermUse) else right
    )


def _all(parts: Iterable[ir.Formula]) -> ir.Formula:
    listed = tuple(parts)
    return listed[0] if len(listed) == 1 else ir.And(parts=listed)


def _any(parts: Iterable[ir.Formula]) -> ir.Formula:
    listed = tuple(parts)
    return listed[0] if len(listed) == 1 else ir.Or(parts=listed)


class AlternativeRows:
    """Resolves alternative rows of a valid policy."""

    def __init__(self, policy: m.Policy) -> None:
        self.policy = policy
        self._rows = Rows(
            tables=policy.tables,
            names=DeclaredNames.of(policy.tables, []),
            semantics=policy.semantics,
            pairs={pair: ChosenRow(row.decl, row.origin) for pair, row in policy.rows.items()},
            sources=policy.sources,
        )
        overlay = find_variant(policy.tables, policy.variant)
        replacements = {row.operation.value: row for row in (overlay.core if overlay is not None else ())}
        self._core = {row.operation.value: row for row in policy.tables.core} | replacements

    def row(self, entity: str, decl: RowDecl, origin: Origin) -> m.Row | None:
        """Resolve a row as if it applied to the type; None if it is invalid there."""
        return self._rows.resolve(entity, ChosenRow(decl, origin), [])

    def core(self, row: m.Row) -> m.Row | None:
        """The core row that a row of a table or of `any` overrides, if there is one."""
        decl = self._core.get(row.operation)
        return None if decl is None or row.origin == "core" else self.row(row.entity, decl, "core")

    def readings(self, row: m.Row) -> Iterator[tuple[Reading, m.Row]]:
        """The row under each of the readings not taken."""
        for reading in row.decl.readings:
            decl = replace(row.decl, body=read_as(row.decl.body, reading.body))
            resolved = self.row(row.entity, decl, row.origin)
            if resolved is not None:
                yield reading, resolved

    def variants(self) -> Iterator[tuple[str, m.Row]]:
        """The rows with which variants replace rows of the file, each with the variant's name."""
        if self.policy.variant is not None:
            return
        for variant in self.policy.tables.variants:
            own_rows = {id(decl) for decl in rows_of(variant)}
            pairs = select(self.policy.tables, variant, self._rows.names, []).pairs
            variant_rows = replace(self._rows, pairs=pairs)
            for (entity, operation), chosen in pairs.items():
                if id(chosen.decl) in own_rows and (entity, operation) in self.policy.rows:
                    row = variant_rows.resolve(entity, chosen, [])
                    if row is not None:
                        yield variant.name.value, row
