"""Split the index of a state: one part for what is looked up by user or group, and a shard for each root entity.

Each part is a document that OPA loads as a bundle of its own, so that a change of one root entity's grants replaces only that
entity's bundle, and a sidecar may load the people and only some of the shards. `parts` splits a whole index, `merged` puts
the parts together again.

People, below `privtab_state/<system>`: `revision`, `shards` (root key → true, for every shard that exists), and the parts
of the index that are looked up by name. A shard, below `privtab_state/<system>/at/<shard_name(root key)>`: `revision`, and
`allow`, `deny`, `owners`, `members` of the root entity and what lies below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.shard_names import shard_name
from privtab.state.index import stamped, unstamped
from privtab.state.nodes import State

Document: TypeAlias = dict[str, Any]

__all__ = [  # `shard_name` can be imported from here too
    "PEOPLE",
    "PEOPLE_ROOTS",
    "content",
    "merged",
    "parts",
    "root_keys",
    "roots",
    "shard_name",
    "shards",
    "stamped",
]

PEOPLE = "people"
"""The part that is not a shard, in mappings of parts by root key; a root key contains a colon."""
GRANTS = ("allow", "deny")
HELD = (*GRANTS, "owners", "members")
"""The content of a shard, besides its revision."""
BY_NAME = ("principals", "within", "scoped", "group_principals", "group_scoped", "service_admins")
"""The content of the people's part, besides its revision and the list of the shards."""
PEOPLE_ROOTS = ("revision", "shards", *BY_NAME)


def shards(program: Program, state: State) -> dict[str, Document]:
    """The parts of a state's index: under `people` what is looked up by name, under each root key what is held there and below.

    The same rows in any order give the same documents. A root entity on which nothing is held has no shard.
    """
    return parts(program, unstamped(program, state.plain("a sharded state")))


def parts(program: Program, document: Mapping[str, Any]) -> dict[str, Document]:
    """Split a whole index, with or without its revision; the parts share its inner maps."""
    root = root_keys(program)
    found: dict[str, Document] = {}

    def shard(key: str) -> Document:
        return found.setdefault(root(key), {part: {} for part in sorted(HELD)})

    for part in GRANTS:
        for privilege, entities in document[part].items():
            for key, holders in entities.items():
                shard(key)[part].setdefault(privilege, {})[key] = holders
    for part in ("owners", "members"):
        for key, names in document[part].items():
            shard(key)[part][key] = names
    people = {part: document[part] for part in BY_NAME} | {"shards": dict.fromkeys(sorted(found), True)}
    return {PEOPLE: stamped(people)} | {key: stamped(found[key]) for key in sorted(found)}


def merged(documents: Mapping[str, Mapping[str, Any]]) -> Document:
    """The whole index from which parts were made, with its revision; shards that the people's part does not name are omitted."""
    people = documents[PEOPLE]
    document: Document = {part: {} for part in HELD} | {part: people[part] for part in BY_NAME}
    for key in people["shards"]:
        shard = documents[key]
        for part in GRANTS:
            for privilege, entities in shard[part].items():
                document[part].setdefault(privilege, {}).update(entities)
        for part in ("owners", "members"):
            document[part].update(shard[part])
    for part in GRANTS:
        document[part] = {privilege: _by_key(entities) for privilege, entities in sorted(document[part].items())}
    for part in ("owners", "members"):
        document[part] = _by_key(document[part])
    return stamped(document)


def root_keys(program: Program) -> Callable[[str], str]:
    """A function from an entity's key to that of its root entity: `table:m/c/s/t` → `catalog:m`."""
    roots = {type_: chain[0][0] for type_, chain in vocabulary(program).chains.items()}

    def root(key: str) -> str:
        type_, _, path = key.partition(":")
        return f"{roots[type_]}:{path.partition('/')[0]}"

    return root


def roots(system: str, key: str) -> list[str]:
    """The roots of the bundle of a part: of `people`, or of the shard of a root key."""
    base = f"privtab_state/{system}"
    return [f"{base}/{part}" for part in sorted(PEOPLE_ROOTS)] if key == PEOPLE else [f"{base}/at/{shard_name(key)}"]


def content(key: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content below `privtab_state/<system>` of the bundle of a part."""
    return document if key == PEOPLE else {"at": {shard_name(key): document}}


def _by_key(entities: Mapping[str, Any]) -> dict[str, Any]:
    return {key: entities[key] for key in sorted(entities)}
