"""Conditions that decide nothing, always or never hold, or could not be decided: P310, P312, P322, P327, P328, P331, P338, P341."""

from __future__ import annotations

from collections.abc import Iterator

from privtab.base.diagnostics import Severity, Span
from privtab.base.errors import Undecided
from privtab.base.hints import listed_names
from privtab.checks._superfluous import Superfluous, superfluous
from privtab.checks._view import Found, FoundInRow, Setting, check, check_in_every_type, declared, view_of
from privtab.ir.formula import direct_atoms, references
from privtab.ir.nodes import ALWAYS, NEVER, RESOURCE, Formula, Rule
from privtab.ir.solver import CONFLICTS
from privtab.model import nodes as m
from privtab.model.nodes import Policy, first_spot

_SHADOWED_ALTERNATIVE_WHY = {
    "same": "is never needed: another alternative means the same",
    "less": "is never needed: another alternative requires less",
    "others": "is never needed: the others are enough wherever it is",
}


@check("P310", Severity.WARNING)
def shadowed_alternative(policy: m.Policy) -> Iterator[Found]:
    """Parts of an `or`, at any depth, that decide nothing: compared exactly, including through `can`.

    This includes the privileges and objects of one term: with inheritance, `READ (shop, shelf)` requires no more than
    `READ (shelf)`. It excludes conditions that always hold, and a set beside its members in one term.
    """
    for part in superfluous(view_of(policy)):
        if part.kind != "condition":
            yield Found(part.spot.span, f"this {part.kind} {_why(part)}", "drop it, or check what it was meant to say")


def _why(part: Superfluous) -> str:
    if part.why == "twice":
        return "occurs twice"
    if part.why == "row":
        return "is never needed: the row decides the same without it"
    if part.kind == "object":
        return "is never needed: what is held here is held on the other too"
    return _SHADOWED_ALTERNATIVE_WHY[part.why]


@check("P312", Severity.WARNING)
def unreachable_operation(policy: m.Policy) -> Iterator[Found]:
    """Rows whose condition no state can meet: for a named entity, or for the call without the last name.

    Checks every set of flags and every choice of types, including through `can`. A row for many types is reported once, and one
    that says `nobody` alone not at all.
    """
    view = view_of(policy)
    reported: set[Span] = set()
    reachable: set[int] = set()
    """The shapes of rules that some state allows."""
    for row in policy.rows.values():
        rule = view.rule(row)
        if row.decl.span in reported or rule.requires == NEVER or view.shape_of(rule).number in reachable:
            continue
        condition, unnamed = rule.item_condition, False
        example = view.unreachable_setting(rule, condition)
        if example is None and view.program.unnamed(rule):
            condition, unnamed = rule.call_condition, True
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


def _finding(rule: Rule, unreachable: list[Setting], *, always: bool, unnamed: bool) -> Found:
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
    return Found(
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
            where = f" where `{slot.name}` is of the type {listed_names(types, last='or')}"
            break
    return where + (f" with the flag{'s' if len(flags) > 1 else ''} {listed_names(sorted(flags))}" if flags else "")


@check("P322", Severity.NOTE)
def type_without_rows(policy: m.Policy) -> Iterator[Found]:
    """Types without rows, also in variants, that no condition, effect or object uses, and that contain no other type.

    Principals are skipped: they exist for the state.
    """
    view = view_of(policy)
    named = {type_ for type_, _ in policy.rows}
    named |= {table.entity.value for variant in policy.tables.variants for table in variant.tables}
    named |= {entity.parent for entity in policy.entities.values() if entity.parent is not None}
    declared = [decl.name for decl in policy.tables.entities if policy.entities[decl.name.value].principal is None]
    if named.issuperset(name.value for name in declared):
        return
    for rule in view.program.rules.values():
        named |= {slot_type for slot in rule.withs for slot_type in slot.named}
        named |= {effect.target.type for effect in rule.effects if effect.target.slot == RESOURCE}
        for condition in (rule.gate, rule.requires, rule.each):
            if condition is not None:
                named |= set(_targets(condition))
    for formula in view.alternative_conditions:
        named |= set(_targets(formula))
    for name in declared:
        if name.value not in named:
            yield Found(
                name.span,
                f"no row uses the type `{name.value}`",
                "no request can be made about it: add rows for it, or drop it",
            )


def _targets(formula: Formula) -> Iterator[str]:
    yield from (target.type for atom in direct_atoms(formula) for target in atom.targets)
    yield from (can.target.type for can in references(formula))


@check_in_every_type("P327", Severity.WARNING)
def idle_each(policy: m.Policy) -> Iterator[FoundInRow]:
    """Rows whose call implies `each`, so that no item is ever left out. `each: anyone` states this openly."""
    view = view_of(policy)
    for row in policy.rows.values():
        rule = view.rule(row)
        if row.each is None or rule.each is None or rule.each == ALWAYS:
            continue
        if view.implies(rule, rule.call_condition, rule.each, part="items"):
            spot = first_spot(row.each)
            yield (
                row,
                row.decl.span if spot is None else spot.span,
                f"every item of `{row.operation}` passes: the call already requires all that `each` requires",
                "write `each: anyone`, or require something on the item",
            )


_REDUNDANT_CONDITION_WHY = {
    "always": "it holds for every caller",
    "gate": "the gate requires it",
    "others": "the conditions next to it require as much",
    "row": "the row decides the same without it",
}


@check("P328", Severity.WARNING)
def redundant_condition(policy: m.Policy) -> Iterator[Found]:
    """Parts of an `and` or of `A + B (…)`, at any depth, that decide nothing: compared exactly.

    `anyone` beside other parts is skipped, since it states that a row is open unless a flag is set.
    """
    for part in superfluous(view_of(policy)):
        if part.kind == "condition":
            yield Found(
                part.spot.span,
                f"this condition adds nothing: {_REDUNDANT_CONDITION_WHY[part.why]}",
                "drop it, or check what it was meant to say",
            )


# P331: a condition that always holds although it seems to require something.
@check_in_every_type("P331", Severity.WARNING)
def always_true(policy: m.Policy) -> Iterator[FoundInRow]:
    """`requires` and `each` that the gate implies for all flags, unless they are just `anyone`.

    Rows that literally repeat the gate are skipped.
    """
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
                    row.decl.span,
                    f"`{key}` of `{row.operation}` holds for {callers}",
                    f"write `{key}: anyone` if that is intended; else check its alternatives",
                )


@check("P338", Severity.NOTE)
def gate_of_nothing(policy: m.Policy) -> Iterator[Found]:
    """Rows with `gate: none` where `semantics` has no gate; each once."""
    if policy.tables.semantics.gates:
        return
    for row in declared(policy):
        if row.decl.ungated:
            yield Found(
                row.decl.span,
                f"the row `{row.operation}` has `gate: none`, but the file has no gate",
                "drop `gate: none`, or define the gate in `semantics`",
            )


# P341: findings that were not decided for a row because its conditions exceed the budget.
@check("P341", Severity.WARNING)
def undecided(policy: Policy) -> Iterator[Found]:
    """Rows for which other findings were given up; each has a budget far above what rows of usual tables need.

    Runs after all other checks.
    """
    for pair, codes in view_of(policy).undecided_codes.items():
        row = policy.rows[pair]
        yield Found(
            row.decl.span,
            f"not decided within the budget: {listed_names(sorted(codes))} for `{row.entity}/{row.operation}`",
            f"write the condition in fewer alternatives or flags; a finding may take {CONFLICTS:,} conflicts of the solver",
        )
