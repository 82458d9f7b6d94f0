"""The rows through which a caller holds what they hold: from the grant or ownership back to the user."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from privtab.ir.nodes import Atom, Has, Holds, Member, Owner, Self, ServiceAdmin, Target
from privtab.moments import ALWAYS, Window, shown
from privtab.names import path_of, refers_to
from privtab.reference.evaluate import EvaluationContext
from privtab.state.names import StateNames
from privtab.state.nodes import Assignment, Effect, Grant, RowLocation, State
from privtab.state.places import NOWHERE, Places
from privtab.state.wording import row_text

StepKind: TypeAlias = Literal[
    "grant", "deny", "owner", "assignment", "membership", "member", "service admin", "role", "request", "self"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One link: a row of the state (with its position, if known), a declared role, or a group of the request."""

    kind: StepKind
    text: str
    place: RowLocation | None = None
    window: Window = ALWAYS
    """When the row holds; it is in the text, too."""


Chain: TypeAlias = tuple[Step, ...]
"""The links from a right on the object back to the user, in order."""


class Provenance:
    """The rows of a state that concern one caller."""

    def __init__(self, asked: EvaluationContext, state: State, places: Places = NOWHERE) -> None:
        self.asked = asked
        self.program = asked.program
        self.state = state
        self.places = places
        names = StateNames(asked.program)
        user = asked.user
        self._groups: dict[str, list[Step]] = defaultdict(list)
        if "state" in self.program.semantics.groups:
            for n, group in self._rows_of("memberships", "user", {user}, "group"):
                self._groups[group].append(
                    self._step("membership", row_text("memberships", {"user": user, "group": group}), "memberships", n)
                )
        for group in sorted(asked.groups - set(self._groups)):
            self._groups[group].append(Step(kind="request", text=f"the request says that {user} is in group:{group}"))
        own = {f"user:{user}", *(f"group:{group}" for group in asked.groups)}
        self._roles: dict[str, list[tuple[Assignment, Step]]] = defaultdict(list)
        for n in state.column("assignments", "principal").where(own):
            a = state.assignments[n]
            cells = {"principal": a.principal, "role": a.role} | ({} if a.scope is None else {"scope": str(a.scope)})
            step = self._step("assignment", row_text("assignments", cells), "assignments", n)
            self._roles[f"role:{a.role}"].append((a, step))
        everything = own | set(self._roles)
        self._grants: dict[tuple[Effect, str, str], list[tuple[Grant, Step]]] = defaultdict(list)
        for n in state.column("grants", "grantee").where(everything):
            grant = state.grants[n]
            cells = {"grantee": grant.grantee, "effect": grant.effect, "privilege": grant.privilege}
            text = row_text("grants", cells | {"entity": str(grant.entity)})
            kind: StepKind = "grant" if grant.effect == "allow" else "deny"
            for privilege in names.given(grant.privilege, grant.entity.type):
                self._grants[grant.effect, privilege, str(grant.entity)].append(
                    (grant, self._step(kind, text, "grants", n))
                )
        self._owners: dict[str, list[tuple[str, Step]]] = defaultdict(list)
        for n in state.column("owners", "owner").where(everything):
            entity, owner = state.owners[n]
            step = self._step("owner", row_text("owners", {"entity": str(entity), "owner": owner}), "owners", n)
            self._owners[str(entity)].append((owner, step))

    def of(self, atom: Atom) -> tuple[Chain, ...]:
        """Every chain through which an atom holds for the caller; empty if it does not hold."""
        match atom:
            case Has():
                return (*self._owning(atom), *(() if self.denied(atom) else self.granted(atom)))
            case Owner():
                path = self.asked.path(atom.target)
                return tuple(self._owned(path[-1])) if path else ()
            case Member():
                return tuple(self._joined(atom.target))
            case Holds():
                path = self.asked.path(atom.target)
                named = [
                    role
                    for role in sorted(self._roles)
                    if path and refers_to(role.removeprefix("role:"), path_of(path[-1]))
                ]
                return tuple(
                    chain for role in named for a, step in self._roles[role] for chain in self._behind(a, step)
                )
            case Self():
                is_self = self.asked.is_self(atom.target)
                return ((Step(kind="self", text=f"that is {self.asked.user}"),),) if is_self else ()
            case ServiceAdmin():
                rows = self.state.column("service_admins", "user").where([self.asked.user])
                text = row_text("service_admins", {"user": self.asked.user})
                return tuple((self._step("service admin", text, "service_admins", n),) for n in rows)
            case _:
                assert_never(atom)

    def granted(self, atom: Has) -> tuple[Chain, ...]:
        """Every grant of a privilege that counts on an object, nearest first, denied or not."""
        path = self.asked.path(atom.target)
        found: list[Chain] = []
        for key in reversed(self.asked.looked_at(path)):
            found += self._rows("allow", atom.privilege, key, path)
            for role in sorted(self.asked.by_default(atom.privilege, path, key)):
                text = f"{role} has {atom.privilege} at {key} by its declaration"
                step = Step(kind="role", text=text)
                found += [(step, *chain) for chain in self._as(role, path[: path.index(key) + 1])]
        return tuple(found)

    def denied(self, atom: Has) -> tuple[tuple[Grant, Chain], ...]:
        """Every denial that blocks a privilege on an object: its row, and the chain from it to the caller."""
        path = self.asked.path(atom.target)
        if self.program.semantics.deny != "overrides":
            return ()
        return tuple(
            (grant, (step, *chain))
            for key in self.asked.looked_at(path)
            for grant, step in self._grants.get(("deny", atom.privilege, key), ())
            for chain in self._as(grant.grantee, path)
        )

    def _owning(self, atom: Has) -> Iterator[Chain]:
        owner = self.program.semantics.owner
        if owner is not None and atom.privilege in owner.holds:
            for key in reversed(self.asked.looked_at(self.asked.path(atom.target))):
                yield from self._owned(key)

    def _rows(self, effect: Effect, privilege: str, key: str, path: tuple[str, ...]) -> Iterator[Chain]:
        for grant, step in self._grants.get((effect, privilege, key), ()):
            for chain in self._as(grant.grantee, path):
                yield (step, *chain)

    def _owned(self, key: str) -> Iterator[Chain]:
        for owner, step in self._owners.get(key, ()):
            for chain in self._as(owner, ()):
                yield (step, *chain)

    def _as(self, principal: str, path: Iterable[str]) -> Iterator[Chain]:
        """The chains by which the caller is a principal; scoped roles count only if the scope is on the path."""
        kind, _, name = principal.partition(":")
        if kind == "role":
            for a, step in self._roles.get(principal, ()):
                if a.scope is None or str(a.scope) in path:
                    yield from self._behind(a, step)
        elif kind == "group":
            yield from ((step,) for step in self._groups.get(name, ()))
        else:
            yield ()

    def _behind(self, assignment: Assignment, step: Step) -> Iterator[Chain]:
        for chain in self._as(assignment.principal, ()):
            yield (step, *chain)

    def _joined(self, target: Target) -> Iterator[Chain]:
        path = self.asked.path(target)
        if not path:
            return
        user = self.asked.user
        for n, entity in self._rows_of("members", "user", {user}, "of"):
            if entity == path[-1]:
                yield (self._step("member", row_text("members", {"user": user, "of": entity}), "members", n),)
        if self.program.entities[target.type].principal == "group":
            for group, steps in sorted(self._groups.items()):
                if refers_to(group, path_of(path[-1])):
                    yield from ((step,) for step in steps)

    def _rows_of(self, table: str, column: str, texts: set[str], other: str) -> Iterator[tuple[int, str]]:
        """The rows with any of these texts in one column, and what they have in another."""
        rows = self.state.column(table, column).where(texts)
        return zip(rows, map(str, self.state.column(table, other).take(rows)), strict=True)

    def _step(self, kind: StepKind, text: str, table: str, number: int) -> Step:
        window = self.places.window(table, number)
        text = text if window == ALWAYS else f"{text}, {shown(window)}"
        return Step(kind=kind, text=text, place=self.places.of(table, number), window=window)
