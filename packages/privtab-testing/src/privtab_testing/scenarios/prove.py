"""The proofs of the passed cases: the cells of each row, and the mutation score: mutants that some case notices, and equivalent mutants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Literal, TypeAlias

from privtab.base import Undecided, dataclass
from privtab.ir import (
    And,
    Below,
    Compare,
    Formula,
    ImplicationChecker,
    Leaf,
    Or,
    Program,
    Rule,
    Tool,
    asked_condition,
    atom_text,
    canonical_form,
    reached_atoms,
    rule_flags,
    vocabulary,
)
from privtab_testing.scenarios import Case, CasePlan, Form
from privtab_testing.scenarios.masks import SETTING_COST, Budget, Key, Mask, Observed, noticing
from privtab_testing.scenarios.mutants import Mutant, Mutants
from privtab_testing.scenarios.run import ReferenceEngine, effect_text, failures
from privtab_testing.scenarios.suggest import Setting, suggestions

Proof: TypeAlias = Literal["allow", "lack", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One thing that a case can prove about a rule.

    `allow`: a caller with `atoms` and no other complete set is allowed. `lack`: a caller with all of `atoms` except
    `missing` is denied. `default`: a caller without any atom of any set is denied.
    """

    rule: Rule
    proof: Proof
    atoms: tuple[Leaf, ...] = ()
    missing: Leaf | None = None
    flags: frozenset[str] = frozenset()
    types: Mapping[str, str]
    form: Form
    covered: bool

    @property
    def text(self) -> str:
        """The cell in words: `allowed by READ (namespace)`."""
        atom_texts = [atom_text(atom, self.rule, self.types) for atom in self.atoms if atom != self.missing]
        satisfied = ", ".join(atom_texts)
        match self.proof:
            case "allow":
                return f"allowed by {satisfied}" if satisfied else "allowed to anyone"
            case "lack":
                assert self.missing is not None
                text = f"denied without {atom_text(self.missing, self.rule, self.types)}"
                return f"{text}, though with {satisfied}" if satisfied else text
            case "default":
                return "denied to callers who hold none of it"

    @property
    def setting(self) -> str:
        """The kind of request: `a named item`, `the call`, flags, types of objects; empty if the rule has only one."""
        parts = [{"item": "a named item", "call": "the call", "": ""}[self.form]]
        parts += [f"with {flag}" for flag in sorted(self.flags)]
        parts += [f"{slot}: {type_}" for slot, type_ in self.types.items()]
        return ", ".join(part for part in parts if part)


class Coverage:
    """The cells of some rules, and which of them the cases prove."""

    def __init__(self, program: Program, rules: Mapping[Key, Rule], observed: Mapping[Key, Observed]) -> None:
        self.program = program
        self._form = canonical_form(program)
        self._exact = ImplicationChecker(program)
        semantics = program.semantics
        self._owners_hold = (
            semantics.deny == "overrides" and semantics.owner is not None and bool(semantics.owner.holds)
        )
        cells: list[Cell] = []
        undecided: list[Rule] = []
        for key, rule in rules.items():
            self._budget = Budget(self._exact, rule)
            try:
                cells.extend(self._cells(rule, observed.get(key)))
            except Undecided:
                undecided.append(rule)
        self.cells = tuple(cells)
        self.undecided = tuple(undecided)
        """Rules with more cells than the budget allows; their cells are not counted."""

    @property
    def covered(self) -> int:
        """The number of proved cells."""
        return sum(cell.covered for cell in self.cells)

    @property
    def percent(self) -> float:
        """The share of proved cells. Without any cells it is 100, or 0 if some rules exceeded the budget."""
        return percent(self.covered, len(self.cells), self.undecided)

    @property
    def untested(self) -> tuple[Cell, ...]:
        """The cells that no case proves."""
        return tuple(cell for cell in self.cells if not cell.covered)

    def by_rule(self) -> dict[str, tuple[Rule, int, int]]:
        """The rules, by id, with the number of their cells and of the proved ones."""
        found: dict[str, tuple[Rule, int, int]] = {}
        for cell in self.cells:
            _, cells, covered = found.get(cell.rule.id, (cell.rule, 0, 0))
            found[cell.rule.id] = cell.rule, cells + 1, covered + cell.covered
        return found

    def _cells(self, rule: Rule, observed: Observed | None) -> Iterator[Cell]:
        requests = vocabulary(self.program).operations[rule.entity][rule.operation]
        for flags, all_types in requests.settings():
            self._budget.spend(SETTING_COST)
            types = {slot.name: all_types[slot.name] for slot in rule.withs if slot.polymorphic}
            in_setting = 0 if observed is None else observed.setting(flags, requests.flags, all_types)
            named = 0 if observed is None else observed.named
            of_forms = {"": in_setting, "item": named, "call": ~named}
            for form in request_forms(self.program, rule):
                cases = in_setting & of_forms[form]
                condition = rule.item_condition
                if form == "call":
                    condition = asked_condition(self.program, rule, named=False)
                sets = self._form.minimal_sets(condition, flags, all_types)
                kind = Cell(rule=rule, proof="default", flags=flags, types=types, form=form, covered=False)
                for cell, _ in cells_of(kind, sets, observed, cases):
                    self._budget.spend(len(cell.atoms) + len(sets))
                    if cell.covered or not self._is_impossible(sets, cell.atoms, cell.missing):
                        yield cell

    def _is_impossible(self, sets: tuple[tuple[Leaf, ...], ...], atoms: tuple[Leaf, ...], missing: Leaf | None) -> bool:
        """Return whether no state can prove a cell.

        This happens if owners hold privileges that can also be denied: a caller who should have `READ` below an
        entity but not on it must own what lies below, and then has everything that owners hold. And it happens if
        comparisons of attributes hold together, such as `user.rank > 3` and `user.rank > 2`, or one atom is held below another or on more of
        the levels of a type that nests.
        """
        related = self.program.nests or any(
            isinstance(atom, Below | Compare) for atoms_ in (*sets, atoms) for atom in atoms_
        )
        if not ((self._owners_hold and atoms) or related):
            return False
        premise = And(parts=tuple(atom for atom in atoms if atom != missing))
        others = [And(parts=set_) for set_ in sets if missing is not None or set_ != atoms]
        consequence = Or(parts=(*others, *(() if missing is None else (missing,))))
        return self._budget.ask(lambda: self._exact.implies(premise, consequence))


def request_forms(program: Program, rule: Rule) -> tuple[Form, ...]:
    """The forms of requests that coverage tells apart."""
    return ("",) if rule.each is None or not program.unnamed(rule) else ("item", "call")


def cells_of(
    kind: Cell, sets: tuple[tuple[Leaf, ...], ...], observed: Observed | None, in_setting: Mask
) -> Iterator[tuple[Cell, Mask]]:
    """The cells of one kind of request, and the cases that prove each; `kind`: a cell of that kind, `in_setting`: the cases that have it."""
    masks = {atom: 0 if observed is None else observed.holds(atom) for atoms in sets for atom in atoms}
    complete = [reduce(int.__and__, (masks[atom] for atom in atoms), in_setting) for atoms in sets]
    allowed = observed.allowed if observed is not None else 0
    denied = in_setting & ~allowed
    for position, atoms in enumerate(sets):
        others = reduce(int.__or__, (mask for other, mask in enumerate(complete) if other != position), 0)
        proved = complete[position] & ~others & allowed
        yield replace(kind, proof="allow", atoms=atoms, covered=bool(proved)), proved
    for atoms in sets:
        for missing in atoms:
            rest = reduce(int.__and__, (masks[atom] for atom in atoms if atom != missing), denied)
            proved = rest & ~masks[missing]
            yield replace(kind, proof="lack", atoms=atoms, missing=missing, covered=bool(proved)), proved
    if () not in sets:
        proved = denied & ~reduce(int.__or__, masks.values(), 0)
        yield replace(kind, covered=bool(proved)), proved


def percent(part: int, total: int, undecided: Sequence[Rule] = ()) -> float:
    """A share in percent, never rounded up to 100; 100 if the whole is zero, or 0 if that is so since some rules are undecided."""
    if part >= total:
        return 100.0 if total or not undecided else 0.0
    return min(99.9, round(100 * part / total, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The numbers of killed mutants and of mutants that are equivalent to their rule, and the surviving mutants."""

    killed: int
    equivalent: int
    survived: tuple[Mutant, ...]
    undecided: tuple[Rule, ...] = ()
    """Rules with mutants that exceeded the budget; their mutants are not counted."""

    @property
    def mutants(self) -> int:
        """The number of mutants that are not equivalent."""
        return self.killed + len(self.survived)

    @property
    def percent(self) -> float:
        """The share of killed mutants. Without mutants it is 100, or 0 if some rules exceeded the budget."""
        return percent(self.killed, self.mutants, self.undecided)


class Scoring:
    """Scores the mutants of some rules by cases that pass."""

    def __init__(self, program: Program, rules: Mapping[Key, Rule], observed: Mapping[Key, Observed]) -> None:
        self.program = program
        self.rules = rules
        self.observed = observed
        self.mutants = Mutants(program)
        self.exact = ImplicationChecker(program)

    def score(self, on_progress: Callable[[int], None] = lambda _: None) -> Score:
        """The score over all rules; `on_progress` is called after each rule."""
        killed = equivalent = 0
        survived: list[Mutant] = []
        undecided: list[Rule] = []
        for rule in self.rules.values():
            budget = Budget(self.exact, rule)
            size = sum(1 for _ in reached_atoms(self.program, rule.item_condition))
            try:
                for mutant in self.mutants.of(rule):
                    budget.spend(size)
                    if self.kills(mutant):
                        killed += 1
                    elif self.is_equivalent(mutant, budget):
                        equivalent += 1
                    else:
                        survived.append(mutant)
            except Undecided:
                undecided.append(rule)
            on_progress(1)
        return Score(killed=killed, equivalent=equivalent, survived=tuple(survived), undecided=tuple(undecided))

    def kills(self, mutant: Mutant) -> bool:
        """Return whether some case gets another answer, from the mutated rule or from a rule that refers to it by `can`."""
        observed = self.observed.get((mutant.rule.entity, mutant.rule.operation))
        if mutant.change == "effect":
            return observed is not None and self._effects_differ(observed, mutant)
        if mutant.change == "report":
            return observed is not None and any(case.expected.report is not None for case in observed.cases)
        return any(noticing(self.program, self.observed, mutant.rule))

    @staticmethod
    def _effects_differ(observed: Observed, mutant: Mutant) -> bool:
        for context, case in zip(observed.contexts, observed.cases, strict=True):
            if case.expected.allowed and case.expected.effects is not None:
                effects = sorted(effect_text(context, effect) for effect in mutant.rule.effects)
                if effects != sorted(case.expected.effects):
                    return True
        return False

    def is_equivalent(self, mutant: Mutant, budget: Budget | None = None) -> bool:
        """Return whether no state and no request distinguishes the mutant from its rule; raises Undecided if too expensive."""
        rule, changed = mutant.original, mutant.rule
        if rule.effects != changed.effects or rule.report != changed.report:
            return False
        pairs: list[tuple[Formula, Formula, str | None]] = [(rule.item_condition, changed.item_condition, None)]
        if self.program.unnamed(rule):
            pairs.append((rule.call_condition, changed.call_condition, rule.entity))
        budget = budget or Budget(self.exact, rule)
        both_ways = ((first, second, unnamed) for f, g, unnamed in pairs for first, second in ((f, g), (g, f)))
        return all(
            budget.ask(partial(self.exact.always_implies, rule, f, g, unnamed=unnamed)) for f, g, unnamed in both_ways
        )


def observe(plan: CasePlan, passed: Iterable[Case], engine: ReferenceEngine | None = None) -> dict[Key, Observed]:
    """The cases of each rule and their callers' holdings; `engine`: one that has seen the states already."""
    engine = engine or ReferenceEngine(plan.program)
    by_rule: defaultdict[Key, list[Case]] = defaultdict(list)
    for case in passed:
        by_rule[case.request.resource.type, case.request.action].append(case)
    return {
        key: Observed(
            plan.program,
            plan.program.rules[key],
            (engine.context(plan.worlds[case.world], case.request) for case in cases),
            cases,
        )
        for key, cases in by_rule.items()
    }


def coverage(plan: CasePlan, observed: dict[Key, Observed]) -> Coverage:
    """The coverage of the plan's rules."""
    Tool.COVERAGE.check(plan.program)
    return Coverage(plan.program, plan.rules, observed)


def proved(plan: CasePlan) -> Coverage:
    """The coverage by the cases of a plan that the reference passes; it decides the cases of a rule at once, by what coverage asks for."""
    engine = ReferenceEngine(plan.program, keeps=True)
    observed = observe(plan, plan.cases, engine)
    for cases in observed.values():
        engine.allowed |= {id(context): bool(cases.allowed >> n & 1) for n, context in enumerate(cases.contexts)}
    failed = {id(failure.case) for failure in failures(plan, plan.cases, [engine])}
    if failed:
        observed = observe(plan, (case for case in plan.cases if id(case) not in failed), engine)
    return coverage(plan, observed)


def score(plan: CasePlan, observed: dict[Key, Observed], on_progress: Callable[[int], None] = lambda _: None) -> Score:
    """The mutation score over the plan's rules."""
    Tool.MUTATION.check(plan.program)
    return Scoring(plan.program, plan.rules, observed).score(on_progress)


def undecided(*measures: Coverage | Score | None) -> tuple[Rule, ...]:
    """The rules that some measures could not decide, each once."""
    rules = (rule for measure in measures if measure is not None for rule in measure.undecided)
    return tuple({rule.id: rule for rule in rules}.values())


def suggested(plan: CasePlan, coverage_: Coverage | None, score_: Score | None) -> str:
    """Entries of `needs` for the untested cells, and for rules with faults that no case notices."""
    settings_by_rule: dict[str, tuple[Rule, set[Setting]]] = {}
    for rule in undecided(coverage_, score_):
        # Not every kind of request was looked at: start with those without flags and those with all of them.
        types = tuple((slot.name, slot.types[0]) for slot in rule.withs if slot.polymorphic)
        first_settings: set[Setting] = {
            (flags, types, form)
            for flags in (frozenset[str](), frozenset(rule_flags(plan.program, rule)))
            for form in request_forms(plan.program, rule)
        }
        settings_by_rule[rule.id] = rule, first_settings
    rules_with_survivors = {mutant.original.id for mutant in score_.survived} if score_ else set()
    for cell in coverage_.cells if coverage_ else ():
        if not cell.covered or cell.rule.id in rules_with_survivors:
            setting = cell.flags, tuple(cell.types.items()), cell.form
            settings_by_rule.setdefault(cell.rule.id, (cell.rule, set()))[1].add(setting)
    return suggestions(plan.program, settings_by_rule)
