"""The differences of subjects as bits of numbers, where the paths of entities tell everything.

The evaluator of entitlements says for whom an atom holds, of all affected subjects, once for each path and state; here, parts of
conditions are combined only, and the subjects of a batch are taken from what is found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from privtab.base import Entity, GivenAttributes
from privtab.engines import Atom
from privtab.ir import RESOURCE, Program
from privtab_analysis.entitlements.columns import chosen
from privtab_analysis.entitlements.equivalence import prefixes
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.request_forms import MOST_PARTS, EntityQuestion, Part
from privtab_analysis.state_diff.subjects import Question, Subject, SubjectSets

Difference: TypeAlias = tuple[bool, int, GivenAttributes, frozenset[Subject]]
"""True for a gain, the number of the set of flags, the values that a request gives, and the subjects that gain or lose the permission."""
Paths: TypeAlias = Mapping[str, list[str]]
"""By slot, the prefixes of an object's path by their number of names."""


class _Node(NamedTuple):
    """A part of a condition. `number`: equal if it holds for the same subjects on equal paths; -1 for a part about several slots."""

    kind: Literal["atom", "all", "any"]
    parts: tuple[_Node, ...]
    number: int
    slot: str
    depth: int
    """The most names of the path in the slot that the part depends on."""
    part: Part


class Form:
    """A question about objects of some types: a condition, and conditions that must not hold."""

    def __init__(self, asked: Sequence[EntityQuestion], number: Callable[..., int]) -> None:
        """`asked`: about any objects of these types, the condition's first. `number`: equal for equal meanings."""
        self._asked = asked
        self._number = number
        self.conditions = [one.form.plan.condition for one in asked]

    @cached_property
    def slots(self) -> Mapping[Atom, str]:
        """The slot of each atom that is about an object."""
        return {atom: atom.slot for condition in self.conditions for atom in condition.atoms() if atom.type}

    @cached_property
    def nodes(self) -> Sequence[tuple[EntityQuestion, _Node]] | None:
        """The conditions as parts whose subjects are kept; None if more than paths decides, or parts stand in too many places to be looked at in each."""
        total: Callable[[Iterable[int]], int] = sum
        for condition in self.conditions:
            if any(atom.comparison for atom in condition.atoms()):
                return None
            if condition.fold(lambda _: 1, total, total) > MOST_PARTS:
                return None
        return [(one, self._node(one.form.condition)) for one in self._asked]

    def _node(self, part: Part) -> _Node:
        kind = part.condition.kind
        if kind in {"all", "any"}:
            parts = tuple(map(self._node, part.parts))
            numbers, slots = frozenset(inner.number for inner in parts), {inner.slot for inner in parts}
            number = -1 if len(slots) != 1 or -1 in numbers else self._number(kind, numbers)
            slot, depth = min(slots, default=RESOURCE), max((inner.depth for inner in parts), default=0)
            return _Node(kind, parts, number, slot, depth, part)
        return _Node("atom", (), self._number(kind, part.type, part.privilege), part.slot, part.depth, part)


class Forms:
    """The questions of a comparison about objects of some types, each read once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[tuple[object, ...], Form | None] = {}
        self._numbers: dict[tuple[object, ...], int] = {}

    def of(self, question: Question, objects: Mapping[str, Entity], evaluator: Evaluator) -> Form | None:
        """The form of a question about some objects; None if one of these lies nowhere."""
        key = id(question), *((slot, entity.type) for slot, entity in objects.items())  # questions are kept
        if key not in self._known:
            request = question.request(objects, GivenAttributes.NONE)
            earlier = self._program.earlier(request.resource.type, request.action)
            actions = (request.action, *(rule.operation for rule in earlier))
            asked = [evaluator.question(replace(request, action=action)) for action in actions]
            found = [one for one in asked if one is not None]
            self._known[key] = Form(found, self._number) if len(found) == len(asked) else None
        return self._known[key]

    def _number(self, *meaning: object) -> int:
        return self._numbers.setdefault(meaning, len(self._numbers))


class _Masks:
    """The subjects who are allowed something in one state."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._everyone = (1 << len(evaluator.subjects.all)) - 1
        self._known: dict[tuple[int, str], int] = {}

    def allowed(self, nodes: Sequence[tuple[EntityQuestion, _Node]], paths: Paths) -> int:
        """The bits of the subjects for whom the first of some conditions holds, and no other."""
        found, *others = (self._holders(node, asked, paths) for asked, node in nodes)
        for other in others:
            found &= ~other
        return found

    def _holders(self, node: _Node, asked: EntityQuestion, paths: Paths) -> int:
        kind, _, number, slot, depth, part = node
        if number < 0:
            return self._combined(node, asked, paths)
        key = number, paths[slot][depth]
        held = self._known.get(key)
        if held is None:
            if kind == "atom":
                held = mask_of(self._evaluator.holders(part, asked.about(paths)))
            else:
                held = self._combined(node, asked, paths)
            self._known[key] = held
        return held

    def _combined(self, node: _Node, asked: EntityQuestion, paths: Paths) -> int:
        """The bits of the subjects for whom all, or any, of the parts of a node hold."""
        if node.kind == "any":
            found = 0
            for inner in node.parts:
                found |= self._holders(inner, asked, paths)
                if found == self._everyone:
                    break
            return found
        found = self._everyone
        for inner in node.parts:
            found &= self._holders(inner, asked, paths)
            if not found:
                break
        return found


class SubjectMasks:
    """The differences of all affected subjects between two states: bit n stands for the n-th of the subjects."""

    def __init__(self, forms: Forms, sets: Sequence[SubjectSets]) -> None:
        self._forms = forms
        self._names = [*sets[0].numbered().values()]
        self._evaluator = sets[0].evaluator
        self._sides = [_Masks(side.evaluator) for side in sets]
        self._subjects: dict[int, frozenset[Subject]] = {}

    def of(self, subjects: Iterable[Subject]) -> int:
        """The bits of some subjects."""
        return mask_of(bisect_left(self._names, subject) for subject in subjects)

    def differences(
        self, variants: Sequence[Question], objects: Mapping[str, Entity], among: int
    ) -> list[Difference] | None:
        """The subjects, among some, that gain and lose what a rule decides, with the fewest flags for which they do; None if more than paths decides it."""
        found: list[Difference] = []
        seen: list[tuple[frozenset[str], int, int]] = []
        for position, question in enumerate(variants):
            resource = question.requested(objects[RESOURCE])
            if resource is None:
                continue
            form = self._forms.of(question, objects, self._evaluator)
            if form is None or form.nodes is None:
                return None
            nodes = form.nodes
            paths = {slot: [*prefixes(entity.id)] for slot, entity in objects.items()}
            paths[RESOURCE] = [*prefixes(resource.id)]
            before, after = (side.allowed(nodes, paths) & among for side in self._sides)
            gained, lost = after & ~before, before & ~after
            seen.append((question.flags, gained, lost))
            for flags, gained_before, lost_before in seen[:-1]:
                if flags < question.flags:
                    gained &= ~gained_before
                    lost &= ~lost_before
            found += (
                (is_gain, position, GivenAttributes.NONE, self._of_mask(mask))
                for is_gain, mask in ((True, gained), (False, lost))
                if mask
            )
        return found

    def _of_mask(self, mask: int) -> frozenset[Subject]:
        if mask not in self._subjects:
            self._subjects[mask] = frozenset(chosen(mask, self._names))
        return self._subjects[mask]


def mask_of(numbers: Iterable[int]) -> int:
    """The number with some bits.

    >>> bin(mask_of([0, 3]))
    '0b1001'
    """
    listed = [*numbers]
    found = bytearray(max(listed, default=0) // 8 + 1)
    for number in listed:
        found[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(found, "little")
