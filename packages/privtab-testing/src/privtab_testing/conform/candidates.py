"""The callers from which questions are chosen, made from the minimal sets of each row and kind of request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice, product
from math import prod

from privtab.base import NOT_SET, Entity, Request, Undecided, dataclass
from privtab.ir import (
    RESOURCE,
    Below,
    Has,
    HasBelow,
    Leaf,
    Owner,
    OwnsBelow,
    Program,
    Rule,
    Target,
    Tool,
    asked_condition,
    canonical_form,
    vocabulary,
)
from privtab_analysis.rights import Right, key_of, right_text, with_key
from privtab_testing.scenarios import Form
from privtab_testing.scenarios.callers import (
    CallerSemantics,
    Denied,
    HeldSet,
    HeldSets,
    at_or_below,
    compares,
    in_order,
    smallest,
)
from privtab_testing.scenarios.generated import Caller
from privtab_testing.scenarios.needs import Callers
from privtab_testing.scenarios.prove import Cell
from privtab_testing.scenarios.suggest import RequestNames, present

MAX_SETTINGS = 512
"""The most kinds of request (flags, types of objects) that are looked at for one row."""
MAX_DENIED = 24
"""The most callers with as much as can be held without an allow that are looked at for one kind of request."""
MAX_WAYS = 1_000
"""The most ways to be allowed, with each entity below that counts, that are looked at for one kind of request."""
LEVELS = 3
"""The most levels of a type that nests: with three, the outermost, the innermost and the one around it are not the same."""
ELSEWHERE = "99"
"""The end of the name of an entity that no request is about; other numbers tell the objects of a request apart."""
ASKING = "caller"
"""The user of a request that has no caller yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One kind of request for a row: its form, flags, types of objects and levels, with the minimal sets that then apply."""

    rule: Rule
    form: Form
    flags: frozenset[str]
    types: Mapping[str, str]
    levels: Mapping[str, int]
    """The levels on the path of each object; 1 where no type nests."""
    is_deepest: bool
    """True if no setting has more levels."""
    request: Request
    sets: tuple[tuple[Leaf, ...], ...]
    ways: HeldSets
    """The minimal sets with the names of the request, and sets that hold something on an entity below instead."""
    below: Mapping[HeldSet, str]
    """For `or below`: the ways that hold something on entities below, with the types of these in words."""

    @property
    def shown_types(self) -> dict[str, str]:
        """The types of the objects that may have several."""
        return {slot.name: self.types[slot.name] for slot in self.rule.withs if slot.polymorphic}

    @property
    def default_cell(self) -> Cell:
        """The cell that callers with nothing are denied."""
        return Cell(
            rule=self.rule, proof="default", flags=self.flags, types=self.shown_types, form=self.form, covered=False
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A caller for a possible question; `purpose`: its use besides the proofs of its setting, empty if it has none."""

    setting: Setting
    caller: Caller
    purpose: str = ""
    through_roles: int = 0
    """The number of roles between the caller and the privileges: 2 if a role that they hold holds another role, which has them."""


THROUGH_ROLES = ("through a role", "through a role that a role holds")


class Candidates:
    """Makes the callers for the rows of a program."""

    def __init__(self, program: Program, *, through_roles: bool = True) -> None:
        self._through_roles = through_roles and "role" in program.semantics.grantees
        self._by_role = int(self._through_roles and "user" not in program.semantics.grantees)
        """The least number of roles between a caller and their privileges: one, where users are granted nothing themselves."""
        Tool.CONFORM.check(program)
        self.program = program
        self._form = canonical_form(program)
        self._semantics = CallerSemantics(program, vocabulary(program).keys)

    def settings(self, rule: Rule) -> Iterator[Setting]:
        """Every kind of request for a row. Raises Undecided if there are too many, or too many minimal sets."""
        settings = vocabulary(self.program).operations[rule.entity][rule.operation].settings()
        for number, (flags, types) in enumerate(settings):
            if number >= MAX_SETTINGS:
                raise Undecided(f"`{rule.id}` has more than {MAX_SETTINGS} kinds of request")
            forms: tuple[Form, ...] = ("",)
            if self.program.unnamed(rule):
                forms = ("", "call") if rule.each is None else ("item", "call")
            slots = {RESOURCE: rule.entity, **present(types)}
            shapes = vocabulary(self.program).shapes
            bounds = {slot: min(LEVELS, shapes[type_].bound or 1) for slot, type_ in slots.items()}
            for form, most in product(forms, range(1, max(bounds.values()) + 1)):
                levels = {slot: min(most, bound) for slot, bound in bounds.items()}
                setting = self._setting(rule, form, flags, types, levels, is_deepest=levels == bounds)
                if setting is not None:
                    yield setting

    def _setting(
        self,
        rule: Rule,
        form: Form,
        flags: frozenset[str],
        types: Mapping[str, str],
        levels: Mapping[str, int],
        *,
        is_deepest: bool,
    ) -> Setting | None:
        objects = present(types)
        names = RequestNames(self.program, {RESOURCE: rule.entity, **objects}, levels)
        condition = asked_condition(self.program, rule, named=form != "call")
        sets = self._form.minimal_sets(condition, flags, types)
        resource = Entity.parse(names.key(Target(slot=RESOURCE, type=rule.entity)))
        absent = resource.id if form == "call" else None
        ways = self._held_sets(sets, names, levels, absent)
        if ways is None:
            return None
        if form == "call":
            end = [""] if vocabulary(self.program).shapes[rule.entity].nested is not None else []
            resource = Entity(resource.type, "/".join([*resource.names[:-1], *end]))
        request = Request(
            user=ASKING,
            action=rule.operation,
            resource=resource,
            with_={slot: Entity.parse(names.key(Target(slot=slot, type=type_))) for slot, type_ in objects.items()},
            flags=flags | {f"{flag}{NOT_SET}" for flag in rule.required_flags if flag not in flags},
        )
        return Setting(
            rule=rule,
            form=form,
            flags=flags,
            types=types,
            levels=levels,
            is_deepest=is_deepest,
            request=request,
            sets=sets,
            ways=tuple(ways),
            below={way: types for way, types in ways.items() if types},
        )

    def reading(self, setting: Setting, reading: Rule) -> Setting | None:
        """The same request, with the minimal sets of another reading of the row."""
        read = self._setting(
            reading, setting.form, setting.flags, setting.types, setting.levels, is_deepest=setting.is_deepest
        )
        return None if read is None else replace(setting, ways=read.ways, below={})

    def changed(self, settings_: Iterable[Setting], rules: Iterable[Rule]) -> Iterator[Candidate]:
        """Callers that distinguish changed rows: callers with a set that only a changed row has, and callers without a part of such a set."""
        changed = tuple(rules)
        for setting in settings_:
            ways = [way for rule in changed for way in self._ways_of(setting, rule)]
            compared = compares(chain.from_iterable(ways))
            callers = Callers(self.program, setting.request, setting.ways, are_below_listed=True, comparisons=compared)
            seen: set[HeldSet] = set(setting.ways)
            for way in ways:
                for atoms in (way, *(way - {atom} for atom in in_order(way))):
                    if atoms not in seen and callers.compared.fewest(atoms) is not None:
                        seen.add(atoms)
                        yield self._candidate(setting, callers, atoms, frozenset(), "")

    def _ways_of(self, setting: Setting, rule: Rule) -> HeldSets:
        """The ways of a changed row for the same request; none if they are not decided."""
        try:
            read = self.reading(setting, rule)
        except Undecided:
            return ()
        return () if read is None else read.ways

    def of(self, setting: Setting) -> Iterator[Candidate]:
        """The candidates for one kind of request, each once."""
        callers = Callers(self.program, setting.request, setting.ways, are_below_listed=True)
        seen: set[tuple[HeldSet, Denied]] = set()
        # Callers with one set, with denials below it, and without one part of it come first.
        values = 1 + len(callers.compared.single)
        limit = 4 * values * len(setting.ways) + sum(map(len, setting.ways)) + values * MAX_DENIED
        for candidate in (
            *(
                Candidate(setting=setting, caller=caller, through_roles=self._by_role)
                for caller in islice(callers.all(), limit)
            ),
            *(self._further(setting, callers) if setting.is_deepest else ()),
        ):
            key = candidate.caller.held, candidate.caller.denied
            if key not in seen or candidate.purpose:
                seen.add(key)
                yield candidate

    def _further(self, setting: Setting, callers: Callers) -> Iterator[Candidate]:
        """Inheritance from each level, each denial, ownership that is not inherited, and privileges through a role."""
        way_of_role = next((way for way in setting.ways if any(isinstance(right, Has) for right in way)), None)
        if way_of_role is not None and self._through_roles and not self.program.roles:
            chains = "roles" in self.program.semantics.hierarchy
            for number, purpose in list(enumerate(THROUGH_ROLES[: 2 if chains else 1], start=1))[self._by_role :]:
                candidate = self._candidate(setting, callers, way_of_role, frozenset(), purpose)
                yield replace(candidate, through_roles=number)
        first_of_types: dict[str, HeldSet] = {}
        for way, types in setting.below.items():
            first_of_types.setdefault(types, way)
        for types, way in first_of_types.items():
            yield from self._held_below(setting, callers, way, types)
        plain = [way for way in setting.ways if way not in setting.below]
        owned = {key_of(right) for way in setting.ways for right in way if isinstance(right, Owner | OwnsBelow)}
        for way in plain:
            for right in in_order(way):
                for at in callers.granting(right):
                    if at != right:
                        words = f"inherits {right_text(right)} from {key_of(at)}"
                        yield self._candidate(setting, callers, way - {right} | {at}, frozenset(), words)
                    if callers.deny_overrides:
                        yield self._candidate(setting, callers, way, frozenset({at}), f"denied {right_text(at)}")
                for key in callers.objects if isinstance(right, Owner) else ():
                    if key not in owned:
                        moved = way - {right} | {with_key(right, key)}
                        words = f"owner of {key}, not of {key_of(right)}"
                        yield self._candidate(setting, callers, moved, frozenset(), words)

    def _held_below(self, setting: Setting, callers: Callers, way: HeldSet, types: str) -> Iterator[Candidate]:
        """Privileges on an entity below; the same elsewhere, where they do not count; and each denial on the way to it."""
        yield self._candidate(setting, callers, way, frozenset(), f"held below, on an entity {types}")
        lower = [right for right in way if key_of(right) and key_of(right) not in callers.objects]
        moved = {right: with_key(right, self._elsewhere(setting, key_of(right))) for right in lower}
        elsewhere = frozenset(moved.get(atom, atom) for atom in way)
        yield self._candidate(setting, callers, elsewhere, frozenset(), f"held elsewhere, on an entity {types}")
        for atom in lower if callers.deny_overrides else ():
            for denied in callers.granting(atom):
                yield self._candidate(
                    setting, callers, way, frozenset({denied}), f"denied {right_text(denied)}, held below"
                )

    @staticmethod
    def _elsewhere(setting: Setting, key: str) -> str:
        """The key of an entity that does not lie below the entities of the request."""
        objects = [setting.request.resource, *setting.request.with_.values()]
        type_, _, path = key.partition(":")
        names = path.split("/")
        within = [len(entity.names) for entity in objects if path.startswith(f"{entity.id}/")]
        last = max(within, default=1) - 1
        names[last] += ELSEWHERE
        return f"{type_}:{'/'.join(names)}"

    def _candidate(self, setting: Setting, callers: Callers, atoms: HeldSet, denied: Denied, purpose: str) -> Candidate:
        caller = callers.with_only(atoms, denied)
        return Candidate(setting=setting, caller=caller, purpose=purpose, through_roles=self._by_role)

    def _held_sets(
        self, sets: tuple[tuple[Leaf, ...], ...], names: RequestNames, levels: Mapping[str, int], absent: str | None
    ) -> dict[HeldSet, str] | None:
        """The minimal sets with the names of the request, each with the types of the entities below on which it holds something.

        `absent`: the path of what the request does not name, on which nothing is held. None if `self` is asked of another
        object than the resource. Raises Undecided if there are too many.
        """
        found: dict[HeldSet, str] = {}
        for atoms in self._form.located(sets, levels):
            choices = [self._held(atom, names) for atom in atoms]
            if not all(choices):
                return None
            if prod(map(len, choices)) + len(found) > MAX_WAYS:
                raise Undecided(f"it is allowed in more than {MAX_WAYS:,} ways")
            for chosen in product(*choices):
                held_atoms = frozenset(atom for atom, _ in chosen)
                targets = (target for right in held_atoms for target in right.targets)
                if absent is None or all(target.slot.partition(":")[2] != absent for target in targets):
                    found.setdefault(held_atoms, ", ".join(type_ for _, type_ in chosen if type_))
        return {way: found[way] for way in smallest(found)}

    def _held(self, leaf: Leaf, names: RequestNames) -> list[tuple[Right, str]]:
        """The rights that give an atom: itself, or the same on an entity below, whose type is beside it; empty if a caller cannot be given the atom."""
        atoms = self._semantics.holding(leaf, names.key)
        if not isinstance(leaf, Below):
            return [(atom, "") for atom in atoms]
        privilege = leaf.privilege if isinstance(leaf, HasBelow) else ""
        return [
            (place, below)
            for key, below in self._at_or_below(names.key(leaf.target), names.suffix(leaf.target.slot))
            for atom in atoms
            for place in self._semantics.places(atom, [key], privilege)
        ]

    def _at_or_below(self, key: str, suffix: str) -> Iterator[tuple[str, str]]:
        """An entity and one of each type below it, by key and type; `suffix` ends their names. Itself has no type here."""
        for below, container in at_or_below(self.program, key, suffix):
            yield below, f"`{below.partition(':')[0]}` in a `{container.partition(':')[0]}`" if container else ""
