"""The rows of a state that concern one caller: all that the division of paths depends on, from an index or from an OPA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from privtab.base.errors import DecisionUnavailable, PolicyError
from privtab.base.moments import LAST
from privtab.base.records import dataclass
from privtab.base.request import Request
from privtab.engines.plan import Caller
from privtab.engines.rows import RowEngine

NO_ROWS: Mapping[str, Any] = {
    "revision": "",
    "service_admins": [],
    **{part: {} for part in ("allow", "deny", "owners", "members", "principals", "group_principals", "within")},
    "scoped": {},
    "group_scoped": {},
}
"""The index of a state without rows: for the engine that reads a program whose state another one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """The facts of a state that concern one caller. More keys and principals than necessary do no harm, as parts with one answer unite."""

    revision: str | None
    principals: frozenset[str]
    """The caller's, and the roles for which these stand: names on paths may be compared with theirs."""
    keys: frozenset[str]
    """The keys of the entities that rows about the caller name."""
    places: frozenset[str] = frozenset()
    """The keys of the entities with flat ids."""
    attributed: frozenset[str] = frozenset()
    """The keys of the entities that have attributes."""
    of_user: Mapping[str, Any] = field(default_factory=dict)
    """The caller's attributes."""
    of_entities: Mapping[str, list[Any]] = field(default_factory=dict)
    """The values of attributes of entities, by name."""
    end: int = LAST
    """When some row of the state begins or ends to hold."""

    @property
    def words(self) -> set[str]:
        """The names of the principals."""
        return {principal.partition(":")[2] for principal in self.principals}


def of_opa(said: Mapping[str, Any], system: str) -> Concern:
    """Read the answer of an OPA's rule `concern`. Raises PolicyError for any other answer, DecisionUnavailable if shards are missing."""
    try:
        if missing := said["missing"]:
            raise DecisionUnavailable(
                f"a filter needs the whole state: no bundle is active for `{min(missing)}` of system `{system}`"
            )
        ends = [int(end) for end in said["end"]]
        found = Concern(
            revision=said["revision"],
            principals=frozenset(said["principals"]),
            keys=frozenset(said["keys"]),
            places=frozenset(said.get("places", ())),
            attributed=frozenset(said.get("attributed", ())),
            of_user=dict(said.get("of_user", {})),
            of_entities={name: list(values) for name, values in said.get("of_entities", {}).items()},
            end=min(ends, default=LAST),
        )
        texts = (found.revision, *found.principals, *found.keys, *found.places, *found.attributed)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("not a text")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PolicyError(f"what concerns the caller of system `{system}` cannot be read: {error!r}") from error
    return found


def concern(engine: RowEngine, request: Request, end: int) -> Concern:
    """The facts in an engine's index that concern the caller of a request."""
    index, caller = engine.index, engine.caller(request)
    roles = (index.within[principal][0] for principal in caller.principals if principal in index.within)
    values: dict[str, list[Any]] = {}
    for attributes in index.entity_attributes.values():
        for name, value in attributes.items():
            values.setdefault(name, []).append(value)
    return Concern(
        revision=index.revision,
        principals=frozenset((*caller.principals, *roles)),
        keys=frozenset(_keys(engine, caller)),
        places=frozenset(index.places),
        attributed=frozenset(index.entity_attributes),
        of_user=index.user_attributes.get(request.user, {}),
        of_entities=values,
        end=end,
    )


def _keys(engine: RowEngine, caller: Caller) -> Iterator[str]:
    index, principals = engine.index, {*caller.principals, *caller.active}
    for type_, table in index.tables.items():
        yield from (f"{type_}:{path}" for path, holders in table.items() if not principals.isdisjoint(holders))
    for entries in (*index.below.values(), index.owned_below):
        yield from (key for key, holders in entries.items() if not principals.isdisjoint(holders))
    for type_, members in index.members.items():
        yield from (f"{type_}:{path}" for path, users in members.items() if caller.user in users)
    yield from caller.scopes
