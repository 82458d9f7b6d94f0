"""The mutants of a table: each rule with one thing in it changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from privtab import ir
from privtab.base import PRINCIPAL_TABLES, Attribute, dataclass
from privtab.ir import condition_text, on_entity, reached_atoms
from privtab.state import StateNames
from privtab_testing.scenarios.masks import dependencies

Change: TypeAlias = Literal[
    "drop", "any-all", "privilege", "target", "effect", "each", "report", "gate", "flag", "comparison"
]
CHANGES: Mapping[Change, str] = {
    "drop": "a part dropped",
    "any-all": "any for all, or all for any",
    "privilege": "another privilege",
    "target": "another target",
    "effect": "another effect",
    "each": "`each` dropped",
    "report": "`report` dropped",
    "gate": "the gate dropped",
    "flag": "a flag dropped",
    "comparison": "another comparison of attributes",
}
OTHER_LEVEL: Mapping[str, Any] = {
    "nearest": "any",
    "first": "nearest",
    "any": "every",
    "every": "any",
    "parent": "nearest",
}
"""The level of a type that nests that a mutant names instead."""
OTHER_BOUND: Mapping[str, Any] = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
"""The same order with the bound in or out."""
Types: TypeAlias = Mapping[str, str]
"""The type of the object in each slot, as far as it is known at that point of a condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A rule with one change, and a description of the change."""

    change: Change
    text: str
    original: ir.Rule
    rule: ir.Rule


class Mutants:
    """Generates the mutants of a program's rules."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.names = StateNames(program)
        self._privileges_on: dict[str, tuple[str, ...]] = {}

    def of(self, rule: ir.Rule) -> Iterator[Mutant]:
        """Every mutant of a rule, each once."""
        seen: set[object] = {_content(rule)}
        for mutant in self._of(rule):
            content = _content(mutant.rule)
            if content not in seen:
                seen.add(content)
                yield mutant

    def shown(self, rule: ir.Rule) -> Iterator[Mutant]:
        """The mutants of a rule that answers of a system can show."""
        return (mutant for mutant in self.of(rule) if mutant.change not in ("effect", "report"))

    def _of(self, rule: ir.Rule) -> Iterator[Mutant]:
        def mutant(change: Change, text: str, **changed: Any) -> Mutant:
            return Mutant(change=change, text=text, original=rule, rule=replace(rule, **changed))

        point = _PointMutation(self, rule)
        types = {ir.RESOURCE: rule.entity, **{slot.name: slot.types[0] for slot in rule.withs if not slot.polymorphic}}
        for change, text, formula in point.whole_cell_mutants(rule.requires, types):
            yield mutant(change, text, requires=formula)
        if rule.each is not None:
            # Dropping all of `each` is the same as `each` dropped, which is reported once.
            for change, text, formula in point.whole_cell_mutants(rule.each, types):
                if formula != ir.ALWAYS:
                    yield mutant(change, text, each=formula)
            yield mutant("each", "`each` dropped", each=None)
            if rule.report is not None:
                yield mutant("report", "`report` dropped", report=None)
        if rule.gate != ir.ALWAYS:
            yield mutant("gate", "the gate dropped", gate=ir.ALWAYS)
        for number, effect in enumerate(rule.effects):
            before, after = rule.effects[:number], rule.effects[number + 1 :]
            yield mutant("effect", f"without `{_effect(effect)}`", effects=(*before, *after))
            for other in self._effects(effect):
                text = f"`{_effect(other)}` for `{_effect(effect)}`"
                yield mutant("effect", text, effects=(*before, other, *after))

    def _effects(self, effect: ir.Effect) -> Iterator[ir.Effect]:
        """The effect with another kind, privilege or target; or with another table of a principal's rows."""
        if effect.what in PRINCIPAL_TABLES and not effect.privileges:
            yield from (replace(effect, what=table) for table in _neighbours(list(PRINCIPAL_TABLES), effect.what))
            return
        if effect.kind != "revoke":
            yield replace(effect, kind="revoke", of_role=False)
        else:
            yield replace(effect, kind="grant" if effect.privileges else "become", of_role=False)
        if effect.privileges:
            names = [
                name
                for name in self.names.known_privileges()
                if name not in self.program.aliases and self.names.grantable(name, effect.target.type) is None
            ]
            for name in _neighbours(names, effect.what):
                yield replace(effect, what=name, privileges=self.names.privileges_of(name, effect.target.type, "deny"))
        for type_ in self._above(effect.target.type):
            if not effect.privileges or self.names.grantable(effect.what, type_) is None:
                yield replace(effect, target=replace(effect.target, type=type_, level="nearest"))
                break

    def _above(self, type_: str) -> Iterator[str]:
        return reversed(self.program.chain(type_)[:-1])

    def neighbours(self, privilege: str, type_: str, used: Collection[str]) -> tuple[str, ...]:
        """One or two other privileges for the type, close in the file, preferably ones that the cell does not use."""
        if type_ not in self._privileges_on:
            self._privileges_on[type_] = self.program.grantable_on(type_)
        names = self._privileges_on[type_]
        return _neighbours([name for name in names if name == privilege or name not in used], privilege) or _neighbours(
            names, privilege
        )


class _PointMutation:
    """Changes one point in a condition of a rule."""

    def __init__(self, mutants: Mutants, rule: ir.Rule) -> None:
        self.mutants = mutants
        self.program = mutants.program
        self.rule = rule
        self.used: dict[ir.Target, set[str]] = {}
        for atom in reached_atoms(self.program, rule.item_condition):
            if isinstance(atom, ir.Has):
                self.used.setdefault(atom.target, set()).add(atom.privilege)

    def whole_cell_mutants(self, formula: ir.Formula, types: Types) -> Iterator[tuple[Change, str, ir.Formula]]:
        """The changes of a whole cell, including dropping it if it is a single part."""
        if not (isinstance(formula, ir.And | ir.Or)):
            yield "drop", f"without `{self.text(formula)}`: anyone may", ir.ALWAYS
        yield from self.changes(formula, types)

    def changes(self, formula: ir.Formula, types: Types) -> Iterator[tuple[Change, str, ir.Formula]]:
        """Every change of one point in a condition."""
        match formula:
            case ir.And() | ir.Or():
                yield from self._parts(formula, types)
            case ir.When():
                yield "flag", f"`{self.text(formula.body)}` always, not only when `{formula.flag}`", formula.body
                for change, text, body in self.changes(formula.body, types):
                    yield change, text, replace(formula, body=body)
            case ir.Can():
                for target in self._targets(formula.target, types):
                    key = target.type, formula.operation
                    referred = self.program.rules.get(key)
                    this_key = self.rule.entity, self.rule.operation
                    if referred is not None and not referred.withs and this_key not in dependencies(self.program, key):
                        changed = replace(formula, target=target)
                        yield "target", self._replaced(changed, formula), changed
            case ir.ByType():
                for number, (type_, case_) in enumerate(formula.cases):
                    known = {**types, formula.slot: type_}
                    of_type = f" (where `{formula.slot}` is a `{type_}`)"
                    for change, text, body in self._case(case_, known):
                        cases = (*formula.cases[:number], (type_, body), *formula.cases[number + 1 :])
                        yield change, text + of_type, replace(formula, cases=cases)
            case _:
                yield from self._atom(formula, types)

    def _case(self, formula: ir.Formula, types: Types) -> Iterator[tuple[Change, str, ir.Formula]]:
        yield "drop", "never", ir.NEVER
        yield "drop", "always", ir.ALWAYS
        yield from self.changes(formula, types)

    def _parts(self, formula: ir.And | ir.Or, types: Types) -> Iterator[tuple[Change, str, ir.Formula]]:
        join = ir.And.of if isinstance(formula, ir.And) else ir.Or.of
        parts = formula.parts
        if len(parts) > 1:
            word, instead_of = ("any", "all") if isinstance(formula, ir.And) else ("all", "any")
            swapped = ir.Or.of(*parts) if isinstance(formula, ir.And) else ir.And.of(*parts)
            yield "any-all", f"{word} for {instead_of} of `{self.text(formula)}`", swapped
        for number, part in enumerate(parts):
            before, after = parts[:number], parts[number + 1 :]
            if len(parts) > 1:
                yield "drop", f"without `{self.text(part)}`", join(*before, *after)
            for change, text, changed in self.changes(part, types):
                yield change, text, join(*before, changed, *after)

    def _atom(self, atom: ir.Atom, types: Types) -> Iterator[tuple[Change, str, ir.Formula]]:
        match atom:
            case ir.Has(privilege=privilege, target=target):
                for name in self.mutants.neighbours(privilege, target.type, self.used.get(target, set())):
                    changed: ir.Atom = replace(atom, privilege=name)
                    yield "privilege", self._replaced(changed, atom), changed
                yield from self._elsewhere(atom, types, frozenset(self.program.privileges[privilege].on))
            case ir.Owner() | ir.Member():
                yield from self._elsewhere(atom, types)
            case ir.HasBelow() | ir.OwnsBelow():
                changed = on_entity(atom)
                yield "target", self._replaced(changed, atom), changed
            case ir.Compare():
                for changed in self._compared(atom):
                    yield "comparison", self._replaced(changed, atom), changed

    def _elsewhere(
        self, atom: ir.Has | ir.Owner | ir.Member, types: Types, on: frozenset[str] | None = None
    ) -> Iterator[tuple[Change, str, ir.Formula]]:
        for other in (*self._targets(atom.target, types, on), *self._levels(atom.target)):
            changed = replace(atom, target=other)
            yield "target", self._replaced(changed, atom), changed

    def _compared(self, compare: ir.Compare) -> Iterator[ir.Compare]:
        """The comparison with the bound moved, with another word of an enumeration, or with one constant more or less."""
        if compare.operator in OTHER_BOUND:
            yield replace(compare, operator=OTHER_BOUND[compare.operator])
        declared = self.program.attribute(compare.left)
        constants = compare.right
        if isinstance(constants, ir.Term) or declared is None:
            return
        others = [value for value in _words(declared) if value not in constants]
        if compare.operator in ("=", "contains"):
            yield from (replace(compare, right=(value,)) for value in others[:1])
        if compare.operator == "in":
            rests = ((*constants[:i], *constants[i + 1 :]) for i in range(len(constants)))
            yield from (replace(compare, right=rest) for rest in rests if rest)
            yield from (replace(compare, right=(*constants, value)) for value in others[:1])

    def _targets(self, target: ir.Target, types: Types, on: frozenset[str] | None = None) -> Iterator[ir.Target]:
        """The nearest entity above and the nearest below on the same path; with `on`, only of these types."""
        chain = self.program.chain(target.type)
        for type_ in reversed(chain[:-1]):
            if on is None or type_ in on:
                yield replace(target, type=type_, level="nearest")
                break
        slot_type = types.get(target.slot)
        path = self.program.chain(slot_type) if slot_type is not None else ()
        for type_ in path[path.index(target.type) + 1 :] if target.type in path else ():
            is_created = self.rule.creates and target.slot == ir.RESOURCE and type_ == self.rule.entity
            if (on is None or type_ in on) and not is_created:
                yield replace(target, type=type_, level="nearest")
                break

    def _levels(self, target: ir.Target) -> Iterator[ir.Target]:
        """The same type on another level, if the type nests."""
        other = OTHER_LEVEL[target.level]
        is_created = self.rule.creates and target.slot == ir.RESOURCE and target.type == self.rule.entity
        if self.program.entities[target.type].nested and not (is_created and other == "nearest"):
            yield replace(target, level=other)

    def _replaced(self, changed: ir.Formula, original: ir.Formula) -> str:
        return f"`{self.text(changed)}` for `{self.text(original)}`"

    def text(self, formula: ir.Formula) -> str:
        """A condition as written in a cell."""
        return condition_text(formula, self.rule)


def _words(attribute: Attribute) -> tuple[str | int | bool, ...]:
    """The values of an attribute that has few."""
    return (True, False) if attribute.type == "bool" else attribute.values


def _neighbours(names: list[str] | tuple[str, ...], name: str) -> tuple[str, ...]:
    """The next and the previous name, cyclically; empty if there is no other."""
    if name not in names or len(names) < 2:
        return ()
    index = list(names).index(name)
    return tuple(dict.fromkeys((names[(index + 1) % len(names)], names[index - 1])))


def _effect(effect: ir.Effect) -> str:
    return f"{effect.text} ({effect.target.type})"


def _content(rule: ir.Rule) -> object:
    return (
        rule.gate,
        rule.requires,
        rule.each,
        rule.report,
        tuple(
            (effect.kind, effect.text if not effect.privileges else effect.privileges, effect.target)
            for effect in rule.effects
        ),
    )
