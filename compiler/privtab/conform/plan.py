"""Plans a conformance test: from a program to few questions, and to one world that they share."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from privtab.conform.candidates import Candidate, Candidates, Setting
from privtab.conform.misreadings import right_answer
from privtab.conform.neighbours import extended
from privtab.conform.nodes import Question, QuestionPlan
from privtab.conform.steps import ALL_ABILITIES, Abilities
from privtab.conform.worlds import Packing, world_of
from privtab.errors import Undecided
from privtab.ir.formula import item_condition, leaves
from privtab.ir.nodes import Compare, Program, Rule
from privtab.reference.evaluate import Reference
from privtab.scenarios.coverage import Cell, cells_of
from privtab.scenarios.generated import CallerStates
from privtab.scenarios.masks import Key, Mask, Observed, RuleDependencies
from privtab.scenarios.mutants import UNSEEN, Mutants


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: its candidates, and what they are observed to hold."""

    rule: Rule
    settings: tuple[Setting, ...]
    candidates: tuple[Candidate, ...]
    observed: Observed
    readings: Mapping[str, Rule]

    def differing(self, changed: Rule) -> Mask:
        """The candidates that a changed rule answers otherwise."""
        return self.observed.outcome(changed) ^ self.observed.allowed


class Choice:
    """What the questions must cover in each row, and the candidates chosen for it."""

    def __init__(self, program: Program, rows: Mapping[Key, Row], *, separate: bool = False) -> None:
        """`separate`: choose enough candidates to distinguish the faults of a row from each other as well."""
        self.program = program
        self._separate = separate
        self.rows = rows
        self.cells: dict[Key, list[tuple[Cell, Mask]]] = {key: list(_cells(row)) for key, row in rows.items()}
        self.readings: dict[Key, dict[str, Mask]] = {
            key: {name: row.differing(rule) for name, rule in row.readings.items()} for key, row in rows.items()
        }
        self._dependencies = RuleDependencies(program)
        self._mutants = Mutants(program, self._dependencies)

    def asked_rules(self) -> list[Rule]:
        """The rows, and those that they refer to."""
        keys = {key for row in self.rows for key in self._dependencies.of(row)}
        return [rule for key, rule in self.program.rules.items() if key in keys]

    def chosen(self) -> dict[Key, tuple[int, ...]]:
        """The positions of the chosen candidates of each row."""
        required: dict[Key, list[Mask]] = {key: list(self._wanted(key)) for key in self.rows}
        elsewhere: list[list[tuple[Key, Mask]]] = []
        for key in self.rows:
            for own, others in self._faults(key):
                if own:
                    required[key].append(own)
                elif others:
                    elsewhere.append(others)
        preferred = {key: self._preferred(row) for key, row in self.rows.items()}
        taken = {key: hitting_set(masks, preferred[key]) for key, masks in required.items()}
        for others in elsewhere:
            if not any(taken[key] & mask for key, mask in others):
                key, mask = others[0]
                taken[key] |= hitting_set([mask], preferred[key])
        for key in self.rows if self._separate else ():
            taken[key] = self._separated(key, taken[key])
        return {key: tuple(bits(mask)) for key, mask in taken.items()}

    def _wanted(self, key: Key) -> Iterator[Mask]:
        yield from (mask for _, mask in self.cells[key])
        by_purpose: defaultdict[str, Mask] = defaultdict(int)
        for position, candidate in enumerate(self.rows[key].candidates):
            if candidate.purpose:
                by_purpose[candidate.purpose] |= 1 << position
        yield from by_purpose.values()
        allowed = self.rows[key].observed.allowed
        for mask in self._by_levels(key):
            yield mask & allowed
            yield mask & ~allowed
        for mask in self.readings[key].values():
            yield mask & allowed
            yield mask & ~allowed

    def _by_levels(self, key: Key) -> Iterable[Mask]:
        """For each form of request and number of levels, where a type nests, its candidates."""
        found: defaultdict[object, Mask] = defaultdict(int)
        for position, candidate in enumerate(self.rows[key].candidates):
            setting = candidate.setting
            if not setting.is_deepest or max(setting.levels.values()) > 1:
                found[setting.form, tuple(setting.levels.values())] |= 1 << position
        return found.values()

    def _faults(self, key: Key) -> Iterator[tuple[Mask, list[tuple[Key, Mask]]]]:
        """For each fault in a row, the candidates that notice it: of the row itself, or of those that refer to it."""
        row = self.rows[key]
        for mutant in self._mutants.of(row.rule):
            if mutant.change in UNSEEN:
                continue
            own = row.differing(mutant.rule)
            others: list[tuple[Key, Mask]] = []
            for dependent in () if own else self._dependencies.dependents(key):
                if dependent in self.rows:
                    observed = self.rows[dependent].observed
                    mask = observed.outcome(observed.rule, mutant.rule, self._dependencies) ^ observed.allowed
                    if mask:
                        others.append((dependent, mask))
            yield own, others

    def _separated(self, key: Key, taken: Mask) -> Mask:
        """The chosen candidates of a row, with further ones that distinguish all of its faults that candidates can distinguish.

        Each fault also has a candidate that it allows and one that it refuses, where it differs from the row in both.
        """
        row = self.rows[key]
        rules = [mutant.rule for mutant in self._mutants.of(row.rule) if mutant.change not in UNSEEN]
        masks = list(dict.fromkeys(row.differing(rule) for rule in (*rules, *row.readings.values())))
        allowed = row.observed.allowed
        both = (part for mask in masks for part in (mask & allowed, mask & ~allowed))
        taken |= hitting_set((part for part in both if not part & taken), row.observed.all_cases)
        groups = [masks]
        while groups:
            by_answers: defaultdict[Mask, list[Mask]] = defaultdict(list)
            for mask in groups.pop():
                by_answers[mask & taken].append(mask)
            for alike in by_answers.values():
                if len(alike) > 1:
                    taken |= hitting_set([alike[0] ^ alike[1]], row.observed.all_cases)
                    groups.append(alike)
        return taken

    @staticmethod
    def _preferred(row: Row) -> Mask:
        """The candidates with privileges of their own who name what they create: no real creation is without a name."""
        is_unnamed = row.rule.each is None
        return sum(
            1 << position
            for position, candidate in enumerate(row.candidates)
            if not (candidate.through_roles or (is_unnamed and candidate.setting.form == "call"))
        )


def hitting_set(masks: Iterable[Mask], preferred: Mask) -> Mask:
    """Few positions, of which each mask has one; rare positions first, then those that most masks have."""
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


def _cells(row: Row) -> Iterator[tuple[Cell, Mask]]:
    """The cells that some candidate proves, as coverage counts them, with those candidates."""
    by_kind: defaultdict[object, Mask] = defaultdict(int)
    for position, candidate in enumerate(row.candidates):
        by_kind[_kind(candidate.setting)] |= 1 << position
    # One setting for each kind: a cell may be proved with any number of levels.
    for kind, setting in {_kind(setting): setting for setting in row.settings}.items():
        if setting.form != "call" or row.rule.each is not None:
            like = Cell(
                rule=row.rule,
                proof="default",
                flags=setting.flags,
                types=setting.shown_types,
                form=setting.form,
                covered=False,
            )
            found = cells_of(like, setting.sets, row.observed, by_kind[kind])
            yield from ((cell, mask) for cell, mask in found if mask)


def _kind(setting: Setting) -> object:
    return setting.form, setting.flags, tuple(setting.types.items())


PREFIX = "privtab_conform_"
"""What every name begins with that a test makes in a system."""
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
    mutants = Mutants(program, RuleDependencies(program))
    undecided: dict[str, str] = {}
    settings: dict[Key, tuple[Setting, ...]] = {}
    candidates: dict[Key, tuple[Candidate, ...]] = {}
    for key, rule in program.rules.items():
        if rows(rule) and not asks(rule):
            undecided[rule.id] = NOT_ASKED
        elif rows(rule) and (problem := _not_given(program, rule, attributes=attributes)) is not None:
            undecided[rule.id] = problem
        elif rows(rule):
            try:
                settings[key] = tuple(source.settings(rule))
                candidates[key] = tuple(_candidates(source, settings[key], (readings or {}).get(key, {}).values()))
                if separate:
                    changed = [mutant.rule for mutant in mutants.of(rule) if mutant.change not in UNSEEN]
                    candidates[key] += tuple(source.changed(settings[key], changed))
            except Undecided as error:
                undecided[rule.id] = str(error)
            else:
                if not candidates[key]:
                    undecided[rule.id] = "its conditions are about objects that a caller cannot be given"
    seen = observed(program, candidates)
    choice = Choice(
        program,
        {
            key: Row(
                rule=program.rules[key],
                settings=settings[key],
                candidates=row,
                observed=seen[key],
                readings=(readings or {}).get(key, {}),
            )
            for key, row in candidates.items()
            if row
        },
        separate=separate,
    )
    packed = _packed(program, choice, undecided, changes, prefix, marked=marked)
    if abilities is not None:
        packed = extended(packed, abilities=abilities, changes=changes, readings=readings or {}, prefix=prefix)
    return _identified(packed)


def _not_given(program: Program, rule: Rule, *, attributes: bool) -> str | None:
    """Why a row is not asked about, if it compares attributes that cannot be given to one caller alone."""
    compares = [leaf for leaf in leaves(program, item_condition(rule)) if isinstance(leaf, Compare)]
    if compares and not attributes:
        return NO_ATTRIBUTES
    shared = program.shared_root
    if shared is not None and any(target.type == shared for compare in compares for target in compare.targets):
        return SHARED_ATTRIBUTES.format(shared)
    return None


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
    choice: Choice,
    undecided: Mapping[str, str],
    changes: Callable[[Rule], bool],
    prefix: str,
    *,
    marked: bool,
) -> QuestionPlan:
    """The chosen candidates as questions: those that may change something come last."""
    chosen = choice.chosen()
    cells: list[Cell] = []
    packing = Packing(program, choice.asked_rules(), prefix, _mark(choice, chosen) if marked else "")
    questions: list[Question] = []
    for key, positions in chosen.items():
        row = choice.rows[key]
        proofs = _proofs(choice, key, len(cells), positions)
        cells += [cell for cell, _ in choice.cells[key]]
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
                    cells=tuple(proofs[position]),
                    readings={
                        name: not expected for name, mask in choice.readings[key].items() if mask >> position & 1
                    },
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


def _proofs(choice: Choice, key: Key, first: int, positions: Iterable[int]) -> defaultdict[int, list[int]]:
    """For each chosen candidate of a row, the cells that it proves; `first`: the position of the row's first cell."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    taken = sum(1 << position for position in positions)
    for number, (_, mask) in enumerate(choice.cells[key], start=first):
        for position in bits(mask & taken):
            found[position].append(number)
    return found


def _mark(choice: Choice, chosen: Mapping[Key, tuple[int, ...]]) -> str:
    """A short digest of the chosen candidates."""
    content = [
        [candidate.setting.request.to_json(), candidate.caller.words, candidate.through_roles]
        for key, positions in chosen.items()
        for candidate in map(choice.rows[key].candidates.__getitem__, positions)
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6] + "_"


def observed(program: Program, candidates: Mapping[Key, Iterable[Candidate]]) -> dict[Key, Observed]:
    """What the candidates of each row hold, as the reference engine has it."""
    callers = CallerStates(program, shared=True)
    asked = {
        key: [
            callers.add_caller(candidate.caller, candidate.setting.request, through_roles=candidate.through_roles)
            for candidate in row
        ]
        for key, row in candidates.items()
    }
    references = [Reference(program, state) for state in callers.states()]
    return {
        key: Observed(program, program.rules[key], ((request, references[number]) for number, request in row))
        for key, row in asked.items()
    }
