"""The plan for one form of request: which entities on its paths to look at, and the condition over what is found.

A plan gathers the atoms that its condition needs into one number, on which the compiled condition decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeAlias, assert_never

from privtab.base.names import last_name, refers_to
from privtab.base.paths import base_type
from privtab.base.records import dataclass
from privtab.engines import conditions
from privtab.engines.held_texts import Holders
from privtab.engines.index import OWNER_BIT, Index, RawTable, raw_table

Special: TypeAlias = Callable[[str, Sequence[str], Sequence[str], str], Sequence[tuple[int, str]]]
"""Through whom an atom that is no privilege and no ownership holds: nobody, if it does not.

Called with a user, their principals, those that are active, and the path of the atom's entity. Of several (rank, principal), the
smallest is reported.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSemantics:
    """The file-wide semantics of grants, as an engine needs them."""

    down: bool
    apart: frozenset[str]
    """The privileges that are inherited although others are not, or the other way round."""
    denies: bool
    owner_holds: tuple[str, ...]
    request_groups: bool
    everyone: tuple[str, ...]
    """The group of every user, if there is one."""
    active_roles: bool
    """Whether requests may name the active roles of their callers."""
    inactive_owners: bool
    """Whether ownership through a role that is not active counts."""
    roles: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Default grants: declared role → entity type → privileges."""

    def inherits(self, privilege: str) -> bool:
        """Whether a privilege, and a denial of it, count below their entity too."""
        return self.down != (privilege in self.apart)

    def inherited(self, bits_of: Callable[[str], int]) -> int:
        """The bits that count below an entity too; `bits_of`: those of a privilege and of its denial. Bits of no privilege count."""
        apart = reduce(or_, map(bits_of, self.apart), 0)
        return ~apart if self.down else apart | OWNER_BIT * bool(apart)

    @classmethod
    def read(cls, program: Mapping[str, Any]) -> GrantSemantics:
        """Read them from the program's JSON."""
        semantics = program["semantics"]
        owner = semantics["owner"]
        return cls(
            down=semantics["inheritance"] == "down",
            apart=frozenset(name for name, declared in program["privileges"].items() if "inheritance" in declared),
            denies=semantics["deny"] == "overrides",
            owner_holds=tuple(owner["holds"]) if owner else (),
            request_groups="request" in semantics["groups"],
            everyone=(semantics["everyone"],) if "everyone" in semantics else (),
            active_roles="active_roles" in semantics,
            inactive_owners=semantics.get("inactive_owners", False),
            roles={
                f"role:{name}": {type_: tuple(privileges) for type_, privileges in role["grants"].items()}
                for name, role in program["roles"].items()
                if role["grants"]
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller: their name, their principals, and the declared roles that they hold within scopes, by the scope's key.

    `active` and `scopes` are those that count for what is allowed: `active` is `principals` unless the request names active roles.
    """

    user: str
    principals: tuple[str, ...]
    scopes: Mapping[str, Iterable[str]]
    active: tuple[str, ...]
    active_roles: tuple[str, ...] = ()
    """The names of the active roles, as the request lists them."""
    unheld: tuple[str, ...] = ()
    """The active roles that the caller does not hold; if there are any, the request is denied."""
    values: conditions.RequestValues = conditions.NO_VALUES
    """The attributes that the request gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupStep:
    """One entity to look at. Its atoms begin at bit `shift`; `mask` selects those that the condition needs."""

    slot: str
    type: str
    base: str
    """The type as the policy names it."""
    depth: int
    above: int
    """The number of the step whose grants count here too; -1 if there is none."""
    table: RawTable
    opened: Callable[[str], Holders]
    """Reads the holders whose text is in the table."""
    defaults: Holders
    mask: int
    shift: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """An atom that is not a privilege or an ownership."""

    bit: int
    slot: str
    depth: int
    through: Special


class Source(NamedTuple):
    """How an atom holds: ownership comes first, then the nearest entity, then the first principal. The smallest is reported."""

    rank: int
    distance: int
    """The number of entities from that of the atom up to its own."""
    on: str
    through: str


class FormPlan:
    """Decides every request of one form, and tells through what atoms hold."""

    def __init__(
        self,
        condition: conditions.Condition,
        form: conditions.RequestShape,
        reader: conditions.ConditionReader,
        semantics: GrantSemantics,
        index: Index,
    ) -> None:
        self.form = form
        self.semantics = semantics
        self.condition = condition
        self.index = index
        self.reader = reader
        self._bits: dict[conditions.Condition, int] = {}
        self._bit_of_privilege = index.numbers.allowed
        self.tests: tuple[Test, ...] = ()
        self.comparisons: tuple[tuple[int, conditions.Comparison], ...] = ()
        self.steps: tuple[LookupStep, ...] = ()
        free = self._lay_out(condition.atoms())
        self.decide = conditions.closure_of(condition, self._bits, free)
        self.owner_bits = sum(map(self._bit_of_privilege, semantics.owner_holds))
        self.inherited = semantics.inherited(lambda name: self._bit_of_privilege(name) * 3)
        """What counts below an entity too."""
        self.narrowed_bits = 0
        """What principals that are not active do not have."""
        if semantics.active_roles:
            self.narrowed_bits = sum(map(self._bit_of_privilege, index.numbers))
            self.narrowed_bits |= 0 if semantics.inactive_owners else OWNER_BIT

    def _lay_out(self, atoms: Iterable[conditions.Atom]) -> int:
        """Assign a bit to each atom: tests first, then the steps one after another; return the first bit above them."""
        masks: dict[tuple[str, str], int] = {}
        tests: list[Test] = []
        comparisons: list[tuple[int, conditions.Comparison]] = []
        for atom in atoms:
            if atom.kind in ("has", "owner"):
                for slot, type_ in self._above(atom):
                    masks.setdefault((slot, type_), 0)
                masks[atom.slot, atom.type] |= self._bit(atom)
            elif atom.comparison is not None:
                bit = 1 << (len(tests) + len(comparisons))
                comparisons.append((bit, atom.comparison))
                self._bits[atom] = bit
            else:
                bit = 1 << (len(tests) + len(comparisons))
                depth = self.reader.depth(atom.type) if atom.type else 0
                through = special(atom, self.reader, self.semantics, self.index)
                tests.append(Test(bit=bit, slot=atom.slot, depth=depth, through=through))
                self._bits[atom] = bit
        self.tests = tuple(tests)
        self.comparisons = tuple(comparisons)
        # A step uses the results of those above it.
        places = sorted(masks, key=lambda place: len(self.reader.chains[place[1]]))
        numbers = {place: number for number, place in enumerate(places)}
        shift = len(tests) + len(comparisons)
        steps = []
        for slot, type_ in places:
            mask = masks[slot, type_]
            table, opened = raw_table(self.index.table(base_type(type_)))
            chain = self.reader.chains[type_]
            steps.append(
                LookupStep(
                    slot=slot,
                    type=type_,
                    base=base_type(type_),
                    depth=chain[-1][1],
                    above=numbers.get((slot, chain[-2][0]), -1) if len(chain) > 1 else -1,
                    table=table,
                    opened=opened,
                    defaults=self._defaults(base_type(type_)),
                    mask=mask,
                    shift=shift,
                )
            )
            shift += mask.bit_length()
        self.steps = tuple(steps)
        for atom in atoms:
            if atom.kind in ("has", "owner"):
                self._bits[atom] = self._bit(atom) << steps[numbers[atom.slot, atom.type]].shift
        return 1 << shift

    def _bit(self, atom: conditions.Atom) -> int:
        return OWNER_BIT if atom.kind == "owner" else self._bit_of_privilege(atom.privilege)

    def _above(self, atom: conditions.Atom) -> Iterable[tuple[str, str]]:
        """The places that count for an atom, from the root to its own."""
        chain = self.reader.chains[atom.type]
        if atom.kind == "owner" or not (self.semantics.inherits(atom.privilege) or self.semantics.roles):
            chain = chain[-1:]
        return [(atom.slot, type_) for type_, _ in chain]

    def _defaults(self, type_: str) -> Holders:
        return {
            role: sum(map(self._bit_of_privilege, grants[type_]))
            for role, grants in self.semantics.roles.items()
            if type_ in grants
        }

    def holds(self, caller: Caller, paths: Mapping[str, list[str]]) -> bool:
        """Whether the condition holds; `paths` has the prefixes of each slot's path by their number of names."""
        return self.decide(self.gather(caller, paths))

    def path(self, of: conditions.Atom | conditions.Operand, paths: Mapping[str, list[str]]) -> str | None:
        """The path of the entity of an atom or of an attribute; None if it has none, or if the request does not name it."""
        return named_prefix(paths[of.slot], self.reader.depth(of.type)) if of.type else None

    def compares(
        self, comparison: conditions.Comparison, values: conditions.RequestValues, paths: Mapping[str, list[str]]
    ) -> bool:
        """Whether a comparison holds for the values of a request."""
        return comparison.holds(lambda operand: values.value(operand, self.path(operand, paths)))

    def gather(self, caller: Caller, paths: Mapping[str, list[str]]) -> int:
        """The atoms as one number."""
        known = 0
        for test in self.tests:
            path = paths[test.slot][test.depth] if test.depth else ""
            if test.through(caller.user, caller.principals, caller.active, path):
                known |= test.bit
        for bit, comparison in self.comparisons:
            if self.compares(comparison, caller.values, paths):
                known |= bit
        inherited, denies, owner_bits, scopes = self.inherited, self.semantics.denies, self.owner_bits, caller.scopes
        narrowed = caller.active is not caller.principals
        bits_of_steps: list[int] = []
        roles: list[tuple[str, ...]] = []
        for step in self.steps:
            path = paths[step.slot][step.depth]
            bits = 0
            holders = step.table.get(path)
            if holders:
                if isinstance(holders, str):
                    holders = step.opened(path)
                for principal in caller.principals:
                    bits |= holders.get(principal, 0)
                if narrowed:
                    bits &= ~self.narrowed_bits
                    for principal in caller.active:
                        bits |= holders.get(principal, 0)
            owned = bits & OWNER_BIT
            if scopes:
                scoped_roles = (*(roles[step.above] if step.above >= 0 else ()), *scopes.get(f"{step.base}:{path}", ()))
                roles.append(scoped_roles)
                for role in scoped_roles:
                    bits |= step.defaults.get(role, 0)
            if step.defaults:
                for role in caller.active:
                    bits |= step.defaults.get(role, 0)
            if step.above >= 0:
                bits |= bits_of_steps[step.above] & inherited
            bits_of_steps.append(bits)
            if step.mask:
                effective = bits & ~(bits >> 1) & ~OWNER_BIT if denies else bits & ~OWNER_BIT
                if owner_bits and bits & OWNER_BIT:
                    effective |= owner_bits if owned else owner_bits & inherited
                known |= ((effective | owned) & step.mask) << step.shift
        return known

    def sources(self, atom: conditions.Atom, caller: Caller, paths: Mapping[str, list[str]]) -> Iterator[Source]:
        """Through what an atom holds; nothing if it does not hold."""
        if atom.comparison is not None:
            if self.compares(atom.comparison, caller.values, paths):
                yield Source(0, 0, "", "attribute")
            return
        path = self.path(atom, paths)
        if path is None and atom.type:
            return
        on = "" if path is None else f"{base_type(atom.type)}:{path}"
        if atom.kind == "owner":
            yield from (row._replace(rank=0) for row, bits in self._held(atom, caller, paths) if bits & OWNER_BIT)
        elif atom.kind == "has":
            if atom.privilege in self.semantics.owner_holds:
                owners = (row for row, bits in self._held(atom, caller, paths) if bits & OWNER_BIT)
                yield from (row._replace(rank=0, through=f"owner {row.through}") for row in owners)
            if not any(self.denials(atom, caller, paths)):
                yield from self.grants(atom, caller, paths)
        else:
            if atom.kind in ("has_below", "owns_below"):
                # In minimal sets, what is held below an entity is held on it, too.
                on_itself = replace(atom, kind="has" if atom.privilege else "owner")
                found = self.sources(on_itself, caller, paths)
                yield from (Source(source.rank, 0, on, source.through) for source in found)
            through = special(atom, self.reader, self.semantics, self.index)
            for rank, principal in through(caller.user, caller.principals, caller.active, path or ""):
                yield Source(rank, 0, on, principal)

    def grants(self, atom: conditions.Atom, caller: Caller, paths: Mapping[str, list[str]]) -> Iterator[Source]:
        """Every grant of an atom's privilege on its entity, denied or not, by a row of the state or by a role's default grants."""
        return self._entries("allow", atom, caller, paths)

    def denials(self, atom: conditions.Atom, caller: Caller, paths: Mapping[str, list[str]]) -> Iterator[Source]:
        """The denials of an atom's privilege on its entity that apply."""
        return self._entries("deny", atom, caller, paths) if self.semantics.denies else iter(())

    def _entries(
        self, effect: str, atom: conditions.Atom, caller: Caller, paths: Mapping[str, list[str]]
    ) -> Iterator[Source]:
        """The grants or denials. A role within a scope is reported by its own name, and with the entities that the rows name."""
        if atom.kind != "has":
            return
        numbers, privilege = self.index.numbers, atom.privilege
        bit = numbers.allowed(privilege) if effect == "allow" else numbers.denied(privilege)
        for row, bits in self._held(atom, caller, paths):
            if bits & bit and row.through not in self.index.within:
                yield row
            elif bits & bit:
                keys = [f"{base_type(type_)}:{paths[atom.slot][depth]}" for type_, depth in self._counting(atom)]
                named_by = self.index.origins[effect, privilege, row.on, row.through]
                role = self.index.within[row.through][0]
                yield from (Source(1, keys.index(key), key, role) for key in named_by if key in keys)

    def _counting(self, atom: conditions.Atom) -> Sequence[tuple[str, int]]:
        """The types of the entities on which what is held counts for an atom, with their depths, nearest first."""
        chain = self.reader.chains[atom.type]
        return chain[::-1] if atom.privilege and self.semantics.inherits(atom.privilege) else chain[-1:]

    def _held(
        self, atom: conditions.Atom, caller: Caller, paths: Mapping[str, list[str]]
    ) -> Iterator[tuple[Source, int]]:
        """What the caller's principals hold on an atom's entity and on what counts for it, nearest first, with the bits."""
        path = paths[atom.slot]
        if self.path(atom, paths) is None:
            return
        callers = [(caller.active, -1)]
        if caller.active is not caller.principals:
            callers.append((caller.principals, ~self.narrowed_bits))
        for distance, (type_, depth) in enumerate(self._counting(atom)):
            base = base_type(type_)
            key = f"{base}:{path[depth]}"
            if holders := self.index.table(base).get(path[depth]):
                for principals, counting in callers:
                    for principal in principals:
                        if principal in holders:
                            yield Source(1, distance, key, principal), holders[principal] & counting
            default = [role for role, of in self.semantics.roles.items() if atom.privilege in of.get(base, ())]
            if default:
                keys = [f"{base_type(link)}:{path[above]}" for link, above in self.reader.chains[type_]]
                roles = {*caller.active, *(role for scope in keys for role in caller.scopes.get(scope, ()))}
                bit = self._bit_of_privilege(atom.privilege)
                yield from ((Source(1, distance, key, role), bit) for role in default if role in roles)


def special(
    atom: conditions.Atom, reader: conditions.ConditionReader, semantics: GrantSemantics, index: Index
) -> Special:
    """What decides an atom that is no privilege and no ownership on an entity itself."""
    type_ = base_type(atom.type)

    def owning_below(path: str, principals: Sequence[str], active: Sequence[str]) -> Iterable[str]:
        return index.owning_below(f"{type_}:{path}", principals if semantics.inactive_owners else active)

    match atom.kind:
        case "service_admin":
            return lambda user, _, __, ___: ((0, f"user:{user}"),) if user in index.service_admins else ()
        case "self":
            return lambda user, _, __, path: ((0, f"user:{user}"),) if last_name(path) == user else ()
        case "holds":
            return lambda _, principals, __, path: [
                (0, f"role:{role}") for role in roles_of(index, principals) if refers_to(role, path)
            ]
        case "member":
            members = index.members.get(type_, {})
            if reader.principal[type_] != "group":
                return lambda user, _, __, path: ((0, f"user:{user}"),) if user in members.get(path, ()) else ()
            return lambda user, principals, _, path: [
                *([(0, f"user:{user}")] if user in members.get(path, ()) else ()),
                *((1, f"group:{group}") for group in groups_of(principals) if refers_to(group, path)),
            ]
        case "has_below":
            owners_have = atom.privilege in semantics.owner_holds

            def has_below(
                _: str, principals: Sequence[str], active: Sequence[str], path: str
            ) -> Sequence[tuple[int, str]]:
                within = index.within
                owners = owning_below(path, principals, active) if owners_have else ()
                granted = index.granted_below(atom.privilege, f"{type_}:{path}", principals, active)
                return [
                    *((0, f"owner {owner}") for owner in owners),
                    *((1, within[principal][0] if principal in within else principal) for principal in granted),
                ]

            return has_below
        case "owns_below":
            return lambda _, principals, active, path: [(0, owner) for owner in owning_below(path, principals, active)]
        case "has" | "owner" | "compare":
            raise AssertionError(atom.kind)
        case _:
            assert_never(atom.kind)


def groups_of(principals: Sequence[str]) -> Iterable[str]:
    """The groups among a caller's principals, for conditions on membership in groups."""
    return [p[6:] for p in principals if p.startswith("group:")]


def roles_of(index: Index, principals: Sequence[str]) -> set[str]:
    """The roles of a caller, also those within scopes, for conditions on holding a role."""
    within = index.within
    return {(within[p][0] if p in within else p)[5:] for p in principals if p in within or p.startswith("role:")}


def named_prefix(path: Sequence[str], depth: int) -> str | None:
    """Of the beginnings of a path, the one with so many names; None if the request does not name that entity."""
    is_unnamed = depth >= len(path) or (depth == len(path) - 1 and path[depth].endswith("/"))
    return None if is_unnamed else path[depth]


def beginnings(path: str) -> list[str]:
    """The prefixes of a path by their number of names.

    >>> beginnings("m/c/s")
    ['', 'm', 'm/c', 'm/c/s']
    """
    found = [""]
    position = -1
    if path:
        while (position := path.find("/", position + 1)) >= 0:
            found.append(path[:position])
        found.append(path)
    return found


def needed(condition: conditions.Condition) -> tuple[tuple[conditions.Atom, ...], conditions.Condition]:
    """The privileges without which a condition cannot hold, and what else it demands."""
    parts = condition.parts if isinstance(condition, conditions.AllOf) else (condition,)
    atoms = tuple(part for part in parts if isinstance(part, conditions.Atom) and part.kind == "has")
    return atoms, conditions.AllOf(tuple(part for part in parts if part not in atoms))
