"""Exact comparison where an entity type lies elsewhere in the other program, at the same depth."""

from __future__ import annotations

from collections.abc import Iterator

from privtab.ir.exact import Exact
from privtab.ir.facts import Assigned, Fact, Granted
from privtab.ir.nodes import Program, Target


class ExactWhereMoved(Exact):
    """As `Exact`, which takes what lies above an object here to lie above it there.

    Where it does not, a grant further up, or a role that is assigned further up, gives here what it does not give there: it
    is a way of its own.
    """

    def _granted(self, privilege: str, target: Target) -> Iterator[Fact]:
        yield from super()._granted(privilege, target)
        for at in self.here.looked_at(target):
            if not self._lies_above_there(at, target) and privilege in self.here.given(privilege, at.type):
                for carrier in self._carriers():
                    yield Granted(effect="allow", name=privilege, target=at, carrier=carrier)

    def _by_role(self, privilege: str, target: Target) -> Iterator[Fact]:
        yield from super()._by_role(privilege, target)
        for role in self.one.roles.values():
            for scope in (None, *self.here.path(target)):
                if scope is not None and self._lies_above_there(scope, target):
                    continue
                assigned = Assigned(role=role.name, scope=scope)
                given = any(self.here.by_default(privilege, at, assigned) for at in self.here.looked_at(target))
                if self.here.fits(assigned) and given:
                    for carrier in self._carriers():
                        yield Assigned(role=role.name, scope=scope, carrier=carrier)

    def _lies_above_there(self, at: Target, target: Target) -> bool:
        """Whether `at` is on the path of `target` in the other program too."""
        return target.type in self.other.entities and at in self.there.path(target)


def exact_between(one: Program, other: Program) -> Exact:
    """The comparison that fits two programs."""
    known = one.entities.keys() & other.entities.keys()
    moved = any(one.chain(type_) != other.chain(type_) for type_ in known)
    return ExactWhereMoved(one, other) if moved else Exact(one, other)
