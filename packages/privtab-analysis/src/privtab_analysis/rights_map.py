"""On how many entities each of some users may do each operation: a heat map, exact at any size of a state.

Conditions are worked out on all entities of the type at once. Where paths do not tell everything, entities with equal answers are
asked about once, as `state_diff` does. Either way the work depends on the rows about these users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from privtab.base import Entity, GivenAttributes, dataclass
from privtab.ir import RESOURCE, Rule, Tool
from privtab_analysis.entitlements.columns import Columns
from privtab_analysis.entitlements.equivalence import EntityEquivalence
from privtab_analysis.state_diff import Comparison
from privtab_analysis.state_diff.entities import EntityClass
from privtab_analysis.state_diff.subjects import Question, Subject, SubjectSets

Column: TypeAlias = tuple[Rule, bool]
"""An operation, and whether it is the call that names no item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsMap:
    """Users by operations. `entities`: how many entities of the type there are; `left_out`: operations that need further objects, or flags."""

    subjects: Sequence[Subject]
    columns: Sequence[Column]
    counts: Mapping[tuple[Subject, str, bool], int]
    entities: int
    left_out: Sequence[Rule]

    def count(self, subject: Subject, column: Column) -> int:
        """On how many entities a user may do an operation."""
        rule, unnamed = column
        return self.counts.get((subject, rule.id, unnamed), 0)


def rights_map(comparison: Comparison, subjects: Sequence[Subject], type_: str, within: Entity | None) -> RightsMap:
    """The map of the entities of a type at or below `within`, or of all; `comparison`: of a state with itself.

    Without flags, attributes and active roles in requests, as `what-can` decides.
    """
    program = comparison.program
    Tool.STATE_DIFF.check(program)
    address = "" if within is None else comparison.tree.addresses.of(str(within))
    counting = _in_columns if Columns.fit(program) else _in_classes
    entities, count_of = counting(comparison, subjects, type_, address)
    plain, others = comparison.questions_of_type(type_)
    columns: list[Column] = []
    counts: dict[tuple[Subject, str, bool], int] = {}
    left_out = [variants[0].rule for variants in others]
    known: dict[tuple[int, str], Mapping[Subject, int]] = {}
    for variants in plain:
        question = variants[0]  # the one without flags
        rule, unnamed = question.rule, question.unnamed
        if rule.required_flags:
            left_out.append(rule)
            continue
        columns.append((rule, unnamed))
        if rule.needs_active_role:
            continue
        # Many operations have equal conditions.
        meaning = comparison.number(variants), rule.entity
        if meaning not in known:
            known[meaning] = count_of(question)
        counts.update(((subject, rule.id, unnamed), number) for subject, number in known[meaning].items())
    return RightsMap(
        subjects=tuple(subjects),
        columns=tuple(columns),
        counts=counts,
        entities=entities,
        left_out=tuple({rule.id: rule for rule in left_out}.values()),
    )


Counting: TypeAlias = tuple[int, Callable[[Question], Mapping[Subject, int]]]
"""How many entities there are, and on how many of them each subject is allowed what a question asks."""


def _in_columns(comparison: Comparison, subjects: Sequence[Subject], type_: str, address: str) -> Counting:
    begin, end, inner, last = comparison.tree.span(type_, address)
    columns = Columns(comparison.sides[0].evaluator(subjects), type_, comparison.tree.paths[type_])
    inside = ((1 << end) - (1 << begin)) | ((1 << last) - (1 << inner))

    def counted(question: Question) -> Mapping[Subject, int]:
        if not columns.paths:
            return {}
        request = question.request({RESOURCE: Entity(type_, columns.paths[0])}, GivenAttributes.NONE)
        found = columns.allowed(request)
        return {subject: (column & inside).bit_count() for subject, column in zip(subjects, found, strict=True)}

    return end - begin + last - inner, counted


def _in_classes(comparison: Comparison, subjects: Sequence[Subject], type_: str, address: str) -> Counting:
    division, under = comparison.classes(subjects, frozenset([address]))
    classes = [found for cut in sorted(under) for found in division.of(type_, cut)]
    sets = SubjectSets(comparison.sides[0], subjects)
    # As in a comparison of states, a path tells everything unless entities lie elsewhere, or types nest.
    equivalence = None if comparison.program.flat or comparison.tree.nested else sets.equivalence()
    counted = partial(_counted, sets, equivalence, classes)
    return sum(found.count for found in classes), counted


def _counted(
    sets: SubjectSets, equivalence: EntityEquivalence | None, classes: Sequence[EntityClass], question: Question
) -> Mapping[Subject, int]:
    found: Counter[Subject] = Counter()
    alike: dict[object, tuple[Entity, int]] = {}
    for number, class_ in enumerate(classes):
        first = class_.first
        if question.requested(first) is not None:
            key = (
                None
                if equivalence is None
                else equivalence.key({RESOURCE: (first.type, first.id)}, question.privileges)
            )
            _, count = alike.get(key or number, (first, 0))
            alike[key or number] = first, count + class_.count
    for first, count in alike.values():
        for subject in sets.allowed(question.request({RESOURCE: first}, GivenAttributes.NONE)):
            found[subject] += count
    return found
