"""The differences of the subjects of a batch on many classes of entities at once, where the paths of entities tell everything.

Where few subjects meet many classes, a condition is worked out for all classes in one go: for each subject an integer with a bit for each class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

from privtab.base import Entity, GivenAttributes
from privtab.engines import Atom
from privtab.ir import RESOURCE
from privtab_analysis.entitlements.columns import Column, Columns, Marks, chosen
from privtab_analysis.state_diff.answers import Differing, Tally
from privtab_analysis.state_diff.entities import Affected, DividedClasses, EntityClass
from privtab_analysis.state_diff.masks import Difference, Form, Forms
from privtab_analysis.state_diff.subjects import BatchSets, Question, Subject, SubjectSets

SUBJECTS_OF_CLASS = 4
"""The most subjects for each class with which the classes are decided at once."""
Bits: TypeAlias = tuple[tuple[int, ...], ...]
"""For each atom, whether it holds on one object, as a bit for each state and subject."""
Combination: TypeAlias = tuple[tuple[int, int], ...]
"""The place of a combination among all: for each slot, the place of the type, and of the class among those of the type."""
Combined: TypeAlias = tuple[Mapping[str, EntityClass], tuple[str, ...], list[Differing]]
"""Classes by slot, the paths where subjects are left out, and the differences."""


class _Classes:
    """Classes of entities of one type in both states."""

    def __init__(self, sets: Sequence[SubjectSets], type_: str, classes: Sequence[tuple[str, EntityClass]]) -> None:
        """`classes`: with the paths by which the entities are divided."""
        self.classes = classes
        addresses = [found.address for _, found in classes]
        order = sorted(range(len(classes)), key=addresses.__getitem__)
        self.sides = [Columns(own.evaluator, type_, [addresses[number] for number in order]) for own in sets]
        self.first = Entity(type_, addresses[0])
        self.numbers = order
        """By the bit of a class, its number."""
        self.bits = sorted(range(len(order)), key=order.__getitem__)
        """By the number of a class, its bit."""


class _Layer(NamedTuple):
    """A gain or a loss of what one of the questions of a rule asks: for each class, the subjects as bits."""

    is_gain: bool
    position: int
    masks: list[int]


class ClassColumns:
    """The classes of a division for the subjects of a batch, in two states of one policy of which `Columns` fit."""

    def __init__(
        self,
        batch: BatchSets,
        divided: DividedClasses,
        forms: Forms,
        number: Callable[[Sequence[Question]], int],
        tally: Tally,
    ) -> None:
        """`number`: equal for questions that ask the same."""
        self._batch = batch
        self._names = batch.subjects
        self._divided = divided
        self._forms = forms
        self._number = number
        self._tally = tally
        self._classes: dict[tuple[str, Affected], _Classes] = {}
        self._subjects: dict[int, frozenset[Subject]] = {}

    def suit(self, classes: int) -> bool:
        """Return whether so many classes are best decided at once."""
        return len(self._names) <= classes * SUBJECTS_OF_CLASS

    def plain(
        self, questions: Sequence[Sequence[Question]], type_: str
    ) -> Iterator[tuple[EntityClass, list[Differing]]]:
        """The affected classes of a type on which questions without `with` objects are decided differently, and how: one list for all that are alike."""
        resources = self._of(type_, "yes")
        layers: dict[int, list[_Layer]] = {}
        for variants in questions:
            meaning = self._number(variants)
            if meaning not in layers:
                layers[meaning] = self._differences(variants, {RESOURCE: resources}, RESOURCE, {})
        asked = [(meaning, layer) for meaning, own in layers.items() for layer in own]
        known: dict[tuple[int, ...], list[Differing]] = {}
        of_classes = zip(*(layer.masks for _, layer in asked), strict=True)
        for (_, own), masks in zip(resources.classes, of_classes, strict=False):  # without layers, nothing differs
            if not any(masks):
                continue
            if masks not in known:
                found: dict[int, list[Difference]] = defaultdict(list)
                for (meaning, layer), mask in zip(asked, masks, strict=True):
                    if mask:
                        found[meaning].append(self._difference(layer, mask))
                numbers = ((variants, self._number(variants)) for variants in questions)
                known[masks] = [(variants, found[meaning]) for variants, meaning in numbers if meaning in found]
            yield own, known[masks]

    def combined(
        self,
        variants: Sequence[Question],
        types: Mapping[str, Sequence[str | None]],
        affected: Sequence[Affected],
    ) -> Iterator[Combined]:
        """The combinations of classes for which a question with `with` objects is decided differently, and how.

        `types`, `affected`: of the classes by slot, the resource first, None for no object; subjects are left out where slots are not affected.
        """
        found: list[tuple[Combination, dict[str, tuple[str, EntityClass]], list[Differing]]] = []
        for places in product(*(range(len(own)) for own in types.values())):
            chosen_types = {slot: own[place] for (slot, own), place in zip(types.items(), places, strict=True)}
            which = dict(zip(types, affected, strict=True))
            named = {slot: type_ for slot, type_ in chosen_types.items() if type_ is not None}
            if all(self._divided.of(type_, which[slot]) for slot, type_ in named.items()):
                of_slots = {slot: self._of(type_, which[slot]) for slot, type_ in named.items()}
                found += self._of_types(variants, [*types], places, of_slots)
        unaffected = [slot for slot, own in zip(types, affected, strict=True) if own == "no"]
        for _, objects, differing in sorted(found, key=lambda one: one[0]):
            cuts = tuple(objects[slot][0] for slot in unaffected if slot in objects)
            yield {slot: own for slot, (_, own) in objects.items()}, cuts, differing

    def _of_types(
        self, variants: Sequence[Question], names: Sequence[str], places: Sequence[int], of_slots: dict[str, _Classes]
    ) -> Iterator[tuple[Combination, dict[str, tuple[str, EntityClass]], list[Differing]]]:
        """The combinations for one choice of types that differ. `names`: of all slots; `places`: of the types."""
        longest = max(of_slots, key=lambda slot: len(of_slots[slot].classes))
        fixed = [slot for slot in of_slots if slot != longest]
        known: dict[tuple[Bits, ...], dict[int, list[Differing]]] = {}
        forms = self._forms_of(variants, of_slots)
        atoms = {slot: self._atoms(forms, slot) for slot in fixed}
        held = {
            slot: [self._bits(of_slots[slot], n, atoms[slot]) for n in range(len(of_slots[slot].classes))]
            for slot in fixed
        }
        for numbers in product(*(range(len(of_slots[slot].classes)) for slot in fixed)):
            key = tuple(held[slot][number] for slot, number in zip(fixed, numbers, strict=True))
            if key not in known:
                holding = {
                    atom: bits
                    for slot, own in zip(fixed, key, strict=True)
                    for atom, bits in zip(atoms[slot], own, strict=True)
                }
                known[key] = self._by_class(variants, self._differences(variants, of_slots, longest, holding, forms))
            at = dict(zip(fixed, numbers, strict=True)) | {longest: 0}
            combination = [(place, at.get(slot, 0)) for slot, place in zip(names, places, strict=True)]
            objects = {slot: own.classes[at[slot]] for slot, own in of_slots.items()}
            varying = names.index(longest)
            for number, differing in known[key].items():
                combination[varying] = places[varying], number
                objects[longest] = of_slots[longest].classes[number]
                yield tuple(combination), dict(objects), differing

    def _of(self, type_: str, affected: Affected) -> _Classes:
        key = type_, affected
        if key not in self._classes:
            self._classes[key] = _Classes(self._batch.sides, type_, self._divided.of(type_, affected))
        return self._classes[key]

    def _forms_of(self, variants: Sequence[Question], of_slots: Mapping[str, _Classes]) -> list[Form | None]:
        """The forms of questions about objects of some types; None for one whose resource lies too deep."""
        objects, evaluator = {slot: own.first for slot, own in of_slots.items()}, self._batch.sides[0].evaluator
        return [
            None if question.requested(objects[RESOURCE]) is None else self._forms.of(question, objects, evaluator)
            for question in variants
        ]

    @staticmethod
    def _atoms(forms: Sequence[Form | None], slot: str) -> list[Atom]:
        """The atoms about the object in a slot, of all conditions."""
        return [*dict.fromkeys(atom for form in forms if form for atom, own in form.slots.items() if own == slot)]

    @staticmethod
    def _bits(classes: _Classes, number: int, atoms: Sequence[Atom]) -> Bits:
        """The states and subjects for which atoms hold on a class."""
        bit = classes.bits[number]
        return tuple(tuple(column >> bit & 1 for side in classes.sides for column in side.atom(atom)) for atom in atoms)

    def _differences(
        self,
        variants: Sequence[Question],
        of_slots: Mapping[str, _Classes],
        slot: str,
        holding: Mapping[Atom, tuple[int, ...]],
        forms: Sequence[Form | None] | None = None,
    ) -> list[_Layer]:
        """The subjects that gain and lose what a rule decides on classes of a slot, with the fewest flags for which they do.

        `holding`: whether atoms about the other objects hold.
        """
        classes = of_slots[slot]
        found: list[_Layer] = []
        seen: list[tuple[frozenset[str], Marks, Marks]] = []
        for position, (question, form) in enumerate(
            zip(variants, forms or self._forms_of(variants, of_slots), strict=True)
        ):
            if form is None:
                continue
            self._tally.decided += 1
            before, after = (self._marks(form, columns, holding, side) for side, columns in enumerate(classes.sides))
            gained = [now & ~then for then, now in zip(before, after, strict=True)]
            lost = [then & ~now for then, now in zip(before, after, strict=True)]
            for flags, gained_before, lost_before in seen:
                if flags < question.flags:
                    gained = [own & ~known for own, known in zip(gained, gained_before, strict=True)]
                    lost = [own & ~known for own, known in zip(lost, lost_before, strict=True)]
            seen.append((question.flags, gained, lost))
            found += (
                _Layer(is_gain, position, self._of_classes(marks, classes.numbers))
                for is_gain, marks in ((True, gained), (False, lost))
                if any(marks)
            )
        return found

    def _by_class(self, variants: Sequence[Question], layers: Sequence[_Layer]) -> dict[int, list[Differing]]:
        """The differences of a rule by the number of the class: one list for all that are alike."""
        found: dict[int, list[Differing]] = {}
        known: dict[tuple[int, ...], list[Differing]] = {}
        for number, masks in enumerate(zip(*(layer.masks for layer in layers), strict=True)):
            if any(masks):
                if masks not in known:
                    of_masks = zip(layers, masks, strict=True)
                    known[masks] = [(variants, [self._difference(layer, mask) for layer, mask in of_masks if mask])]
                found[number] = known[masks]
        return found

    def _difference(self, layer: _Layer, mask: int) -> Difference:
        return layer.is_gain, layer.position, GivenAttributes.NONE, self._of_mask(mask)

    def _marks(self, form: Form, columns: Columns, holding: Mapping[Atom, tuple[int, ...]], side: int) -> Marks:
        """The classes on which each subject is allowed what a form asks in one state."""
        size = len(self._names)

        def of_atom(atom: Atom) -> Marks:
            known = holding.get(atom)
            if known is None:
                return columns.atom(atom)
            return [columns.every if bit else 0 for bit in known[side * size : (side + 1) * size]]

        found, *others = (columns.folded(condition, of_atom) for condition in form.conditions)
        for other in others:
            found = [own & ~earlier for own, earlier in zip(found, other, strict=True)]
        return found

    @staticmethod
    def _of_classes(marks: Marks, numbers: Sequence[int]) -> list[int]:
        """The subjects by the number of a class, from the classes by subject. `numbers`: by the bits of the classes."""
        alike: dict[Column, int] = defaultdict(int)
        for place, column in enumerate(marks):
            if column:
                alike[column] |= 1 << place
        masks = [0] * len(numbers)
        for column, mask in alike.items():
            for number in chosen(column, numbers):
                masks[number] |= mask
        return masks

    def _of_mask(self, mask: int) -> frozenset[Subject]:
        if mask not in self._subjects:
            self._subjects[mask] = frozenset(chosen(mask, self._names))
        return self._subjects[mask]
