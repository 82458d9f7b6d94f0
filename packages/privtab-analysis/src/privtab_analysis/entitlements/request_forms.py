"""Inputs and results of the evaluator: conditions of requests with everything that is the same for all entities, and sources of atoms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any, NamedTuple

from privtab.base import Request, base_type
from privtab.engines import Atom, Condition, Index, RowEngine
from privtab.ir import RESOURCE

KINDS = ("grant", "role", "owner", "member", "holds", "self", "service admin", "needed", "attribute")
"""The source of an atom: a row of grants, a default grant of a declared role, and so on. `needed`: a membership that a group or role
cannot have, so that its holder must have it. `attribute`: a comparison."""
GRANT, ROLE, OWNS, MEMBER, HOLDS, SELF, ADMIN, NEEDED, ATTRIBUTE = range(len(KINDS))
ALWAYS = 1
"""The bit of facts that concern every operation."""
NEVER_KEPT = 1 << 20
MOST_PARTS = 100_000
"""The most atoms of a condition of which every part is looked at wherever it stands."""


class Source(NamedTuple):
    """The source of an atom for a subject; of several sources, the smallest is reported: the nearest, then the first by name."""

    distance: int
    """The number of entities from the source to that of the atom; 0 as well if it concerns no entity."""
    principal: str
    """Empty for the subject itself."""
    kind: int


class Part(NamedTuple):
    """A part of a condition, with everything that is the same for all entities."""

    condition: Condition
    parts: tuple[Part, ...] = ()
    slot: str = RESOURCE
    type: str = ""
    depth: int = 0
    """The number of names in the path of the atom's entity."""
    chain: Sequence[tuple[str, int]] = ()
    """The types on that path from the first on which what is held counts."""
    privilege: str = ""
    owned: bool = False
    """True if owners hold the privilege."""
    shared: bool = False
    """True if the subjects for whom the part holds are kept for the question: it stands in several places of a large condition."""
    within: int = NEVER_KEPT
    """The number of names of the resource's path by which the subjects for whom it holds are kept; only parts with few look-ups are kept."""


class RequestForm:
    """The common parts of all requests of a form: condition, and minimal sets as numbers of atoms."""

    def __init__(self, request: Request, engine: RowEngine) -> None:
        """`request`: any of the form, whose objects have places. A rule without minimal sets has a condition only."""
        located = engine.located(request)
        assert located is not None
        self.engine, (self.plan, _) = engine, located
        self.rule = engine.program["rules"][request.resource.type][request.action]
        self.condition = _whole(self.plan.condition, engine)
        self._listed = partial(engine.minimal_sets, self.rule, self.plan)

    @property
    def sets(self) -> Sequence[Sequence[int]]:
        """The minimal sets, as numbers of atoms."""
        return self._listed().sets

    def text(self, number: int, paths: Mapping[str, list[str]]) -> str:
        """An atom of the minimal sets, with the entities on these paths."""
        return self._listed().text(number, paths)

    @cached_property
    def parts(self) -> list[Part]:
        """The atoms of the minimal sets as parts of a condition."""
        return [_of_set(atom, self.engine) for atom in self._listed().atoms]

    @cached_property
    def bits(self) -> int:
        """The bits of the index that the form's atoms depend on, moved by one for `ALWAYS`."""
        of_condition = (atom_part(atom, self.engine) for atom in self.plan.condition.atoms())
        return reduce(or_, (_bits(part, self.engine) for part in (*of_condition, *self.parts)), ALWAYS)

    @cached_property
    def meaning(self) -> tuple[Any, ...]:
        """Equal for forms that allow the same subjects, by the same minimal sets."""
        atoms = self._listed().atoms
        return self.plan.condition, tuple(tuple(atoms[number] for number in numbers) for numbers in self.sets)


class EntityQuestion:
    """A question about one entity. `paths`: by slot, the prefixes of the object's path by their number of names."""

    __slots__ = ("form", "known", "paths", "values")

    def __init__(self, form: RequestForm, paths: Mapping[str, list[str]], request: Request, index: Index) -> None:
        """`index`: the one with the attributes of the objects."""
        self.form = form
        self.paths = paths
        self.values = form.engine.values(request, index)
        self.known: dict[int, frozenset[int]] = {}
        """The subjects for whom shared parts hold, by the identity of the part."""

    def about(self, paths: Mapping[str, list[str]]) -> EntityQuestion:
        """The same about other objects of the same types; for conditions that compare no attributes."""
        found = EntityQuestion.__new__(EntityQuestion)
        found.form, found.values, found.paths, found.known = self.form, self.values, paths, {}
        return found

    def keys(self, part: Part) -> list[str]:
        """The keys of the entities on the path of an atom's entity whose grants count, its own last; none if it has none."""
        return [f"{base_type(type_)}:{self.paths[part.slot][depth]}" for type_, depth in part.chain]


class RequestForms:
    """The forms of requests to a program, each read once for any number of evaluators."""

    def __init__(self, engine: RowEngine) -> None:
        self.engine = engine
        self._known: dict[int, RequestForm] = {}

    def __getstate__(self) -> RowEngine:
        return self.engine

    def __setstate__(self, engine: RowEngine) -> None:
        RequestForms.__init__(self, engine)

    def question(self, request: Request, index: Index) -> EntityQuestion | None:
        """The question of a request, regardless of its user; None if no row places one of its objects, so that nobody may.

        `index`: the one with the attributes of the objects.
        """
        located = self.engine.located(request)
        if located is None:
            return None
        plan, paths = located
        form = self._known.get(id(plan))
        if form is None:
            form = self._known[id(plan)] = RequestForm(request, self.engine)
        return EntityQuestion(form, paths, request, index)


def _whole(condition: Condition, engine: RowEngine) -> Part:
    """A condition as a part; one object for parts that stand in several places."""
    total: Callable[[Iterable[int]], int] = sum
    size = condition.fold(lambda _: 1, total, total)
    made: dict[Condition, Part] = {}
    for part, places in condition.places().items():
        if isinstance(part, Atom):
            made[part] = atom_part(part, engine)
            continue
        parts = tuple(made[inner] for inner in part.parts)
        within = max((inner.within for inner in parts), default=NEVER_KEPT)
        made[part] = Part(
            part,
            parts,
            shared=size > MOST_PARTS and places > 1,
            within=within,
        )
    return made[condition]


def atom_part(condition: Atom, engine: RowEngine) -> Part:
    """An atom as a part."""
    if not condition.type:
        return Part(condition, within=NEVER_KEPT if condition.comparison else 0)
    chain, privilege = engine.reader.chains[condition.type], condition.privilege
    is_direct = condition.slot == RESOURCE and (not privilege or condition.kind == "has_below")
    return Part(
        condition,
        slot=condition.slot,
        type=condition.type,
        depth=chain[-1][1],
        chain=chain if privilege and engine.semantics.inherits(privilege) else chain[-1:],
        privilege=privilege,
        owned=privilege in engine.semantics.owner_holds,
        within=chain[-1][1] if is_direct else NEVER_KEPT,
    )


def _of_set(atom: Atom, engine: RowEngine) -> Part:
    """An atom of a minimal set."""
    part = atom_part(atom, engine)
    if atom.kind not in ("has_below", "owns_below"):
        return part
    # In minimal sets, what is held below an entity is held on it, too.
    on_itself = replace(atom, kind="has" if atom.privilege else "owner")
    return part._replace(parts=(part._replace(condition=on_itself), part), within=NEVER_KEPT)


def _bits(part: Part, engine: RowEngine) -> int:
    bits = reduce(or_, (_bits(inner, engine) for inner in part.parts), ALWAYS)
    if part.privilege:
        numbers = engine.index.numbers
        bits |= (numbers.allowed(part.privilege) | numbers.denied(part.privilege)) << 1
    # Whatever has an entity and no privilege may be ownership.
    return bits | engine.index.numbers.owned << 1 if part.owned or (part.type and not part.privilege) else bits
