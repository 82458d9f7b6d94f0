"""The rows behind a caller's holdings: from the grant or ownership back to the user."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import field
from typing import Any, Literal, TypeAlias, assert_never

from privtab.base import ANY_PRIVILEGE, Entity, Window, dataclass
from privtab.ir import Atom, Compare, Has, Term, value_text
from privtab.reference import EvaluationContext, Source
from privtab.state import ROLE_PREFIX, Grant, Places, RowLocation, State, StateNames, attribute_texts
from privtab_analysis.row_sentences import row_sentence

StepKind: TypeAlias = Literal[
    "grant",
    "deny",
    "owner",
    "assignment",
    "membership",
    "member",
    "service admin",
    "role",
    "request",
    "everyone",
    "self",
    "attribute",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceStep:
    """One link: a row of the state (with its position, if known), a declared role, or a group of the request."""

    kind: StepKind
    text: str
    place: RowLocation | None = None
    window: Window = field(default_factory=Window)
    """The time in which the row holds, which is also in the text."""
    ends: tuple[str, str] | None = None
    """From which principal to which principal, entity or service it leads; None for a value."""


Chain: TypeAlias = tuple[ProvenanceStep, ...]
"""The links from a right on the object back to the user, in order."""
_Row: TypeAlias = tuple[str, str | None, ProvenanceStep]
"""A row that puts a principal into a group or gives it a role: the principal, the scope, and the link."""
_Reached: TypeAlias = tuple[str, bool]
"""A principal of the caller, and whether it counts: a role counts if it, or a role through which it is held, is active."""


class Provenance:
    """The rows of a state that concern one caller."""

    def __init__(self, evaluation: EvaluationContext, state: State, places: Places = Places.NONE) -> None:
        self.evaluation = evaluation
        self.program = evaluation.program
        self.state = state
        self.places = places
        names = StateNames(evaluation.program)
        user = evaluation.user
        self._takes_groups = "state" in self.program.semantics.groups
        self._rows: dict[str, list[_Row]] = defaultdict(list)
        """For each group and role of the caller, the rows by which they are in it or hold it, with the holders in these rows."""
        self._shortest: dict[tuple[frozenset[str], bool], Mapping[_Reached, Chain]] = {}
        self.every_link = False
        """As in `about`."""
        self._link({f"user:{user}"})
        request_groups = sorted(evaluation.request_groups)
        in_state = set(self._rows)
        for group in request_groups:
            text = f"the request says that {user} is in group:{group}"
            step = ProvenanceStep(kind="request", text=text, ends=(f"user:{user}", f"group:{group}"))
            self._rows[f"group:{group}"].append((f"user:{user}", None, step))
        for group in self.program.semantics.everyones:
            ends = (f"user:{user}", f"group:{group}")
            step = ProvenanceStep(kind="everyone", text=f"every user is in group:{group}", ends=ends)
            self._rows[f"group:{group}"].append((f"user:{user}", None, step))
        self._link({f"group:{group}" for group in (*request_groups, *self.program.semantics.everyones)} - in_state)
        all_principals = {f"user:{user}", *self._rows}
        self._grants: dict[tuple[Literal["allow", "deny"], str, str], list[tuple[Grant, ProvenanceStep]]] = defaultdict(
            list
        )
        for row in state.column("grants", "grantee").where(all_principals):
            grant = state.grants[row]
            cells = {"grantee": grant.grantee, "effect": grant.effect, "privilege": grant.privilege}
            text = row_sentence("grants", cells | {"entity": str(grant.entity)})
            kind: StepKind = "grant" if grant.effect == "allow" else "deny"
            named = names.privileges(grant.privilege) or ()
            for privilege in names.privileges_of(grant.privilege, grant.entity.type, grant.effect):
                is_plain = privilege in named or privilege == ANY_PRIVILEGE
                privilege_text = text if is_plain else f"{text} (which implies {privilege})"
                self._grants[grant.effect, privilege, str(grant.entity)].append(
                    (grant, self._step(kind, privilege_text, "grants", row, (grant.grantee, str(grant.entity))))
                )
        self._owners: dict[str, list[tuple[str, ProvenanceStep]]] = defaultdict(list)
        for row in state.column("owners", "owner").where(all_principals):
            entity, owner = state.owners[row]
            text = row_sentence("owners", {"entity": str(entity), "owner": owner})
            step = self._step("owner", text, "owners", row, (owner, str(entity)))
            self._owners[str(entity)].append((owner, step))

    def about(self, evaluation: EvaluationContext, *, every_link: bool = False) -> Provenance:
        """The same for another request of the caller, with the same groups and active roles.

        `every_link`: chains then have all rows through which the caller is a principal, in any order, and not only the rows of the shortest way.
        """
        found = copy(self)
        found.evaluation, found.every_link = evaluation, every_link
        return found

    def _link(self, principals: set[str]) -> None:
        """Collect the rows about some principals of the caller, and about the principals that the rows give them."""
        state, nested = self.state, "groups" in self.program.semantics.hierarchy
        waiting = principals
        while waiting:
            before = set(self._rows)
            members = {p[5:] for p in waiting if p.startswith("user:")} if self._takes_groups else set()
            members |= {p for p in waiting if nested and p.startswith("group:")}
            for row in state.column("memberships", "user").where(members):
                member, group = state.memberships[row]
                text = row_sentence("memberships", {"user": member, "group": group})
                holder = member if member.startswith("group:") else f"user:{member}"
                step = self._step("membership", text, "memberships", row, (holder, f"group:{group}"))
                self._rows[f"group:{group}"].append((holder, None, step))
            for row in state.column("assignments", "principal").where(waiting):
                assignment = state.assignments[row]
                cells = {"principal": assignment.principal, "role": assignment.role}
                scope = None if assignment.scope is None else str(assignment.scope)
                text = row_sentence("assignments", cells | ({} if scope is None else {"scope": scope}))
                ends = (assignment.principal, f"role:{assignment.role}")
                step = self._step("assignment", text, "assignments", row, ends)
                self._rows[f"role:{assignment.role}"].append((assignment.principal, scope, step))
            waiting = set(self._rows) - before

    def of(self, atom: Atom) -> tuple[Chain, ...]:
        """Every chain through which an atom holds for the caller; empty if it does not hold."""
        if isinstance(atom, Compare):
            return (tuple(self._values(atom)),) if self.evaluation.compares(atom) else ()
        return self._chains_of(self.evaluation.sources(atom))

    def granted(self, atom: Has) -> tuple[Chain, ...]:
        """Every grant of a privilege that counts on an object, nearest first, denied or not."""
        return self._chains_of(self.evaluation.grants(atom.privilege, self.evaluation.path(atom.target)))

    def _chains_of(self, sources: Iterable[Source]) -> tuple[Chain, ...]:
        """The chains from rows of sources, each once, since sources below one entity share its chains."""
        return tuple(dict.fromkeys(chain for source in sources for chain in self._chains_from(source)))

    def _chains_from(self, source: Source) -> Iterator[Chain]:
        match source.kind:
            case "self":
                user = self.evaluation.user
                yield (ProvenanceStep(kind="self", text=f"that is {user}", ends=(f"user:{user}", source.on or user)),)
            case "service admin" | "member":
                yield from ((step,) for step in self._own_rows(source))
            case "group":
                yield from (chain for group in sorted(source.principals) for chain in self._to_caller(group, ()))
            case "role":
                yield from (chain for role in sorted(source.principals) for chain in self._holding_chains(role))
            case "owner" | "grant" | "default":
                active = source.kind != "owner" or not self.program.semantics.inactive_owners
                for principal, step in self._giving(source):
                    if principal in source.principals:
                        for chain in self._to_caller(principal, source.within, active=active):
                            yield (step, *chain)
            case "attribute":
                raise AssertionError("comparisons have values, not principals")
            case _:
                assert_never(source.kind)

    def _giving(self, source: Source) -> Iterable[tuple[str, ProvenanceStep]]:
        """The rows and declarations by which principals hold something on an entity."""
        if source.kind == "owner":
            return self._owners.get(source.key, ())
        if source.kind == "grant":
            grants = self._grants.get(("allow", source.privilege, source.key), ())
            return [(grant.grantee, step) for grant, step in grants]
        declared = f"has {source.privilege} at {source.key} by its declaration"
        return [
            (role, ProvenanceStep(kind="role", text=f"{role} {declared}", ends=(role, source.key)))
            for role in sorted(source.principals)
        ]

    def _own_rows(self, source: Source) -> Iterator[ProvenanceStep]:
        """The rows that name the user."""
        user = self.evaluation.user
        if source.kind == "member":
            for row, entity in self._rows_of("members", "user", {user}, "of"):
                if entity == source.on:
                    text = row_sentence("members", {"user": user, "of": entity})
                    yield self._step("member", text, "members", row, (f"user:{user}", entity))
            return
        for row in self.state.column("service_admins", "user").where([user]):
            text = row_sentence("service_admins", {"user": user})
            yield self._step("service admin", text, "service_admins", row, (f"user:{user}", "service"))

    def denied(self, privilege: str, path: tuple[str, ...]) -> tuple[tuple[Grant, Chain], ...]:
        """Every denial that blocks a privilege on the last of the keys: its row, and the chain from it to the caller."""
        denials = self.evaluation.denials_on(privilege, path)
        return tuple(
            (grant, (step, *chain))
            for key in dict.fromkeys(key for key, _ in denials)
            for grant, step in self._grants.get(("deny", privilege, key), ())
            for chain in self._to_caller(grant.grantee, path)
        )

    def _values(self, compare: Compare) -> Iterator[ProvenanceStep]:
        """The sources of the values of a comparison that holds: rows of the state, or the request."""
        found: dict[Term, Any] = {term: self.evaluation.value(term) for term in compare.terms}
        for term, value in found.items():
            holder = self.evaluation.holder(term)
            if holder is None or self.evaluation.sent(term) is not None:
                text = f"the request says that {self.evaluation.term_text(term)} is {value_text(value)}"
                yield ProvenanceStep(kind="attribute", text=text)
                continue
            # Of a set, the row with the value that is in it.
            word = compare.right[0] if isinstance(compare.right, tuple) else found[compare.left]
            shown = attribute_texts(value if isinstance(value, str | int) else word)
            for row, attribute in self._rows_of("attributes", holder[0], {holder[1]}, "attribute"):
                text = self.state.attributes[row].value
                if attribute == term.attribute and text in shown:
                    cells = {holder[0]: holder[1], "attribute": attribute, "value": text}
                    yield self._step("attribute", row_sentence("attributes", cells), "attributes", row)

    def _holding_chains(self, role: str) -> Iterable[Chain]:
        """The chains by which the caller holds a role anywhere, one for each row that gives it."""
        scopes = [scope for scoped_role, scope in self.evaluation.scoped if scoped_role == role]
        keys = self.evaluation.holdings.locations.keys
        paths = [(), *(keys(Entity.parse(scope)) for scope in scopes)]
        found = {chain[0]: chain for path in reversed(paths) for chain in self._to_caller(role, path)}
        steps = [step for _, _, step in self._rows[role]]
        return (found[step] for step in steps if step in found)

    def _to_caller(self, principal: str, path: Iterable[str], *, active: bool = False) -> Iterator[Chain]:
        """The chains by which the caller is a principal: one for each row that gives it; scopes count only if they are on the path.

        `active`: only chains that pass an active role, if the request names active roles and the principal is a role.
        """
        if principal == f"user:{self.evaluation.user}":
            yield ()
        names = self.evaluation.active_roles if active else None
        shortest = self._chains(frozenset(path), active=active)
        for holder, scope, step in self._rows.get(principal, ()):
            chains = [
                shortest[holder, counts]
                for counts in (True, False)
                if (holder, counts) in shortest and _counts(holder, principal, names, counts=counts)
            ]
            if (scope is None or scope in path) and chains:
                nearest = min(chains, key=len)
                yield (step, *(self._links(holder, shortest, path) if self.every_link else nearest))

    def _links(self, principal: str, reached: Collection[_Reached], path: Iterable[str]) -> Iterable[ProvenanceStep]:
        """Every row on some way from a principal to the caller."""
        found: dict[ProvenanceStep, None] = {}
        waiting, seen = [principal], {principal}
        while waiting:
            for holder, scope, step in self._rows.get(waiting.pop(), ()):
                if (scope is None or scope in path) and ((holder, True) in reached or (holder, False) in reached):
                    found[step] = None
                    if holder not in seen:
                        seen.add(holder)
                        waiting.append(holder)
        return found

    def _chains(self, path: frozenset[str], *, active: bool) -> Mapping[_Reached, Chain]:
        """The shortest chain by which the caller is each of their principals; of two, the one whose first row comes first."""
        found = self._shortest.get((path, active))
        names = self.evaluation.active_roles if active else None
        if found is None:
            found = {}
            more: dict[_Reached, Chain] = {(f"user:{self.evaluation.user}", True): ()}
            while more:
                found = {**found, **more}
                more = {
                    reached: (step, *found[holder, counts])
                    for principal, rows in self._rows.items()
                    for holder, scope, step in reversed(rows)
                    if scope is None or scope in path
                    for counts in (True, False)
                    if (holder, counts) in found
                    and (reached := (principal, _counts(holder, principal, names, counts=counts))) not in found
                }
            self._shortest[path, active] = found
        return found

    def _rows_of(self, table: str, column: str, texts: set[str], other: str) -> Iterator[tuple[int, str]]:
        """The rows with any of the texts in one column, and their texts in another."""
        rows = self.state.column(table, column).where(texts)
        return zip(rows, map(str, self.state.column(table, other).take(rows)), strict=True)

    def _step(
        self, kind: StepKind, text: str, table: str, number: int, ends: tuple[str, str] | None = None
    ) -> ProvenanceStep:
        window = self.places.window(table, number)
        text = text if window == Window() else f"{text}, {window.describe()}"
        return ProvenanceStep(kind=kind, text=text, place=self.places.of(table, number), window=window, ends=ends)


def _counts(holder: str, principal: str, active: Collection[str] | None, *, counts: bool) -> bool:
    """Return whether a principal counts that is reached by a holder that does or does not; None: every role is active."""
    if active is None or not principal.startswith(ROLE_PREFIX):
        return True
    return principal.removeprefix(ROLE_PREFIX) in active or (holder.startswith(ROLE_PREFIX) and counts)
