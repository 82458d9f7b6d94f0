"""The differences of answers for the subjects of a batch, decided once for objects that are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from privtab.base import Entity, GivenAttributes
from privtab.ir import RESOURCE
from privtab_analysis.entitlements.equivalence import Key
from privtab_analysis.state_diff.masks import Difference, SubjectMasks
from privtab_analysis.state_diff.subjects import BatchSets, Question, Subject

T = TypeVar("T")
MOST_VALUES = 1_000
"""Limit on the combinations of values that requests give attributes, for one question."""

Differing: TypeAlias = tuple[Sequence[Question], list[Difference]]
"""The questions of a rule, and the differences of their answers."""


class Inquiry:
    """Questions of some rules about the same objects, with what is known of objects that are alike."""

    def __init__(self, questions: Sequence[Sequence[Question]]) -> None:
        self.questions = questions
        self.privileges = frozenset[str]().union(*(variants[0].privileges for variants in questions))
        self.given = any(question.given for variants in questions for question in variants)
        self.known: dict[Key, list[Differing]] = {}
        """By the key of the objects, the rules of which decisions differ, and how."""


class Tally:
    """The number of questions that were decided, of `most` that may be, and what was not, with reasons."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.decided = 0
        self.tried = 0
        """Questions that were decided to find causes."""
        self.undecided: list[str] = []

    @property
    def full(self) -> bool:
        """Return whether more questions were decided than may be."""
        return self.decided + self.tried > self.most

    def until_full(self, found: Iterable[T]) -> Iterator[T]:
        """Yield what is found, until more questions were decided than may be."""
        for one in found:
            yield one
            if self.full:
                return


class BatchAnswers:
    """The answers to questions about objects, for the subjects of a batch in two states."""

    def __init__(
        self,
        batch: BatchSets,
        masks: SubjectMasks | None,
        number: Callable[[Sequence[Question]], int],
        tally: Tally,
        *,
        alike: bool,
    ) -> None:
        """`number`: equal for questions that ask the same. `masks`: of all subjects. `alike`: whether objects are told that have equal answers by their paths."""
        self._batch = batch
        self._masks = masks
        self._among = 0 if masks is None else masks.of(batch.subjects)
        self._number = number
        self._tally = tally
        self._equivalence = batch.sides[0].equivalence(batch.sides[1]) if alike else None
        self._differing: dict[tuple[int, Key], list[Difference]] = {}
        """The differences by the number of the question and the key of its objects."""

    def differing(self, inquiry: Inquiry, objects: Mapping[str, Entity]) -> list[Differing]:
        """The rules that are decided differently about some objects."""
        key = self._key(objects, inquiry.privileges)
        if key is None or inquiry.given:
            return [*self._differing_rules(inquiry, objects, alike=key is not None)]
        if key not in inquiry.known:
            inquiry.known[key] = [*self._differing_rules(inquiry, objects, alike=True)]
        return inquiry.known[key]

    def _key(self, objects: Mapping[str, Entity], privileges: frozenset[str]) -> Key | None:
        """Equal for objects of which questions that depend on some privileges have equal answers; None if no others are known to be like them."""
        if self._equivalence is None:
            return None
        return self._equivalence.key({slot: (e.type, e.id) for slot, e in objects.items()}, privileges)

    def _differing_rules(
        self,
        inquiry: Inquiry,
        objects: Mapping[str, Entity],
        *,
        alike: bool,
    ) -> Iterator[Differing]:
        """The rules that are decided differently; `alike`: whether objects that are alike are known."""
        for variants in inquiry.questions:
            if any(question.given for question in variants):
                found = [*self._differences(variants, objects)]
            elif alike:
                found = self._of_rule(variants, objects)
            else:
                found = self._decided(variants, objects)
            if found:
                yield variants, found

    def _of_rule(self, variants: Sequence[Question], objects: Mapping[str, Entity]) -> list[Difference]:
        """The differences of a rule, decided once for objects that are alike."""
        key = self._key(objects, variants[0].privileges)
        assert key is not None
        asked = self._number(variants), key
        if asked not in self._differing:
            self._differing[asked] = self._decided(variants, objects)
        return self._differing[asked]

    def _decided(self, variants: Sequence[Question], objects: Mapping[str, Entity]) -> list[Difference]:
        """The subjects that gain and lose what a rule decides about some objects, with the fewest flags for which they do."""
        found = None if self._masks is None else self._masks.differences(variants, objects, self._among)
        if found is None:
            return [*self._differences(variants, objects)]
        self._tally.decided += sum(question.requested(objects[RESOURCE]) is not None for question in variants)
        return found

    def _differences(self, variants: Sequence[Question], objects: Mapping[str, Entity]) -> Iterator[Difference]:
        """As `_decided`, using sets of subjects, and with the fewest values that a request gives."""
        found_before: dict[bool, list[tuple[frozenset[str], frozenset[Subject]]]] = {True: [], False: []}
        for position, question in enumerate(variants):
            if question.requested(objects[RESOURCE]) is None:
                continue
            changed = self._changed(question, objects)
            for gained in (True, False):
                known = (subjects for flags, subjects in found_before[gained] if flags < question.flags)
                left = frozenset[str]().union(*(subjects for _, subjects in changed[gained]))
                found_before[gained].append((question.flags, left))
                left = left.difference(*known)
                for given, by_values in changed[gained]:
                    new = left & by_values
                    left -= new
                    if new:
                        yield gained, position, given, new

    def _changed(
        self, question: Question, objects: Mapping[str, Entity]
    ) -> dict[bool, list[tuple[GivenAttributes, frozenset[Subject]]]]:
        """The subjects that gain (True) and lose (False) the permission, for each choice of values in a request, fewest first."""
        found: dict[bool, list[tuple[GivenAttributes, frozenset[Subject]]]] = {True: [], False: []}
        # What an object lies in, and so whose attributes count, may be known in one of the states alone.
        choices = max(
            (subject_sets.given(question, objects, MOST_VALUES) for subject_sets in self._batch.sides), key=len
        )
        if len(choices) > MOST_VALUES:
            self._tally.undecided.append(
                f"`{question.rule.id}` compares attributes: requests can give more than {MOST_VALUES:,} combinations of values"
            )
            choices = [GivenAttributes.NONE]
        for given in choices:
            self._tally.decided += 1
            request = question.request(objects, given)
            before, after = (subject_sets.applied(request) for subject_sets in self._batch.sides)
            found[True].append((given, after - before))
            found[False].append((given, before - after))
        return found
