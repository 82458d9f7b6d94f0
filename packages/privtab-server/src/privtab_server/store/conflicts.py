"""Separation of duties: no change may let a user do more of the operations of a conflict than it permits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import time_ns

from privtab.base import Change, Entity, Request, listed_names
from privtab.ir import Program, vocabulary
from privtab.reference import Reference
from privtab.state import locations
from privtab_server.errors import StoreConflict
from privtab_server.store.authority import holder_of
from privtab_server.store.excerpt import Excerpt

ANY = "…"
"""The name of an entity that no row names: what is held on all entities of a type is held on it."""
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Violation:
    """More operations of a conflict than a user may do within one entity."""

    user: str
    conflict: int
    """Its position among those of the policy."""
    at_most: int
    why: str | None
    within: str
    operations: tuple[str, ...]
    through: tuple[str, ...]

    def __str__(self) -> str:
        """Name the user, the operations, the principals that give them, and the reason of the conflict."""
        why = f": {self.why.strip()}" if self.why else ""
        most = "" if self.at_most == 1 else f", of which {self.at_most} are permitted"
        where = f" in {self.within}" if self.within else ""
        return f"user:{self.user} could do {listed_names(self.operations)}{where}{most}, through {listed_names(self.through)}{why}"


def check_conflicts(program: Program, excerpt: Excerpt, changes: Sequence[Change]) -> None:
    """Raise StoreConflict if some changes let a user do more operations of a conflict than before, and than it permits.

    What counts is what the user could do on one entity, at any time from now on; for operations on entities of several types, within one
    entity of the nearest type that contains them all. Operations count as they do without flags, other objects and attributes of requests.
    """
    if not program.conflicts:
        return
    after = excerpt.after(changes)
    found: list[Violation] = []
    for user in sorted(after.users_of(_principals(changes))):
        known = {(v.conflict, v.within) for v in _violations(program, excerpt.another(), user)}
        found += [
            violation
            for violation in _violations(program, excerpt.after(changes), user)
            if (violation.conflict, violation.within) not in known
        ]
    if found:
        more = f"; and {len(found) - _MOST_SHOWN:,} more" if len(found) > _MOST_SHOWN else ""
        raise StoreConflict(f"the policy separates these duties: {'; '.join(map(str, found[:_MOST_SHOWN]))}{more}")


def _principals(changes: Iterable[Change]) -> Iterator[str]:
    """The principals that may hold more after some changes."""
    for change in changes:
        row = change.row or {}
        kind, name = holder_of(row)
        if name and (change.action == "add" or row.get("effect") == "deny"):
            yield f"{kind}:{name}"


def _violations(program: Program, excerpt: Excerpt, user: str) -> Iterator[Violation]:
    named = {
        text
        for row in excerpt.read_held(user)
        for text in (row.get("entity"), row.get("scope"), row.get("of"))
        if text is not None
    }
    where = locations(program, excerpt.state())
    paths = [keys for text in sorted(named) if (keys := where.find(Entity.parse(text)))]
    for conflict, declared in enumerate(program.conflicts):
        for within, objects in _objects(program, [type_ for type_, _ in declared.operations], paths).items():
            yield from _violated(program, excerpt, user, conflict, within, objects)


def _objects(program: Program, types: Sequence[str], paths: Sequence[Sequence[str]]) -> dict[str, dict[str, set[str]]]:
    """Return the entities on which operations could be done by type, for each entity within which operations are counted."""
    chains = [program.chain(type_) for type_ in types]
    common = [type_ for type_ in chains[0] if all(type_ in chain for chain in chains)]
    found: dict[str, dict[str, set[str]]] = {}
    for keys in (*paths, ()):
        within = _reached(program, keys, common[-1]) if common else ""
        if within is None:
            continue
        of_type = found.setdefault(within, {type_: set() for type_ in types})
        for type_ in types:
            reached = _reached(program, keys, type_)
            of_type[type_] |= {text for text in (reached, _below(program, within, type_) if within else None) if text}
    return found


def _reached(program: Program, keys: Sequence[str], type_: str) -> str | None:
    """The last entity of a type on a path, or one that lies below its end; None if there is none."""
    own = [key for key in keys if key.partition(":")[0] == type_]
    if own:
        return own[-1]
    return _below(program, keys[-1] if keys else "", type_)


def _below(program: Program, key: str, type_: str) -> str | None:
    """The entity of a type that no row names, in an entity or, for an empty key, anywhere; None if that is not its path."""
    holder, _, path = key.partition(":")
    chain = program.chain(type_)
    if key and holder not in chain:
        return None
    if holder == type_:
        return key
    names = path.split("/") if path else []
    for below in chain[chain.index(holder) + 1 if key else 0 :]:
        if program.entities[below].flat:
            return None
        if not program.entities[below].single:
            names.append(ANY)
    return f"{type_}:{'/'.join(names)}"


def _violated(
    program: Program, excerpt: Excerpt, user: str, conflict: int, within: str, objects: dict[str, set[str]]
) -> Iterator[Violation]:
    """The violation of a conflict within an entity, if there is one at some time."""
    declared = program.conflicts[conflict]
    requests = [
        (f"{type_}/{action}", Request(user=user, action=action, resource=Entity.parse(text)))
        for type_, action in declared.operations
        if not program.rules[type_, action].withs and not program.rules[type_, action].required_flags
        for text in sorted(objects[type_])
    ]
    for _, request in requests:
        vocabulary(program).check_question(request)
        excerpt.read_for(request)
    state = excerpt.state()
    now = time_ns()
    for moment in (now, *(edge for edge in state.edges() if edge > now)):
        reference = Reference(program, state.at(moment))
        through: dict[str, set[str]] = {}
        roles = tuple(sorted(reference.holdings.of_user(user)[2]))
        for operation, request in requests:
            if program.rules[request.resource.type, request.action].needs_active_role:
                if not roles:
                    continue
                request = replace(request, active_roles=roles)  # noqa: PLW2901  naming all of them is no narrower
            decision = reference.decide(request)
            if decision.allowed:
                reasons = decision.context.get("reasons", ())
                through.setdefault(operation, set()).update(str(reason["through"]) for reason in reasons)
        if len(through) > declared.at_most:
            who = sorted({text for texts in through.values() for text in texts})
            yield Violation(user, conflict, declared.at_most, declared.why, within, tuple(through), tuple(who))
            return
