"""The index of a state in parts: what is looked up by people in one, what is held on entities in one for each root entity.

Each part is a document that OPA loads as a bundle of its own, so that a change of one root entity's grants moves that
entity's bundle alone, and a sidecar may load the people and only some of the shards. `parts` takes a whole index apart,
`merged` puts the parts together again.

People, below `privtab_state/<system>`: `revision`, `shards` (root key → true: every shard that there is), and the parts
of the index that go by names. A shard, below `privtab_state/<system>/at/<shard_name(root key)>`: `revision`, and `allow`,
`deny`, `owners`, `members` of the root entity and what lies below it.
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

__all__ = [  # `shard_name` is found here too
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
"""The part that is no shard, among parts by root key; a root key holds a colon."""
GRANTS = ("allow", "deny")
HELD = (*GRANTS, "owners", "members")
"""What a shard holds, beside its revision."""
BY_NAME = ("principals", "within", "scoped", "group_principals", "group_scoped", "service_admins")
"""What the people's part holds, beside its revision and the list of the shards."""
PEOPLE_ROOTS = ("revision", "shards", *BY_NAME)


def shards(program: Program, state: State) -> dict[str, Document]:
    """The parts of a state's index: under `people` what goes by names, under each root key what is held there and below.

    The same rows in any order give the same documents. A root entity on which nothing is held has no shard.
    """
    return parts(program, unstamped(program, state))


def parts(program: Program, document: Mapping[str, Any]) -> dict[str, Document]:
    """A whole index, with or without its revision, taken apart; its inner maps are shared with the parts."""
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
    """The whole index that parts were made from, revision and all; shards that the people's part does not name are left out."""
    people = documents[PEOPLE]
    whole: Document = {part: {} for part in HELD} | {part: people[part] for part in BY_NAME}
    for key in people["shards"]:
        shard = documents[key]
        for part in GRANTS:
            for privilege, entities in shard[part].items():
                whole[part].setdefault(privilege, {}).update(entities)
        for part in ("owners", "members"):
            whole[part].update(shard[part])
    for part in GRANTS:
        whole[part] = {privilege: _by_key(entities) for privilege, entities in sorted(whole[part].items())}
    for part in ("owners", "members"):
        whole[part] = _by_key(whole[part])
    return stamped(whole)


def root_keys(program: Program) -> Callable[[str], str]:
    """A function that gives, for an entity's key, that of the root entity it lies below: `table:m/c/s/t` → `metalake:m`."""
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
    """What stands below `privtab_state/<system>` in the bundle of a part."""
    return document if key == PEOPLE else {"at": {shard_name(key): document}}


def _by_key(entities: Mapping[str, Any]) -> dict[str, Any]:
    return {key: entities[key] for key in sorted(entities)}
