"""Who may do one operation, found from the rows of the object back to principals, and not by a decision for each user.

A condition has no negation, so the users for whom it holds are unions and intersections of the users for whom its atoms
hold, and each atom takes few look-ups. Details about a single user come from the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations

from privtab.analysis.caller import Caller
from privtab.analysis.held import listing
from privtab.analysis.principal_sets import SinglePrincipalSets, UserSets
from privtab.analysis.universe import users
from privtab.errors import Undecided
from privtab.ir.canonical import Leaf, Listing
from privtab.ir.formula import leaves
from privtab.ir.nodes import RESOURCE, Atom, Member, Rule
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.reference.explain import Explanation
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
        self.request = request
        self.rule: Rule = program.rules[request.resource.type, request.action]
        self._asked = EvaluationContext(reference, request)
        self._reference = reference
        self._state = state
        self._condition = self._asked.condition(self.rule)
        self._users = UserSets(self._asked, state)
        found = self._users.fold(self._condition)
        self.known: frozenset[str] = users(program, state)
        self.anyone: bool = found is None
        self.users: tuple[str, ...] = tuple(sorted(self.known if found is None else found))

    def through(self, user: str) -> tuple[Evidence, ...]:
        """The first minimal set that holds for one of the users; empty if none does."""
        caller = Caller(self._reference, user, flags=self.request.flags)
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
        bearers = _Joining(self._asked, self._state)
        ways: dict[str, set[frozenset[str]]] = defaultdict(set)
        text = Explanation(self._asked, self.rule, Listing(()), allowed=False).text
        asked = dict.fromkeys(leaves(self._asked.program, self._condition))
        memberships = [atom for atom in asked if self._is_joining(atom)]
        if len(memberships) > MEMBERSHIPS:
            raise Undecided(f"not decided: `{self.rule.id}` requires more than {MEMBERSHIPS} memberships")
        for size in range(len(memberships) + 1):
            for joined in combinations(memberships, size):
                needs = frozenset(map(text, joined))
                found = bearers.joining(joined).fold(self._condition)
                for bearer in {"anyone"} if found is None else found:
                    if not bearer.startswith("user:") or not joined:
                        ways[bearer].add(needs)
        by_all = ways.get("anyone", set())
        listed = [
            Principal(principal=name, scope=scope or None, needs=_smallest(needs))
            for bearer, all_needs in ways.items()
            for name, _, scope in [bearer.partition("\n")]
            for needs in [{way for way in all_needs if bearer == "anyone" or not any(known <= way for known in by_all)}]
            if needs
        ]
        order = ("anyone", "group", "role", "user")
        return tuple(
            sorted(listed, key=lambda p: (order.index(p.principal.partition(":")[0]), p.principal, p.scope or ""))
        )

    def _is_joining(self, atom: Leaf) -> bool:
        if not isinstance(atom, Member) or not self._asked.path(atom.target):
            return False
        return self._asked.program.entities[atom.target.type].principal != "group"

    def _objects(self) -> dict[str, Entity]:
        return {RESOURCE: self.request.resource, **{w.name: self.request.with_[w.name] for w in self.rule.withs}}


class _Joining(SinglePrincipalSets):
    """Principals with some memberships taken for granted."""

    joined: Collection[Atom] = ()

    def joining(self, memberships: Collection[Atom]) -> _Joining:
        """Take these memberships for granted."""
        self.joined = memberships
        self._seen.clear()
        return self

    def atom(self, atom: Atom) -> set[str] | None:
        """The bearers for whom an atom holds."""
        return None if atom in self.joined else super().atom(atom)


def who_can(reference: Reference, state: State, request: Request) -> WhoCan:
    """Who may do what `request` asks for, regardless of its user; `state` is the one that the reference was built from.

    Raises InvalidRequest if the request uses names that the policy does not know.
    """
    return WhoCan(reference, state, request)


def _smallest(ways: Iterable[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    kept: list[frozenset[str]] = []
    for way in sorted(set(ways), key=lambda w: (len(w), sorted(w))):
        if not any(known <= way for known in kept):
            kept.append(way)
    return tuple(tuple(sorted(way)) for way in kept)
