"""The index of a state bundle, packed for look-ups by dictionary: what each principal holds on an entity is one number.

Bits of such a number: 0 he owns it; for the privilege with number n, 1 + 2n he is allowed it here, 2 + 2n he is denied it.
So the privileges that stand are `bits & ~(bits >> 1)`, however many entities' bits were put together before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from privtab.errors import PolicyError

Holders: TypeAlias = dict[str, int]
"""Principal → bits."""
Table: TypeAlias = dict[str, Holders]
"""Path of an entity → who holds something on it."""

OWNER = 1
SEPARATOR = "\n"


class Numbers:
    """The privileges of a policy and of a state by number; a new one takes the next."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def allowed(self, privilege: str) -> int:
        """The bit that says a privilege is allowed."""
        return 2 << 2 * self._numbers.setdefault(privilege, len(self._numbers))

    def denied(self, privilege: str) -> int:
        """The bit that says a privilege is denied."""
        return self.allowed(privilege) << 1


class Index:
    """Who holds what, as the state bundle says it. Equal texts are one object, so it is a fraction of the document's size."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Read `data.privtab_state.<system>`; raises PolicyError where it is not an index."""
        try:
            self._read(document)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise PolicyError(f"the state is not an index: {error!r}") from error

    def _read(self, document: Mapping[str, Any]) -> None:
        self.revision: str = document["revision"]
        self.numbers = Numbers()
        self.tables: dict[str, Table] = {}
        """By entity type."""
        self.origins: dict[tuple[str, str, str, str], tuple[str, ...]] = {}
        """(`allow` or `deny`, privilege, key, principal for a role within a scope) → the entities of the rows."""
        self._texts: dict[str, str] = {}
        self.users: dict[str, tuple[str, ...]] = dict(self._people(document["principals"]))
        """User → his principals: himself, his groups, their roles; absent where nothing is held by any."""
        self.groups: dict[str, tuple[str, ...]] = dict(self._people(document["group_principals"]))
        for effect in ("allow", "deny"):
            for privilege, entities in document[effect].items():
                bit = getattr(self.numbers, "allowed" if effect == "allow" else "denied")(privilege)
                for key, holders in entities.items():
                    self._enter(effect, privilege, bit, key, holders)
        for key, owners in document["owners"].items():
            self._add(key, OWNER, owners)
        self._share()
        self.members: dict[str, dict[str, frozenset[str]]] = {}
        """By entity type and path: users."""
        for key, users in document["members"].items():
            type_, _, path = key.partition(":")
            self.members.setdefault(type_, {})[path] = frozenset(map(self._text, users))
        self.within: dict[str, tuple[str, str]] = {
            principal: (role, scope) for principal, (role, scope) in document["within"].items()
        }
        """The role and the scope that a principal for a role within a scope is made of."""
        self.scoped = self._scopes(document["scoped"])
        """User → key of a scope → the declared roles that he holds there."""
        self.group_scoped = self._scopes(document["group_scoped"])
        self.service_admins = frozenset(document["service_admins"])
        del self._texts

    def table(self, type_: str) -> Table:
        """What is held on entities of a type."""
        return self.tables.setdefault(type_, {})

    def principals(self, user: str, groups: Iterable[str] = ()) -> tuple[str, ...]:
        """The principals of a user, and those of the groups that a request brings."""
        own = self.users.get(user, ())
        if not groups:
            return own
        brought = (p for group in groups for p in self.groups.get(group, (f"group:{group}",)))
        return tuple(dict.fromkeys((*own, *brought)))

    def scopes(self, user: str, groups: Iterable[str] = ()) -> Mapping[str, Iterable[str]]:
        """The declared roles by the key of the scope that a user holds them in."""
        own = self.scoped.get(user, {})
        if not groups:
            return own
        found = {key: set(roles) for key, roles in own.items()}
        for group in groups:
            for key, roles in self.group_scoped.get(group, {}).items():
                found.setdefault(key, set()).update(roles)
        return found

    def _enter(self, effect: str, privilege: str, bit: int, key: str, holders: Mapping[str, Any]) -> None:
        self._add(key, bit, holders)
        for principal, entry in holders.items():
            if entry is not True:
                self.origins[effect, privilege, key, principal] = tuple(entry)

    def _add(self, key: str, bit: int, principals: Iterable[str]) -> None:
        type_, _, path = key.partition(":")
        table = self.tables.setdefault(type_, {})
        holders = table.get(path)
        if holders is None:
            holders = table[path] = {}
        text = self._text
        for principal in principals:
            holders[text(principal)] = holders.get(principal, 0) | bit

    def _share(self) -> None:
        """One object for equal numbers: there are few of them, and many places."""
        known: dict[int, int] = {}
        for table in self.tables.values():
            for holders in table.values():
                for principal, bits in holders.items():
                    holders[principal] = known.setdefault(bits, bits)

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def _people(self, document: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        text = self._text
        known: dict[str, tuple[str, ...]] = {}
        for name, principals in document.items():
            listed = known.get(principals)
            if listed is None:
                listed = known[principals] = tuple(map(text, principals.split(SEPARATOR)))
            yield text(name), listed

    @staticmethod
    def _scopes(document: Mapping[str, Mapping[str, list[str]]]) -> dict[str, dict[str, tuple[str, ...]]]:
        return {name: {key: tuple(roles) for key, roles in scopes.items()} for name, scopes in document.items()}
