"""The index of a state bundle, packed for look-ups by dictionary: what each principal holds on an entity is one number.

Bits of that number: bit 0, the principal owns the entity; for the privilege with number n, bit 1 + 2n, it is allowed here, and
bit 2 + 2n, it is denied here. So the privileges in effect are `bits & ~(bits >> 1)`, also after combining several entities.

A state may be sharded (docs/how-to/shards.md): `people` for what is looked up by user or group, and a shard for each root entity.
`StatePart` holds the content of one bundle, `Index.of` combines parts; shards that exist but were not loaded are `missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from operator import is_
from typing import Any, TypeAlias, TypeVar

from privtab.base.errors import PolicyError, UsageError
from privtab.base.moments import HELD_ALWAYS, WINDOWED, parts_of
from privtab.base.shard_names import BY_PRIVILEGE, CONCERNED, FURTHER_HELD, HELD, shard_name, sharded_revision
from privtab.engines.held_texts import HeldTexts, Holders, TextTable

T = TypeVar("T")
Table: TypeAlias = dict[str, Holders] | TextTable
"""Path of an entity → what principals hold on it."""
RawTable: TypeAlias = Mapping[str, Holders | str]
"""The same, where holders may be a text that was not read yet."""

_PEOPLE = ""
"""The people's part, among names of shards."""
OWNER_BIT = 1
"""The bit of owners among those of privileges."""
SEPARATOR = "\n"
_MOST_CALLERS = 1 << 16
"""Users whose principals are kept together with those of every user."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise PolicyError for a document of another shape than that of `what`."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PolicyError(f"the state is not {what}: {error!r}") from error


class PrivilegeNumbers:
    """Numbers for the privileges of a policy and of a state; a new one gets the next number."""

    owned = OWNER_BIT
    """The bit of owners."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def allowed(self, privilege: str) -> int:
        """The bit for an allowed privilege."""
        return 2 << 2 * self._numbers.setdefault(privilege, len(self._numbers))

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._numbers))

    def denied(self, privilege: str) -> int:
        """The bit for a denied privilege."""
        return self.allowed(privilege) << 1


class TextPool(dict[str, str]):
    """Shares one object for equal texts: `texts[text]` is the first one."""

    def __missing__(self, text: str) -> str:
        self[text] = text
        return text


class Principals(Mapping[str, tuple[str, ...]]):
    """The principals of users or groups. Their texts are split when they are first looked up: few of many users ask in one process."""

    def __init__(self, document: Mapping[str, str]) -> None:
        """Raises TypeError or AttributeError unless all values are texts, which is all that can be wrong with them."""
        if not {*map(type, document.values())} <= {str}:
            raise TypeError("principals are not text")
        self._joined = document
        self._split: dict[str, tuple[str, ...]] = {}
        self._texts = TextPool()

    def get(self, name: str, default: Any = None) -> Any:
        """As Mapping.get, in one look-up for names that were looked up before."""
        found = self._split.get(name)
        if found is None:
            joined = self._joined.get(name)
            if joined is None:
                return default
            found = self._split[name] = tuple(map(self._texts.__getitem__, joined.split(SEPARATOR)))
        return found

    def __getitem__(self, name: str) -> tuple[str, ...]:
        found: tuple[str, ...] | None = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._joined)

    def __len__(self) -> int:
        return len(self._joined)

    def flat(self) -> tuple[list[str], list[int]]:
        """The principals of all names in order, and how many each name has."""
        joined = self._joined.values()
        return SEPARATOR.join(joined).split(SEPARATOR) if joined else [], [text.count(SEPARATOR) + 1 for text in joined]


class EntityHoldings:
    """The rights held on entities, in a whole state or in one shard. Equal numbers share one object, as equal keys of a JSON document do."""

    def __init__(self, document: Mapping[str, Any], numbers: PrivilegeNumbers) -> None:
        self.tables: dict[str, Table] = {}
        self.origins: dict[tuple[str, str, str, str], tuple[str, ...]] = {}
        self.members: dict[str, dict[str, frozenset[str]]] = {}
        self.below: Mapping[str, Mapping[str, Mapping[str, Any]]] = document.get("below", {})
        self.owned_below: Mapping[str, Mapping[str, Any]] = document.get("owned_below", {})
        self.attributes: Mapping[str, Mapping[str, Any]] = document.get("entity_attributes", {})
        self._bits: dict[int, int] = {}
        true = repeat(object=True)
        for effect in ("allow", "deny"):
            for privilege, entities in document[effect].items():
                bit = numbers.allowed(privilege) if effect == "allow" else numbers.denied(privilege)
                if isinstance(entities, HeldTexts):
                    for type_, texts in entities.of_types.items():
                        table = self.tables.setdefault(type_, TextTable())
                        assert isinstance(table, TextTable)  # a reader leaves no texts behind what it has read
                        table.add(bit, texts)
                    continue
                self._add(bit, entities)
                if not all(map(is_, chain.from_iterable(map(dict.values, entities.values())), true)):
                    self.origins |= {
                        (effect, privilege, key, principal): tuple(entry)
                        for key, holders in entities.items()
                        for principal, entry in holders.items()
                        if entry is not True
                    }
        self._add(OWNER_BIT, document["owners"])
        for key, users in document["members"].items():
            type_, _, path = key.partition(":")
            self.members.setdefault(type_, {})[path] = frozenset(users)
        del self._bits

    @classmethod
    def together(cls, parts: list[EntityHoldings]) -> EntityHoldings:
        """The rights that several shards hold; those of a single shard are its own."""
        if len(parts) == 1:
            return parts[0]
        found = cls.__new__(cls)
        for name in ("origins", "owned_below", "attributes"):
            setattr(found, name, {key: held for part in parts for key, held in getattr(part, name).items()})
        for name in ("tables", "members", "below"):
            united: dict[str, dict[str, Any]] = {}
            for part in parts:
                for key, held in getattr(part, name).items():
                    united.setdefault(key, {}).update(held)
            setattr(found, name, united)
        return found

    def _add(self, bit: int, entities: Mapping[str, Iterable[str]]) -> None:
        tables, known = self.tables, self._bits
        last: str | None = None
        table: Table = {}
        for key, principals in entities.items():
            type_, _, path = key.partition(":")
            if type_ != last:  # keys are sorted: those of a type follow each other
                last, table = type_, tables.setdefault(type_, {})
            # The texts are those of the document, whose reader gives equal keys one object.
            added = dict.fromkeys(principals, bit)
            holders = table.get(path)
            if holders is None:
                table[path] = added
                continue
            for principal in holders.keys() & added.keys():
                bits = holders[principal] | bit
                added[principal] = known.setdefault(bits, bits)
            holders |= added


class StatePart:
    """The content of one bundle of a sharded state: its people, or shards, or both."""

    def __init__(self, document: Mapping[str, Any], numbers: PrivilegeNumbers) -> None:
        """Read the document at `data.privtab_state.<system>`; parts to be combined share `numbers`. Raises PolicyError."""
        self.numbers = numbers
        with reading("a part of an index"):
            always, windows = parts_of({name: value for name, value in document.items() if name != "at"})
            self.people: Mapping[str, Any] | None = always if "shards" in document else None
            self.windows: dict[str, Mapping[str, Any]] = {_PEOPLE: windows}
            """What holds for a time, by the name below `at`, and of the people."""
            self.shards: dict[str, tuple[str, EntityHoldings]] = {}
            """By the name below `at`: revision and content."""
            for name, shard in document.get("at", {}).items():
                always, self.windows[name] = parts_of(shard)
                self.shards[name] = always["revision"], EntityHoldings(always, numbers)

    @property
    def revisions(self) -> dict[str, Any]:
        """The revision of each part in the bundle, by name."""
        people = {"people": self.people["revision"]} if self.people is not None else {}
        return people | {f"at/{name}": revision for name, (revision, _) in self.shards.items()}


def raw_table(table: Table) -> tuple[RawTable, Callable[[str], Holders]]:
    """A table as a plain dictionary, some of whose values are texts, and what reads such a value of a path."""
    return (table.raw, table.opened) if isinstance(table, TextTable) else (table, table.__getitem__)


class Index:
    """The rights of principals, according to the state's bundles. Equal texts share one object, so it takes a fraction of the document's size.

    Example: `index = Index(index_document(program, state))`.
    """

    missing: frozenset[str] = frozenset()
    """The keys of the root entities whose shards exist but were not loaded: nothing is known about these entities."""
    windows: Mapping[str, Any] = {}
    """What parts of the state hold for a time besides this: engines need the index of a moment (`WindowedIndex`)."""
    below: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}
    """Privilege → key → principal → `true` or lists of principals to whom it is denied (`state/row_index.py`)."""
    owned_below: Mapping[str, Mapping[str, Any]] = {}
    """Key → owners of something below it."""
    user_attributes: Mapping[str, Mapping[str, Any]] = {}
    """User → attribute → value, if the policy takes any from the state."""
    entity_attributes: Mapping[str, Mapping[str, Any]] = {}
    """Key → attribute → value."""
    keeps: frozenset[str] = frozenset()
    """What of the state was kept because filters need it (`state.names.UsedParts.for_filters`)."""

    everyone: tuple[str, ...] = ()
    """The group of every user, if the policy has one: an engine says so (`RowEngine`)."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Read `data.privtab_state.<system>`. Raises PolicyError if it is not an index."""
        with reading("an index"):
            if is_state_part(document):
                self._combine([StatePart(document, PrivilegeNumbers())])
            else:
                numbers = PrivilegeNumbers()
                self._merge(document["revision"], numbers, [EntityHoldings(document, numbers)])
                self._read_people(document)

    @classmethod
    def of(cls, parts: Iterable[StatePart]) -> Index:
        """Combine the parts of a sharded state, which share their numbers. Raises PolicyError without people, UsageError for duplicates."""
        found = cls.__new__(cls)
        with reading("an index"):
            found._combine(list(parts))  # noqa: SLF001  (its own)
        return found

    def _combine(self, parts: list[StatePart]) -> None:
        people = [part.people for part in parts if part.people is not None]
        loaded, self.missing = _shards_of(people, [part.shards for part in parts])
        revision = sharded_revision(people[0]["revision"], {root: stamp for root, (stamp, _) in loaded.items()})
        self._merge(revision, parts[0].numbers, [holdings for _, holdings in loaded.values()])
        self._read_people(people[0])
        windows = {name: own for part in parts for name, own in part.windows.items() if own}
        of_shards = (windows.get(shard_name(root)) for root in loaded)
        self.windows = _united(windows.get(_PEOPLE, {}), [own for own in of_shards if own])

    def _merge(self, revision: str, numbers: PrivilegeNumbers, holdings: list[EntityHoldings]) -> None:
        held = EntityHoldings.together(holdings)
        self.revision = revision
        self.numbers = numbers
        self.tables: dict[str, Table] = held.tables
        """By entity type."""
        self.origins: dict[tuple[str, str, str, str], tuple[str, ...]] = held.origins
        """(`allow` or `deny`, privilege, key, principal for a role within a scope) → the entities of the rows."""
        self.members: dict[str, dict[str, frozenset[str]]] = held.members
        """By entity type and path: users."""
        self.below, self.owned_below, self.entity_attributes = held.below, held.owned_below, held.attributes

    def _read_people(self, document: Mapping[str, Any]) -> None:
        self.users: Mapping[str, tuple[str, ...]] = Principals(document["principals"])
        """User → their principals: the user, their groups, their roles; absent if none of them holds anything."""
        self.groups: Mapping[str, tuple[str, ...]] = Principals(document["group_principals"])
        self.within: Mapping[str, tuple[str, str]] = {
            principal: (role, scope) for principal, (role, scope) in document["within"].items()
        }
        """The role and the scope for which a principal stands."""
        self.roles_of_roles: Mapping[str, tuple[str, ...]] = {
            p: tuple(o) for p, o in document.get("brought", {}).items()
        }
        """Principal of a role → those of the roles that it holds, if requests may name active roles."""
        self.scoped: Mapping[str, Mapping[str, tuple[str, ...]]] = _scopes(document["scoped"])
        """User → key of a scope → the declared roles that they hold there."""
        self.group_scoped: Mapping[str, Mapping[str, tuple[str, ...]]] = _scopes(document["group_scoped"])
        self.service_admins = frozenset(document["service_admins"])
        self.user_attributes = document.get("user_attributes", {})
        self.keeps = frozenset(document.get("keeps", ()))
        self.places: Mapping[str, str] = dict(document.get("places", {}))
        """Entity with a flat id → what contains it."""
        self.containers: Mapping[str, tuple[str, ...]] = {
            key: tuple(keys) for key, keys in document.get("containers", {}).items()
        }
        """Each of those → the keys on its path, its own last."""

    def table(self, type_: str) -> Table:
        """The rights held on entities of a type."""
        return self.tables.setdefault(type_, {})

    @property
    def beyond_arrays(self) -> bool:
        """True if there is anything that arrays (`engines/arrays.py`) do not hold."""
        return bool(self.below or self.owned_below or self.user_attributes or self.entity_attributes or self.places)

    def granted_below(
        self, privilege: str, key: str, principals: Sequence[str], active: Sequence[str]
    ) -> Iterator[str]:
        """Those of the `active` principals through which somebody with all `principals` holds a privilege below an entity."""
        entries = self.below.get(privilege, {}).get(key, {})
        for principal in active if entries else ():
            entry = entries.get(principal)
            if entry is True or (entry and any(set(principals).isdisjoint(denied) for denied in entry)):
                yield principal

    def owning_below(self, key: str, principals: Sequence[str]) -> Iterator[str]:
        """The principals that own something below an entity."""
        owners = self.owned_below.get(key, {})
        return (principal for principal in principals if principal in owners)

    def principals(self, user: str, groups: Iterable[str] = ()) -> tuple[str, ...]:
        """The principals of a user, with the principals of the groups that a request brings, and of the group of every user."""
        listed = self.users.get(user, ())
        groups = (*groups, *self.everyone)
        if not groups:
            return listed
        return tuple(dict.fromkeys((*listed, *chain.from_iterable(map(self.of_group, groups)))))

    def of_group(self, group: str) -> tuple[str, ...]:
        """The principals of a group by name."""
        return self.groups.get(group, (f"group:{group}",))

    @property
    def callers(self) -> Mapping[str, tuple[str, ...]]:
        """The principals of the users whom rows name, each with the principals of every user."""
        return _Callers(self) if self.everyone else self.users

    @property
    def stranger(self) -> tuple[str, ...]:
        """The principals of a user whom no row names."""
        return tuple(dict.fromkeys(chain.from_iterable(map(self.of_group, self.everyone))))

    def active(self, principals: Iterable[str], roles: Collection[str]) -> tuple[str, ...]:
        """Of a user's principals, those that count for what is allowed if only some roles are active."""
        role_of = {p: self.role_of(p) for p in principals}
        named = [p for p, role in role_of.items() if role in roles]
        of_named = (other for p in named for other in self.roles_of_roles.get(p, ()))
        others = (p for p, role in role_of.items() if role is None)
        return tuple(dict.fromkeys((*others, *named, *of_named)))

    def role_of(self, principal: str) -> str | None:
        """The name of the role for which a principal stands; None for a user or a group."""
        role = self.within[principal][0] if principal in self.within else principal
        return role[5:] if role.startswith("role:") else None

    def scopes(self, user: str, groups: Iterable[str] = ()) -> Mapping[str, Iterable[str]]:
        """The declared roles that a user holds within scopes, by the scope's key."""
        of_user = self.scoped.get(user, {})
        groups = (*groups, *self.everyone)
        if not groups:
            return of_user
        found = {key: set(roles) for key, roles in of_user.items()}
        for group in groups:
            for key, roles in self.group_scoped.get(group, {}).items():
                found.setdefault(key, set()).update(roles)
        return found


class _Callers(dict[str, tuple[str, ...]]):
    """The principals of users, each with the principals of every user: united on first look-up."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self._index = index

    def get(self, user: str, default: Any = None) -> Any:
        found = super().get(user)
        if found is None and user in self._index.users:
            if len(self) >= _MOST_CALLERS:
                self.clear()
            found = self[user] = self._index.principals(user)
        return default if found is None else found


def is_state_part(document: Mapping[str, Any]) -> bool:
    """Return whether the document at `data.privtab_state.<system>` is a sharded state, or some of its parts."""
    return "shards" in document or "at" in document


def combined_document(documents: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], frozenset[str]]:
    """The whole index from the documents of its parts, and the keys of missing shards; one that is not in parts is returned itself.

    Errors as `Index.of`.

        document, missing = combined_document(documents)
    """
    listed = list(documents)
    if len(listed) == 1 and not is_state_part(listed[0]):
        return dict(listed[0]), frozenset()
    people = [document for document in listed if "shards" in document]
    found, missing = _shards_of(people, [document.get("at", {}) for document in listed])
    always, windows = parts_of({name: value for name, value in people[0].items() if name != "at"})
    loaded = {root: parts_of(shard) for root, shard in found.items()}
    merged: dict[str, Any] = {name: value for name, value in always.items() if name != "shards"}
    held = {part for shard, _ in loaded.values() for part in FURTHER_HELD if part in shard}
    held |= {"entity_attributes"} if "user_attributes" in always else set()  # one part of attributes has the other
    merged |= _combined((shard for shard, _ in loaded.values()), (*HELD, *sorted(held)))
    merged["revision"] = sharded_revision(
        always["revision"], {root: shard["revision"] for root, (shard, _) in loaded.items()}
    )
    if timed := _united(windows, [own for _, own in loaded.values() if own]):
        concerned = {part: merged.pop(part) for part in sorted(merged) if part not in HELD_ALWAYS}
        if "brought" in concerned:
            timed.setdefault("brought", {})
        merged[WINDOWED] = concerned | {"windows": timed}
    return merged, missing


def require_kept(needed: Iterable[str], kept: Collection[str]) -> None:
    """Raise PolicyError if a state was built for filters that need less of it: what it lacks would show more.

    Example: `require_kept(["groups"], {"groups", "roles"})`.
    """
    if lacking := sorted({*needed} - {*kept}):
        raise PolicyError(
            f"the state was built for other filters: it lacks {' and '.join(lacking)}; build it again with this policy"
        )


def _shards_of(
    people: Sequence[Mapping[str, Any]], parts: Iterable[Mapping[str, T]]
) -> tuple[dict[str, T], frozenset[str]]:
    """The shards that the people's part names, by the keys of their root entities, and the missing ones among them."""
    if len(people) != 1:
        raise _wrong_count("the principals", len(people))
    shards: dict[str, T] = {}
    for part in parts:
        if duplicates := shards.keys() & part.keys():
            raise _wrong_count(f"the shard `{min(duplicates)}`", 2)
        shards |= part
    names = {root: shard_name(root) for root in people[0]["shards"]}
    found = {root: shards[name] for root, name in sorted(names.items()) if name in shards}
    return found, frozenset(names.keys() - found.keys())


def _united(people: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rights that the parts of a state hold for a time, together; empty without such rights."""
    if not people and not shards:
        return {}
    by_name = ("principals", "scoped", "group_principals", "group_scoped")
    optional = {"brought": people["brought"]} if "brought" in people else {}
    return {part: people.get(part, {}) for part in by_name} | optional | _combined(shards, CONCERNED)


def _combined(shards: Iterable[Mapping[str, Any]], parts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The rights that several shards hold on entities, by part."""
    found: dict[str, dict[str, Any]] = {part: {} for part in parts}
    for shard in shards:
        for part, held in found.items():
            if part in BY_PRIVILEGE:
                for privilege, entities in shard[part].items():
                    held.setdefault(privilege, {}).update(entities)
            else:
                held.update(shard[part])
    return found


def _wrong_count(what: str, count: int) -> PolicyError | UsageError:
    if count:
        return UsageError(f"{count} bundles hold {what} of one state: name one of them")
    return PolicyError(f"the state is sharded, and {what} are missing")


def _scopes(document: Mapping[str, Mapping[str, list[str]]]) -> dict[str, dict[str, tuple[str, ...]]]:
    return {name: {key: tuple(roles) for key, roles in scopes.items()} for name, scopes in document.items()}
