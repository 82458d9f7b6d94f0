"""The callers among whom questions are chosen: for each row and kind of request, made from its minimal sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from privtab.errors import Undecided
from privtab.ir.canonical import Leaf, MinimalSets, atom_of, canonical
from privtab.ir.exact import settings
from privtab.ir.formula import asked_condition
from privtab.ir.nodes import (
    RESOURCE,
    Compare,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
)
from privtab.ir.support import Tool, check_support
from privtab.request import NOT_SET, Entity, Request
from privtab.scenarios.coverage import Form
from privtab.scenarios.needs import Caller, Callers, Denied
from privtab.scenarios.suggest import RequestNames
from privtab.scenarios.ways import HeldAtom, HeldSet, Ways

MAX_SETTINGS = 512
"""The most kinds of request (flags, types of objects) that are looked at for one row."""
MAX_DENIED = 24
"""The most callers with as much as can be held without an allow that are looked at for one kind of request."""
ASKING = "caller"
"""The user of a request that has no caller yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One kind of request for a row: its form, flags and types of objects, with the minimal sets that then apply."""

    rule: Rule
    form: Form
    flags: frozenset[str]
    types: Mapping[str, str]
    request: Request
    sets: MinimalSets
    ways: Ways

    @property
    def shown_types(self) -> dict[str, str]:
        """The types of the objects that may have several."""
        return {slot.name: self.types[slot.name] for slot in self.rule.withs if slot.polymorphic}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A caller who could be asked about; `purpose`: what it is for beside the proofs of its setting, empty if nothing."""

    setting: Setting
    caller: Caller
    purpose: str = ""
    through_roles: int = 0
    """How many roles lie between the caller and the privileges: 2 if a role that they hold holds another one, which has them."""


THROUGH_ROLES = ("through a role", "through a role that a role holds")


class Candidates:
    """Makes the callers for the rows of a program."""

    def __init__(self, program: Program, *, through_roles: bool = True) -> None:
        self._through_roles = through_roles
        check_support(program, Tool.CONFORM)
        self.program = program
        self._form = canonical(program)

    def settings(self, rule: Rule) -> Iterator[Setting]:
        """Every kind of request for a row. Raises Undecided if there are too many, or too many minimal sets."""
        for number, (flags, types) in enumerate(settings(self.program, rule)):
            if number >= MAX_SETTINGS:
                raise Undecided(f"`{rule.id}` has more than {MAX_SETTINGS} kinds of request")
            forms: tuple[Form, ...] = (
                ("item", "call") if rule.each is not None else ("", "call") if rule.creates else ("",)
            )
            for form in forms:
                setting = self._setting(rule, form, flags, types)
                if setting is not None:
                    yield setting

    def _setting(self, rule: Rule, form: Form, flags: frozenset[str], types: Mapping[str, str]) -> Setting | None:
        names = RequestNames(self.program, {RESOURCE: rule.entity, **types})
        condition = asked_condition(self.program, rule, named=form != "call")
        sets = self._form.minimal_sets(condition, flags, types)
        ways = self._ways(sets, names)
        if ways is None:
            return None
        resource = Entity.parse(names.key(Target(slot=RESOURCE, type=rule.entity)))
        if form == "call":
            resource = Entity(resource.type, "/".join(resource.names[:-1]))
        request = Request(
            user=ASKING,
            action=rule.operation,
            resource=resource,
            with_={slot: Entity.parse(names.key(Target(slot=slot, type=type_))) for slot, type_ in types.items()},
            flags=flags | {f"{flag}{NOT_SET}" for flag in rule.required_flags if flag not in flags},
        )
        return Setting(rule=rule, form=form, flags=flags, types=types, request=request, sets=sets, ways=ways)

    def reading(self, setting: Setting, reading: Rule) -> Setting | None:
        """The same request, with the minimal sets of another reading of the row."""
        names = RequestNames(self.program, {RESOURCE: reading.entity, **setting.types})
        condition = asked_condition(self.program, reading, named=setting.form != "call")
        ways = self._ways(self._form.minimal_sets(condition, setting.flags, setting.types), names)
        if ways is None:
            return None
        return replace(setting, ways=ways)

    def changed(self, settings_: Iterable[Setting], rules: Iterable[Rule]) -> Iterator[Candidate]:
        """Callers by whom changed rows are told apart: those with a set that only a changed row has, and without a part of it."""
        changed = tuple(rules)
        for setting in settings_:
            callers = Callers(self.program, setting.request, setting.ways)
            seen: set[HeldSet] = set(setting.ways)
            for rule in changed:
                try:
                    read = self.reading(setting, rule)
                except Undecided:
                    continue
                for way in () if read is None else read.ways:
                    for held in (way, *(way - {atom} for atom in sorted(way, key=str))):
                        if held not in seen:
                            seen.add(held)
                            yield self._candidate(setting, callers, held, frozenset(), "")

    def of(self, setting: Setting) -> Iterator[Candidate]:
        """The candidates for one kind of request, each once."""
        callers = Callers(self.program, setting.request, setting.ways)
        seen: set[tuple[HeldSet, Denied]] = set()
        # Callers with one set, with denials below it, and without one part of it come first.
        limit = 4 * len(setting.ways) + sum(map(len, setting.ways)) + MAX_DENIED
        for candidate in (
            *(Candidate(setting=setting, caller=caller) for caller in islice(callers.all(), limit)),
            *self._further(setting, callers),
        ):
            key = candidate.caller.held, candidate.caller.denied
            if key not in seen or candidate.purpose:
                seen.add(key)
                yield candidate

    def _further(self, setting: Setting, callers: Callers) -> Iterator[Candidate]:
        """Inheritance from each level, each denial, ownership that is not inherited, and privileges through a role."""
        way_of_role = next((way for way in setting.ways if any(atom.kind == "has" for atom in way)), None)
        if way_of_role is not None and self._through_roles and not self.program.roles:
            chains = "roles" in self.program.semantics.hierarchy
            for number, purpose in enumerate(THROUGH_ROLES[: 2 if chains else 1], start=1):
                candidate = self._candidate(setting, callers, way_of_role, frozenset(), purpose)
                yield replace(candidate, through_roles=number)
        owned = {atom.on for way in setting.ways for atom in way if atom.kind == "owner"}
        for way in setting.ways:
            for atom in sorted(way, key=str):
                if atom.kind == "has":
                    for key in callers.grant_keys(atom.on):
                        if key.partition(":")[0] not in self.program.privileges[atom.what].on:
                            continue
                        at = HeldAtom("has", atom.what, key)
                        if key != atom.on:
                            yield self._candidate(
                                setting, callers, way - {atom} | {at}, frozenset(), f"inherits {atom} from {key}"
                            )
                        if callers.deny_overrides:
                            yield self._candidate(setting, callers, way, frozenset({at}), f"denied {at}")
                elif atom.kind == "owner":
                    for key in callers.objects:
                        if key not in owned:
                            moved = way - {atom} | {HeldAtom("owner", "", key)}
                            yield self._candidate(
                                setting, callers, moved, frozenset(), f"owner of {key}, not of {atom.on}"
                            )

    @staticmethod
    def _candidate(setting: Setting, callers: Callers, held: HeldSet, denied: Denied, purpose: str) -> Candidate:
        words = ", ".join(sorted(map(str, held))) or "nothing"
        if denied:
            words += f"; denied {', '.join(sorted(map(str, denied)))}"
        caller = Caller(held, denied, allowed=callers.allowed(held, denied), words=words)
        return Candidate(setting=setting, caller=caller, purpose=purpose)

    def _ways(self, sets: Iterable[Iterable[Leaf]], names: RequestNames) -> Ways | None:
        """The minimal sets with the names of the request; None if `self` is asked of another object than the resource."""
        found: list[HeldSet] = []
        for atoms in sets:
            held = [self._held(atom, names) for atom in atoms]
            if None in held:
                return None
            found.append(frozenset(atom for atom in held if atom is not None))
        return tuple(found)

    def _held(self, leaf: Leaf, names: RequestNames) -> HeldAtom | None:
        match atom_of(leaf):
            case Has(privilege=privilege, target=target):
                return HeldAtom("has", privilege, names.key(target))
            case Owner(target=target):
                return HeldAtom("owner", "", names.key(target))
            case Member(target=target):
                return HeldAtom("member", "", names.key(target))
            case Holds(target=target):
                return HeldAtom("holds", "", names.key(target))
            case Self(target=target):
                return HeldAtom("self") if target.slot == RESOURCE else None
            case ServiceAdmin():
                return HeldAtom("admin")
            case HasBelow() | OwnsBelow() | Compare():
                raise AssertionError("`conform` refuses policies with `or below` and with attributes")
