"""Plans a conformance test: from a program to few questions, and to one world that they share."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from privtab.base import Undecided
from privtab.ir import Compare, Program, Rule, reached_atoms
from privtab.reference import EvaluationContext, Reference
from privtab_testing.conform import Question, QuestionPlan
from privtab_testing.conform.candidates import THROUGH_ROLES, Candidate, Candidates, Setting
from privtab_testing.conform.misreadings import right_answer
from privtab_testing.conform.neighbours import extended
from privtab_testing.conform.steps import ALL_ABILITIES, Abilities
from privtab_testing.conform.worlds import Packing, world_of
from privtab_testing.scenarios.generated import CallerStates
from privtab_testing.scenarios.masks import Key, Mask, Observed, dependencies, noticing
from privtab_testing.scenarios.mutants import Mutants
from privtab_testing.scenarios.prove import Cell, cells_of


class Row:
    """One row of the table: its candidates, their observed holdings, and the cells that the questions must cover."""

    def __init__(
        self,
        settings: Iterable[Setting],
        candidates: Sequence[Candidate],
        observed: Observed,
        readings: Mapping[str, Rule],
    ) -> None:
        self.rule = observed.rule
        self.candidates = candidates
        self.observed = observed
        self.cells = list(self._cells(settings))
        """The cells that some candidate proves, as coverage counts them, with these candidates."""
        self.readings = {name: observed.differing(rule) for name, rule in readings.items()}
        """The candidates that other readings answer otherwise."""
        is_unnamed = self.rule.each is None
        self.preferred = self._where(
            lambda c: not (c.purpose in THROUGH_ROLES or (is_unnamed and c.setting.form == "call"))
        )
        """The candidates with privileges of their own who name the created entity: no real creation is without a name."""

    def _by(self, kind: Callable[[Candidate], object]) -> dict[object, Mask]:
        """The candidates of each kind."""
        found: defaultdict[object, Mask] = defaultdict(int)
        for position, candidate in enumerate(self.candidates):
            found[kind(candidate)] |= 1 << position
        return found

    def _where(self, condition: Callable[[Candidate], bool]) -> Mask:
        return self._by(condition).get(True, 0)

    def _cells(self, settings: Iterable[Setting]) -> Iterator[tuple[Cell, Mask]]:
        by_kind = self._by(lambda candidate: _kind(candidate.setting))
        # One setting for each kind: a cell may be proved with any number of levels.
        for kind, setting in {_kind(setting): setting for setting in settings}.items():
            if setting.form != "call" or self.rule.each is not None:
                found = cells_of(setting.default_cell, setting.sets, self.observed, by_kind.get(kind, 0))
                yield from ((cell, mask) for cell, mask in found if mask)

    def _parts(self, masks: Iterable[Mask]) -> Iterator[Mask]:
        """The candidates in each mask that are allowed, and the candidates that are refused."""
        for mask in masks:
            yield mask & self.observed.allowed
            yield mask & ~self.observed.allowed

    def wanted(self) -> Iterator[Mask]:
        """Sets of candidates of which one must be asked: for each cell, purpose, number of levels and reading."""
        yield from (mask for _, mask in self.cells)
        yield from (mask for purpose, mask in self._by(lambda candidate: candidate.purpose).items() if purpose)
        # For each form of request and number of levels, where a type nests.
        by_levels = self._by(lambda candidate: (candidate.setting.form, tuple(candidate.setting.levels.values())))
        nested = self._where(lambda c: not c.setting.is_deepest or max(c.setting.levels.values()) > 1)
        yield from self._parts((*(mask & nested for mask in by_levels.values()), *self.readings.values()))

    def separated(self, taken: Mask, faults: Iterable[Rule]) -> Mask:
        """Chosen candidates, with further ones that distinguish all faults that candidates can distinguish.

        Each fault also has a candidate that it allows and one that it refuses, where it differs from the row in both.
        """
        masks = list(dict.fromkeys((*map(self.observed.differing, faults), *self.readings.values())))
        missing = (part for part in self._parts(masks) if not part & taken)
        taken |= hitting_set(missing, self.observed.all_cases)
        groups = [masks]
        while groups:
            by_answers: defaultdict[Mask, list[Mask]] = defaultdict(list)
            for mask in groups.pop():
                by_answers[mask & taken].append(mask)
            for alike in by_answers.values():
                if len(alike) > 1:
                    taken |= hitting_set([alike[0] ^ alike[1]], self.observed.all_cases)
                    groups.append(alike)
        return taken


def chosen(program: Program, rows: Mapping[Key, Row], *, separate: bool = False) -> dict[Key, tuple[int, ...]]:
    """The positions of the chosen candidates of each row.

    `separate`: choose enough candidates to distinguish the faults of a row from each other as well.
    """
    mutants = Mutants(program)
    observed = {key: row.observed for key, row in rows.items()}
    required = {key: list(row.wanted()) for key, row in rows.items()}
    elsewhere: list[list[tuple[Key, Mask]]] = []
    for key, row in rows.items():
        for mutant in mutants.shown(row.rule):
            # A fault is noticed by candidates of the row itself, or else of those that refer to it.
            noticed = noticing(program, observed, mutant.rule)
            for first in islice(noticed, 1):
                if first[0] == key:
                    required[key].append(first[1])
                else:
                    elsewhere.append([first, *noticed])
    taken = {key: hitting_set(masks, rows[key].preferred) for key, masks in required.items()}
    for others in elsewhere:
        if not any(taken[key] & mask for key, mask in others):
            key, mask = others[0]
            taken[key] |= hitting_set([mask], rows[key].preferred)
    for key, row in rows.items() if separate else ():
        taken[key] = row.separated(taken[key], (mutant.rule for mutant in mutants.shown(row.rule)))
    return {key: tuple(bits(mask)) for key, mask in taken.items()}


def hitting_set(masks: Iterable[Mask], preferred: Mask) -> Mask:
    """Few positions, of which each mask has one; rare positions first, then the positions that most masks have."""
    distinct = sorted({mask & preferred or mask for mask in masks} - {0}, key=lambda mask: (mask.bit_count(), mask))
    hits: defaultdict[int, int] = defaultdict(int)
    for number, mask in enumerate(distinct):
        for position in bits(mask):
            hits[position] |= 1 << number
    left = (1 << len(distinct)) - 1
    taken = 0
    for number, mask in enumerate(distinct):
        if left >> number & 1:
            best = max(bits(mask), key=lambda position: ((hits[position] & left).bit_count(), -position))
            taken |= 1 << best
            left &= ~hits[best]
    return taken


def bits(mask: Mask) -> Iterator[int]:
    """The positions in a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _kind(setting: Setting) -> object:
    return setting.form, setting.flags, tuple(setting.types.items())


PREFIX = "privtab_conform_"
"""The beginning of every name that a test makes in a system."""
NOT_ASKED = "the driver cannot ask this operation"
NO_ATTRIBUTES = "it compares attributes, which the driver cannot give"
SHARED_ATTRIBUTES = "it compares attributes of `{}`, which all requests share"
Readings = Mapping[Key, Mapping[str, Rule]]
"""The other readings of ambiguous rows, by name."""


def plan(
    program: Program,
    *,
    readings: Readings | None = None,
    rows: Callable[[Rule], bool] = lambda _: True,
    asks: Callable[[Rule], bool] = lambda _: True,
    changes: Callable[[Rule], bool] = lambda _: False,
    attributes: bool = True,
    through_roles: bool = True,
    prefix: str = PREFIX,
    marked: bool = False,
    separate: bool = False,
    abilities: Abilities | None = ALL_ABILITIES,
) -> QuestionPlan:
    """Plan the questions for the rows that `rows` selects.

    `readings`: other readings of ambiguous rows. `asks`: whether an operation can be asked; nothing is made for others.
    `attributes`: whether users, entities and requests can be given attributes. `through_roles`: whether some callers hold their privileges through roles. `changes`: whether asking an operation may change the system; such questions
    come last, each about an entity of its own. `marked`: the names of callers contain a digest of the plan, so that a state of
    another plan has none of them. `separate`: ask more, so that the answers tell the faults of a row apart. `abilities`: what the driver
    can make for the questions by which kinds of mistakes are seen; None: ask none of these.
    """
    source = Candidates(program, through_roles=through_roles)
    mutants = Mutants(program)
    readings = readings or {}
    undecided: dict[str, str] = {}
    settings: dict[Key, tuple[Setting, ...]] = {}
    candidates: dict[Key, tuple[Candidate, ...]] = {}
    for key, rule in program.rules.items():
        if not rows(rule):
            continue
        problem = _not_given(program, rule, attributes=attributes) if asks(rule) else NOT_ASKED
        try:
            if problem is None:
                settings[key] = tuple(source.settings(rule))
                found = [*_candidates(source, settings[key], readings.get(key, {}).values())]
                if separate:
                    found += source.changed(settings[key], (mutant.rule for mutant in mutants.shown(rule)))
                candidates[key] = tuple(found)
                problem = None if found else "its conditions are about objects that a caller cannot be given"
        except Undecided as error:
            problem = str(error)
        if problem is not None:
            undecided[rule.id] = problem
    asked = {
        key: Row(settings[key], candidates[key], seen, readings.get(key, {}))
        for key, seen in observed(program, candidates).items()
        if candidates[key]
    }
    packed = _packed(
        program, asked, chosen(program, asked, separate=separate), undecided, changes, prefix, marked=marked
    )
    if abilities is not None:
        packed = extended(packed, abilities=abilities, changes=changes, readings=readings, prefix=prefix)
    return _identified(packed)


def _not_given(program: Program, rule: Rule, *, attributes: bool) -> str | None:
    """The reason for not asking about a row, if it compares attributes that cannot be given to one caller alone."""
    compares = [leaf for leaf in reached_atoms(program, rule.item_condition) if isinstance(leaf, Compare)]
    if compares and not attributes:
        return NO_ATTRIBUTES
    compared = (target.type for compare in compares for target in compare.targets)
    shared = next((type_ for type_ in compared if type_ in program.shared), None)
    return None if shared is None else SHARED_ATTRIBUTES.format(shared)


def _candidates(source: Candidates, settings: Iterable[Setting], readings: Iterable[Rule]) -> Iterator[Candidate]:
    others = tuple(readings)
    for setting in settings:
        yield from source.of(setting)
        for reading in others:
            read = source.reading(setting, reading)
            for candidate in () if read is None else source.of(read):
                yield replace(candidate, setting=setting, purpose="")


def _packed(
    program: Program,
    rows: Mapping[Key, Row],
    chosen: Mapping[Key, tuple[int, ...]],
    undecided: Mapping[str, str],
    changes: Callable[[Rule], bool],
    prefix: str,
    *,
    marked: bool,
) -> QuestionPlan:
    """The chosen candidates as questions: questions that may change something come last."""
    reached = {key for row in rows for key in dependencies(program, row)}
    rules = [rule for key, rule in program.rules.items() if key in reached]
    packing = Packing(program, rules, prefix, _mark(rows, chosen) if marked else "")
    cells: list[Cell] = []
    questions: list[Question] = []
    for key, positions in chosen.items():
        row = rows[key]
        first = len(cells)
        cells += [cell for cell, _ in row.cells]
        for number, position in enumerate(positions, start=1):
            candidate = row.candidates[position]
            request, state = packing.packed(
                candidate.caller,
                candidate.setting.request,
                row.rule,
                own=changes(row.rule),
                through_roles=candidate.through_roles,
            )
            expected = bool(row.observed.allowed >> position & 1)
            questions.append(
                Question(
                    id=f"{row.rule.entity}/{row.rule.operation}#{number}",
                    rule=row.rule,
                    request=request,
                    expected=expected,
                    holds=candidate.caller.words,
                    state=state,
                    cells=tuple(n for n, (_, mask) in enumerate(row.cells, start=first) if mask >> position & 1),
                    readings={name: not expected for name, mask in row.readings.items() if mask >> position & 1},
                    purpose=candidate.purpose,
                    named=candidate.setting.form != "call",
                )
            )
    questions.sort(key=lambda question: changes(question.rule))
    return QuestionPlan(
        program=program,
        cells=tuple(cells),
        questions=tuple(questions),
        world=world_of(program, questions),
        undecided=undecided,
        digest="",
    )


def _identified(found: QuestionPlan) -> QuestionPlan:
    """The plan with its digest, and the answers that the table gives in its whole world."""
    reference = Reference(found.program, found.world.state)
    questions = [replace(question, expected=right_answer(reference, question.request)) for question in found.questions]
    found = replace(found, questions=tuple(questions))
    content = [[question.id, question.request.to_json(), question.expected] for question in found.questions]
    return replace(found, digest=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16])


def _mark(rows: Mapping[Key, Row], chosen: Mapping[Key, tuple[int, ...]]) -> str:
    """A short digest of the chosen candidates."""
    content = [
        [candidate.setting.request.to_json(), candidate.caller.words, candidate.through_roles]
        for key, positions in chosen.items()
        for candidate in map(rows[key].candidates.__getitem__, positions)
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6] + "_"


def observed(program: Program, candidates: Mapping[Key, Iterable[Candidate]]) -> dict[Key, Observed]:
    """The holdings of each row's candidates, from the reference engine."""
    callers = CallerStates(program)
    asked = {
        key: [
            callers.add_caller(candidate.caller, candidate.setting.request, through_roles=candidate.through_roles)
            for candidate in row
        ]
        for key, row in candidates.items()
    }
    references = [Reference(program, state) for state in callers.states()]
    return {
        key: Observed(
            program, program.rules[key], (EvaluationContext(references[number], asked) for number, asked in row)
        )
        for key, row in asked.items()
    }
