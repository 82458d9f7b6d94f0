"""Compares two programs row by row: exact verdicts on conditions, with the smallest witnesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Literal, NamedTuple, assert_never

from privtab import ir
from privtab.base import Undecided
from privtab.ir import (
    ImplicationChecker,
    effect_texts,
    levels_that_matter,
    reached_atoms,
    references,
    unrolled,
    walk_reached,
)
from privtab_analysis.diff.declared import combine_verdicts, compare_effects, verdict
from privtab_analysis.diff.nodes import Cell, DeclarationChange, Pair, PathForm, RowChange, Shape, Verdict, Witness
from privtab_analysis.diff.renames import Renaming
from privtab_analysis.diff.witness import Separation, WitnessCheck, separation


class Comparison:
    """Compares rows of two programs with the same names."""

    def __init__(self, before: ir.Program, after: ir.Program, declared: Sequence[DeclarationChange] = ()) -> None:
        """`declared`: the differences outside of the rows, from `compare_declared`."""
        self.before = before
        self.after = after
        # An entity `schema:a/b` does not exist in the other program if schemas have three names there. So a type at
        # another depth counts as another type.
        known = before.entities.keys() & after.entities.keys()
        renamed_types = {
            type_: f"{type_}\N{PRIME}"
            for type_ in after.entities
            if type_ in known and before.depth(type_) != after.depth(type_)
        }
        self._type_renaming = Renaming(types=renamed_types)
        self._original_types = {renamed: name for name, renamed in renamed_types.items()}
        self._comparable_after = self._type_renaming.program(after) if renamed_types else after
        known = {*before.privileges, *before.aliases, *before.sets}
        # No state uses a new set or alias yet, so it gives no caller more than before.
        unused_names = frozenset({*after.aliases, *after.sets} - known)
        self._forward = ImplicationChecker(before, self._comparable_after, unused_names)
        self._backward = ImplicationChecker(self._comparable_after, before, unused_names)
        self._levels = (
            LevelComparison(before, self._comparable_after, unused_names) if before.nests or after.nests else None
        )
        self._declared = tuple(
            declaration
            for declaration in declared
            if declaration.meaning and declaration.verdict is not Verdict.RENAMED
        )
        self._same: dict[Pair, bool] = {}
        self._flat = bool(before.flat or after.flat)

    def in_both(self, pair: Pair) -> bool:
        """Return whether both sides have the operation."""
        return pair in self.before.rules and pair in self.after.rules

    def row(self, pair: Pair) -> RowChange:
        """The change of an operation that both sides have."""
        before, after = self.before.rules[pair], self.after.rules[pair]
        known = self._same_ids(before, after)
        same = (before.effects, before.delegations) == (after.effects, after.delegations)
        effects = Verdict.EQUAL if same else compare_effects(before, after)
        if sql(self.before, before) != sql(self.after, after):
            effects = Verdict.INCOMPARABLE
        unchanged = known and self.same(pair)
        condition, witnesses = self._condition(pair) if known and not unchanged else (Verdict.EQUAL, ())
        condition = condition if known else Verdict.UNKNOWN
        if known and effects is not Verdict.EQUAL:
            try:
                effects_witness = self._effects_witness(pair)
            except Undecided:
                effects_witness, condition = None, Verdict.UNKNOWN
            # Effects matter only if both sides can allow the same request.
            effects = Verdict.EQUAL if effects_witness is None else effects
            witnesses = (*witnesses, *(() if effects_witness is None else (effects_witness,)))
        return RowChange(
            entity=pair[0],
            operation=pair[1],
            verdict=combine_verdicts(condition, effects),
            condition=condition,
            effects=effects,
            parts=(*parts(before, after), *self._parts_of_filter(pair)),
            because=()
            if unchanged
            else (*self._changed_references(pair), *self._changed_before(pair), *self._declarations(pair)),
            before=cell(self.before, before),
            after=cell(self.after, after),
            witnesses=witnesses,
        )

    def _same_ids(self, before: ir.Rule, after: ir.Rule) -> bool:
        """Return whether ids and places mean the same on both sides, for the objects of requests."""
        if not self._flat:
            return True
        types = {before.entity, *(t for rule in (before, after) for slot in rule.withs for t in slot.named)}
        known = types & self.before.entities.keys() & self.after.entities.keys()
        return all(_flat_links(self.before, type_) == _flat_links(self.after, type_) for type_ in known)

    def same(self, pair: Pair) -> bool:
        """Return whether a row and all rows that it reaches by `can` are the same on both sides and need no comparison."""
        if pair not in self._same:
            before, after = self.before.rules.get(pair), self.after.rules.get(pair)
            self._same[pair] = (
                before is not None
                and after is not None
                and _content(before) == _content(after)
                and self._names_mean_the_same(before)
                and all(self.same((can.target.type, can.operation)) for can in references(before.item_condition))
                and _operations(self.before.earlier(*pair)) == _operations(self.after.earlier(*pair))
                and all(self.same((pair[0], operation)) for operation in _operations(self.after.earlier(*pair)))
            )
        return self._same[pair]

    def _changed_before(self, pair: Pair) -> Iterator[str]:
        """The filters that are tried before one on both sides, and whose own rows differ."""
        for rule in self.after.earlier(*pair):
            other = self.before.rules.get((rule.entity, rule.operation))
            if other is not None and _content(other) != _content(rule):
                yield f"{rule.operation}, which is tried before"

    def _parts_of_filter(self, pair: Pair) -> Iterator[str]:
        """The differences of a filter besides its row."""
        if sql(self.before, self.before.rules[pair]) != sql(self.after, self.after.rules[pair]):
            yield "sql"
        if _operations(self.before.earlier(*pair)) != _operations(self.after.earlier(*pair)):
            yield "order"

    def _names_mean_the_same(self, rule: ir.Rule) -> bool:
        """Return whether the names that a row itself uses mean the same on both sides."""
        if not self._declared:
            return True
        types = {rule.entity, *(slot_type for slot in rule.withs for slot_type in slot.named)}
        forward = self._forward
        return (
            forward.same_semantics
            and all(map(forward.same_path, types))
            and all(map(forward.means_the_same, (rule.gate, rule.requires, rule.each or ir.ALWAYS)))
        )

    def _changed_references(self, pair: Pair) -> Iterator[str]:
        """The rows reached by `can` that differ between the sides."""
        visited: set[Pair] = {pair}
        queue = [self.after.rules[pair], self.before.rules[pair]]
        for rule in queue:
            for can in references(rule.item_condition):
                key = can.target.type, can.operation
                if key in visited:
                    continue
                visited.add(key)
                before, after = self.before.rules.get(key), self.after.rules.get(key)
                if before is None or after is None or _content(before) != _content(after):
                    yield f"can {can.operation} ({can.target.type})"
                queue += [existing for existing in (before, after) if existing is not None]

    def _declarations(self, pair: Pair) -> Iterator[str]:
        """The changed declarations that affect a row's requirements, directly or through `can`."""
        if not self._declared:
            return
        types, privileges, attributes = set[str](), set[str](), set[str]()
        for program in (self.before, self.after):
            rule = program.rules[pair]
            named_types = [rule.entity, *(slot_type for slot in rule.withs for slot_type in slot.named)]
            for atom in reached_atoms(program, rule.item_condition):
                named_types += (target.type for target in atom.targets)
                if isinstance(atom, ir.Has | ir.HasBelow):
                    privileges.add(atom.privilege)
                if isinstance(atom, ir.Below):
                    inside = (type_ for type_ in program.entities if atom.target.type in program.chain(type_))
                    named_types += inside
                if isinstance(atom, ir.Compare):
                    attributes |= {f"{term.kind}.{term.attribute}" for term in atom.terms}
            types |= {ancestor for type_ in named_types for ancestor in program.chain(type_)}
        for change in self._declared:
            if self._affects(change, types, privileges, attributes):
                yield change.name if change.kind == "semantics" else f"{change.kind} {change.name}"

    def _affects(self, change: DeclarationChange, types: set[str], privileges: set[str], attributes: set[str]) -> bool:
        match change.kind:
            case "semantics":
                return change.name != "gate"
            case "condition":
                return False  # the rows that use it are compared with what it means
            case "type":
                return change.name in types
            case "privilege" | "alias" | "set":
                semantics_pair = self._forward.semantics, self._backward.semantics
                return any(privileges & set(s.names.names().get(change.name, ())) for s in semantics_pair)
            case "role":
                roles = (program.roles.get(change.name) for program in (self.before, self.after))
                return any(privileges & set(granted) for role in roles if role for _, granted in role.grants)
            case "attribute":
                return change.name in attributes
            case _:
                assert_never(change.kind)

    def _condition(self, pair: Pair) -> tuple[Verdict, tuple[Witness, ...]]:
        """The verdict on the condition, and a witness for each direction in which the sides differ."""
        found: dict[Literal["wider", "narrower"], tuple[Shape, Shape, Separation]] = {}

        def add(
            shows: Literal["wider", "narrower"], allowing: Shape, denying: Shape, exact: ImplicationChecker
        ) -> None:
            if shows not in found and (difference := separation(exact, allowing, denying)):
                found[shows] = allowing, denying, difference

        try:
            for side in (self.before, self.after):
                _check_objects(side, side.rules[pair])
            for (before, after), forward, backward in self._compared(pair):
                add("wider", after, before, backward)
                add("narrower", before, after, forward)
        except Undecided:
            return Verdict.UNKNOWN, ()
        if not found:
            return Verdict.EQUAL, ()
        witness_check = self._witness_check(pair)
        witnesses = [
            witness_check.witness(shows, allowing, denying.program, self._original_types, difference)
            for shows, (allowing, denying, difference) in sorted(found.items(), reverse=True)
        ]
        return verdict(more="wider" in found, less="narrower" in found), tuple(witnesses)

    def _effects_witness(self, pair: Pair) -> Witness | None:
        """A request that both sides allow; None if there is none."""
        for (before, after), forward, _ in self._compared(pair):
            common = separation(forward, before, after, denied=False)
            if common is not None:
                check = self._witness_check(pair)
                return check.witness("effects", before, after.program, self._original_types, common)
        return None

    def _compared(self, pair: Pair) -> Iterator[ComparedRequests]:
        """The comparisons of a row: everything at once or, where types nest, one for each number of levels."""
        rules = self.before.rules[pair], self._comparable_after.rules[self._type_renaming.pair(*pair)]
        sides = self.before, self._comparable_after
        before = [side.earlier(rule.entity, rule.operation) for side, rule in zip(sides, rules, strict=True)]
        asked = [_full_condition(rule, others) for rule, others in zip(rules, before, strict=True)]
        self._forward.check_below(*asked)
        if self._levels is not None:
            yield from self._levels.of(rules, before)
            return
        first, second = (
            Shape.of(side, rule).behind([Shape.of(side, other) for other in others])
            for side, rule, others in zip(sides, rules, before, strict=True)
        )
        yield ComparedRequests((first, second), self._forward, self._backward)

    def _witness_check(self, pair: Pair) -> WitnessCheck:
        return WitnessCheck(self.before, self.after, (self.before.rules[pair], self.after.rules[pair]))


def _full_condition(rule: ir.Rule, before: Sequence[ir.Rule]) -> ir.Formula:
    """A condition with the atoms of a row and, for a filter, with the atoms of the filters that are tried earlier."""
    return ir.Or(parts=tuple(one.item_condition for one in (rule, *before))) if before else rule.item_condition


def _operations(rules: Sequence[ir.Rule]) -> list[str]:
    return [rule.operation for rule in rules]


def sql(program: ir.Program, rule: ir.Rule) -> str | None:
    """The text of a filter, with its dialect; None for other rows."""
    found = program.filter_of(rule.entity, rule.operation)
    return None if found is None else f"{found.sql} ({program.dialect})"


def _flat_links(program: ir.Program, type_: str) -> list[tuple[str, str | None]]:
    """The types with flat ids on a path, each with its container."""
    links = (program.entities[link] for link in program.chain(type_))
    return [(link.name, link.parent) for link in links if link.flat]


def parts(before: ir.Rule, after: ir.Rule) -> Iterator[str]:
    """The parts of a row that differ, in the order in which a row is written."""
    if _EVERY_PART(before) == _EVERY_PART(after):
        return
    for part, attributes in _PARTS.items():
        if part == "effects":
            differ = compare_effects(before, after) is not Verdict.EQUAL
        else:
            differ = any(getattr(before, name) != getattr(after, name) for name in attributes)
        if differ:
            yield part


_PARTS: Mapping[str, tuple[str, ...]] = {
    "with": ("withs",),
    "flags": ("required_flags",),
    **{name: (name,) for name in ("gate", "requires", "each")},
    "creates": ("unnamed",),
    **{name: (name,) for name in ("report", "effects")},
    "sensitive": ("destructive", "sensitive"),
    **{name: (name,) for name in ("note", "deprecated")},
}
"""The parts of a row, and a rule's value of each."""
_EVERY_PART = attrgetter(*(name for attributes in _PARTS.values() for name in attributes), "delegations")
"""The values of all parts: most rows differ in none."""


def cell(program: ir.Program, rule: ir.Rule) -> Cell:
    """A row as written in the file."""
    return Cell(
        rule=rule.id,
        requires=rule.requires_text,
        each=rule.each_text,
        gate=None if rule.gate == ir.ALWAYS else program.semantics.gate,
        withs=tuple(f"{slot.name}: {' | '.join(slot.words)}" for slot in rule.withs),
        flags=tuple(f"{flag}: required" for flag in rule.required_flags),
        effects=effect_texts(rule),
        report=rule.report,
        parent=program.entities[rule.entity].parent,
        unnamed=rule.unnamed,
        sql=sql(program, rule),
        note=rule.note,
        source=rule.source_text,
        span=rule.span,
    )


def _content(rule: ir.Rule) -> tuple[object, ...]:
    """The parts of a row that decide who is allowed, without titles and notes."""
    return rule.gate, rule.requires, rule.each, rule.unnamed, rule.withs, rule.required_flags


def _check_objects(program: ir.Program, rule: ir.Rule) -> None:
    """Raise Undecided for a row that compares an attribute of an entity which may be one of its `with` objects, or not."""
    if rule.withs and any(rule.compares_absent(program, part) for part in walk_reached(program, rule.item_condition)):
        raise Undecided("not decided: whether an object of the request is the entity whose attribute is compared")


class ComparedRequests(NamedTuple):
    """The requests of one comparison: the shapes that a row accepts on each side, and both directions of implication."""

    shapes: tuple[Shape, Shape]
    forward: ImplicationChecker
    backward: ImplicationChecker


class LevelComparison:
    """Compares rows for each number of levels that their answers depend on.

    A type that nests on one side alone has one level on the other.
    """

    def __init__(self, before: ir.Program, after: ir.Program, unused_names: frozenset[str]) -> None:
        self._sides = _Side(before, after), _Side(after, before)
        self._unused_names = unused_names
        self._checkers: dict[int, tuple[ImplicationChecker, ImplicationChecker]] = {}

    def of(self, rules: Sequence[ir.Rule], before: Sequence[Sequence[ir.Rule]]) -> Iterator[ComparedRequests]:
        """The comparisons of the rows of both sides; `before`: for filters, the rows of the filters that are tried earlier."""
        conditions = [_full_condition(rule, others) for rule, others in zip(rules, before, strict=True)]
        most = levels_that_matter(*((side.program, f) for side, f in zip(self._sides, conditions, strict=True)))
        varying = {ir.RESOURCE}.union(
            *(side.unrolled.varying([f]) for side, f in zip(self._sides, conditions, strict=True))
        )
        numbers = {slot: self._numbers(rules, slot, most if slot in varying else 1) for slot in _slots(rules)}
        deepest = max(max(found) for found in numbers.values())
        checkers = self._between(deepest)
        for chosen in product(*numbers.values()):
            levels = dict(zip(numbers, chosen, strict=True))
            shapes = [
                side.shape(rule, levels, deepest).behind([side.shape(other, levels, deepest) for other in others])
                for side, rule, others in zip(self._sides, rules, before, strict=True)
            ]
            yield ComparedRequests((shapes[0], shapes[1]), *checkers)

    def _numbers(self, rules: Sequence[ir.Rule], slot: str, most: int) -> list[int]:
        """The numbers of levels of the object in a slot: the levels that matter, and a level that a single side accepts."""
        types = {type_ for rule in rules for type_ in _types(rule, slot)}
        bounds = [tuple(side.bound(type_) for side in self._sides) for type_ in types]
        known = [[bound for bound in pair if bound] for pair in bounds]
        found = set(range(1, max((min(most, max(pair)) for pair in known if pair), default=1) + 1))
        found |= {min(pair) + 1 for pair in known if len({*pair}) > 1}
        return sorted(found)

    def _between(self, levels: int) -> tuple[ImplicationChecker, ImplicationChecker]:
        if levels not in self._checkers:
            before, after = (side.at_most(levels) for side in self._sides)
            slots = frozenset().union(*(side.program.slots for side in self._sides))
            self._checkers[levels] = (
                ImplicationChecker(before, after, self._unused_names, slots),
                ImplicationChecker(after, before, self._unused_names, slots),
            )
        return self._checkers[levels]


class _Side:
    """One of the two policies; `other` is the other one."""

    def __init__(self, program: ir.Program, other: ir.Program) -> None:
        self.program = program
        self.unrolled = unrolled(program)
        plain = (unrolled(other).nested.keys() & program.entities.keys()) - self.unrolled.nested.keys()
        self._one_level = Renaming(types={type_: f"{type_}/1" for type_ in plain})
        self._programs: dict[int, ir.Program] = {}

    def at_most(self, levels: int) -> ir.Program:
        """The program for paths of at most this many levels."""
        if levels not in self._programs:
            program = self._one_level.program(self.unrolled.at_most(levels))
            # The scopes that roles declare keep their names: assignments within a level count for them.
            roles = {
                name: replace(role, scopes=self.program.roles[name].scopes) for name, role in program.roles.items()
            }
            self._programs[levels] = replace(program, roles=roles)
        return self._programs[levels]

    def bound(self, type_: str) -> int:
        """The most levels on the path of a type: 1 if it nests on the other side alone, 0 if on neither or unknown."""
        nested = self.unrolled.nested.get(type_)
        return self.program.entities[nested].nested if nested else int(type_ in self._one_level.types)

    def shape(self, rule: ir.Rule, levels: Mapping[str, int], most: int) -> Shape:
        """The requests that a row accepts with these numbers of levels."""
        slots = tuple(
            replace(slot, types=tuple(t for t in slot.types if self._accepts(t, levels[slot.name])))
            for slot in rule.withs
        )
        at_levels = self._one_level.rule(self.unrolled.rule(replace(rule, withs=slots), levels))
        if not self._accepts(rule.entity, levels[ir.RESOURCE]):
            no_requests: dict[PathForm, ir.Formula] = {}
            return Shape(
                program=self.at_most(most),
                rule=at_levels,
                conditions=no_requests,
                flags=frozenset(),
                required_flags=frozenset(),
            )
        nests = rule.entity in self.unrolled.nested
        return Shape.of(self.at_most(most), at_levels, slash=True, nests=nests)

    def _accepts(self, type_: str, levels: int) -> bool:
        return levels <= (self.bound(type_) or levels)


def _slots(rules: Sequence[ir.Rule]) -> list[str]:
    return list(dict.fromkeys([ir.RESOURCE, *(slot.name for rule in rules for slot in rule.withs)]))


def _types(rule: ir.Rule, slot: str) -> tuple[str, ...]:
    if slot == ir.RESOURCE:
        return (rule.entity,)
    return next((found.types for found in rule.withs if found.name == slot), ())
