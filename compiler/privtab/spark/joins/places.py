"""The layout of a policy for joins: the places to look up for each kind of request, and a bit for everything found there.

A request is split into parts: the entities above its resource, the resource itself, and each `with` object. A part depends only on
the user and a piece of a path, so that parts repeat more often than requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from privtab.engines.conditions import NEVER, RESOURCE, Atom, Condition, RequestShape, atoms_of
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.paths import at_level, base_type, level_of
from privtab.spark.joins.bits import BitNumbers
from privtab.spark.joins.levels import EACH, LevelReader, level_word
from privtab.vocabulary import Vocabulary

ABOVE, AT = "above", "at"
"""Parts of a request: the entities above its resource, and the resource. The others are named by the slot of a `with` object."""

EVERYWHERE = ":"
"""The key for what is held everywhere. It equals the key of no entity, since names of types contain no colon."""


Further: TypeAlias = int | Literal["nearest", "parent", "around"]


@dataclass(frozen=True, slots=True)
class PathEntity:
    """A place on a path; its key is the prefix plus the first `depth` names of the path, or only the last of these names.

    Where a type nests, `depth` counts one level, and paths have further names. The place is the entity with so many names more, if
    there is one; the `nearest`, which has all of them; its `parent`; or all entities `around` the nearest, from the outermost on.
    """

    prefix: str
    depth: int
    last: bool = False
    further: Further = 0
    written: int = 0
    """How many of the names are written, the last of them, if a type on the path has flat ids; 0: all."""

    @property
    def several(self) -> bool:
        """Whether any number of entities is there."""
        return self.further == "around"

    @property
    def optional(self) -> bool:
        """Whether some paths have no entity there."""
        return isinstance(self.further, int) and self.further > 0

    def text(self) -> str:
        """Readable text."""
        if self.prefix == EVERYWHERE:
            return "everywhere"
        match self.further:
            case "around":
                return f"{self.prefix}(each level but the last)"
            case "nearest" | "parent":
                return f"{self.prefix}(the last level{' but one' if self.further == 'parent' else ''})"
            case 0:
                pass
            case _:
                return f"{self.prefix}(level {self.further + 1})"
        return self.prefix + ("(last name)" if self.last else f"(names 1 to {self.depth})" if self.depth else "(root)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Requests with the same condition, over the places of the resource's type and of its `with` objects."""

    number: int
    type: str
    withs: tuple[tuple[str, str], ...]
    """(slot, type of the object)"""
    condition: Condition
    """`Layout` has the places where each of its atoms is looked up."""

    @property
    def types(self) -> Mapping[str, str]:
        """By slot, the type of its object."""
        return {RESOURCE: self.type, **dict(self.withs)}


RowForm: TypeAlias = tuple[bool, tuple[str, ...], tuple[str, ...], tuple[bool, ...]]
"""A form of requests: (named, flags set, types of the `with` objects, whether the paths of the resource and of these objects have more
than one level). The last is empty if all numbers of levels have the same case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One operation on one type, with the case of each form of request."""

    type: str
    action: str
    slots: Mapping[str, tuple[str, ...]]
    flags: tuple[str, ...]
    unnamed: bool
    """Whether the last name of the path may be omitted."""
    cases: Mapping[RowForm, int]
    required_flags: tuple[str, ...] = ()
    """Flags for which every request must give a value."""


class Layout:
    """The places and the bits of some operations of a policy."""

    def __init__(self, engine: PythonEngine, rules: Sequence[Rule], cases: Sequence[Case]) -> None:
        self.engine = engine
        self.rules = tuple(rules)
        self.cases = tuple(cases)
        self.semantics = engine.semantics
        self.reader = LevelReader(engine.program)
        self.vocabulary = Vocabulary.from_program(engine.program)
        self.specs: dict[str, dict[str, tuple[PathEntity, ...]]] = {}
        """By part, then by the type of its entity, the places to look up."""
        self.numbers = BitNumbers(engine.program, engine.semantics)
        self.roles = self._roles()
        """The declared roles whose default grants matter to a case, as `role:…`."""
        found: dict[str, dict[str, dict[PathEntity, None]]] = {}
        for case in self.cases:
            for slot, type_, place in self._places(case):
                found.setdefault(self.part(slot, type_, place), {}).setdefault(type_, {})[place] = None
        for part, types in sorted(found.items()):
            self.specs[part] = {type_: tuple(places) for type_, places in sorted(types.items())}

    def part(self, slot: str, type_: str, place: PathEntity) -> str:
        """The part of a request that a place belongs to."""
        if slot != RESOURCE:
            return slot_part(slot)
        is_above = place.depth < self.reader.depth(type_) or place.further in ("parent", "around")
        return ABOVE if is_above or place.prefix == EVERYWHERE else AT

    def ends_with_slash(self, type_: str) -> bool:
        """Whether the whole path of an entity of a type ends with `/` if its last name is left out."""
        shape = self.vocabulary.shapes[type_]
        return shape.nested is not None or shape.flat is not None

    def chain(self, type_: str) -> list[PathEntity]:
        """The places of an entity of a type and of its ancestors, the root first."""
        return chain(self.reader, type_)

    def by_level(self, atom: Atom) -> list[Atom]:
        """The atom for each possible level, the first first, if it is about `EACH` of them; otherwise itself."""
        if level_word(atom.type) not in EACH:
            return [atom]
        type_ = base_type(atom.type)
        levels = range(1, self.reader.shapes[type_].bound + 1)
        return [replace(atom, type=at_level(type_, level)) for level in levels]

    def relevant_places(self, atom: Atom) -> list[PathEntity]:
        """The places whose grants count for an atom, its own place last."""
        chain = self.chain(atom.type)
        return chain if self.semantics.down else chain[-1:]

    def defaults(self, privilege: str, place: PathEntity) -> list[str]:
        """The declared roles whose default grants give a privilege on entities of a place's type."""
        type_ = place.prefix[:-1]
        return [role for role in self.roles if privilege in self.semantics.roles[role].get(type_, ())]

    def tests(self, atom: Atom) -> list[PathEntity]:
        """The places to look up for service admin, membership or a held role; none for other atoms."""
        if atom.kind == "service_admin":
            return [PathEntity(EVERYWHERE, 0)]
        match atom.kind:
            case "member":
                own = self.chain(atom.type)[-1]
                is_group = self.reader.principal[base_type(atom.type)] == "group"
                return [own, *named_places("group", own)] if is_group else [own]
            case "holds":
                return named_places("role", self.chain(atom.type)[-1])
            case _:
                return []

    def _roles(self) -> tuple[str, ...]:
        privilege_atoms = [atom for case in self.cases for atom in atoms_of(case.condition) if atom.kind == "has"]
        return tuple(
            role
            for role, grants in self.semantics.roles.items()
            if any(
                f.privilege in grants.get(link, ())
                for f in privilege_atoms
                for link, _ in self.reader.chains[base_type(f.type)]
            )
        )

    def _places(self, case: Case) -> Iterator[tuple[str, str, PathEntity]]:
        """(slot, type of the slot's entity, place) for every place that a case's condition looks up."""
        types = case.types
        atoms = itertools.chain.from_iterable(map(self.by_level, atoms_of(case.condition)))
        for atom in atoms:
            if atom.kind in ("has", "owner", "has_below", "owns_below"):
                with_ancestors = atom.kind == "has" and (self.semantics.down or self.roles)
                chain = self.chain(atom.type)
                places = chain if with_ancestors else chain[-1:]
                if atom.kind == "has" and self.roles:
                    yield RESOURCE, case.type, PathEntity(EVERYWHERE, 0)
            else:
                places = self.tests(atom)
            for place in places:
                slot = RESOURCE if place.prefix == EVERYWHERE else atom.slot
                yield slot, types[slot], place


def slot_part(slot: str) -> str:
    """The name of the part of a `with` object."""
    return f"with_{slot}"


def chain(reader: LevelReader, type_: str) -> list[PathEntity]:
    """The places of an entity of a type and of its ancestors, the root first."""

    def place(link: str, depth: int, further: Further = 0) -> PathEntity:
        shape = reader.shapes[link]
        return PathEntity(f"{link}:", depth, further=further, written=0 if shape.flat is None else shape.written.depth)

    level: Further
    match level_word(type_):
        case "nearest":
            level = "nearest"
        case "parent":
            level = "parent"
        case _:
            links = ((base_type(link), depth, max(level_of(link) - 1, 0)) for link, depth in reader.chains[type_])
            return [place(link, depth - more, more) for link, depth, more in links]
    chain_ = reader.shapes[base_type(type_)].chain
    nested = next(at for at, (link, _) in enumerate(chain_) if link in reader.nested)
    return [
        *(place(link, depth) for link, depth in chain_[:nested]),
        place(*chain_[nested], "around"),
        *(place(link, depth, level) for link, depth in chain_[nested:]),
    ]


def named_places(kind: str, own: PathEntity) -> list[PathEntity]:
    """The places of a group or role by the entity's last name and by its whole path; `own`: the place of the entity."""
    return [replace(own, prefix=f":{kind}/", last=True), replace(own, prefix=f":{kind}=")]


def layout(
    program: Mapping[str, Any],
    *,
    action: str | None,
    type_: str | None,
    flags: Mapping[str, bool | None],
    attributes: bool = False,
) -> Layout:
    """The layout of all operations that requests may name; `action` and `type_` are given if they are the same for all rows.

    `flags`: True if set for all rows, None if a column decides; flags that are missing here are not set. `attributes`: whether rows give any.
    """
    engine = PythonEngine(program, Index(_NOTHING))
    reader = LevelReader(program)
    numbers: dict[tuple[Any, ...], int] = {}
    rules: list[Rule] = []
    cases: list[Case] = []
    for (type_of_rule, operation), (operation_flags, slots) in engine.shapes.items():
        if type_ not in (None, type_of_rule) or action not in (None, operation):
            continue
        row = program["rules"][type_of_rule][operation]
        unnamed = row["unnamed"] and not engine.single(type_of_rule)
        objects = {slot: tuple(row["with"][slot]) for slot in slots}
        found: dict[RowForm, int] = {}
        for named, set_flags, types in _forms(objects, sorted(operation_flags), flags, unnamed=unnamed):
            withs = dict(zip(objects, types, strict=True))
            by_levels: dict[tuple[bool, ...], int] = {}
            for has_more in itertools.product(*_levels(reader, {RESOURCE: type_of_rule, **withs})):
                form = RequestShape(
                    flags=frozenset(set_flags),
                    types={RESOURCE: type_of_rule, **withs},
                    named=named,
                    levels={slot: 1 + more for slot, more in zip((RESOURCE, *objects), has_more, strict=True)},
                    attributes=attributes,
                )
                condition = reader.condition(type_of_rule, operation, form)
                key = (condition, type_of_rule if condition != NEVER else "", *sorted(withs.items()))
                number = numbers.setdefault(key, len(numbers))
                if number == len(cases):
                    case = Case(
                        number=number, type=type_of_rule, withs=tuple(sorted(withs.items())), condition=condition
                    )
                    cases.append(case)
                by_levels[has_more] = number
            same = len(set(by_levels.values())) == 1
            found |= {(named, set_flags, types, () if same else levels): n for levels, n in by_levels.items()}
        rules.append(
            Rule(
                type=type_of_rule,
                action=operation,
                slots=objects,
                flags=tuple(sorted(operation_flags)),
                unnamed=unnamed,
                cases=found,
                required_flags=tuple(row.get("required_flags", ())),
            )
        )
    return Layout(engine, rules, cases)


def _levels(reader: LevelReader, types: Mapping[str, str]) -> list[tuple[bool, ...]]:
    """For each slot, whether its path may have more than one level."""
    return [(False, True) if type_ in reader.nested else (False,) for type_ in types.values()]


def _forms(
    objects: Mapping[str, tuple[str, ...]],
    operation_flags: Sequence[str],
    flags: Mapping[str, bool | None],
    *,
    unnamed: bool,
) -> Iterable[tuple[bool, tuple[str, ...], tuple[str, ...]]]:
    always = tuple(flag for flag in operation_flags if flags.get(flag, False) is True)
    varying = [flag for flag in operation_flags if flags.get(flag, False) is None]
    combinations = [
        tuple(sorted((*always, *subset)))
        for n in range(len(varying) + 1)
        for subset in itertools.combinations(varying, n)
    ]
    return itertools.product((True, False) if unnamed else (True,), combinations, itertools.product(*objects.values()))


_NOTHING: Mapping[str, Any] = {
    "revision": "",
    "allow": {},
    "deny": {},
    "owners": {},
    "members": {},
    "principals": {},
    "group_principals": {},
    "within": {},
    "scoped": {},
    "group_scoped": {},
    "service_admins": {},
}
