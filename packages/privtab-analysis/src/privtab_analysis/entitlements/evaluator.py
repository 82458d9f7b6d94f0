"""Evaluates entitlements: the subjects for whom a condition holds, as sets, and the rows through which each of its atoms holds.

A condition has no negation, so the subjects for whom it holds are unions and intersections of the subjects for whom its atoms hold.
Each atom takes a few look-ups in the index of a state: from an entity to principals, and from principals to subjects. In a
conjunction, the part that can hold for the fewest is evaluated first, and the other parts for the remaining subjects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, TypeAlias, assert_never

from privtab.base import Request, base_type, last_name
from privtab.engines import Atom, Index
from privtab.ir import RESOURCE
from privtab_analysis.entitlements.request_forms import (
    ADMIN,
    ATTRIBUTE,
    GRANT,
    HOLDS,
    MEMBER,
    NEEDED,
    OWNS,
    ROLE,
    SELF,
    EntityQuestion,
    Part,
    RequestForms,
    Source,
)
from privtab_analysis.entitlements.subjects import NOBODY, Numbers, Reach, SomeSubjects, Subjects, shown, united

MOST_REMEMBERED = 4_000_000
"""The most subjects that are kept in sets, and in sources, which are worked out once."""
FEW = 8
"""The most subjects that are looked at one at a time, and the factor by which subjects must be fewer than principals."""
SORTED = 1_000
"""For how many subjects it matters which part of a conjunction is worked out first."""
Entries: TypeAlias = Mapping[int, Sequence[tuple[str, int, Numbers]]]
"""The holdings on an entity: the distance of the rows above it, the name of the principal, the kind, and the holders of the principal; in order."""


class Evaluator:
    """The rights of some subjects, by the index of a state."""

    def __init__(
        self, forms: RequestForms, index: Index, subjects: Subjects, assumed: Collection[str] | None = None
    ) -> None:
        """`assumed`: of what groups and roles are taken for members, by the entity's key; None: of all that takes users alone."""
        self.forms = forms
        self.index = index
        self.subjects = subjects
        self._open(assumed)

    def _open(self, assumed: Collection[str] | None) -> None:
        self.engine = self.forms.engine
        self.reader, self.semantics = self.engine.reader, self.engine.semantics
        self._owner_bit = self.index.numbers.owned
        self.found: list[Source] = []
        """Every source that was found."""
        self._number_of: dict[Source, int] = {}
        self._assumed = assumed
        self._forget()

    def assume(self, memberships: Collection[str]) -> None:
        """Take groups and roles for members of other entities than before."""
        self._assumed = memberships
        self._kept_parts.clear()

    def _forget(self) -> None:
        self._kept = 0
        self._held: dict[tuple[int, str, str], Numbers] = {}
        self._counts: dict[tuple[int, str, str], int] = {}
        self._kept_parts: dict[tuple[int, str], Numbers] = {}
        self._reached: dict[tuple[str, str, str, int], Reach] = {}
        self._kept_having: dict[tuple[str, str, str], Numbers] = {}
        self._entries: dict[tuple[int, str, str], Entries] = {}
        self._sources: dict[tuple[str, str, str, int], dict[int, int]] = {}

    def __getstate__(self) -> tuple[RequestForms, Index, Subjects, Collection[str] | None]:
        return self.forms, self.index, self.subjects, self._assumed

    def __setstate__(self, state: tuple[RequestForms, Index, Subjects, Collection[str] | None]) -> None:
        self.forms, self.index, self.subjects, assumed = state
        self._open(assumed)

    def question(self, request: Request) -> EntityQuestion | None:
        """As `RequestForms.question`, with the attributes of this state."""
        return self.forms.question(request, self.index)

    # --- for whom a condition holds ---------------------------------------------------------------------------------

    def allowed(self, request: Request) -> Numbers:
        """The subjects who are allowed a request, regardless of its user."""
        question = self.question(request)
        return NOBODY if question is None else self.who(question)

    def among(self, numbers: Numbers) -> Evaluator:
        """The same for some of the subjects."""
        return Evaluator(self.forms, self.index, SomeSubjects(self.subjects, numbers), self._assumed)

    def who(self, question: EntityQuestion) -> Numbers:
        """The subjects for whom the condition of a question holds."""
        return self.holders(question.form.condition, question)

    def holders(self, part: Part, question: EntityQuestion, among: Numbers | None = None) -> Numbers:
        """The subjects for whom a part of a condition holds; only subjects in `among`, if it is given."""
        if part.within < len(question.paths[RESOURCE]) - 1:
            found = self._outer(part, question)
            return found if among is None else found & among
        if part.shared:
            if id(part) not in question.known:
                question.known[id(part)] = self._holders(part, question, None)
            return question.known[id(part)] if among is None else question.known[id(part)] & among
        return self._holders(part, question, among)

    def _outer(self, part: Part, question: EntityQuestion) -> Numbers:
        """The subjects for whom a part about a container of the resource holds, worked out once for all entities in the container."""
        key = id(part), question.paths[RESOURCE][part.within]
        found = self._kept_parts.get(key)
        if found is None:
            found = self._keep(self._kept_parts, key, self._holders(part, question, None))
        return found

    def _holders(self, part: Part, question: EntityQuestion, among: Numbers | None) -> Numbers:
        match part.condition.kind:
            case "all":
                parts: Sequence[Part] = part.parts
                if len(self.subjects.everyone if among is None else among) > SORTED:
                    sizes = sorted((self._most(inner, question), n) for n, inner in enumerate(parts))
                    parts = [parts[n] for _, n in sizes]
                for inner in parts:
                    among = self.holders(inner, question, among)
                    if not among:
                        return NOBODY
                return self.subjects.everyone if among is None else among
            case "any":
                return united([self.holders(inner, question, among) for inner in part.parts])
            case "has":
                path = question.paths[part.slot]
                if among is not None and len(among) <= FEW and len(self.subjects.everyone) > SORTED:
                    return frozenset(number for number in among if self._has(part, path, number))
                if len(self.subjects.everyone) <= SORTED:
                    held = self._having(part, path)
                    return held if among is None else held & among
                return self._reach(part, path, len(part.chain)).holders(among)
            case "compare":
                return self._comparing(part, question, among)
            case _ if part.parts:
                return united([self._alone(inner, question, among) for inner in part.parts])
            case _:
                return self._alone(part, question, among)

    def _having(self, part: Part, path: list[str]) -> Numbers:
        """The subjects with a privilege, kept for each entity: all together they are few."""
        key = part.privilege, part.type, path[part.chain[-1][1]]
        found = self._kept_having.get(key)
        if found is None:
            reach = self._reach(part, path, len(part.chain))
            found = self._keep(self._kept_having, key, reach.holders(None))
        return found

    def _alone(self, part: Part, question: EntityQuestion, among: Numbers | None) -> Numbers:
        if part.condition.kind == "has":
            return self.holders(part, question, among)
        found = self.direct(part, question.paths[part.slot][part.depth])
        return found if among is None else found & among

    def direct(self, part: Part, path: str) -> Numbers:
        """The subjects for whom an atom about the entity with a path holds that takes one look-up."""
        subjects, type_ = self.subjects, base_type(part.type)
        match part.condition.kind:
            case "service_admin":
                return subjects.admins
            case "owner":
                return self._at(self._owner_bit, type_, path)
            case "member":
                users = self._members(type_, path)
                if self.reader.principal[type_] == "group":
                    return users | subjects.of(subjects.standing("group", path))
                taken = self._assumed is None or f"{type_}:{path}" in self._assumed
                return users | subjects.alone if taken and subjects.alone else users
            case "holds":
                return subjects.of(subjects.standing("role", path))
            case "self":
                user = subjects.number.get(last_name(path))
                return NOBODY if user is None else frozenset([user])
            case "has_below" | "owns_below":
                return frozenset(self._below(part, f"{type_}:{path}"))
            case "has" | "compare" | "all" | "any":
                raise AssertionError(part.condition.kind)
            case _:
                assert_never(part.condition.kind)

    def _most(self, part: Part, question: EntityQuestion) -> int:
        """The most subjects for whom a part can hold, as far as this is known without a search."""
        if part.within < len(question.paths[RESOURCE]) - 1:
            return len(self._outer(part, question))
        if part.shared:
            return len(self.holders(part, question))
        match part.condition.kind:
            case "all":
                return min((self._most(inner, question) for inner in part.parts), default=len(self.subjects.everyone))
            case "any":
                return sum(self._most(inner, question) for inner in part.parts)
            case "has":
                path, bit = (
                    question.paths[part.slot],
                    self.index.numbers.allowed(part.privilege) | self._owner_bit * part.owned,
                )
                found = sum(self._count(bit, base_type(type_), path[depth]) for type_, depth in part.chain)
                if self.semantics.roles:
                    links = range(1, len(part.chain) + 1)
                    found += sum(len(numbers) for n in links for _, numbers in self._by_default(part, path, n))
                return found
            case "compare":
                return len(self.subjects.everyone)
            case _:
                return len(self.direct(part, question.paths[part.slot][part.depth]))

    def _has(self, part: Part, path: list[str], number: int) -> bool:
        """Return whether one subject has a privilege, using a look-up for each of their principals."""
        principals, bits = self.subjects.all[number].principals, 0
        for type_, depth in part.chain:
            holders = self.index.table(base_type(type_)).get(path[depth])
            if holders:
                for principal in principals:
                    bits |= holders.get(principal, 0)
        if part.owned and bits & self._owner_bit:
            return True
        if self.semantics.denies and bits & self.index.numbers.denied(part.privilege):
            return False
        if bits & self.index.numbers.allowed(part.privilege):
            return True
        links = range(1, len(part.chain) + 1) if self.semantics.roles else ()
        return any(number in numbers for n in links for _, numbers in self._by_default(part, path, n))

    def _count(self, bits: int, type_: str, path: str) -> int:
        """The number of subjects with any of some bits on an entity; subjects with several holdings count several times."""
        rights = self.index.table(type_).get(path)
        if not rights:
            return 0
        key = bits, type_, path
        found = self._counts.get(key)
        if found is None:
            holders = self.subjects.holders
            found = sum(len(holders.get(principal, NOBODY)) for principal, held in rights.items() if held & bits)
            self._keep(self._counts, key, found, 1)
        return found

    def _comparing(self, part: Part, question: EntityQuestion, among: Numbers | None) -> Numbers:
        """The subjects whose attributes in the state compare so; everyone or nobody if the comparison takes no attributes of users from the state."""
        assert isinstance(part.condition, Atom)
        assert part.condition.comparison is not None
        comparison = part.condition.comparison
        of_user = (operand.attribute for operand in comparison.operands if operand.of == "user")
        compares, paths = partial(question.form.plan.compares, comparison), question.paths
        if question.values.given.user.keys() >= set(of_user):
            everyone = self.subjects.everyone if among is None else among
            return everyone if compares(question.values, paths) else NOBODY
        having = self.subjects.with_attributes if among is None else self.subjects.with_attributes & among
        of_users = self.index.user_attributes
        values = ((n, replace(question.values, of_user=of_users[str(self.subjects.all[n].user)])) for n in having)
        return frozenset(n for n, of_user in values if compares(of_user, paths))

    def _members(self, type_: str, path: str) -> Numbers:
        users = self.index.members.get(type_, {}).get(path)
        if not users:
            return NOBODY
        key = 0, type_, path
        found = self._held.get(key)
        if found is None:
            number = self.subjects.number
            named = users.intersection(number) if len(users) > len(number) else number.keys() & users
            found = self._keep(self._held, key, frozenset(map(number.__getitem__, named)))
        return found

    def _at(self, bit: int, type_: str, path: str) -> Numbers:
        """The subjects with a bit on an entity."""
        holders = self.index.table(type_).get(path)
        if not holders:
            return NOBODY
        key = bit, type_, path
        found = self._held.get(key)
        if found is None:
            found = self.subjects.of(principal for principal, bits in holders.items() if bits & bit)
            self._keep(self._held, key, found)
        return found

    def _keep(self, known: dict[Any, Any], key: object, found: Any, size: int | None = None) -> Any:
        """Remember something, and forget the rest if that is too much."""
        self._kept += 1 + (len(found) if size is None else size)
        if self._kept > MOST_REMEMBERED:
            self._forget()
        else:
            known[key] = found
        return found

    def _reach(self, part: Part, path: list[str], links: int) -> Reach:
        """The holdings on the entity of the last of the first links of a chain, and on its containers."""
        type_, depth = part.chain[links - 1]
        key = part.privilege, type_, path[depth], links
        known = self._reached.get(key)
        if known is not None:
            return known
        base, at, numbers = base_type(type_), path[depth], self.index.numbers
        granted, denied, owners = self._reach(part, path, links - 1) if links > 1 else ((), (), ())
        granted += tuple(filter(None, [self._at(numbers.allowed(part.privilege), base, at)]))
        granted += tuple(filter(None, (numbers for _, numbers in self._by_default(part, path, links))))
        if self.semantics.denies:
            denied += tuple(filter(None, [self._at(numbers.denied(part.privilege), base, at)]))
        if part.owned:
            owners += tuple(filter(None, [self._at(self._owner_bit, base, at)]))
        found = Reach(granted, denied, owners)
        self._keep(self._reached, key, found)
        return found

    def _by_default(self, part: Part, path: list[str], links: int) -> Iterator[tuple[str, Numbers]]:
        """The declared roles with a privilege on entities of a type on the path, and their holders, everywhere or within the entities above."""
        if not self.semantics.roles:
            return
        type_ = part.chain[links - 1][0]
        keys = [f"{base_type(link)}:{path[depth]}" for link, depth in self.reader.chains[type_]]
        scopes = [self.subjects.within[key] for key in keys if key in self.subjects.within]
        for role, grants in self.semantics.roles.items():
            if part.privilege in grants.get(base_type(type_), ()):
                yield role, united([self.subjects.of([role]), *(within[role] for within in scopes if role in within)])

    def _below(self, part: Part, key: str) -> Iterator[int]:
        """The subjects that hold something below an entity."""
        if part.owned or not part.privilege:
            yield from self.subjects.of(self.index.owned_below.get(key, ()))
        if part.privilege:
            for number in self.subjects.of(self.index.below.get(part.privilege, {}).get(key, ())):
                if any(self._granted_below(part, key, number)):
                    yield number

    def _granted_below(self, part: Part, key: str, number: int) -> Iterator[str]:
        principals = self.subjects.all[number].principals
        return self.index.granted_below(part.privilege, key, principals, principals)

    # --- through what an atom holds ---------------------------------------------------------------------------------

    def holding(self, numbers: Iterable[int], question: EntityQuestion, among: Numbers) -> Numbers:
        """The subjects, among some, for whom all atoms of a minimal set hold."""
        for part in (question.form.parts[number] for number in numbers):
            atom = part.condition
            if isinstance(atom, Atom) and atom.type and question.form.plan.path(atom, question.paths) is None:
                return NOBODY
            among = self.holders(part, question, among)
            if not among:
                break
        return among

    def sources(self, part: Part, question: EntityQuestion, subjects: Sequence[int]) -> Iterable[int]:
        """The sources through which an atom of a minimal set holds for each of some subjects, as positions in `found`."""
        everybody, type_, path = self.subjects.all, base_type(part.type), question.paths[part.slot][part.depth]
        match part.condition.kind:
            case "self" | "service_admin" | "compare":
                kind = {"self": SELF, "service_admin": ADMIN, "compare": ATTRIBUTE}[part.condition.kind]
                return repeat(self._number(Source(0, "", kind)), len(subjects))
            case "has":
                return self._sources_of(part, question.paths[part.slot], subjects)
            case "has_below" | "owns_below":
                return [self._number(self._source_below(part, question, n)) for n in subjects]
            case "owner":
                owners = self.index.table(type_)[path]
                held = ((p for p in everybody[n].principals if owners.get(p, 0) & self._owner_bit) for n in subjects)
                return [self._number(Source(0, min(names), OWNS)) for names in held]
            case "member" if self.reader.principal[type_] != "group":
                member, needed = self._number(Source(0, "", MEMBER)), self._number(Source(0, "", NEEDED))
                alone = self.subjects.alone
                return [needed if n in alone else member for n in subjects] if alone else repeat(member, len(subjects))
            case "member":
                members, standing = self._members(type_, path), set(self.subjects.standing("group", path))
                names = ("" if n in members else self._first(n, standing) for n in subjects)
                return [self._number(Source(0, name, MEMBER)) for name in names]
            case "holds":
                standing = set(self.subjects.standing("role", path))
                return [self._number(Source(0, self._first(n, standing), HOLDS)) for n in subjects]
            case "all" | "any":
                raise AssertionError(part.condition.kind)
            case _:
                assert_never(part.condition.kind)

    def _number(self, source: Source) -> int:
        number = self._number_of.get(source)
        if number is None:
            number = self._number_of[source] = len(self.found)
            self.found.append(source)
        return number

    def _first(self, number: int, principals: Iterable[str]) -> str:
        own = set(principals).intersection(self.subjects.all[number].principals)
        return min(shown(self.index, principal) for principal in own)

    def _sources_of(self, part: Part, path: list[str], subjects: Sequence[int]) -> Iterable[int]:
        """The sources of a privilege: ownership first, then the nearest grants."""
        key = part.privilege, part.type, path[part.depth], len(part.chain)
        known = self._sources.get(key)
        if known is None:
            known = self._keep(self._sources, key, {})
        left = set(subjects).difference(known)
        if left:
            self._kept += len(left)
            if part.owned:
                left = self._assigned(part, self._owner_bit, path, left, known)
            left = self._assigned(part, self.index.numbers.allowed(part.privilege), path, left, known)
            assert not left, f"{part.privilege}: held without a source"
        return map(known.__getitem__, subjects)

    def _assigned(self, part: Part, bit: int, path: list[str], left: set[int], known: dict[int, int]) -> set[int]:
        """Find the sources of some subjects, the nearest first; return the subjects without any."""
        waiting: dict[int, list[tuple[str, int, Numbers]]] = defaultdict(list)
        for distance in range(len(part.chain)):
            if not left:
                break
            for above, entries in self._entries_on(part, bit, path, len(part.chain) - distance, left).items():
                waiting[distance + above] += entries
            entries = waiting.pop(distance, [])
            for name, kind, numbers in sorted(entries, key=lambda entry: entry[:2]):
                found = left & numbers
                if found:
                    known.update(dict.fromkeys(found, self._number(Source(distance, name, kind))))
                    left -= found
        return left

    def _entries_on(self, part: Part, bit: int, path: list[str], links: int, left: Iterable[int]) -> Entries:
        """The index's entries for the entity of one of the types of a chain."""
        type_, depth = part.chain[links - 1]
        base, at = base_type(type_), path[depth]
        holders = self.index.table(base).get(at, {})
        if len(holders) > FEW * len(left := set(left)):
            principals = {principal for n in left for principal in self.subjects.all[n].principals} & holders.keys()
            return self._entries_of(part, bit, path, links, sorted(principals))
        key = bit, type_, at
        found = self._entries.get(key)
        if found is None:
            found = self._keep(self._entries, key, self._entries_of(part, bit, path, links, sorted(holders)))
        return found

    def _entries_of(self, part: Part, bit: int, path: list[str], links: int, principals: Iterable[str]) -> Entries:
        index, subjects = self.index, self.subjects
        type_, depth = part.chain[links - 1]
        base, at = base_type(type_), path[depth]
        holders = index.table(base).get(at, {})
        found: dict[int, list[tuple[str, int, Numbers]]] = defaultdict(list)
        keys = [f"{base_type(link)}:{path[depth]}" for link, depth in reversed(part.chain[:links])]
        for principal in principals:
            if not holders[principal] & bit or principal not in subjects.holders:
                continue
            numbers = subjects.holders[principal]
            if bit == self._owner_bit:
                found[0].append((principal, OWNS, numbers))
            elif principal in index.within:
                # A role within a scope is entered there; the rows may be about what contains the scope.
                rows = index.origins["allow", part.privilege, keys[0], principal]
                for above, key in enumerate(keys):
                    if key in rows:
                        found[above].append((shown(index, principal), GRANT, numbers))
            else:
                found[0].append((principal, GRANT, numbers))
        if bit != self._owner_bit:
            found[0] += [(role, ROLE, numbers) for role, numbers in self._by_default(part, path, links) if numbers]
        return found

    def _source_below(self, part: Part, question: EntityQuestion, number: int) -> Source:
        """The principal through which something is held on an entity or below it: as an owner first."""
        path, principals = question.paths[part.slot], self.subjects.all[number].principals
        key = question.keys(part)[-1]
        if part.owned or not part.privilege:
            owners = [*self._names_of(part, self._owner_bit, path, number), *self.index.owning_below(key, principals)]
            if owners:
                return Source(0, min(owners), OWNS)
        granted = [shown(self.index, principal) for principal in self._granted_below(part, key, number)]
        if self.holders(
            part._replace(condition=Atom("has", part.slot, part.type, part.privilege), parts=()),
            question,
            frozenset([number]),
        ):
            granted += self._names_of(part, self.index.numbers.allowed(part.privilege), path, number)
        return Source(0, min(granted), GRANT)

    def _names_of(self, part: Part, bit: int, path: list[str], number: int) -> Iterator[str]:
        """The principals through which a subject has a bit on an entity or on its containers."""
        for links in range(len(part.chain), 0, -1):
            for entries in self._entries_on(part, bit, path, links, [number]).values():
                yield from (name for name, _, numbers in entries if number in numbers)
