"""Changes of entities for the same subjects, by the same rows and of the same operations, as one change: for people, who read them so."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from privtab.base import GivenAttributes
from privtab.ir import RESOURCE
from privtab_analysis.state_diff.entities import EntityClass
from privtab_analysis.state_diff.nodes import ChangedAccess, ChangedRow
from privtab_analysis.state_diff.subjects import Question, Subject

Classes: TypeAlias = Mapping[str, EntityClass]
"""Classes of entities by slot."""
Rows: TypeAlias = tuple[ChangedRow, ...]


class Change(NamedTuple):
    """A gain or a loss of some subjects on some entities because of the same rows."""

    gained: bool
    question: Question
    given: GivenAttributes
    subjects: tuple[Subject, ...]
    rows: Rows

    def access(self, classes: Classes, sensitive: Collection[tuple[str, str]]) -> ChangedAccess:
        """The changed access to some classes. `sensitive`: the operations that are, by type and name."""
        question = self.question
        return ChangedAccess(
            gained=self.gained,
            rule=question.rule,
            sensitive=(question.rule.entity, question.rule.operation) in sensitive,
            unnamed=question.unnamed,
            vocabulary=question.vocabulary,
            flags=tuple(sorted(question.flags)),
            given=self.given,
            subjects=self.subjects,
            entities=classes[RESOURCE],
            objects={slot: found for slot, found in classes.items() if slot != RESOURCE},
            rows=self.rows,
        )


KnownChanges: TypeAlias = dict[tuple[object, ...], Sequence[Change]]
"""The changes by the list of differences, the subjects that are left out, and the changed rows that count."""


class _Line(NamedTuple):
    """The changes of several classes that are alike."""

    changes: Sequence[Change]
    numbers: list[int]
    """Of the classes, in the order in which they were found."""


def alike_as_one(found: Iterable[tuple[Classes, Sequence[Change]]]) -> Iterator[tuple[Classes, Sequence[Change]]]:
    """The changes of all classes, of which those that are alike and follow one another are one class: the groups of a summary stay the same."""
    by_classes: dict[Hashable, tuple[Classes, list[Sequence[Change]]]] = {}
    for classes, changes in found:
        if changes:
            key = (*classes, *map(id, classes.values()))
            by_classes.setdefault(key, (classes, []))[1].append(changes)
    every = [classes for classes, _ in by_classes.values()]
    alike: dict[Hashable, tuple[Sequence[Sequence[Change]], list[int]]] = {}
    for number, (classes, lists) in enumerate(by_classes.values()):  # which keep the lists
        alike.setdefault((*classes, *map(id, lists)), (lists, []))[1].append(number)
    lines: dict[Hashable, _Line] = {}
    for of_signature, numbers in alike.values():
        slots = (*every[numbers[0]],)
        of_causes: dict[Hashable, list[Change]] = {}
        for change in chain.from_iterable(of_signature):
            of_causes.setdefault((change.gained, change.rows, change.subjects), []).append(change)
        for because, changes in of_causes.items():
            asked = tuple((id(own.question), str(own.given.to_json()) if own.given else "") for own in changes)
            lines.setdefault((because, asked, *slots), _Line(changes, [])).numbers.extend(numbers)
    for line in lines.values():
        yield from ((classes, line.changes) for classes in _joined([every[number] for number in sorted(line.numbers)]))


def _joined(found: Sequence[Classes]) -> Iterator[Classes]:
    """Classes that follow one another as one, as long as they differ in one slot and the others have one entity each."""
    run: list[Classes] = []
    varying: str | None = None
    for classes in found:
        if run:
            slot = _only_other(run[-1], classes)
            if slot is not None and varying in {None, slot}:
                varying = slot
                run.append(classes)
                continue
            yield _as_one(run, varying)
        run, varying = [classes], None
    if run:
        yield _as_one(run, varying)


def _only_other(one: Classes, other: Classes) -> str | None:
    """The slot in which alone two choices of classes differ, if they can be one."""
    differing = [slot for slot in one if one[slot] is not other[slot]]
    if len(differing) != 1 or any(own.count > 1 for slot, own in one.items() if slot != differing[0]):
        return None
    [slot] = differing
    return slot if one[slot].type == other[slot].type and one[slot].paths is other[slot].paths else None


def _as_one(run: Sequence[Classes], varying: str | None) -> Classes:
    """The choices of classes of a run as one."""
    if varying is None:
        return run[0]
    spans = tuple(span for classes in run for span in classes[varying].spans)
    first = run[0][varying]
    return {**run[0], varying: EntityClass(first.type, first.paths, spans)}
