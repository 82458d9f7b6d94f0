"""On how many entities each of some users may do each operation: a heat map, exact at any size of a state.

Entities with equal answers are asked about once, as `state_diff` does, so the work depends on the rows about these users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from privtab.base import Entity, GivenAttributes, dataclass
from privtab.ir import RESOURCE, Rule, Tool
from privtab_analysis.state_diff import Comparison
from privtab_analysis.state_diff.subjects import Subject, SubjectSets

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
    Tool.STATE_DIFF.check(comparison.program)
    side = comparison.sides[0]
    root = "" if within is None else comparison.tree.addresses.of(str(within))
    division, under = comparison.classes(subjects, frozenset([root]))
    plain, others = comparison.questions_of_type(type_)
    columns: list[Column] = []
    counts: dict[tuple[Subject, str, bool], int] = {}
    classes = [found for cut in sorted(under) for found in division.of(type_, cut)]
    firsts = [found.first for found in classes]
    sets = SubjectSets(side, subjects)
    # As in a comparison of states, a path tells everything unless entities lie elsewhere, or types nest.
    by_path = not comparison.program.flat and not comparison.tree.nested
    equivalence = sets.equivalence() if by_path else None
    left_out = [variants[0].rule for variants in others]
    known: dict[tuple[int, str], Counter[Subject]] = {}
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
            of_meaning = known[meaning] = Counter()
            alike: dict[object, tuple[Entity, int]] = {}
            for number, (class_, first) in enumerate(zip(classes, firsts, strict=True)):
                if question.requested(first) is not None:
                    key = None if equivalence is None else equivalence.key({RESOURCE: first}, question.privileges)
                    _, count = alike.get(key or number, (first, 0))
                    alike[key or number] = first, count + class_.count
            for first, count in alike.values():
                for subject in sets.allowed(question.request({RESOURCE: first}, GivenAttributes.NONE)):
                    of_meaning[subject] += count
        counts.update(((subject, rule.id, unnamed), number) for subject, number in known[meaning].items())
    return RightsMap(
        subjects=tuple(subjects),
        columns=tuple(columns),
        counts=counts,
        entities=sum(found.count for found in classes),
        left_out=tuple({rule.id: rule for rule in left_out}.values()),
    )
