"""The rows through which a caller holds what they hold: from the grant or ownership back to the user."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from privtab.ir.nodes import Atom, Has, HasBelow, Holds, Member, Owner, OwnsBelow, Self, ServiceAdmin, Target
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

    def __init__(self, evaluation: EvaluationContext, state: State, places: Places = NOWHERE) -> None:
        self.evaluation = evaluation
        self.program = evaluation.program
        self.state = state
        self.places = places
        names = StateNames(evaluation.program)
        user = evaluation.user
        self._groups: dict[str, list[Step]] = defaultdict(list)
        if "state" in self.program.semantics.groups:
            for row, group in self._rows_of("memberships", "user", {user}, "group"):
                self._groups[group].append(
                    self._step(
                        "membership", row_text("memberships", {"user": user, "group": group}), "memberships", row
                    )
                )
        for group in sorted(evaluation.groups - set(self._groups)):
            self._groups[group].append(Step(kind="request", text=f"the request says that {user} is in group:{group}"))
        direct_principals = {f"user:{user}", *(f"group:{group}" for group in evaluation.groups)}
        self._roles: dict[str, list[tuple[Assignment, Step]]] = defaultdict(list)
        for row in state.column("assignments", "principal").where(direct_principals):
            assignment = state.assignments[row]
            cells = {"principal": assignment.principal, "role": assignment.role} | (
                {} if assignment.scope is None else {"scope": str(assignment.scope)}
            )
            step = self._step("assignment", row_text("assignments", cells), "assignments", row)
            self._roles[f"role:{assignment.role}"].append((assignment, step))
        all_principals = direct_principals | set(self._roles)
        self._grants: dict[tuple[Effect, str, str], list[tuple[Grant, Step]]] = defaultdict(list)
        for row in state.column("grants", "grantee").where(all_principals):
            grant = state.grants[row]
            cells = {"grantee": grant.grantee, "effect": grant.effect, "privilege": grant.privilege}
            text = row_text("grants", cells | {"entity": str(grant.entity)})
            kind: StepKind = "grant" if grant.effect == "allow" else "deny"
            named = names.privileges(grant.privilege) or ()
            for privilege in names.given(grant.privilege, grant.entity.type, grant.effect):
                said = text if privilege in named else f"{text} (which implies {privilege})"
                self._grants[grant.effect, privilege, str(grant.entity)].append(
                    (grant, self._step(kind, said, "grants", row))
                )
        self._owners: dict[str, list[tuple[str, Step]]] = defaultdict(list)
        for row in state.column("owners", "owner").where(all_principals):
            entity, owner = state.owners[row]
            step = self._step("owner", row_text("owners", {"entity": str(entity), "owner": owner}), "owners", row)
            self._owners[str(entity)].append((owner, step))

    def of(self, atom: Atom) -> tuple[Chain, ...]:
        """Every chain through which an atom holds for the caller; empty if it does not hold."""
        match atom:
            case Has():
                return (*self._owner_chains(atom), *(() if self.denied(atom) else self.granted(atom)))
            case Owner():
                path = self.evaluation.path(atom.target)
                return tuple(self._ownership_chains(path[-1])) if path else ()
            case Member():
                return tuple(self._member_chains(atom.target))
            case Holds():
                path = self.evaluation.path(atom.target)
                roles = [
                    role
                    for role in sorted(self._roles)
                    if path and refers_to(role.removeprefix("role:"), path_of(path[-1]))
                ]
                return tuple(
                    chain
                    for role in roles
                    for assignment, step in self._roles[role]
                    for chain in self._assignment_chains(assignment, step)
                )
            case Self():
                is_self = self.evaluation.is_self(atom.target)
                return ((Step(kind="self", text=f"that is {self.evaluation.user}"),),) if is_self else ()
            case HasBelow():
                return tuple(dict.fromkeys(self._below_chains(atom.privilege, atom.target)))
            case OwnsBelow():
                paths = self.evaluation.paths_from(atom.target)
                return tuple(chain for path in paths for chain in self._ownership_chains(path[-1]))
            case ServiceAdmin():
                rows = self.state.column("service_admins", "user").where([self.evaluation.user])
                text = row_text("service_admins", {"user": self.evaluation.user})
                return tuple((self._step("service admin", text, "service_admins", row),) for row in rows)
            case _:
                assert_never(atom)

    def granted(self, atom: Has) -> tuple[Chain, ...]:
        """Every grant of a privilege that counts on an object, nearest first, denied or not."""
        path = self.evaluation.path(atom.target)
        found: list[Chain] = []
        for key in reversed(self.evaluation.relevant_keys(path)):
            found += self._grant_chains("allow", atom.privilege, key, path)
            for role in sorted(self.evaluation.default_roles(atom.privilege, path, key)):
                text = f"{role} has {atom.privilege} at {key} by its declaration"
                step = Step(kind="role", text=text)
                found += [(step, *chain) for chain in self._to_caller(role, path[: path.index(key) + 1])]
        return tuple(found)

    def denied(self, atom: Has) -> tuple[tuple[Grant, Chain], ...]:
        """Every denial that blocks a privilege on an object: its row, and the chain from it to the caller."""
        path = self.evaluation.path(atom.target)
        if self.program.semantics.deny != "overrides":
            return ()
        return tuple(
            (grant, (step, *chain))
            for key in self.evaluation.relevant_keys(path)
            for grant, step in self._grants.get(("deny", atom.privilege, key), ())
            for chain in self._to_caller(grant.grantee, path)
        )

    def _below_chains(self, privilege: str, target: Target) -> Iterator[Chain]:
        """Every chain to a privilege on an object or on an entity below it."""
        owner = self.program.semantics.owner
        for path in self.evaluation.paths_from(target):
            denied = self.evaluation.denials_on(privilege, path)
            for key in reversed(self.evaluation.relevant_keys(path)):
                if owner is not None and privilege in owner.holds:
                    yield from self._ownership_chains(key)
                if not denied:
                    yield from self._grant_chains("allow", privilege, key, path)

    def _owner_chains(self, atom: Has) -> Iterator[Chain]:
        owner = self.program.semantics.owner
        if owner is not None and atom.privilege in owner.holds:
            for key in reversed(self.evaluation.relevant_keys(self.evaluation.path(atom.target))):
                yield from self._ownership_chains(key)

    def _grant_chains(self, effect: Effect, privilege: str, key: str, path: tuple[str, ...]) -> Iterator[Chain]:
        for grant, step in self._grants.get((effect, privilege, key), ()):
            for chain in self._to_caller(grant.grantee, path):
                yield (step, *chain)

    def _ownership_chains(self, key: str) -> Iterator[Chain]:
        for owner, step in self._owners.get(key, ()):
            for chain in self._to_caller(owner, ()):
                yield (step, *chain)

    def _to_caller(self, principal: str, path: Iterable[str]) -> Iterator[Chain]:
        """The chains by which the caller is a principal; scoped roles count only if the scope is on the path."""
        kind, _, name = principal.partition(":")
        if kind == "role":
            for assignment, step in self._roles.get(principal, ()):
                if assignment.scope is None or str(assignment.scope) in path:
                    yield from self._assignment_chains(assignment, step)
        elif kind == "group":
            yield from ((step,) for step in self._groups.get(name, ()))
        else:
            yield ()

    def _assignment_chains(self, assignment: Assignment, step: Step) -> Iterator[Chain]:
        for chain in self._to_caller(assignment.principal, ()):
            yield (step, *chain)

    def _member_chains(self, target: Target) -> Iterator[Chain]:
        path = self.evaluation.path(target)
        if not path:
            return
        user = self.evaluation.user
        for row, entity in self._rows_of("members", "user", {user}, "of"):
            if entity == path[-1]:
                yield (self._step("member", row_text("members", {"user": user, "of": entity}), "members", row),)
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
