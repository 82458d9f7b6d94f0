"""Split the index of a state: one part for what is looked up by user or group, and a shard for each root entity.

Each part is a document that OPA loads as a bundle of its own, so that a change of one root entity's grants replaces only that
entity's bundle, and a sidecar may load the people and only some of the shards. `parts` splits a whole index,
`engines.index.combined_document` puts the parts together again.

A part in which something holds for a time has the form of such a state (`index_parts.py`), whatever the other parts have.

People, below `privtab_state/<system>`: `revision`, `shards` (root key → true, for every shard that exists), and the parts
of the index that are looked up by name. A shard, below `privtab_state/<system>/at/<shard_name(root key)>`: `revision`, and
`allow`, `deny`, `owners`, `members` of the root entity and what lies below it, and what only some policies have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

from privtab.base.errors import UnsupportedError
from privtab.base.moments import HELD_ALWAYS, WINDOWED, parts_of
from privtab.base.records import dataclass
from privtab.base.shard_names import BY_PRIVILEGE, CONCERNED, FURTHER_HELD, HELD, shard_name
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.ir.support import Tool
from privtab.state.index import JSON, index_parts, stamped, stamped_bytes, without_revision
from privtab.state.index_parts import BROUGHT
from privtab.state.names import KEEPS
from privtab.state.nodes import State

IndexDocument: TypeAlias = dict[str, Any]

BY_NAME = ("principals", "within", "scoped", "group_principals", "group_scoped", "service_admins")
"""The content of the people's part, besides its revision and the list of the shards."""
FURTHER_BY_NAME = (BROUGHT, "user_attributes", KEEPS)
"""Parts of that which only some policies have (`index_parts.py`, `attribute_rows.py`, `names.py`)."""
PEOPLE_ROOTS = ("revision", "shards", *BY_NAME)
NEVER_TIMED = ("shards", *HELD_ALWAYS)
"""What windows do not concern in any part."""


def shards(program: Program, state: State) -> dict[str, IndexDocument]:
    """The parts of a state's index: under `people` what is looked up by name, under each root key what is held there and below.

    The same rows in any order give the same documents. A root entity on which nothing is held has no shard.
    """
    return parts(program, without_revision(program, state))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartText:
    """One part of a state as JSON.

    For example:

        part = PartText.of_state(program, state, "catalog:hive")
    """

    PEOPLE: ClassVar[str] = "people"
    """The key of the part that is not a shard, in mappings of parts by root key; a root key contains a colon: `parts.pop(PartText.PEOPLE)`."""
    key: str
    """`people`, or the key of the root entity of a shard."""
    revision: str
    text: bytes
    windows: bool = False
    """Whether something in it holds for a time."""
    further: tuple[str, ...] = ()
    """Those of FURTHER_BY_NAME that it has."""
    users: int = 0
    """How many users have principals at some time, in the people's part."""

    @classmethod
    def of(cls, key: str, document: Mapping[str, Any]) -> PartText:
        """The text of a document, which has its revision."""
        always, windows = parts_of(document)
        return cls(
            key=key,
            revision=always["revision"],
            text=JSON(document).encode(),
            windows=WINDOWED in document,
            further=tuple(part for part in FURTHER_BY_NAME if part in always),
            users=_users(always, windows) if key == PartText.PEOPLE else 0,
        )

    @classmethod
    def of_state(cls, program: Program, state: State, key: str, root_entities: Iterable[str] = ()) -> PartText | None:
        """One part of a sharded state, from the rows that concern it; None for a shard in which nothing is held.

        `root_entities`: for the people's part, those that have shards.
        """
        index = index_parts(program, state)
        if key == PartText.PEOPLE:
            always, windows = index.of_people()
            always["shards"] = dict.fromkeys(sorted(root_entities), True)
        else:
            Tool.SHARDS.check(program)
            always, windows = index.of_entities()
            if any(windows.values()):
                cls.check_windows(program)
            elif not any(always.values()):
                return None
            always |= index.below(always)
        timed = windows if any(windows.values()) else {}
        revision, text = stamped_bytes(_with_windows(always, timed))
        return cls(
            key=key,
            revision=revision,
            text=text,
            windows=bool(timed),
            further=tuple(part for part in FURTHER_BY_NAME if part in always),
            users=_users(always, timed) if key == PartText.PEOPLE else 0,
        )

    @staticmethod
    def check_windows(program: Program) -> None:
        """Raise UnsupportedError if a sharded state of a policy cannot have rows that hold for a time."""
        if uses_below(program):
            raise UnsupportedError(
                "a sharded state does not support rows with `from` or `until` for policies with `or below`"
            )

    @staticmethod
    def roots(system: str, key: str, *, windows: bool = False, further: Iterable[str] = ()) -> list[str]:
        """The roots of the bundle of a part: of `people`, with or without windows and `further` parts, or of the shard of a root key."""
        base = f"privtab_state/{system}"
        own = sorted((*PEOPLE_ROOTS, *([WINDOWED] if windows else ()), *further))
        return [f"{base}/{part}" for part in own] if key == PartText.PEOPLE else [f"{base}/at/{shard_name(key)}"]

    @property
    def content(self) -> bytes:
        """The content below `privtab_state/<system>`, as `content`."""
        return (
            self.text
            if self.key == PartText.PEOPLE
            else b'{"at":{' + JSON(shard_name(self.key)).encode() + b":" + self.text + b"}}"
        )


def _users(always: Mapping[str, Any], windows: Mapping[str, Any]) -> int:
    """How many users have principals at some time."""
    return len(always["principals"]) + sum(user not in always["principals"] for user in windows.get("principals", ()))


def parts(program: Program, document: Mapping[str, Any]) -> dict[str, IndexDocument]:
    """Split a whole index, with or without its revision; the parts share its inner maps."""
    Tool.SHARDS.check(program)
    root = root_keys(program)
    always, windows = parts_of(document)
    if windows:
        PartText.check_windows(program)
    shard_parts = (*HELD, *(part for part in FURTHER_HELD if part in always))
    found: dict[str, IndexDocument] = {}
    timed: dict[str, IndexDocument] = {}
    for whole, into, of_shard in ((always, found, shard_parts), (windows, timed, CONCERNED)):
        for part, key, name, value in _entries(whole):
            shard = into.setdefault(root(key), {part: {} for part in sorted(of_shard)})
            (shard[part].setdefault(name, {}) if name is not None else shard[part])[key] = value
    for key in timed:
        found.setdefault(key, {part: {} for part in sorted(shard_parts)})
    with_windows = {key: stamped(_with_windows(found[key], timed.get(key, {}))) for key in sorted(found)}
    return {PartText.PEOPLE: people_part(document, found)} | with_windows


def people_part(document: Mapping[str, Any], root_entities: Iterable[str]) -> IndexDocument:
    """The people's part of a whole index, with or without its revision; `root_entities`: those that have shards."""
    always, windows = parts_of(document)
    people = {part: always[part] for part in (*BY_NAME, *FURTHER_BY_NAME) if part in (*BY_NAME, *always)} | {
        "shards": dict.fromkeys(sorted(root_entities), True)
    }
    timed = {part: windows[part] for part in (*BY_NAME, *FURTHER_BY_NAME) if part in windows}
    return stamped(_with_windows(people, timed if any(timed.values()) else {}))


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None, Any]]:
    """What is held on entities: the part of the index, the key, the privilege if it is a grant, and what is held."""
    for part in BY_PRIVILEGE:
        for privilege, entities in document.get(part, {}).items():
            for key, holders in entities.items():
                yield part, key, privilege, holders
    for part in ("owners", "members", *(part for part in FURTHER_HELD if part not in BY_PRIVILEGE)):
        for key, names in document.get(part, {}).items():
            yield part, key, None, names


def _with_windows(part: IndexDocument, windows: IndexDocument) -> IndexDocument:
    """A part with what it holds for a time, in the form that rules without time do not read; unchanged if that is nothing."""
    if not windows:
        return part
    found = {name: value for name, value in part.items() if name in NEVER_TIMED}
    return found | {WINDOWED: {**{n: v for n, v in part.items() if n not in found}, "windows": windows}}


def root_keys(program: Program) -> Callable[[str], str]:
    """A function from an entity's key to that of its root entity: `table:m/c/s/t` → `catalog:m`."""
    roots = {type_: chain[0][0] for type_, chain in vocabulary(program).chains.items()}

    def root(key: str) -> str:
        type_, _, path = key.partition(":")
        return f"{roots[type_]}:{path.partition('/')[0]}"

    return root


def content(key: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content below `privtab_state/<system>` of the bundle of a part."""
    return document if key == PartText.PEOPLE else {"at": {shard_name(key): document}}
