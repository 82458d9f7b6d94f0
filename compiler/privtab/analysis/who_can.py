"""Who may do one operation, found from the rows of the object back to principals, and not by a decision for each user.

A condition has no negation, so the users for whom it holds are unions and intersections of the users for whom its atoms
hold, and each atom takes few look-ups. Details about a single user come from the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from privtab.analysis.caller import Caller, listing
from privtab.analysis.principal_sets import SinglePrincipalSets, UserSets
from privtab.entitlements.universe import users
from privtab.errors import Undecided, UsageError
from privtab.ir.canonical import Leaf, Listing
from privtab.ir.formula import leaves, located
from privtab.ir.nodes import RESOURCE, Atom, Member, Rule
from privtab.ir.support import Tool, check_support
from privtab.paths import base_type
from privtab.reference.evaluate import EvaluationContext, Explanation, Reference
from privtab.request import Entity, Request
from privtab.state.nodes import State

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


class WhoCan:
    """The answer for one operation on one object. `users` are sorted; `anyone`: even users that no row names."""

    def __init__(self, reference: Reference, state: State, request: Request) -> None:
        reference.vocabulary.check_question(request)
        program = reference.program
        # The attributes of users are those of the state: the request's are of its own user.
        request = replace(request, attributes=replace(request.attributes, user={}))
        self.request = request
        self.rule: Rule = program.rules[request.resource.type, request.action]
        self._context = EvaluationContext(reference, request)
        self._reference = reference
        self._state = state
        self._condition = self._context.condition(self.rule)
        self._users = UserSets(self._context, state)
        found = self._users.fold(self._condition)
        self.known: frozenset[str] = users(program, state)
        if self.rule.needs_active_role:  # whoever holds none cannot name one
            asked = self.known if found is None else found
            found = {user for user in asked if reference.holdings.of_user(user, request.groups)[2]}
        self.anyone: bool = found is None
        self.users: tuple[str, ...] = tuple(sorted(self.known if found is None else found))

    def through(self, user: str) -> tuple[Evidence, ...]:
        """The first minimal set that holds for one of the users; empty if none does."""
        caller = Caller(self._reference, user, flags=self.request.flags, attributes=self.request.attributes)
        caller.about(self._objects())
        explained = Explanation(caller, self.rule, listing(caller, self.rule, self._condition), allowed=True)
        return tuple(
            Evidence(
                atom=reason["atom"],
                on=reason.get("on"),
                through=reason["through"],
                via=self._users.via(user, reason["through"].removeprefix("owner ")),
            )
            for reason in explained.reasons()
        )

    def principals(self) -> tuple[Principal, ...]:
        """Each group, role and user that suffices alone; `anyone` comes first, if no principal is needed.

        What `anyone` may do is not repeated for the others.
        """
        check_support(self._context.program, Tool.WHO_CAN_PRINCIPALS)
        bearers = _AssumedMemberships(self._context, self._state)
        needs_of_bearer: dict[str, set[frozenset[str]]] = defaultdict(set)
        text = Explanation(self._context, self.rule, Listing(()), allowed=False).text
        atoms = dict.fromkeys(
            at for atom in leaves(self._context.program, self._condition) for at in self._located(atom)
        )
        memberships = [atom for atom in atoms if self._is_membership_to_try(atom)]
        if len(memberships) > MEMBERSHIPS:
            raise Undecided(f"not decided: `{self.rule.id}` requires more than {MEMBERSHIPS} memberships")
        for size in range(len(memberships) + 1):
            for assumed in combinations(memberships, size):
                needs = frozenset(map(text, assumed))
                found = bearers.assuming(assumed).fold(self._condition)
                for bearer in {"anyone"} if found is None else found:
                    if not bearer.startswith("user:") or not assumed:
                        needs_of_bearer[bearer].add(needs)
        needs_of_anyone = needs_of_bearer.get("anyone", set())
        listed = [
            Principal(principal=name, scope=scope or None, needs=_smallest(needs))
            for bearer, all_needs in needs_of_bearer.items()
            for name, _, scope in [bearer.partition("\n")]
            for needs in [
                {way for way in all_needs if bearer == "anyone" or not any(known <= way for known in needs_of_anyone)}
            ]
            if needs
        ]
        order = ("anyone", "group", "role", "user")
        return tuple(
            sorted(listed, key=lambda p: (order.index(p.principal.partition(":")[0]), p.principal, p.scope or ""))
        )

    def _is_membership_to_try(self, atom: Leaf) -> bool:
        if not isinstance(atom, Member) or not self._context.path(atom.target):
            return False
        return self._context.program.entities[base_type(atom.target.type)].principal != "group"

    def _located(self, atom: Atom) -> Iterator[Atom]:
        """The atom for each level that it means, where a type nests."""
        if not isinstance(atom, Member):
            yield atom
            return
        levels = self._context.levels[atom.target.slot]
        for target in located(self._context.program, atom.target, levels):
            yield replace(atom, target=target)

    def _objects(self) -> dict[str, Entity]:
        return {RESOURCE: self.request.resource, **{w.name: self.request.with_[w.name] for w in self.rule.withs}}


class _AssumedMemberships(SinglePrincipalSets):
    """Principals with some memberships taken for granted."""

    assumed: Collection[Atom] = ()

    def assuming(self, memberships: Collection[Atom]) -> _AssumedMemberships:
        """Take these memberships for granted."""
        self.assumed = memberships
        self._bearers_of.clear()
        self._referred.clear()
        return self

    def atom(self, atom: Atom) -> set[str] | None:
        """The bearers for whom an atom holds."""
        return None if atom in self.assumed else super().atom(atom)


def who_can(reference: Reference, state: State, request: Request) -> WhoCan:
    """Who may do what `request` asks for, regardless of its user; `state` is the one that the reference was built from.

    Raises InvalidRequest if the request uses names that the policy does not know.
    """
    check_support(reference.program, Tool.WHO_CAN)
    if request.active_roles is not None:
        raise UsageError("`who-can` is about all roles of everybody: leave the active roles out")
    return WhoCan(reference, state, request)


def _smallest(all_needs: Iterable[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    smallest: list[frozenset[str]] = []
    for needs in sorted(set(all_needs), key=lambda w: (len(w), sorted(w))):
        if not any(smaller <= needs for smaller in smallest):
            smallest.append(needs)
    return tuple(tuple(sorted(needs)) for needs in smallest)
