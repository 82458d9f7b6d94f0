"""Conditions that decide nothing, always or never hold, or could not be decided: P310, P312, P322, P327, P328, P331, P338, P341."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._superfluous import superfluous
from privtab.checks._view import check, check_in_every_type, view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.errors import Undecided
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.checks._superfluous import Superfluous
    from privtab.checks._view import Setting
    from privtab.ir.nodes import Formula, Rule
    from privtab.model import nodes as m
    from privtab.model.nodes import Policy


# P310: an alternative that adds nothing, because the rest of the row is enough.
SHADOWED_ALTERNATIVE = FindingKind("P310", "shadowed-alternative", Severity.WARNING)
_SHADOWED_ALTERNATIVE_WHY = {
    "same": "is never needed: another alternative means the same",
    "less": "is never needed: another alternative requires less",
    "others": "is never needed: the others are enough wherever it is",
}


@check(SHADOWED_ALTERNATIVE)
def shadowed_alternative(policy: m.Policy) -> Iterator[Diagnostic]:
    """Parts of an `or`, at any depth, that decide nothing: compared exactly, including through `can`.

    This includes the privileges and objects of one term: with inheritance, `READ (shop, shelf)` requires no more than
    `READ (shelf)`. It excludes conditions that always hold, and a set beside its members in one term.
    """
    for part in superfluous(view_of(policy)):
        if part.kind != "condition":
            yield SHADOWED_ALTERNATIVE.at(
                part.spot.span, f"this {part.kind} {_why(part)}", "drop it, or check what it was meant to say"
            )


def _why(part: Superfluous) -> str:
    if part.why == "twice":
        return "occurs twice"
    if part.why == "row":
        return "is never needed: the row decides the same without it"
    if part.kind == "object":
        return "is never needed: what is held here is held on the other too"
    return _SHADOWED_ALTERNATIVE_WHY[part.why]


# P312: an operation that no state allows.
UNREACHABLE_OPERATION = FindingKind("P312", "unreachable-operation", Severity.WARNING)


@check(UNREACHABLE_OPERATION)
def unreachable_operation(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows whose condition no state can meet: for a named entity, or for the call without the last name.

    Checks every set of flags and every choice of types, including through `can`. A row for many types is reported once.
    """
    from privtab.ir.formula import call_condition, item_condition

    view = view_of(policy)
    reported: set[Span] = set()
    reachable: set[int] = set()
    """The shapes of rules that some state allows."""
    for row in policy.rows.values():
        rule = view.rule(row)
        if row.decl.span in reported or view.shape_of(rule).number in reachable:
            continue
        condition, unnamed = item_condition(rule), False
        example = view.unreachable_setting(rule, condition)
        if example is None and view.program.unnamed(rule):
            condition, unnamed = call_condition(rule), True
            example = view.unreachable_setting(rule, condition, unnamed=True)
        if example is None:
            reachable.add(view.shape_of(rule).number)
        else:
            reported.add(row.decl.span)
            try:
                settings = view.settings(rule)
                unreachable = [s for s in settings if not view.allowed(rule, condition, s, unnamed=unnamed)]
            except Undecided:
                settings, unreachable = [], [example]
            yield _finding(rule, unreachable, always=len(unreachable) == len(settings), unnamed=unnamed)


def _finding(rule: Rule, unreachable: list[Setting], *, always: bool, unnamed: bool) -> Diagnostic:
    call = " without a name" if unnamed else ""
    if unnamed:
        advice = f"such a call names no `{rule.entity}`, so nothing can be held on one: require something on its parent, or use `each`"
    elif always:
        advice = "part of the condition requires what no caller can have: check what it was meant to say"
    else:
        advice = (
            "remove the type from `with`, or write what is required of it"
            if unreachable[0][1]
            else "check what the flag was meant to require"
        )
    return UNREACHABLE_OPERATION.at(
        rule.span,
        f"no state allows `{rule.entity}/{rule.operation}`{call}{'' if always else _where(rule, unreachable)}",
        advice,
    )


def _where(rule: Rule, unreachable: list[Setting]) -> str:
    """The objects and flags for which the row is unreachable, with as few flags as possible."""
    fewest = min(len(flags) for flags, _ in unreachable)
    flags = next(flags for flags, _ in unreachable if len(flags) == fewest)
    where = ""
    for slot in rule.withs:
        types = list(dict.fromkeys(types[slot.name] for other_flags, types in unreachable if other_flags == flags))
        if len(types) < len(slot.types):
            where = f" where `{slot.name}` is of the type {listed(types, last='or')}"
            break
    return where + (f" with the flag{'s' if len(flags) > 1 else ''} {listed(sorted(flags))}" if flags else "")


# P322: an entity type that no row uses.
TYPE_WITHOUT_ROWS = FindingKind("P322", "type-without-rows", Severity.NOTE)


@check(TYPE_WITHOUT_ROWS)
def type_without_rows(policy: m.Policy) -> Iterator[Diagnostic]:
    """Types without rows, also in variants, that no condition, effect or object uses, and that contain no other type.

    Principals are skipped: they exist for the state.
    """
    from privtab.ir.nodes import RESOURCE

    view = view_of(policy)
    named = {type_ for type_, _ in policy.rows}
    named |= {table.entity.value for variant in policy.tables.variants for table in variant.tables}
    named |= {entity.parent for entity in policy.entities.values() if entity.parent is not None}
    for rule in view.program.rules.values():
        named |= {slot_type for slot in rule.withs for slot_type in slot.named}
        named |= {effect.target.type for effect in rule.effects if effect.target.slot == RESOURCE}
        for condition in (rule.gate, rule.requires, rule.each):
            if condition is not None:
                named |= set(_targets(condition))
    for formula in view.alternative_conditions:
        named |= set(_targets(formula))
    for decl in policy.tables.entities:
        name = decl.name.value
        if name not in named and policy.entities[name].principal is None:
            yield TYPE_WITHOUT_ROWS.at(
                decl.name.span,
                f"no row uses the type `{name}`",
                "no request can be made about it: add rows for it, or drop it",
            )


def _targets(formula: Formula) -> Iterator[str]:
    from privtab.ir.formula import atoms, references, targets_of

    yield from (target.type for atom in atoms(formula) for target in targets_of(atom))
    yield from (can.target.type for can in references(formula))


# P327: an `each` that every item passes.
IDLE_EACH = FindingKind("P327", "idle-each", Severity.WARNING)


@check_in_every_type(IDLE_EACH)
def idle_each(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    """Rows whose call implies `each`, so that no item is ever left out. `each: anyone` states this openly."""
    from privtab.ir.formula import call_condition
    from privtab.ir.nodes import ALWAYS
    from privtab.model.nodes import first_spot

    view = view_of(policy)
    for row in policy.rows.values():
        rule = view.rule(row)
        if row.each is None or rule.each is None or rule.each == ALWAYS:
            continue
        if view.implies(rule, call_condition(rule), rule.each, part="items"):
            spot = first_spot(row.each)
            yield (
                row,
                IDLE_EACH.at(
                    row.decl.span if spot is None else spot.span,
                    f"every item of `{row.operation}` passes: the call already requires all that `each` requires",
                    "write `each: anyone`, or require something on the item",
                ),
            )


# P328: a condition that decides nothing, because the rest of the row requires as much.
REDUNDANT_CONDITION = FindingKind("P328", "redundant-condition", Severity.WARNING)


_REDUNDANT_CONDITION_WHY = {
    "always": "it holds for every caller",
    "gate": "the gate requires it",
    "others": "the conditions next to it require as much",
    "row": "the row decides the same without it",
}


@check(REDUNDANT_CONDITION)
def redundant_condition(policy: m.Policy) -> Iterator[Diagnostic]:
    """Parts of an `and` or of `A + B (…)`, at any depth, that decide nothing: compared exactly.

    `anyone` beside other parts is skipped, since it states that a row is open unless a flag is set.
    """
    for part in superfluous(view_of(policy)):
        if part.kind == "condition":
            yield REDUNDANT_CONDITION.at(
                part.spot.span,
                f"this condition adds nothing: {_REDUNDANT_CONDITION_WHY[part.why]}",
                "drop it, or check what it was meant to say",
            )


# P331: a condition that always holds although it seems to require something.
ALWAYS_TRUE = FindingKind("P331", "always-true", Severity.WARNING)


@check_in_every_type(ALWAYS_TRUE)
def always_true(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    """`requires` and `each` that the gate implies for all flags, unless they are just `anyone`.

    Rows that literally repeat the gate are skipped.
    """
    from privtab.ir.nodes import ALWAYS

    view = view_of(policy)
    for row in policy.rows.values():
        rule = view.rule(row)
        for key, formula in (("requires", rule.requires), ("each", rule.each)):
            if formula in (None, ALWAYS, rule.gate):
                continue
            if view.implies(rule, rule.gate, formula, part=key):
                callers = "every caller that passes the gate" if rule.gate != ALWAYS else "every caller"
                yield (
                    row,
                    ALWAYS_TRUE.at(
                        row.decl.span,
                        f"`{key}` of `{row.operation}` holds for {callers}",
                        f"write `{key}: anyone` if that is intended; else check its alternatives",
                    ),
                )


# P338: a row that drops the gate, in a file without a gate.
GATE_OF_NOTHING = FindingKind("P338", "gate-of-nothing", Severity.NOTE)


@check(GATE_OF_NOTHING)
def gate_of_nothing(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows with `gate: none` where `semantics` has no gate; each once."""
    if policy.tables.semantics.gate is not None:
        return
    reported: set[int] = set()
    for row in policy.rows.values():
        if row.decl.ungated and id(row.decl.body) not in reported:
            reported.add(id(row.decl.body))
            yield GATE_OF_NOTHING.at(
                row.decl.span,
                f"the row `{row.operation}` has `gate: none`, but the file has no gate",
                "drop `gate: none`, or define the gate in `semantics`",
            )


# P341: findings that were not decided for a row because its conditions exceed the budget.
UNDECIDED = FindingKind("P341", "undecided", Severity.WARNING)


@check(UNDECIDED)
def undecided(policy: Policy) -> Iterator[Diagnostic]:
    """Rows for which other findings were given up; each has a budget far above what rows of usual tables need.

    Runs after all other checks.
    """
    from privtab.ir.solver import CONFLICTS

    for pair, codes in view_of(policy).undecided_codes.items():
        row = policy.rows[pair]
        yield UNDECIDED.at(
            row.decl.span,
            f"not decided within the budget: {listed(sorted(codes))} for `{row.entity}/{row.operation}`",
            f"write the condition in fewer alternatives or flags; a finding may take {CONFLICTS:,} conflicts of the solver",
        )
