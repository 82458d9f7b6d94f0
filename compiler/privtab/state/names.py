"""The names of a policy in a state: its names, entities, principals and privileges, and which parts conditions use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

from privtab.base.caching import once
from privtab.base.hints import did_you_mean
from privtab.base.moments import FIRST, LAST, WINDOW_COLUMNS, Window, parse_moment
from privtab.base.names import (
    LONGEST_NAME,
    PRINCIPAL_KINDS,
    WILDCARDS,
    encode_name,
    escape_wildcard,
    invisible,
    is_wildcard,
    misspelt_kind,
    unusable_character,
    wrong_escape,
)
from privtab.base.paths import PathShape
from privtab.base.records import dataclass
from privtab.base.request import Entity
from privtab.base.sql_text import FilterWord
from privtab.base.vocabulary import Vocabulary
from privtab.ir.formula import direct_atoms
from privtab.ir.names import PrivilegeNames
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.findings import RowLocation
from privtab.state.nodes import State
from privtab.state.raw import RawRow


@dataclass(frozen=True, slots=True)
class RowProblem:
    """Why a name is not accepted: a code, a message, and a hint.

    >>> RowProblem("S130", "unknown privilege `SELET`", "did you mean `SELECT`?").code
    'S130'
    """

    code: str
    message: str
    help: str | None = None


def unusable_name(text: str) -> RowProblem | None:
    """Why a text cannot be any name: because of its characters or its length."""
    if len(text) > LONGEST_NAME:
        return RowProblem("S117", f"`{text[:40]}…` has {len(text):,} characters; {LONGEST_NAME:,} is the most")
    advice = "formats disagree about line breaks and controls, so a name has none"
    character = unusable_character(text)
    if character is None and (character := invisible(text)) is not None:
        advice = "nobody sees it, or tells it from a blank: leave it out"
    return None if character is None else RowProblem("S116", f"`{text}` holds the character {character}", advice)


def blank_edges(text: str, trimmed: str) -> RowProblem | None:
    """The problem of a text with a name that begins or ends with a blank; `trimmed`: the text without such blanks."""
    if text == trimmed:
        return None
    return RowProblem("S108", f"a name in `{text}` begins or ends with a blank", f"did you mean `{trimmed}`?")


class StateNames(PrivilegeNames):
    """Reads names for one policy; an entity that occurs in many rows is parsed once.

    For example:

        StateNames(program).privileges_of("ALL", "table", "allow")
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._entities: dict[str, Entity | RowProblem] = {}
        self._hierarchy = program.semantics.hierarchy
        assignees = program.semantics.assignees
        self.holders = assignees if "roles" in self._hierarchy else tuple(k for k in assignees if k != "role")
        """The kinds of principals that hold roles."""
        self.places: Mapping[str, str] | None = None
        """Where entities with flat ids lie, once that is known: others are no entities of the state."""

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return vocabulary(self.program)

    @cached_property
    def shapes(self) -> Mapping[str, PathShape]:
        """The paths of each entity type."""
        return self._vocabulary.shapes

    def grantable(self, name: str, type_: str) -> RowProblem | None:
        """Why a privilege, alias or set cannot be granted on a type; None if it gives something there."""
        members = self.privileges(name)
        if members is None:
            advice = did_you_mean(name, self.known_privileges())
            if is_wildcard(name):
                sets = f", or of the set `{next(iter(self.program.sets))}`" if self.program.sets else ""
                advice = f"there are no wildcards: write a row for each privilege{sets}"
            return RowProblem("S130", f"unknown privilege `{name}`", advice)
        not_grantable = [m for m in members if type_ not in self.program.privileges[m].on]
        if len(not_grantable) < len(members):
            return None
        if members == (name,):
            on = ", ".join(self.program.privileges[name].on)
            return RowProblem(
                "S131", f"`{name}` cannot be granted on a `{type_}`", f"it can be granted on {on or 'nothing'}"
            )
        listed = ", ".join(f"`{m}`" for m in not_grantable)
        return RowProblem("S131", f"`{name}` cannot be granted on a `{type_}`, since {listed} cannot")

    def entity(self, text: str) -> Entity | RowProblem:
        """Read `type:path` in its one canonical spelling."""
        result = self._entities.get(text)
        if result is None:
            result = self._entities[text] = self._entity(text)
        if self.places is not None and isinstance(result, Entity) and self.shapes[result.type].flat is not None:
            return self._nowhere(result, self.places) or result
        return result

    def _entity(self, text: str) -> Entity | RowProblem:
        problem = unusable_name(text)
        if problem is not None:
            return problem
        type_, colon, path = text.partition(":")
        if is_wildcard(type_):
            return RowProblem("S115", f"there are no wildcards: `{text}` is not an entity", "write a row for each type")
        if not colon or not type_:
            known = type_ in self.program.entities
            advice = f"write `{self.shape(type_)}`" if known else "write `type:path`, the names from the root down"
            return RowProblem("S110", f"`{text}` is not an entity", advice)
        if type_ not in self.program.entities:
            return RowProblem("S111", f"unknown entity type `{type_}`", did_you_mean(type_, self.program.entities))
        problem = blank_edges(text, f"{type_}:{'/'.join(name.strip(' ') for name in path.split('/'))}")
        if problem is not None:
            return problem
        entity = self._vocabulary.spelt(Entity(type_, path))
        path = entity.id
        if path and not all(entity.names):
            return RowProblem("S113", f"a name in `{text}` is empty", f"write `{self.shape(type_)}`")
        for position, name in enumerate(entity.names if any(sign in path for sign in WILDCARDS) else ()):
            if is_wildcard(name):
                return self._wildcard(entity, position)
            escape = wrong_escape(name)
            if escape is not None:
                return RowProblem("S113", f"malformed escape in `{text}`", _escape_advice(escape))
        shape = self.shapes[type_].written
        depth, most = shape.depth, shape.most
        if len(entity.names) > most > depth:
            message = f"`{text}` has {_count(len(entity.names))}; the path of a `{type_}` has at most {most}"
            return RowProblem("S184", message, f"write `{self.shape(type_)}`")
        if not depth <= len(entity.names) <= most:
            expected = depth if most == depth else f"{depth} to {most}"
            message = f"wrong depth: `{text}` has {_count(len(entity.names))}, a `{type_}` path has {expected}"
            return RowProblem("S112", message, f"write `{self.shape(type_)}`")
        return entity

    def _nowhere(self, entity: Entity, places: Mapping[str, str]) -> RowProblem | None:
        """The problem of a row about an entity that lies nowhere."""
        key = self.shapes[entity.type].anchor(entity.id)
        if key in places:
            return None
        return RowProblem("S180", f"no row of `entities` tells where `{key}` lies", similar_place(key, places))

    def _wildcard(self, entity: Entity, position: int) -> RowProblem:
        """The problem with a wildcard in place of a name."""
        name = entity.names[position]
        parent_path = "/".join(entity.names[:position])
        types = [t for t in self.program.chain(entity.type) if self.program.depth(t) == position]
        nested = self.program.nested_on.get(entity.type)
        if self.shapes[entity.type].flat is not None:
            types = []
        elif nested is not None and position >= self.program.depth(nested):
            types = [nested]
        if self.program.inherited.issuperset(self.program.privileges) and types:
            advice = f"a grant or a denial on `{types[0]}:{parent_path}` holds for everything below it"
        else:
            advice = "write a row for each entity"
        advice += f"; a name that is `{name}` is written `{escape_wildcard(name)}`"
        return RowProblem("S115", f"there are no wildcards: `{name}` in `{entity}` would be one name", advice)

    def shape(self, type_: str) -> str:
        """The form of an entity of a type: `table:metalake/catalog/schema/table`."""
        return f"{type_}:{self.shapes[type_].example()}"

    def principal(self, text: str, allowed: Collection[str], bare: str | None = None) -> tuple[str, str] | RowProblem:
        """Read `kind:name` to (kind, name); if `bare` is a kind, a name alone is of that kind."""
        problem = unusable_name(text)
        if problem is not None:
            return problem
        kind, colon, name = text.partition(":")
        if not colon:
            if is_wildcard(text):
                return _no_wildcard(text, bare or "principal")
            if bare is not None:
                return blank_edges(text, text.strip(" ")) or (bare, text)
            return RowProblem(
                "S120", f"`{text}` is not a principal", f"write `user:{text}`, `group:{text}` or `role:{text}`"
            )
        if kind not in PRINCIPAL_KINDS:
            advice = did_you_mean(kind, PRINCIPAL_KINDS) or f"a principal is {_either(allowed)}"
            return RowProblem("S121", f"unknown kind of principal `{kind}` in `{text}`", advice)
        if not name:
            return RowProblem("S120", f"`{text}` has no name", f"write `{kind}:name`")
        if kind not in allowed:
            return RowProblem("S122", f"`{text}` is a {kind}", f"it must be {_either(allowed)}")
        if is_wildcard(name):
            return _no_wildcard(name, kind)
        if name.startswith("group:") if kind == "group" else kind == "user" and _begins_with_kind(name):
            return RowProblem("S120", f"no {kind}'s name begins as `{name}` does", f"write `{kind}:` once")
        return blank_edges(text, f"{kind}:{name.strip(' ')}") or (kind, name)

    def member(self, text: str, kind: str) -> str | RowProblem:
        """Read the member of a group: a user as by `bare`, or a group as `group:name` if groups contain groups."""
        if "groups" not in self._hierarchy or not text.startswith("group:"):
            return self.bare(text, kind)
        found = self.principal(text, ("group",))
        return found if isinstance(found, RowProblem) else text

    def similar_declared_role(self, role: str) -> str | None:
        """The advice for a role that no row grants anything but whose name resembles a declared one."""
        if role in self.program.roles or UsedParts.of(self.program).holds:
            return None
        for name, declared in self.program.roles.items():
            if _folded(role) in {_folded(name), _folded(declared.title or name)}:
                return f"did you mean `{name}`?"
        return did_you_mean(role, self.program.roles)

    def bare(self, text: str, kind: str) -> str | RowProblem:
        """Read a name of a known kind, bare or as `kind:name`; other colons belong to the name."""
        problem = unusable_name(text)
        if problem is not None:
            return problem
        prefix, colon, _ = text.partition(":")
        if colon and (prefix.lower() in PRINCIPAL_KINDS or misspelt_kind(text) is not None):
            found = self.principal(text, (kind,))
            return found if isinstance(found, RowProblem) else found[1]
        return _no_wildcard(text, kind) if is_wildcard(text) else blank_edges(text, text.strip(" ")) or text


def _folded(name: str) -> str:
    """A name without differences in case, spaces, `_` and `-`."""
    return "".join(c for c in name.lower() if c not in " _-")


def similar_place(key: str, places: Iterable[str]) -> str:
    """The advice for an entity without a place."""
    type_ = key.partition(":")[0]
    known = [other for other in places if other.startswith(f"{type_}:")]
    return did_you_mean(key, known[:10_000]) or f"add a row for `{key}` to `entities`"


def _begins_with_kind(name: str) -> bool:
    prefix, colon, _ = name.partition(":")
    return bool(colon) and prefix.lower() in PRINCIPAL_KINDS


def _no_wildcard(name: str, kind: str) -> RowProblem:
    instead = (
        "write a row for each user" if kind == "group" else "name a group or a role that all of them are in or hold"
    )
    return RowProblem(
        "S115",
        f"there are no wildcards: `{name}` would be the name of one {kind}",
        f"{instead}; a {kind} that is called `{name}` is written `{escape_wildcard(name)}`",
    )


def _count(names: int) -> str:
    return f"{names} name{'s' * (names != 1)}"


def _either(kinds: Collection[str]) -> str:
    return " or ".join(f"`{kind}:name`" for kind in kinds) or "nothing"


def _escape_advice(escape: str) -> str:
    if escape.upper() in {"%2F", "%25"}:
        return f"write `{escape.upper()}`"
    return f"write `%` as `{encode_name('%')}` and `/` as `{encode_name('/')}`; other characters stand for themselves"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedParts:
    """The parts of a state that some condition of the policy uses.

    For example:

        UsedParts.of(program).holds
    """

    member_types: frozenset[str]
    """The entity types on which membership is checked."""
    group_membership: bool
    """Whether the names of groups count themselves: as entities of one of these types, or in the SQL of filters."""
    holds: bool
    """Whether the roles that a user holds are checked: by a condition, or because requests name active ones."""
    service_admins: bool
    """Whether service administrators are checked."""
    state_groups: bool
    """Whether the groups of the state count."""
    request_groups: bool
    """Whether the groups that a request brings count."""
    everyone: frozenset[str] = frozenset()
    """The group of every user, as `group:…`, if there is one."""
    roles_of_roles: bool = False
    """Whether the roles that a role holds are looked up, which active roles bring."""
    filters: bool = False
    """Whether the policy has filters."""

    @staticmethod
    @once
    def of(program: Program) -> UsedParts:
        """The parts that a program uses; a program without rules has only names, and may be asked for anything."""
        # `can` need not be followed: it refers to another rule of the same policy.
        semantics = program.semantics
        narrows = semantics.active_roles == "request"
        asks_anything = not program.rules
        asked = [atom for rule in program.rules.values() for atom in direct_atoms(rule.item_condition)]
        read = {atom.kind.reads for atom in asked}
        of_members = (target for atom in asked if atom.kind.reads == "members" for target in atom.targets)
        members = (type_ for target in of_members for type_ in program.types_of(target))
        member_types = frozenset(program.entities if asks_anything else members)
        return UsedParts(
            member_types=member_types,
            group_membership=asks_anything
            or "groups" in read
            or any(program.entities[t].principal == "group" for t in member_types)
            or any(FilterWord("groups") in one.parts for one in program.filters),
            holds=asks_anything or narrows or "holds" in read,
            service_admins=asks_anything or "service_admins" in read,
            state_groups="state" in semantics.groups,
            request_groups="request" in semantics.groups,
            everyone=frozenset(f"group:{group}" for group in semantics.everyones),
            roles_of_roles=narrows and "roles" in semantics.hierarchy,
            filters=bool(program.filters),
        )

    @property
    def for_filters(self) -> list[str]:
        """The parts kept only if a rule reads them, and read by a policy with filters: names of `groups`, `roles` held.

        To other rules what is missing denies. A filter that does not apply leaves the place to the next one, which may show more,
        and `NOT IN {groups}` holds for who seems to be in none.
        """
        needed = {"groups": self.group_membership, "roles": self.holds} if self.filters else {}
        return [part for part, is_needed in needed.items() if is_needed]


KEEPS = "keeps"
"""The part of an index that says what it keeps of a state, if a policy has filters."""


FOR_FILTERS = frozenset({"groups", "roles"})
"""All that `UsedParts.for_filters` may name."""


def kept_part(program: Program, state: State) -> dict[str, dict[str, bool]]:
    """The part of the index with what it keeps; none if filters need nothing, or if the state lacks it."""
    needed = [part for part in UsedParts.of(program).for_filters if part not in state.lacks]
    return {KEEPS: dict.fromkeys(needed, True)} if needed else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The raw row for each row of a state, by table, in the order of the state's own tuples. Empty if unknown.

    For example:

        state, places, findings = validate_with_places(program, raw)
        places.of("grants", 0)
    """

    NONE: ClassVar[Places]
    """The places of rows that were not read from files."""
    rows: Mapping[str, Sequence[RawRow]] = field(default_factory=dict)

    def of(self, table: str, number: int) -> RowLocation | None:
        """The place of the row with this 0-based number in the state's table."""
        rows = self.rows.get(table, ())
        return rows[number].place if number < len(rows) else None

    def window(self, table: str, number: int) -> Window:
        """The window of the row with this 0-based number."""
        rows = self.rows.get(table, ())
        cells = rows[number].cells if number < len(rows) else {}
        begin, end = (cells.get(name) for name in WINDOW_COLUMNS)
        return Window(FIRST if begin is None else parse_moment(begin), LAST if end is None else parse_moment(end))

    def some(self, selected: Mapping[str, Sequence[int]]) -> Places:
        """The places in a state of which only some rows were taken; `selected`: these, for the tables where not all were."""
        rows = {
            table: SelectedRows(self.rows[table], row_numbers)
            for table, row_numbers in selected.items()
            if table in self.rows
        }
        return Places(rows={**self.rows, **rows})


class SelectedRows(Sequence[RawRow]):
    """Some rows of a table."""

    def __init__(self, rows: Sequence[RawRow], selected: Sequence[int]) -> None:
        self._rows = rows
        self._selected = selected

    def __len__(self) -> int:
        return len(self._selected)

    def __getitem__(self, position: Any) -> Any:
        return tuple(self)[position] if isinstance(position, slice) else self._rows[self._selected[position]]


Places.NONE = Places()
