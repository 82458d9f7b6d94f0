"""IR → view: the names and clauses of each row's functions, ready for the template."""

from __future__ import annotations

from dataclasses import dataclass, field

from privtab.backends.rego.body import Body, Functions
from privtab.backends.rego.clauses import Clause, RowView
from privtab.ir.formula import (
    call_condition,
    conjunction,
    item_condition,
    leaves,
    references,
    resolve,
    targets_of,
    walk,
)
from privtab.ir.nodes import ALWAYS, And, Can, Compare, Formula, Rule, Self, When, nested_on
from privtab.ir.serialise import source_text

ENTRY = "allowed"
"""The entry function for requests; each clause first compares the operation and the type with literals."""


@dataclass(slots=True)
class Emitter(Functions):
    """Turns formulas into clauses; alternatives inside a conjunction become functions of their own."""

    referred: set[str] = field(default_factory=set)
    """The functions that `can` calls; other rows need only their clauses of `allowed`."""
    need_no_row: dict[Can, bool] = field(default_factory=dict)
    """Whether some part of what a `can` refers to holds without any rows in the state."""

    def rows(self) -> tuple[RowView, ...]:
        """A view for each rule, in the program's order."""
        for entity, operation in self.program.rules:
            self.functions[entity, operation] = self.names.take(f"{entity}_{operation}")
        for rule in self.program.rules.values():
            for can in references(item_condition(rule)):
                self.referred.add(self.functions[can.target.type, can.operation])
            if rule.unnamed:
                self._note_unnamed(rule, call_condition(rule))
        return tuple(self._row(rule) for rule in self.program.rules.values())

    def _note_unnamed(self, rule: Rule, condition: Formula) -> None:
        """Note a rule that refers to its own entity though that may be unnamed, and the rules that it refers to for it."""
        key = (rule.entity, rule.operation)
        atoms = leaves(self.program, condition)
        if key not in self.short and any(
            any(self.is_resource(target, rule) for target in targets_of(a)) for a in atoms
        ):
            self.short.add(key)
            for can in references(condition):
                if self.is_resource(can.target, rule):
                    referred = self.program.rules[can.target.type, can.operation]
                    self._note_unnamed(referred, item_condition(referred))

    def _row(self, rule: Rule) -> RowView:
        body = Body(self, rule)
        name = self.functions[rule.entity, rule.operation]
        call, each = call_condition(rule), rule.each
        requires_nothing = call == ALWAYS and not rule.withs
        length = len(self.program.chain(rule.entity))
        clauses: list[Clause] = []
        unnamed = rule.unnamed and not self.program.entities[rule.entity].single
        if each is not None and not requires_nothing and (unnamed or name in self.referred):
            gate = self.names.take(f"{name}_call")
            clauses += body.function(gate, call)
            item: tuple[tuple[str, ...], ...] = ((f"{gate}(user, path)", *body.lines_of(name, each)),)
            short: tuple[str, ...] = (f"{gate}(user, path)",)
        else:
            item = body.bodies(name, call if each is None else each if requires_nothing else conjunction(call, each))
            short = () if requires_nothing else (f"{name}(user, path)",)
        if name in self.referred or len(item) > 1 or (unnamed and each is None):
            clauses += [body.clause(name, lines) for lines in item]
            item = ((f"{name}(user, path)",),)
        named, without = (f"count(path) == {length}",), (f"count(path) == {length - 1}",)
        both: tuple[str, ...] = (f"count(path) in {{{length - 1}, {length}}}",)
        if rule.entity in nested_on(self.program.entities):
            named, without, both = ("lib.complete(path)",), ("not lib.complete(path)",), ()
        if unnamed and item == (short,):
            entries = [self._entry(body, rule, both, short)]
        else:
            entries = [self._entry(body, rule, named, lines) for lines in item]
            if unnamed:
                entries.append(self._entry(body, rule, without, short))
        return RowView(
            id=rule.id,
            title=rule.title,
            entity=rule.entity,
            operation=rule.operation,
            requires=rule.requires_text,
            each=rule.each_text,
            note=rule.note,
            source=source_text(rule.source),
            origin=rule.origin,
            clauses=(*entries, *clauses, *body.helpers),
        )

    def _entry(self, body: Body, rule: Rule, form: tuple[str, ...], lines: tuple[str, ...]) -> Clause:
        # Rule indexing requires that the input is compared with literals, first and directly.
        conditions = (
            f'input.action.name == "{rule.operation}"',
            f'input.resource.type == "{rule.entity}"',
            *form,
            *(f'lib.said("{flag}")' for flag in rule.required_flags),
            *(("count(input.context.active_roles) > 0",) if rule.needs_active_role else ()),
        )
        # Check the user last, since that only matters if all else holds.
        user_check = ("lib.named(user)",) if self._may_hold_without_rows(rule) else ()
        return body.clause(ENTRY, (*lines, *user_check), before=conditions)

    def _may_hold_without_rows(self, rule: Rule) -> bool:
        """Whether the row may hold for a user without any rows in the state, and so for an empty user name."""
        if "request" in self.program.semantics.groups:
            return True
        return any(map(self._needs_no_row, (call_condition(rule), item_condition(rule))))

    def _needs_no_row(self, formula: Formula) -> bool:
        """Whether some part of a condition holds without any rows in the state."""
        for node in walk(formula):
            match node:
                case Self() | When() | Compare() | And(parts=()):
                    return True
                case Can():
                    if node not in self.need_no_row:
                        self.need_no_row[node] = self._needs_no_row(resolve(self.program, node))
                    if self.need_no_row[node]:
                        return True
                case _:
                    pass
        return False
