"""Who may do one thing: by the state's rows from the object back to its principals, and not user by user.

A condition has no negation, so the users for whom it holds are unions and intersections of the users for whom its atoms
hold; those are few look-ups each. What is told of a single user comes from the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from privtab.analysis.bearers import PrincipalBearers, UserBearers
from privtab.analysis.caller import Caller
from privtab.analysis.universe import users
from privtab.ir.canonical import Leaf, Listing, canonical
from privtab.ir.nodes import RESOURCE, Member, Rule
from privtab.reference.evaluate import Asked, Reference
from privtab.reference.explain import Explanation
from privtab.request import Entity, Request
from privtab.state.nodes import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """One thing that a user needed and has: the atom, the entity that gives it, and the principal.

    `via`: the group by which they hold the role that gives it, unless they hold it themselves.
    """

    atom: str
    on: str | None
    through: str
    via: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A user in person, a group, or a role: enough for who holds nothing else, but for `needs`.

    `needs`: memberships that no group or role can bring, each set a way of its own; one empty set where nothing is needed.
    """

    principal: str
    scope: str | None
    needs: tuple[tuple[str, ...], ...]


class WhoCan:
    """The answer for one operation on one object. `users` are sorted; `anyone`: also who is not named anywhere."""

    def __init__(self, reference: Reference, state: State, request: Request) -> None:
        reference.vocabulary.check_question(request)
        program = reference.program
        self.request = request
        self.rule: Rule = program.rules[request.resource.type, request.action]
        self._asked = Asked(reference, request)
        self._reference = reference
        self._state = state
        self._condition = self._asked.condition(self.rule)
        self._users = UserBearers(self._asked, state)
        found = self._users.fold(self._condition)
        self.known: frozenset[str] = users(program, state)
        self.anyone: bool = found is None
        self.users: tuple[str, ...] = tuple(sorted(self.known if found is None else found))

    def through(self, user: str) -> tuple[Through, ...]:
        """What one of the users is allowed by: the first minimal set that holds for them; empty where none does."""
        caller = Caller(self._reference, user, flags=self.request.flags)
        caller.about(self._objects())
        explained = Explanation(caller, self.rule, Listing(self._sets()), allowed=True)
        return tuple(
            Through(
                atom=reason["atom"],
                on=reason.get("on"),
                through=reason["through"],
                via=self._users.via(user, reason["through"].removeprefix("owner ")),
            )
            for reason in explained.reasons()
        )

    def principals(self) -> tuple[Principal, ...]:
        """Each group, each role and each user in person that suffices; first `anyone`, where no principal is needed.

        What `anyone` may is not repeated for the others.
        """
        bearers = PrincipalBearers(self._asked, self._state)
        ways: dict[str, set[frozenset[str]]] = defaultdict(set)
        text = Explanation(self._asked, self.rule, Listing(()), allowed=False).text
        for atoms in self._sets():
            joined = [a for a in atoms if self._is_joining(a)]
            rest = bearers.all_of(bearers.fold(a) for a in atoms if not self._is_joining(a))
            needs = frozenset(map(text, joined))
            for bearer in {"anyone"} if rest is None else rest:
                if not bearer.startswith("user:"):
                    ways[bearer].add(needs)
            in_person = bearers.all_of(map(bearers.fold, atoms))
            for bearer in in_person or ():
                if bearer.startswith("user:"):
                    ways[bearer].add(frozenset())
        by_all = ways.get("anyone", set())
        found = [
            Principal(principal=name, scope=scope or None, needs=_smallest(needs))
            for bearer, all_needs in ways.items()
            for name, _, scope in [bearer.partition("\n")]
            for needs in [{way for way in all_needs if bearer == "anyone" or not any(known <= way for known in by_all)}]
            if needs
        ]
        order = ("anyone", "group", "role", "user")
        return tuple(
            sorted(found, key=lambda p: (order.index(p.principal.partition(":")[0]), p.principal, p.scope or ""))
        )

    def _is_joining(self, atom: Leaf) -> bool:
        if not isinstance(atom, Member) or not self._asked.path(atom.target):
            return False
        return self._asked.program.entities[atom.target.type].principal != "group"

    def _objects(self) -> dict[str, Entity]:
        return {RESOURCE: self.request.resource, **{w.name: self.request.with_[w.name] for w in self.rule.withs}}

    def _sets(self) -> tuple[tuple[Leaf, ...], ...]:
        types = {w.name: self._asked.types[w.name] for w in self.rule.withs}
        return canonical(self._asked.program).minimal_sets(self._condition, self._asked.flags, types)


def who_can(reference: Reference, state: State, request: Request) -> WhoCan:
    """Who may do what `request` asks, whoever its user is; `state` is the one that the reference was made of.

    Raises InvalidRequest where the request names what the policy does not know.
    """
    return WhoCan(reference, state, request)


def _smallest(ways: Iterable[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    kept: list[frozenset[str]] = []
    for way in sorted(set(ways), key=lambda w: (len(w), sorted(w))):
        if not any(known <= way for known in kept):
            kept.append(way)
    return tuple(tuple(sorted(way)) for way in kept)
