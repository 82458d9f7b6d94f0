"""Apache Gravitino: users, groups, roles, privileges of roles and owners of one metalake, through its REST API.

Gravitino has no place for a record of what was granted, so a file keeps it.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from privtab.base import UsageError, read_content, strict_loads, write_file
from privtab.client import Sender, SendError
from privtab_connect.errors import PushError
from privtab_connect.names import names_of
from privtab_connect.pushdown import Options
from privtab_connect.pushdown.document import MappingDocument
from privtab_connect.pushdown.rights import (
    Account,
    AccountKind,
    Inventory,
    NativeGrant,
    NativeMembership,
    NativeOwnership,
    Object,
    PushPlan,
    Right,
    Traits,
    from_text,
    in_order,
    to_text,
)
from privtab_server.errors import expected_form

_KINDS = names_of("gravitino").paths
TRAITS = Traits(
    kinds=_KINDS,
    privileges=None,
    denials=True,
    inherits=True,
    groups_are_roles=False,
    grantees=("role",),
    links=(("login", "role"), ("group", "role")),
    adds_logins=True,
)
_EFFECTS: Mapping[str, Literal["allow", "deny"]] = {"allow": "allow", "deny": "deny"}
_PLURALS: Mapping[AccountKind, str] = {"login": "users", "group": "groups", "role": "roles"}
_TIMEOUT = (5.0, 60.0)
_LARGEST = 1 << 28
"""Bytes of one answer."""
_MEDIA = "application/vnd.gravitino.v1+json"


def name_problem(item: Account | Object) -> str | None:
    """As TargetModule.name_problem."""
    for name in item.names if isinstance(item, Object) else (item.name,):
        if not name.strip():
            return "the name is empty"
        if isinstance(item, Object) and "." in name:
            return f"`{name}` has a dot, which separates the names of an object"
    return None


@contextlib.contextmanager
def opened(where: str, document: MappingDocument, pusher: str, options: Options) -> Iterator[Gravitino]:
    """As TargetModule.opened."""
    if not where.startswith(("http://", "https://")):
        raise UsageError(f"`{where}` is no address of a Gravitino: write https://…")
    metalake = document.within.get("metalake")
    if metalake is None:
        raise UsageError("`within` of the mapping document must say which metalake it is, under `metalake`")
    if options.record is None:
        raise UsageError("Gravitino has no place for a record of what was granted: give a file by `--record FILE`")
    with Sender(
        timeout=_TIMEOUT,
        seconds=sum(_TIMEOUT),
        largest=_LARGEST,
        token=options.token,
        headers=options.headers,
        accept=_MEDIA,
    ) as sender:
        yield Gravitino(sender, where.rstrip("/"), metalake, Record(options.record, where, pusher))


class Record:
    """The file that keeps which rights pushes granted, for one target and one name."""

    def __init__(self, path: Path, where: str, pusher: str) -> None:
        self._path = path
        self._identity = {"target": where.rstrip("/"), "pusher": pusher}

    def read(self) -> frozenset[Right]:
        """The recorded rights; none if there is no file yet. Raises PushError for the file of another target."""
        try:
            content = strict_loads(read_content(self._path, 1 << 30))
            identity = {name: content[name] for name in self._identity}
            rights = frozenset(map(from_text, content["rights"]))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PushError(f"{self._path} is no record of a push: {error}") from error
        if identity != self._identity:
            raise PushError(f"{self._path} is the record of a push to {identity['target']} as `{identity['pusher']}`")
        return rights

    def write(self, rights: frozenset[Right]) -> None:
        """Replace the recorded rights."""
        content = {**self._identity, "rights": sorted(map(to_text, rights))}
        write_file(self._path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode(), in_place=True)


class Gravitino:
    """One push to a metalake."""

    def __init__(self, sender: Sender, where: str, metalake: str, record: Record) -> None:
        self.where = f"{where} {metalake}"
        self._sender = sender
        self._root = where
        self._metalake = metalake
        self._path = f"/api/metalakes/{quote(metalake, safe='')}"
        self._record = record

    def prepare(self) -> None:
        """As Session.prepare."""

    def read(self) -> Inventory:
        """As Session.read. An answer without the list that was asked for is an error: it would look like one without rights."""
        with expected_form(self.where, PushError):
            return self._inventory()

    def _inventory(self) -> Inventory:
        accounts: set[Account] = set()
        rights: set[Right] = set()
        kinds: tuple[AccountKind, ...] = ("login", "group")
        for kind in kinds:
            plural = _PLURALS[kind]
            for described in _list(self._get(f"/{plural}?details=true"), plural):
                account = Account(kind, described["name"])
                accounts.add(account)
                rights |= {NativeMembership(account, Account("role", role)) for role in described.get("roles") or ()}
        for role in _list(self._get("/roles"), "names"):
            accounts.add(Account("role", role))
            rights |= self._privileges(role)
        objects = {Object("metalake", ()), *self._objects()}
        owners = {owner for object_ in objects for owner in self._owner(object_)}
        return Inventory(
            accounts=frozenset(accounts),
            objects=frozenset(objects),
            rights=frozenset(rights | owners),
            inherent=frozenset(owners),
            recorded=self._record.read(),
        )

    def _privileges(self, role: str) -> set[Right]:
        found: set[Right] = set()
        answer = self._get(f"/roles/{quote(role, safe='')}")
        # A role that was just removed has no privileges.
        for securable in _list(answer["role"], "securableObjects") if answer is not None else ():
            kind = str(securable["type"]).lower()
            names = () if kind == "metalake" else tuple(str(securable["fullName"]).split("."))
            for privilege in _list(securable, "privileges"):
                effect = _EFFECTS[str(privilege["condition"]).lower()]
                name = str(privilege["name"]).upper()
                found.add(NativeGrant(Account("role", role), effect, name, Object(kind, names)))
        return found

    def _objects(self) -> Iterator[Object]:
        """The catalogs, the schemas, and what is in them."""
        for catalog in self._names("/catalogs"):
            yield Object("catalog", (catalog,))
            path = f"/catalogs/{quote(catalog, safe='')}/schemas"
            for schema in self._names(path):
                yield Object("schema", (catalog, schema))
                for kind in (kind for kind, path in _KINDS.items() if len(path) == 3):
                    for name in self._names(f"{path}/{quote(schema, safe='')}/{kind}s"):
                        yield Object(kind, (catalog, schema, name))

    def _names(self, path: str) -> list[str]:
        return [identifier["name"] for identifier in _list(self._get(path), "identifiers")]

    def _owner(self, object_: Object) -> Iterator[Right]:
        answer = self._get(f"/owners/{self._named(object_)}")
        if answer is not None and (owner := answer.get("owner")):
            kind: AccountKind = "group" if str(owner.get("type")).upper() == "GROUP" else "login"
            yield NativeOwnership(object_, Account(kind, owner["name"]))

    def normalised(self, desired: frozenset[Right], inventory: Inventory) -> frozenset[Right]:
        """As Session.natural."""
        del inventory
        return desired

    def moved(self, inventory: Inventory, desired: frozenset[Right]) -> Inventory:
        """As Session.moved: a new owner takes the place of another one, and an owner who is not named any more stays."""
        owned = {right.object for right in desired - inventory.rights if isinstance(right, NativeOwnership)}
        lost = {r for r in inventory.rights if isinstance(r, NativeOwnership) and r.object in owned}
        stays = {r for r in inventory.recorded - desired if isinstance(r, NativeOwnership)}
        return replace(inventory, rights=inventory.rights - lost, recorded=inventory.recorded - lost - stays)

    def requests(self, plan: PushPlan) -> tuple[str, ...]:
        """As Session.requests: method, path and body."""
        return tuple(
            f"{method} {path} {json.dumps(body, ensure_ascii=False)}" for method, path, body in self._calls(plan)
        )

    def apply(self, plan: PushPlan) -> None:
        """As Session.apply. New rights are recorded before they are granted, old ones as long as they are not revoked."""
        before = self._record.read()
        self._record.write(before | plan.record)
        for method, path, body in self._calls(plan):
            self._send(method, path, body)
        self._record.write(plan.record)
        after = self.read()
        different = in_order(set((plan.desired - after.rights) | (plan.revoke & after.rights)))
        if different:
            raise PushError(f"{self.where}: the server did not carry out the plan: {different[0]}")

    def _calls(self, plan: PushPlan) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """The requests in order: owners last, since the account that pushes may lose rights with them."""
        for account in sorted(plan.create):
            body: dict[str, Any] = {"name": account.name}
            if account.kind == "role":
                body |= {"properties": {}, "securableObjects": []}
            yield "POST", f"{self._path}/{_PLURALS[account.kind]}", body
        yield from self._permissions(in_order(set(plan.revoke)), "revoke")
        granted = in_order(set(plan.grant))
        yield from self._permissions(granted, "grant")
        for right in granted:
            if isinstance(right, NativeOwnership):
                kind = "GROUP" if right.owner.kind == "group" else "USER"
                yield (
                    "PUT",
                    f"{self._path}/owners/{self._named(right.object)}",
                    {"name": right.owner.name, "type": kind},
                )

    def _permissions(self, rights: Sequence[Right], verb: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """One request for each role and object, and one for each user and group."""
        privileges: dict[str, list[dict[str, str]]] = defaultdict(list)
        roles: dict[str, list[str]] = defaultdict(list)
        for right in rights:
            if isinstance(right, NativeGrant):
                path = f"roles/{quote(right.account.name, safe='')}/{self._named(right.object)}"
                privileges[path].append({"name": right.privilege, "condition": right.effect.upper()})
            elif isinstance(right, NativeMembership):
                path = f"{_PLURALS[right.account.kind]}/{quote(right.account.name, safe='')}"
                roles[path].append(right.role.name)
        for path, listed in privileges.items():
            yield "PUT", f"{self._path}/permissions/{path}/{verb}", {"privileges": listed}
        for path, names in roles.items():
            yield "PUT", f"{self._path}/permissions/{path}/{verb}", {"roleNames": names}

    def _named(self, object_: Object) -> str:
        """The type and the full name of an object, as in paths."""
        name = ".".join(object_.names) if object_.names else self._metalake
        return f"{object_.kind}/{quote(name, safe='')}"

    def _get(self, path: str) -> dict[str, Any] | None:
        """The answer at a path of the metalake; None where there is nothing (404)."""
        return self._send("GET", self._path + path, None)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            answer = self._sender.send(method, self._root + path, body)
            content = answer.json() if answer.body else {}
        except SendError as error:
            raise PushError(f"{self.where}: {method} {path}: {error}") from error
        if answer.status == 404 and method == "GET" and path != f"{self._path}/roles":
            return None
        if answer.status != 200 or not isinstance(content, dict):
            message = content.get("message", "") if isinstance(content, dict) else ""
            raise PushError(f"{self.where}: {method} {path} answered {answer.status} {message}".rstrip())
        return content


def _list(answer: dict[str, Any] | None, name: str) -> list[Any]:
    """A list in an answer; empty where there is nothing. Raises KeyError or TypeError if it is missing."""
    found = [] if answer is None else answer[name]
    if not isinstance(found, list):
        raise TypeError(f"`{name}` is no list")
    return found
