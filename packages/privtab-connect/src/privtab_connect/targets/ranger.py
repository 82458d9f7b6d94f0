"""Apache Ranger: a file of policies, as Ranger exports and imports it. Each object of the state has one policy, marked by a label."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from privtab.base import UsageError, read_content, strict_loads, write_file
from privtab_connect.errors import PushError
from privtab_connect.names import CHANGES, names_of
from privtab_connect.pushdown import Options
from privtab_connect.pushdown.document import MappingDocument
from privtab_connect.pushdown.rights import (
    EVERYONE,
    WITH_EVERYONE,
    Account,
    AccountKind,
    Inventory,
    NativeGrant,
    Object,
    PushPlan,
    Right,
    Traits,
)

_NAMES = names_of("ranger")
TRAITS = Traits(
    kinds=_NAMES.paths,
    privileges=None,
    denials=True,
    inherits=None,
    links=(),
    grantees=WITH_EVERYONE,
    owners=False,
    groups_are_roles=False,
    knows_names=False,
)
_KINDS = {path: kind for kind, path in _NAMES.paths.items()}
_LEVELS = max(_KINDS, key=len)
"""The names on the longest path: those of the resources of a policy."""
EVERYTHING = "*"
LABEL = "privtab:"
"""Beginning of the label of a pushed policy; the name of the push follows."""
_PUBLIC = Account("group", "public")
"""The group of Ranger that everybody is in."""
_PRINCIPALS: Mapping[str, AccountKind] = {"users": "login", "groups": "group", "roles": "role"}
_EFFECTS = {"policyItems": "allow", "denyPolicyItems": "deny"}
_LIMITS = (
    "allowExceptions",
    "denyExceptions",
    "validitySchedules",
    "conditions",
    "dataMaskPolicyItems",
    "rowFilterPolicyItems",
)
"""Keys of policies that say more than rights."""


def name_problem(item: Account | Object) -> str | None:
    """As TargetModule.name_problem."""
    for name in item.names if isinstance(item, Object) else (item.name,):
        if not name.strip():
            return "the name is empty"
        if _NAMES.changes(name):
            return f"`{name}` {CHANGES}"
        if isinstance(item, Object) and _NAMES.stands_for_several(name):
            return f"`{name}` stands for several objects"
    if item == _PUBLIC:
        return "everybody is in the group of this name: the policy can say so, `semantics: {everyone: public}`"
    return None


@contextlib.contextmanager
def opened(where: str, document: MappingDocument, pusher: str, options: Options) -> Iterator[Ranger]:
    """As TargetModule.opened."""
    if "://" in where:
        raise UsageError("Ranger's policies are pushed to a file, which Ranger imports")
    yield Ranger(Path(where), pusher, inherits=document.inherits, service=options.values.get("service"))


class Ranger:
    """One push to a file of policies."""

    def __init__(self, path: Path, pusher: str, *, inherits: bool, service: str | None) -> None:
        self.where = str(path)
        self._path = path
        self._label = LABEL + pusher
        self._pusher = pusher
        self._inherits = inherits
        self._service = service

    def prepare(self) -> None:
        """As Session.prepare."""

    def read(self) -> Inventory:
        """As Session.read."""
        own: set[Right] = set()
        others: set[Right] = set()
        unread = []
        for policy in self._policies():
            rights = self._rights(policy)
            if rights is not None:
                (own if self._owned(policy) else others).update(rights)
            elif policy.get("isEnabled") is not False:
                unread.append(f"policy {policy.get('id', '')} `{policy.get('name', '')}`")
        everything = own | others
        return Inventory(
            accounts=frozenset(right.account for right in everything if isinstance(right, NativeGrant)),
            objects=frozenset(right.object for right in everything if isinstance(right, NativeGrant)),
            rights=frozenset(everything),
            recorded=frozenset(own - others),
            unread=tuple(unread),
        )

    def normalised(self, desired: frozenset[Right], inventory: Inventory) -> frozenset[Right]:
        """As Session.natural: Ranger does not tell upper case from lower case in the names of objects."""
        del inventory
        spellings: dict[tuple[str, ...], Object] = {}
        for right in desired:
            if isinstance(right, NativeGrant):
                key = (right.object.kind, *(name.lower() for name in right.object.names))
                other = spellings.setdefault(key, right.object)
                if other != right.object:
                    raise UsageError(f"{other} and {right.object} would be one in Ranger, which ignores upper case")
        return desired

    def moved(self, inventory: Inventory, desired: frozenset[Right]) -> Inventory:
        """As Session.moved."""
        del desired
        return inventory

    def requests(self, plan: PushPlan) -> tuple[str, ...]:
        """As Session.requests: the policies that change, one a line; policies without items are removed."""
        before = {policy["name"]: policy for policy in self._policies() if self._owned(policy)}
        after = {policy["name"]: policy for policy in self._pushed(plan)}
        changed = [_line(policy) for name, policy in after.items() if _line(before.get(name)) != _line(policy)]
        removed = [_line({"name": name, "removed": True}) for name in sorted(before.keys() - after.keys())]
        return (*changed, *removed)

    def apply(self, plan: PushPlan) -> None:
        """As Session.apply: the file is replaced as a whole."""
        policies = self._policies()
        kept = [policy for policy in policies if not self._owned(policy)]
        if plan.revoke - self.read().recorded:
            raise PushError(f"{self.where}: policies that privtab did not write are changed in Ranger itself")
        pushed = self._pushed(plan)
        used = {_resources(policy): policy for policy in kept}
        for policy in pushed:
            other = used.get(_resources(policy))
            if other is not None:
                raise PushError(
                    f"{self.where}: policy {other.get('id', '')} `{other.get('name', '')}` is about the same resources as "
                    f"`{policy['name']}`, and Ranger takes one policy for each"
                )
        text = json.dumps({"policies": [*kept, *pushed]}, indent=1, ensure_ascii=False, sort_keys=True)
        write_file(self._path, (text + "\n").encode(), in_place=True)

    def _policies(self) -> list[dict[str, Any]]:
        """The policies of the file; none if there is no file yet."""
        try:
            content = strict_loads(read_content(self._path, 1 << 30))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise PushError(f"{self.where}: {error}") from error
        policies = content.get("policies") if isinstance(content, dict) else content
        if not isinstance(policies, list) or not all(isinstance(policy, dict) for policy in policies):
            raise PushError(f"{self.where} is no export of Ranger: it has no list of policies")
        return policies

    def _owned(self, policy: Mapping[str, Any]) -> bool:
        """Return whether this push wrote a policy."""
        return self._label in (policy.get("policyLabels") or ())

    def _rights(self, policy: Mapping[str, Any]) -> set[Right] | None:
        """The rights of a policy; None if it says anything else."""
        if policy.get("isEnabled") is False or policy.get("policyType") or any(policy.get(key) for key in _LIMITS):
            return None
        objects = self._objects(policy.get("resources") or {})
        rights: set[Right] = set()
        for key, effect in _EFFECTS.items():
            for item in policy.get(key) or ():
                if item.get("conditions") or item.get("delegateAdmin"):
                    return None
                named = [Account(kind, name) for plural, kind in _PRINCIPALS.items() for name in item.get(plural) or ()]
                accounts = [EVERYONE if account == _PUBLIC else account for account in named]
                words = [
                    access["type"] for access in item.get("accesses") or () if access.get("isAllowed") is not False
                ]
                rights |= {
                    NativeGrant(account, effect, word, object_)  # type: ignore[arg-type]
                    for account in accounts
                    for word in words
                    for object_ in objects or ()
                }
        return None if objects is None else rights

    def _objects(self, resources: Mapping[str, Any]) -> list[Object] | None:
        """The objects that the resources of a policy are; None if they are none."""
        if not resources or any(part.get("isExcludes") for part in resources.values()):
            return None
        if set(resources) - set(_LEVELS):
            return None
        values = [list(map(str, _values(resources.get(level)))) for level in _LEVELS]
        below = [EVERYTHING] if self._inherits else []
        depth = next((n for n, names in enumerate(values) if names in ([], below)), len(_LEVELS))
        objects = [Object(_KINDS[_LEVELS[:depth]], names) for names in product(*values[:depth])] if depth else []
        if not objects or any(names != below for names in values[depth:]) or any(map(name_problem, objects)):
            return None
        return objects

    def _pushed(self, plan: PushPlan) -> list[dict[str, Any]]:
        """The policies of this push after a plan."""
        by_object: dict[Object, set[NativeGrant]] = defaultdict(set)
        for right in plan.record:
            if isinstance(right, NativeGrant):
                by_object[right.object].add(right)
        return [self._policy(object_, rights) for object_, rights in sorted(by_object.items())]

    def _policy(self, object_: Object, rights: set[NativeGrant]) -> dict[str, Any]:
        levels = _LEVELS if self._inherits else TRAITS.kinds[object_.kind]
        names = (*object_.names, *(EVERYTHING for _ in levels[len(object_.names) :]))
        policy: dict[str, Any] = {
            "name": f"{self._label} {object_.kind} {'/'.join(name.replace('/', '//') for name in object_.names)}",
            "isEnabled": True,
            "policyType": 0,
            "policyLabels": [self._label],
            "resources": {level: {"values": [name]} for level, name in zip(levels, names, strict=True)},
        }
        if self._service is not None:
            policy["service"] = self._service
        for key, effect in _EFFECTS.items():
            policy[key] = _items(right for right in rights if right.effect == effect)
        return policy


def _items(rights: Iterator[NativeGrant]) -> list[dict[str, Any]]:
    """The items of one effect: accounts with the same privileges share one."""
    privileges: dict[Account, set[str]] = defaultdict(set)
    for right in rights:
        privileges[_PUBLIC if right.account == EVERYONE else right.account].add(right.privilege)
    accounts: dict[tuple[str, ...], list[Account]] = defaultdict(list)
    for account, words in sorted(privileges.items()):
        accounts[tuple(sorted(words))].append(account)
    return [
        {
            **{plural: [a.name for a in listed if a.kind == kind] for plural, kind in _PRINCIPALS.items()},
            "accesses": [{"type": word, "isAllowed": True} for word in words],
            "delegateAdmin": False,
        }
        for words, listed in sorted(accounts.items())
    ]


def _resources(policy: Mapping[str, Any]) -> str:
    """Return the text that Ranger compares to find a second policy for the same resources."""
    parts: Mapping[str, Any] = policy.get("resources") or {}
    values = {level: sorted(str(v).lower() for v in _values(part)) for level, part in parts.items()}
    return json.dumps([policy.get("policyType") or 0, values], sort_keys=True)


def _values(part: object) -> Sequence[object]:
    values = part.get("values") if isinstance(part, dict) else None
    return values if isinstance(values, list) else ()


def _line(policy: Mapping[str, Any] | None) -> str:
    return json.dumps(policy, ensure_ascii=False, sort_keys=True)
