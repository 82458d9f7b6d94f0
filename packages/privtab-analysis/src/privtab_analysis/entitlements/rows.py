"""The rows of entitlements: the users who may do an operation on an entity, by minimal set, with the sources of each atom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from privtab.base import dataclass
from privtab.ir import RESOURCE
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.request_forms import ADMIN, ATTRIBUTE, GRANT, HOLDS, ROLE, SELF, EntityQuestion, Part
from privtab_analysis.entitlements.subjects import Numbers

_BELOW = ("has_below", "owns_below")
_HELD = ("has", "owner", *_BELOW)
NOT_ON_ENTITIES = (SELF, ADMIN, ATTRIBUTE)
"""The kinds of sources that are no entity's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SatisfiedSet:
    """A minimal set that holds for some subjects. `sources`: for each atom, in the order of the subjects, as positions in `Evaluator.found`."""

    numbers: Sequence[int]
    """The numbers of its atoms, in the form of the question."""
    main: int
    """The position of the atom that matters most, the privilege or ownership nearest to the resource; -1 if there is none."""
    subjects: Sequence[int]
    sources: Sequence[Sequence[int]]
    groups: Sequence[Mapping[int, str]]
    """For each atom, by the position of the subject: the group through which they hold the source's role, if they do."""


def satisfied_sets(
    evaluator: Evaluator, question: EntityQuestion, subjects: Numbers, *, every: bool
) -> Iterator[SatisfiedSet]:
    """Every minimal set that holds, or the first for each subject; the condition holds for all `subjects`.

    Raises AssertionError if none holds for a subject.
    """
    left, none, parts = subjects, subjects, question.form.parts
    for numbers in question.form.sets:
        if not left:
            break
        found = evaluator.holding(numbers, question, left)
        if not found:
            continue
        left = left if every else left - found
        none -= found
        ordered = sorted(found)
        sources = [list(evaluator.sources(parts[number], question, ordered)) for number in numbers]
        groups = [
            _groups(evaluator, question, parts[number], ordered, of_atom)
            for number, of_atom in zip(numbers, sources, strict=True)
        ]
        main = min(range(len(numbers)), key=lambda position: _rank(evaluator, parts[numbers[position]]), default=-1)
        yield SatisfiedSet(numbers=numbers, main=main, subjects=ordered, sources=sources, groups=groups)
    if none:
        raise AssertionError(f"{question.form.rule['id']}: allowed by its condition and by none of its minimal sets")


def _rank(evaluator: Evaluator, part: Part) -> tuple[bool, bool, int]:
    """The smallest is that of the main atom."""
    depth = len(evaluator.reader.chains[part.type]) if part.type else 0
    return part.slot != RESOURCE, part.condition.kind not in _HELD, -depth


def _groups(
    evaluator: Evaluator, question: EntityQuestion, part: Part, subjects: Sequence[int], sources: Sequence[int]
) -> dict[int, str]:
    """The groups through which subjects hold the roles of sources. Of several holdings, the first that counts there."""
    through, of = evaluator.subjects.through, evaluator.found
    by_source = {number: held for number in set(sources) if (held := through.get(of[number].principal))}
    if not by_source:
        return {}
    keys = question.keys(part._replace(chain=evaluator.reader.chains[part.type] if part.type else ()))
    found: dict[int, str] = {}
    for position, (subject, number) in enumerate(zip(subjects, sources, strict=True)):
        if number in by_source and (holdings := by_source[number].get(subject)):
            source = of[number]
            group, scope = holdings[0]
            # Below an entity, roles count that are held within any of what lies there.
            if scope and source.kind != HOLDS and part.condition.kind not in _BELOW:
                scopes = keys[: len(keys) - source.distance] if source.kind == ROLE else keys
                scopes = scopes if source.kind in (GRANT, ROLE) else []
                group = next((group for group, scope in holdings if not scope or scope in scopes), "")
            if group:
                found[position] = group
    return found
