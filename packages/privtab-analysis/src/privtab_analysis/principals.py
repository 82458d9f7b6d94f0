"""The principals that may do one operation, found from the rows of the object back to principals, and not by a decision for each user.

A condition has no negation, so the users for whom it holds are unions and intersections of the users for whom its atoms
hold, and each atom takes few look-ups. Details about a single user come from the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from privtab.base import Entity, Request, Undecided, UsageError, base_type, dataclass, last_name
from privtab.ir import Atom, Below, Compare, Member, OnTarget, Rule, Tool, reached_atoms
from privtab.reference import EvaluationContext, Reference
from privtab.state import ROLE_PREFIX, State, attribute_parts
from privtab_analysis.caller import Caller, listing
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.holders import ANYONE, Holders, PrincipalHolders, SubjectsOnDemand, UserHolders
from privtab_analysis.entitlements.subjects import held, program_forms

MEMBERSHIPS = 10
"""The most memberships whose combinations are all tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One atom that a user holds: the entity on which they hold it, and the principal through which.

    `via`: the group through which they hold the role; None if they hold the role themselves.
    """

    atom: str
    on: str | None
    through: str
    via: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A user, a group or a role that alone suffices, given the memberships in `needs`.

    `needs`: alternative sets of memberships that no group or role provides; one empty set if none is needed.
    """

    principal: str
    scope: str | None
    needs: tuple[tuple[str, ...], ...]

    def besides(self) -> str:
        """The memberships in words, for the terminal and a page."""
        text = " or ".join(" and ".join(way) or "nothing" for way in self.needs)
        return text.replace("member (", "a member of ").replace(")", "")


class WhoCan:
    """The answer for one operation on one object. `users` are sorted; `anyone`: users whom no row names are allowed, and so is everybody who is not `excepted`."""

    def __init__(self, reference: Reference, state: State, request: Request, holders: UserHolders | None) -> None:
        reference.vocabulary.check_question(request)
        program = reference.program
        # The attributes of users are those of the state: the request's are of its own user.
        request = replace(request, attributes=replace(request.attributes, user={}))
        self.request = request
        self.rule: Rule = program.rules[request.resource.type, request.action]
        self._context = EvaluationContext(reference, request)
        self._reference = reference
        self.condition = self._context.condition(self.rule)
        self._atoms = tuple(
            dict.fromkeys(at for atom in reached_atoms(program, self.condition) for at in self._located(atom))
        )
        self._keys = self._keys_of_atoms()
        self._users = holders or UserHolders(program, state, reference.holdings)
        self.known: frozenset[str] = self._users.known
        numbers = dict(self._users.numbers)
        for key in self._keys:
            numbers.setdefault(last_name(key.partition(":")[2]), len(numbers))
        names = [*numbers]
        users = dict(numbers)
        del users[""]
        found = self._evaluator(self._users, numbers, users).allowed(request)
        self.anyone: bool = 0 in found
        asked = {names[number] for number in found} - {""}
        asked = asked & self.known if self.anyone else asked
        if self.rule.needs_active_role:  # whoever holds none cannot name one
            asked = {user for user in asked if reference.holdings.of_user(user, request.groups)[2]}
            self.anyone = False
        self.users: tuple[str, ...] = tuple(sorted(asked))
        self.excepted: tuple[str, ...] = tuple(sorted(self.known - asked)) if self.anyone else ()
        """The users whom the state names and who may not although anyone else may: the rights of every user are denied to them."""

    def through(self, user: str) -> tuple[Evidence, ...]:
        """The first minimal set that holds for one of the users; empty if none does."""
        caller = Caller(self._reference, user, flags=self.request.flags, attributes=self.request.attributes)
        caller.about(self._objects())
        listed = listing(caller, self.rule, self.condition)
        return tuple(
            Evidence(
                atom=reason["atom"],
                on=reason.get("on"),
                through=reason["through"],
                via=self._users.via(user, reason["through"].removeprefix("owner ")),
            )
            for reason in caller.reasons(listed.sets)
        )

    def principals(self) -> tuple[Principal, ...]:
        """Each group, role and user that suffices alone; `anyone` comes first, if no principal is needed.

        What `anyone` may do is not repeated for the others.
        """
        Tool.WHO_CAN_PRINCIPALS.check(self._context.program)
        objects = {key for keys in self._context.keys.values() for key in keys}
        holders = PrincipalHolders(self._users, objects)
        known = {
            f"user:{user}": user for user in self.known.union(last_name(key.partition(":")[2]) for key in self._keys)
        }
        names = [ANYONE, *known, *holders.names(self._keys)]
        numbers = {name: number for number, name in enumerate(names)}
        evaluator = self._evaluator(holders, numbers, {user: n for n, user in enumerate(known.values(), 1)})
        needs_of: dict[str, set[frozenset[str]]] = defaultdict(set)
        text = self._context.text
        memberships = [atom for atom in self._atoms if isinstance(atom, Member) and self._is_to_try(atom)]
        if len(memberships) > MEMBERSHIPS:
            raise Undecided(f"not decided: `{self.rule.id}` requires more than {MEMBERSHIPS} memberships")
        for size in range(len(memberships) + 1):
            for assumed in combinations(memberships, size):
                needs = frozenset(map(text, assumed))
                evaluator.assume({self._context.path(atom.target)[-1] for atom in assumed})
                found = evaluator.allowed(self.request)
                for sufficient in {ANYONE} if 0 in found else {names[number] for number in found}:
                    if not sufficient.startswith("user:") or not assumed:
                        needs_of[sufficient].add(needs)
        needs_of_anyone = needs_of.get(ANYONE, set())
        listed = [
            Principal(principal=name, scope=scope or None, needs=_smallest(needs))
            for sufficient, all_needs in needs_of.items()
            for name, _, scope in [sufficient.partition("\n")]
            for needs in [
                {way for way in all_needs if sufficient == ANYONE or not any(known <= way for known in needs_of_anyone)}
            ]
            if needs
        ]
        order = (ANYONE, "group", "role", "user")
        return tuple(
            sorted(listed, key=lambda p: (order.index(p.principal.partition(":")[0]), p.principal, p.scope or ""))
        )

    def _keys_of_atoms(self) -> set[str]:
        """The entities whose rows count: on the paths of the atoms' entities, and with `or below` on entities below."""
        found: set[str] = set()
        for atom in self._atoms:
            if isinstance(atom, Below):
                found.update(key for path in self._context.paths_from(atom.target) for key in path)
            elif isinstance(atom, OnTarget):
                found.update(self._context.path(atom.target))
        return found

    def _evaluator(self, holders: Holders, numbers: Mapping[str, int], users: Mapping[str, int]) -> Evaluator:
        """An evaluator of the rows that count. `numbers`, `users`: as in `SubjectsOnDemand`."""
        program, state = holders.program, holders.state
        rows = {table: state.column(table, "entity").where(self._keys) for table in ("grants", "owners")}
        grantees = set(state.column("grants", "grantee").take(rows["grants"]))
        roles = {str(name) for name in grantees if name and name.startswith(ROLE_PREFIX)}
        roles |= {f"{ROLE_PREFIX}{name}" for name in program.roles}
        scoped = ((role, scope) for role in roles for scope, _ in holders.scoped(role) if scope in self._keys)
        compares = any(isinstance(atom, Compare) for atom in self._atoms)
        index = held(program, state, rows, scoped, attribute_parts(program, state) if compares else {})
        for atom in self._atoms:
            if isinstance(atom, Member) and (path := self._context.path(atom.target)):
                members = state.column("members", "user").take(state.column("members", "of").where(path[-1:]))
                type_, _, id_ = path[-1].partition(":")
                index.members.setdefault(type_, {})[id_] = frozenset(map(str, members))
        index.service_admins = holders.holdings.service_admins
        subjects = SubjectsOnDemand(holders, numbers, users, index)
        return Evaluator(program_forms(program, holders.holdings.locations), index, subjects, assumed=())

    def _is_to_try(self, atom: Member) -> bool:
        return bool(self._context.path(atom.target)) and (
            self._context.program.entities[base_type(atom.target.type)].principal != "group"
        )

    def _located(self, atom: Atom) -> Iterator[Atom]:
        """The atom for each level that it means, where a type nests."""
        if not isinstance(atom, OnTarget):
            yield atom
            return
        if atom.target.slot not in self._context.levels:
            return  # the request leaves out the object
        for target in self._context.located(atom.target):
            yield replace(atom, target=target)

    def _objects(self) -> dict[str, Entity]:
        return self.request.objects(slot.name for slot in self.rule.withs)


def _smallest(needs: set[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    """The sets of needs that contain no other, the smallest first."""
    minimal = (sorted(way) for way in needs if not any(other < way for other in needs))
    return tuple(map(tuple, sorted(minimal, key=lambda way: (len(way), way))))


def who_can(reference: Reference, state: State, request: Request, holders: UserHolders | None = None) -> WhoCan:
    """Find everyone who is allowed a request, regardless of its user; `state` is the state that the reference was built from.

    `holders`: of the same state, which keeps what was looked up for one question for the next. Raises InvalidRequest if the request uses names that the policy does not know.
    """
    Tool.WHO_CAN.check(reference.program)
    if request.active_roles is not None:
        raise UsageError("`who-can` is about all roles of everybody: leave the active roles out")
    return WhoCan(reference, state, request, holders)


def evidence_text(through: Iterable[Evidence]) -> str:
    """The rights with the principals that hold them: `READ, WRITE by role:dev (group:hr); owner (project:web)`. Omits mere membership."""
    atoms_by_source: dict[str, list[str]] = {}
    listed = list(through)
    for t in [t for t in listed if not t.atom.startswith("member (")] or listed:
        text, by = _atom_and_source(t)
        atoms_by_source.setdefault(by, []).append(text)
    return "; ".join(f"{', '.join(dict.fromkeys(text))}{by}" for by, text in atoms_by_source.items())


def _atom_and_source(t: Evidence) -> tuple[str, str]:
    """The right and its source; the entity is omitted if every line would repeat it."""
    name, _, rest = t.atom.partition(" (")
    is_privilege = bool(rest) and name not in {"owner", "member", "holds"}
    via = f" ({t.via})" if t.via else ""
    if t.through.startswith("owner "):
        owner = t.through.removeprefix("owner ")
        return name, f" as owner of {t.on}" + ("" if owner.startswith("user:") else f" by {owner}{via}")
    if t.through.startswith("user:"):
        return (name, " in person") if is_privilege else (t.atom, "")
    return name if is_privilege else t.atom, f" by {t.through}{via}"
