"""Cedar's languages and their JSON: schemas, and policies whose scopes and conditions are expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from lark import Token

from privtab.base import FileError, strict_loads
from privtab_connect.models.grammar import Language, place

Expression: TypeAlias = tuple[Any, ...]
"""An operator or a kind of value, and what belongs to it: `("in", ("principal",), (".", ("resource",), "readers"))`."""
Declaration: TypeAlias = tuple[str, str, Any, str]
"""The section of a schema's JSON, a name, what stands there, and the namespace."""
_VARIABLES = ("principal", "action", "resource")
_PAIR = ("left", "right")
_OPERANDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "&&", "||", "+", "-", "*"), _PAIR),
    **dict.fromkeys(("contains", "containsAll", "containsAny", "getTag", "hasTag"), _PAIR),
    **dict.fromkeys(("!", "neg", "isEmpty"), ("arg",)),
    **dict.fromkeys((".", "has"), ("left", "attr")),
    "like": ("left", "pattern"),
    "is": ("left", "entity_type"),
    "if-then-else": ("if", "then", "else"),
}
"""The operands of each operator of Cedar's JSON."""
_KEYS = {
    "entityTypes": ("memberOfTypes", "shape", "tags", "enum"),
    "actions": ("appliesTo", "memberOf", "attributes"),
    "commonTypes": (),
}
"""The sections of a schema's JSON, and the keys of what stands there; a common type is any type."""
_ESCAPE = re.compile(r"\\(?:u\{(\w+)\}|x(\w\w)|(.))")


@dataclass(slots=True)
class Schema:
    """The types with their attributes, by the type of each; what each type lies in; the actions with the types of their resources."""

    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    parents: dict[str, list[str]] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)
    actions: dict[str, list[str]] = field(default_factory=dict)
    within: dict[str, list[str]] = field(default_factory=dict)
    """The groups of actions that an action is in."""
    asking: dict[str, set[str]] = field(default_factory=dict)
    """The types of principals that do an action."""
    names: set[str] = field(default_factory=set)
    """The names of types and actions, with their namespaces: `Shop::Project`, `Shop::Action::view`."""

    @property
    def groups(self) -> set[str]:
        """The types that users are in."""
        found = {above for user in self.users for above in self.parents.get(user, ())}
        while more := {above for group in found for above in self.parents.get(group, ())} - found:
            found |= more
        return found

    def people(self, kind: str) -> bool:
        """Whether values of a type are users, groups, or sets of them."""
        return kind.removeprefix("Set ") in self.users | self.groups


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: its effect (`link` for one that a template is linked by), scope and conditions, and its place."""

    effect: str
    name: str
    scope: Mapping[str, Expression]
    conditions: tuple[tuple[str, Expression], ...]
    place: str


def _text_of(parts: list[Token]) -> Token:
    def meant(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}.get(found[3], found[3])

    return Token.new_borrow_pos("STRING", _ESCAPE.sub(meant, parts[0][1:-1]), parts[0])


def _types(names: list[Token], above: Any, shape: Any) -> list[Declaration]:
    return [("entityTypes", name, {"memberOfTypes": above or [], "shape": shape or {}}, "") for name in names]


def _actions(names: list[Token], groups: Any, applied: list[Any]) -> list[Declaration]:
    who = {f"{part[1]}Types": part[2] for part in applied if part[0] == "applied"}
    return [("actions", name, {"memberOf": groups or [], "appliesTo": who}, "") for name in names]


def _inside(namespace: str, *parts: list[Declaration]) -> list[Declaration]:
    return [(section, name, of, namespace) for part in parts for section, name, of, _ in part]


def _instance(left: Expression, _is: Any, kind: str, _in: Any = None, within: Expression | None = None) -> Expression:
    return ("&&", ("is", left, kind), ("in", left, within)) if within else ("is", left, kind)


_LANGUAGE = Language(
    "cedar",
    {
        "text": _text_of,
        "name": lambda parts: parts[0],
        "path": lambda parts: "::".join(filter(None, parts)),
        "dotted": ".".join,
        "entity": lambda parts: ("entity", *map(str, parts)),
        "variable": lambda parts: (str(parts[0]),),
        "value": lambda parts: (json.dumps(parts[0]),),
        "sign": lambda parts: (str(parts[0]), *parts[1:]),
        "binary": lambda parts: (str(parts[1]), parts[0], *parts[2:]),
        "instance": lambda parts: _instance(*parts),
        "attribute": lambda parts: (".", parts[0], str(parts[1])),
        "function": lambda parts: (str(parts[0]), *parts[1:]),
        "choice": lambda parts: ("if-then-else", *parts),
        "has": lambda parts: ("has", parts[0], parts[2]),
        "call": lambda parts: (str(parts[1]), parts[0], *parts[2:]),
        "types": list,
        "set_value": lambda parts: ("Set", *parts),
        "record_value": lambda parts: ("Record", *(value for _, _, value in parts)),
        "names": list,
        "groups": lambda parts: [{"id": part[2] if isinstance(part, tuple) else part} for part in parts],
        "set_of": lambda parts: {"type": "Set", "element": parts[0]},
        "record": lambda parts: {"type": "Record", "attributes": {str(name): kind for *_, name, kind in parts}},
        "type": lambda parts: _types(*(_plain(parts)[at] for at in (0, 2, 3))),
        "enumeration": lambda parts: _types(_plain(parts)[0], None, None),
        "common": lambda parts: [("commonTypes", *_plain(parts), "")],
        "action": lambda parts: _actions(_plain(parts)[1], _plain(parts)[3], _plain(parts)[4:]),
        "namespace": lambda parts: _inside(*_plain(parts)),
        "schema": lambda parts: [declared for part in parts for declared in part],
    },
)


def only(given: Any, *keys: str) -> Mapping[str, Any]:
    """An object of JSON. Raises ValueError for another key, which may say less than what is read, and AttributeError for no object."""
    if unknown := sorted(given.keys() - {*keys}):
        raise ValueError(f"unknown key `{unknown[0]}`")
    found: Mapping[str, Any] = given
    return found


def _plain(parts: list[Any]) -> list[Any]:
    return [part for part in parts if not (isinstance(part, tuple) and part[0] == "annotation")]


def _expression(given: Any) -> Expression:
    """An expression of Cedar's JSON. Raises LookupError, TypeError, ValueError and AttributeError for anything else."""
    [(word, of)] = given.items()
    match word, of:
        case "Value", {"__entity": entity}:
            return _entity(entity)
        case "Value", _:
            return (json.dumps(of),)
        case "Var", "principal" | "action" | "resource" | "context":
            return (of,)
        case "Record", _:
            return (word, *map(_expression, of.values()))
        case _, list() if word not in {*_OPERANDS, "Var", "Slot", "Record"}:
            return (word, *map(_expression, of))
        case "is", {"left": left, "entity_type": kind, "in": within} if len(of) == 3:
            return _instance(_expression(left), None, kind, None, _expression(within))
    if word not in _OPERANDS:
        raise ValueError(f"no expression: {given}")
    operands = _OPERANDS[word]
    if wrong := sorted(of.keys() - {*operands}) or sorted({*operands} - of.keys()):
        raise ValueError(f"`{word}` has no `{wrong[0]}`")
    return (word, *(of[key] if key in {"attr", "pattern", "entity_type"} else _expression(of[key]) for key in operands))


def _entity(given: Any) -> Expression:
    of = only(given.get("__entity", given), "type", "id")
    return ("entity", str(of["type"]), str(of["id"]))


def _scope(variable: str, given: Mapping[str, Any]) -> Expression:
    """The scope of a variable in Cedar's JSON, as an expression."""
    match given:
        case {"op": "All", **rest} if not rest:
            return (variable,)
        case {"op": "is" as op, "entity_type": kind, **rest} if not rest.keys() - {"in"}:
            within = _scope(variable, {**rest["in"], "op": "in"})[2] if rest.get("in") is not None else None
            return _instance((variable,), op, kind, None, within)
        case {"op": "==" | "in" as op, "slot": "?principal" | "?resource" as slot, **rest} if not rest:
            return (op, (variable,), (slot,))
        case {"op": "==" | "in" as op, "entity": entity, **rest} if not rest:
            return (op, (variable,), _entity(entity))
        case {"op": "in", "entities": entities, **rest} if variable == "action" and not rest:
            return ("in", (variable,), ("Set", *map(_entity, entities)))
    raise ValueError(f"no scope of `{variable}`: {given}")


def read_policies(text: str, path: str) -> Iterator[Policy]:
    """The policies of a text, or of a policy or a set of policies in JSON."""
    found: list[tuple[str, str, Any, Any]] = []
    if text.lstrip().startswith("{"):
        given = strict_loads(text)
        given = {"staticPolicies": {"policy0": given}} if "effect" in given else given
        only(given, "staticPolicies", "templates", "templateLinks")
        for name, policy in chain(given.get("staticPolicies", {}).items(), given.get("templates", {}).items()):
            only(policy, "effect", "annotations", "conditions", *_VARIABLES)
            whole = (only(each, "kind", "body") for each in policy.get("conditions", ()))
            conditions = [(each["kind"], _expression(each["body"])) for each in whole]
            scopes = [_scope(variable, policy[variable]) for variable in _VARIABLES]
            found.append((policy["effect"], policy.get("annotations", {}).get("id") or name, scopes, conditions))
        found += [
            ("link", each["newId"], [(variable,) for variable in _VARIABLES], ())
            for each in given.get("templateLinks", ())
        ]
    else:
        for number, (_, *parts) in enumerate(_LANGUAGE.parse(text, path, "policies")[1:]):
            ids = {str(part[1]): part[2] for part in parts if part[0] == "annotation"}
            effect, *scopes = (part for part in parts if part[0] not in {"annotation", "condition"})
            conditions = [(str(part[1]), part[2]) for part in parts if part[0] == "condition"]
            found.append((effect, ids.get("id") or f"policy{number}", scopes, conditions))
    names = set[str]()
    for effect, name, scopes, conditions in found:
        at = place(path, effect)
        if word_of(name) in names:
            raise FileError(f"{at}: two policies are called `{word_of(name)}`")
        names.add(word_of(name))
        if effect not in {"permit", "forbid", "link"} or {kind for kind, _ in conditions} - {"when", "unless"}:
            raise FileError(f"{at}: an effect or a condition that Cedar does not have")
        scope = dict(zip(_VARIABLES, scopes, strict=True))
        for variable, scoped in scope.items():
            if any(
                str(part[2][0]).startswith("?") and part[2] != (f"?{variable}",)
                for part in conjuncts(scoped)
                if len(part) > 1
            ):
                raise FileError(f"{at}: another's slot in the scope of `{variable}`")
        yield Policy(effect, name, scope, tuple(conditions), at)


def _declared(text: str, path: str) -> list[Declaration]:
    """The declarations of a schema, in its language or its JSON; namespaces are left off."""
    if not text.lstrip().startswith("{"):
        return list(_LANGUAGE.parse(text, path, "schema"))
    found = []
    for namespace, given in strict_loads(text).items():
        only(given, *_KEYS, "annotations")
        for section, keys in _KEYS.items():
            for name, of in given.get(section, {}).items():
                if section != "actions" and not (name.isascii() and name.isidentifier()):
                    raise ValueError(f"`{name}` cannot be the name of a type")
                if keys:
                    only(of, *keys, "annotations")
                    only(of.get("appliesTo") or {}, "principalTypes", "resourceTypes", "context")
                found.append((section, name, of, namespace))
    return found


def read_schema(text: str, path: str) -> Schema:
    """A schema in Cedar's language or its JSON. Raises FileError, and what `_expression` raises."""
    declared = _declared(text, path)
    commons = {str(name): of for section, name, of, _ in declared if section == "commonTypes"}

    def label(kind: Any) -> str:
        name = kind if isinstance(kind, str) else kind.get("name", kind["type"])
        if name == "Set":
            return f"Set {label(kind['element'])}"
        if name == "Record" or kind == {"type": "Extension", "name": name}:
            return "{}"
        return label(commons[last(name)]) if last(name) in commons else last(name)

    def attributes(shape: Any) -> Mapping[str, Any]:
        name = last(shape if isinstance(shape, str) else shape.get("name", shape.get("type", "")))
        return attributes(commons[name]) if name in commons else shape.get("attributes", {})

    found, names = Schema(), set[tuple[str, str]]()
    for section, name, of, namespace in declared:
        inside = f"{namespace}::" if namespace else ""
        found.names.add(f"{inside}Action::{name}" if section == "actions" else f"{inside}{name}")
        what = "actions" if section == "actions" else "types"
        if (what, name) in names:
            raise FileError(f"{place(path, name)}: two {what} are called `{name}` without their namespaces")
        names.add((what, name))
        if section == "entityTypes":
            found.parents[name] = [last(above) for above in of.get("memberOfTypes", ())]
            found.attributes[name] = {str(word): label(kind) for word, kind in attributes(of.get("shape", {})).items()}
        elif section == "actions":
            found.within[name] = [group["id"] for group in of.get("memberOf", ())]
            applies = of.get("appliesTo") or {}
            found.actions[name] = [last(kind) for kind in applies.get("resourceTypes", ())]
            found.asking[name] = {last(kind) for kind in applies.get("principalTypes", ())}
            found.users |= found.asking[name]
    return found


def conjuncts(condition: Expression) -> list[Expression]:
    """The conditions that all must hold."""
    return [*conjuncts(condition[1]), *conjuncts(condition[2])] if condition[0] == "&&" else [condition]


def word_of(name: str) -> str:
    """A name as tables have it: `view_it` of the action `view-it`."""
    return re.sub(r"\W", "_", name)


def last(kind: str) -> str:
    """A name without its namespace."""
    return kind.rpartition("::")[2]
