"""Policies whose requests bring principals, flags, objects and attributes, and raw requests to them in every shape."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

SEMANTICS = (
    "groups: [state, request]",
    "groups: [request]",
    "groups: [state, request], active_roles: request",
    "groups: [state, request], everyone: all",
    "groups: [state]",
)
"""Who the callers are, by policy."""
ATTRIBUTES = """
attributes:
  user: {level: {integer: true, from: [state, request]}, team: {text: true, from: [state, request]}}
  entity: {kind: {text: true, on: [item], from: [state, request]}}
  request: {mfa: {bool: true, default: true}}
"""
_POLICY = """
privtab: 1
system: raw{number}
version: "1"
entities: {{shop: {{item: , person: }}}}
types: {{person: {{principal: user}}}}
privileges: [READ, WRITE]
semantics: {{inheritance: down, deny: overrides, owner: {{creator: true}}, {semantics}}}{attributes}
tables:
  item:
    look: anyone
    read: READ (item)
    write: WRITE (item) and (owner (item) when strict)
    list: {{requires: READ (shop), each: READ (item)}}
    move: {{with: {{to: item}}, requires: "READ (item) and WRITE (to)"}}
{more}  person: {{get: self or READ (person)}}
"""
_MORE = """    open: READ (item) and user.level = 3
    same: READ (item) and entity.kind = user.team
    sure: READ (item) and request.mfa
"""
STATE: Mapping[str, Any] = {
    "memberships": [{"user": "ann", "group": "hr"}],
    "assignments": [{"principal": "user:ann", "role": "r"}, {"principal": "group:g1", "role": "s"}],
    "grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "shop:s"},
        {"grantee": "user:ann", "effect": "allow", "privilege": "WRITE", "entity": "item:s/x"},
        {"grantee": "group:g1", "effect": "deny", "privilege": "READ", "entity": "item:s/x"},
        {"grantee": "group:g2", "effect": "allow", "privilege": "READ", "entity": "shop:s"},
        {"grantee": "role:r", "effect": "allow", "privilege": "WRITE", "entity": "item:s/y"},
        {"grantee": "user:eve", "effect": "deny", "privilege": "READ", "entity": "shop:s"},
    ],
    "owners": [{"entity": "item:s/y", "owner": "user:ann"}],
}
_VALUES = [
    {"user": "ann", "attribute": "level", "value": "3"},
    {"user": "ann", "attribute": "team", "value": "shown"},
    {"entity": "item:s/x", "attribute": "kind", "value": "shown"},
]


def policy(number: int) -> tuple[str, dict[str, Any]]:
    """A policy whose system is `raw` with the number, and its state."""
    of_state = dict(STATE)
    semantics = SEMANTICS[number % len(SEMANTICS)]
    with_attributes = number >= len(SEMANTICS)
    if "state" not in semantics:
        del of_state["memberships"]
    text = _POLICY.format(
        number=number,
        semantics=semantics,
        attributes=ATTRIBUTES.rstrip("\n") if with_attributes else "",
        more=_MORE if with_attributes else "",
    )
    return text, of_state | ({"attributes": _VALUES} if with_attributes else {})


POLICIES = 2 * len(SEMANTICS)
_NAMES = (
    "ann",
    "eve",
    "ben",
    "g1",
    "g2",
    "hr",
    "all",
    "r",
    "s",
    "x",
    "n o",
    "é",
    "a/b",
    "a%2Fb",
    "urn:x",
    "user",
    "group",
)
_BEFORE = (
    "",
    "",
    "",
    "user:",
    "group:",
    "role:",
    "User:",
    "Group:",
    "ROLE:",
    "users:",
    "groups:",
    "roles:",
    "u\u017fer:",
    ":",
    " ",
)
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, 3, -1, 2.5, 3.0, 10**20, "", " ", "*", "??", "%", "%2A", "\t", "\n", "\u0085", "\u2028", [], ["g1"], [[]],
    [["g1"]], {}, {"g1": True}, {"type": "item"}, {"id": "s/x"}, [None], [1], "g1", "ann", "group:", "user:", "item", "s/x", "a" * 300,
)  # fmt: skip


def request(rnd: random.Random) -> Any:
    """A request: mostly sound, with values of other shapes in some places."""
    asked: dict[str, Any] = {
        "subject": {"type": "user", "id": _name(rnd, ("", "", "user:"), ("ann", "eve", "ben"))},
        "action": {"name": rnd.choice(("look", "read", "write", "list", "move", "open", "same", "sure", "get"))},
        "resource": {"type": "item", "id": rnd.choice(("s/x", "s/y", "s/z"))},
    }
    if asked["action"]["name"] == "get":
        asked["resource"] = {"type": "person", "id": rnd.choice(("s/ann", "s/eve", "s/user:ann"))}
    if rnd.random() < 0.6:
        groups = [_name(rnd, ("", "group:"), ("g1", "g2", "hr", "all")) for _ in range(rnd.randint(0, 3))]
        asked["subject"]["properties"] = {"groups": groups}
    context: dict[str, Any] = {}
    if asked["action"]["name"] == "move" or rnd.random() < 0.2:
        context["with"] = {"to": {"type": "item", "id": rnd.choice(("s/x", "s/y"))}}
    of_context: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("active_roles", ([], ["r"], ["role:r"], ["r", "r"], ["s"], ["r", "s"], ["r"] * 1001)),
        ("strict", (True, False, None, 0, "no")),
        ("mfa", (True, False)),
    )
    for key, values in of_context:
        if rnd.random() < 0.25:
            context[key] = rnd.choice(values)
    if context or rnd.random() < 0.1:
        asked["context"] = context
    of_parts: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
        ("subject", "level", (3, 4, 3.0, "3")),
        ("resource", "kind", ("shown", "b", 1)),
        ("action", "mfa", (True, False, "yes")),
    )
    for part, name, given in of_parts:
        if rnd.random() < 0.2:
            asked[part].setdefault("properties", {})[name] = rnd.choice(given)
    for _ in range(rnd.choice((0, 0, 1, 1, 2, 3))):
        asked = _changed(asked, rnd)
    return asked


def _name(rnd: random.Random, before: tuple[str, ...] = _BEFORE, names: tuple[str, ...] = _NAMES) -> str:
    return rnd.choice(before) + (rnd.choice(before) if rnd.random() < 0.1 else "") + rnd.choice(names)


def _changed(asked: Any, rnd: random.Random) -> Any:
    """The same with one value, at any depth, replaced, removed or doubled, or with a key that nobody knows."""
    if not isinstance(asked, dict | list) or not asked or rnd.random() < 0.02:
        return _name(rnd) if rnd.random() < 0.5 else rnd.choice(_ODD)
    changed: Any = dict(asked) if isinstance(asked, dict) else list(asked)
    key = rnd.choice(list(asked)) if isinstance(asked, dict) else rnd.randrange(len(asked))
    within = isinstance(asked[key], dict | list) and asked[key]
    match rnd.random():
        case chance if chance < 0.7 and (within or chance < 0.45):
            changed[key] = _changed(asked[key], rnd)
        case chance if chance < 0.8:
            del changed[key]
        case chance if chance < 0.9 and isinstance(changed, list):
            changed.append(rnd.choice((asked[key], _name(rnd), rnd.choice(_ODD))))
        case _ if isinstance(changed, dict):
            changed[rnd.choice(("unknown", "properties", "groups", "roles", "with", "id", "type", ""))] = rnd.choice(
                (*_ODD, _name(rnd), {"to": {"type": "item", "id": "s/y", "properties": rnd.choice(_ODD)}})
            )
    return changed
