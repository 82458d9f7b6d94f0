"""Cedar's schemas and policies as models, of which `fga.Derived` makes policies, as far as a table can say them.

An attribute of a resource that is a user, a group or a set of them is a privilege (`owner` is ownership), and one that is a resource is what
the entity lies in. A policy with slots is a privilege of its name. What allows and cannot be said is left out, and what forbids takes
everything that it concerns away: a table has no negation. Both are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from lark import Token

from privtab.base import FileError, strict_loads
from privtab_connect.models.fga import USER, Anyone, Computed, Direct, Joined, Model, Relation, Tree, Unsaid
from privtab_connect.models.grammar import Language, place

Expression: TypeAlias = tuple[Any, ...]
"""An operator or a kind of value, and what belongs to it: `("in", ("principal",), (".", ("resource",), "readers"))`."""
Declaration: TypeAlias = tuple[str, str, Any]
"""The section of a schema's JSON, a name, and what stands there."""
GROUP, PEOPLE = "group", (USER, "group#member")
_VARIABLES = ("principal", "action", "resource")
_OPERANDS = ("if", "then", "else", "arg", "left", "right", "attr", "pattern", "entity_type", "in")
_ESCAPE = re.compile(r"\\(?:u\{(\w+)\}|x(\w\w)|(.))")


class _Unsaid(Exception):
    """A condition that a table cannot say."""


@dataclass(slots=True)
class Schema:
    """The types with their attributes, by the type of each; what each type lies in; the actions with the types of their resources."""

    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    parents: dict[str, list[str]] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)
    actions: dict[str, list[str]] = field(default_factory=dict)
    within: dict[str, list[str]] = field(default_factory=dict)
    """The groups of actions that an action is in."""

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
    return [("entityTypes", name, {"memberOfTypes": above or [], "shape": shape or {}}) for name in names]


def _actions(names: list[Token], groups: Any, applied: list[Any]) -> list[Declaration]:
    who = {f"{part[1]}Types": part[2] for part in applied if part[0] == "applied"}
    return [("actions", name, {"memberOf": groups or [], "appliesTo": who}) for name in names]


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
        "function": tuple,
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
        "common": lambda parts: [("commonTypes", *_plain(parts))],
        "action": lambda parts: _actions(_plain(parts)[1], _plain(parts)[3], _plain(parts)[4:]),
        "namespace": lambda parts: [declared for part in _plain(parts)[1:] for declared in part],
        "schema": lambda parts: [declared for part in parts for declared in part],
    },
)


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
        case "Var" | "Slot", str():
            return (of,)
        case "Record", _:
            return (word, *map(_expression, of.values()))
        case _, list():
            return (word, *map(_expression, of))
        case "is", {"in": within}:
            return _instance(_expression(of["left"]), None, of["entity_type"], None, _expression(within))
    if unknown := of.keys() - {*_OPERANDS}:
        raise ValueError(f"`{word}` has no `{unknown.pop()}`")
    parts = (of[key] for key in _OPERANDS if key in of)
    return (word, *(_expression(part) if isinstance(part, dict) else part for part in parts))


def _entity(given: Any) -> Expression:
    given = given.get("__entity", given)
    return ("entity", given["type"], given["id"])


def _scope(variable: str, given: Mapping[str, Any]) -> Expression:
    """The scope of a variable in Cedar's JSON, as an expression."""
    match given:
        case {"op": "All"}:
            return (variable,)
        case {"op": "is" as op, "entity_type": kind, **rest}:
            within = _scope(variable, {**rest["in"], "op": "in"})[2] if rest.get("in") else None
            return _instance((variable,), op, kind, None, within)
        case {"op": "==" | "in" as op, "slot": slot}:
            return (op, (variable,), (slot,))
        case {"op": "==" | "in" as op, "entity": entity}:
            return (op, (variable,), _entity(entity))
        case {"op": "in", "entities": entities}:
            return ("in", (variable,), ("Set", *map(_entity, entities)))
    raise ValueError(f"no scope of `{variable}`: {given}")


def _policies(text: str, path: str) -> Iterator[Policy]:
    """The policies of a text, or of a policy or a set of policies in JSON."""
    found: list[tuple[str, str, Any, Any]] = []
    if text.lstrip().startswith("{"):
        given = strict_loads(text)
        given = {"staticPolicies": {"policy0": given}} if "effect" in given else given
        if unknown := given.keys() - {"staticPolicies", "templates", "templateLinks"}:
            raise ValueError(f"unknown key `{unknown.pop()}`")
        for name, policy in chain(given.get("staticPolicies", {}).items(), given.get("templates", {}).items()):
            if unknown := policy.keys() - {"effect", "annotations", "conditions", *_VARIABLES}:
                raise ValueError(f"unknown key `{unknown.pop()}`")
            conditions = [(each["kind"], _expression(each["body"])) for each in policy.get("conditions", ())]
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
        if _word(name) in names:
            raise FileError(f"{at}: two policies are called `{_word(name)}`")
        names.add(_word(name))
        if effect not in {"permit", "forbid", "link"} or {kind for kind, _ in conditions} - {"when", "unless"}:
            raise FileError(f"{at}: an effect or a condition that Cedar does not have")
        scope = dict(zip(_VARIABLES, scopes, strict=True))
        for variable, scoped in scope.items():
            if any(
                str(part[2][0]).startswith("?") and part[2] != (f"?{variable}",)
                for part in _conjuncts(scoped)
                if len(part) > 1
            ):
                raise FileError(f"{at}: another's slot in the scope of `{variable}`")
        yield Policy(effect, name, scope, tuple(conditions), at)


def _declared(text: str, path: str) -> list[Declaration]:
    """The declarations of a schema, in its language or its JSON; namespaces are left off."""
    if not text.lstrip().startswith("{"):
        return list(_LANGUAGE.parse(text, path, "schema"))
    found = []
    for namespace in strict_loads(text).values():
        if unknown := namespace.keys() - {"entityTypes", "actions", "commonTypes", "annotations"}:
            raise ValueError(f"unknown key `{unknown.pop()}`")
        found += [
            (key, name, of)
            for key in ("entityTypes", "actions", "commonTypes")
            for name, of in namespace.get(key, {}).items()
        ]
    return found


def _schema(declared: list[Declaration], path: str) -> Schema:
    commons = {str(name): of for section, name, of in declared if section == "commonTypes"}

    def label(kind: Any) -> str:
        name = kind if isinstance(kind, str) else kind.get("name", kind["type"])
        if name == "Set":
            return f"Set {label(kind['element'])}"
        if name == "Record" or kind == {"type": "Extension", "name": name}:
            return "{}"
        return label(commons[_last(name)]) if _last(name) in commons else _last(name)

    def attributes(shape: Any) -> Mapping[str, Any]:
        name = _last(shape if isinstance(shape, str) else shape.get("name", shape.get("type", "")))
        return attributes(commons[name]) if name in commons else shape.get("attributes", {})

    found, names = Schema(), set[tuple[str, str]]()
    for section, name, of in declared:
        what = "actions" if section == "actions" else "types"
        if (what, name) in names:
            raise FileError(f"{place(path, name)}: two {what} are called `{name}` without their namespaces")
        names.add((what, name))
        if section == "entityTypes":
            found.parents[name] = [_last(above) for above in of.get("memberOfTypes", ())]
            found.attributes[name] = {str(word): label(kind) for word, kind in attributes(of.get("shape", {})).items()}
        elif section == "actions":
            found.within[name] = [group["id"] for group in of.get("memberOf", ())]
            applies = of.get("appliesTo") or {}
            found.actions[name] = [_last(kind) for kind in applies.get("resourceTypes", ())]
            found.users |= {_last(kind) for kind in applies.get("principalTypes", ())}
    return found


def read(schema: str, policies: str, paths: tuple[str, str]) -> CedarModel:
    """The model of a schema and its policies, each in Cedar's language or its JSON. Raises FileError for what is neither."""
    path = paths[0]
    try:
        known = _schema(_declared(schema, path), path)
        path = paths[1]
        return CedarModel(known, tuple(_policies(policies, path)), paths[0])
    except RecursionError:
        raise FileError(f"{path}: nested too deep") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: neither Cedar nor its JSON: {error}") from error


class CedarModel:
    """A model made of a schema and policies: `operations` are the relations of each type that are, `unsaid` what it does not say."""

    def __init__(self, schema: Schema, policies: tuple[Policy, ...], path: str) -> None:
        self.schema, self.path = schema, path
        self.unsaid: list[Unsaid] = []
        self.types = {kind: _snake(kind) for kind in schema.parents if kind not in schema.users | schema.groups}
        if len({*self.types.values()} | {USER, GROUP}) < len(self.types) + 2:
            raise FileError(f"{path}: two types are called alike in small letters, or as users and groups are")
        self.model: Model = {USER: {}, GROUP: {"member": Relation(Direct(PEOPLE), path)}}
        self.model |= {name: {} for name in self.types.values()}
        self.operations: dict[str, set[str]] = {name: set() for name in self.types.values()}
        if len({*map(_word, schema.actions)}) < len(schema.actions):
            raise FileError(f"{path}: two actions are called alike but for signs")
        asked = [(action, kind) for action, kinds in schema.actions.items() for kind in dict.fromkeys(kinds)]
        for action, kind in asked:
            if kind in self.types:
                self.operations[self.types[kind]].add(_word(action))
            else:
                self._say(path, f"`{action}` of `{kind}`", "it is about a principal")
        for action, kind in asked:
            if kind in self.types:
                row = self._row(policies, action, kind)
                self.model[self.types[kind]][_word(action)] = Relation(row, path)

    def _say(self, place: str, of: str, why: str) -> None:
        unsaid = Unsaid(place, of, why)
        if unsaid not in self.unsaid:
            self.unsaid.append(unsaid)

    def _row(self, policies: tuple[Policy, ...], action: str, kind: str) -> Tree:
        """Who may do an action to resources of a type."""
        found: list[Tree] = []
        forbidden = False
        for policy in policies:
            of = f"`{policy.name}` for `{action}` of `{kind}`"
            if policy.effect == "link":
                self._say(policy.place, f"`{policy.name}`", "it links a template: rows of a state can")
                continue
            if not self._concerns(policy, action, kind):
                continue
            if policy.effect == "forbid":
                self._say(policy.place, of, "a table says what is allowed alone: nobody may do it")
                forbidden = True
                continue
            try:
                parts = [part for part in self._parts(policy, kind) if part is not True]
            except _Unsaid as error:
                self._say(policy.place, of, str(error))
                continue
            if False not in parts:
                found.append(Joined("and", tuple(parts)) if len(parts) > 1 else parts[0] if parts else Anyone())
        return Joined("or", () if forbidden else tuple(found))

    def _concerns(self, policy: Policy, action: str, kind: str) -> bool:
        """Whether a policy's scope leaves an action on a type."""
        scope, names = policy.scope["action"], {action}
        if len(scope) > 1:
            while scope[0] == "in" and (more := {g for n in names for g in self.schema.within.get(n, ())} - names):
                names |= more
            asked = scope[2][1:] if scope[2][0] == "Set" else (scope[2],)
            if not names & {entity[2] for entity in asked}:
                return False
        kinds = [part[2] for part in _conjuncts(policy.scope["resource"]) if part[0] == "is"]
        return all(_last(each) == _last(kind) for each in kinds)

    def _parts(self, policy: Policy, kind: str) -> Iterator[Any]:
        """The conditions that all must hold: relations, True and False. Raises _Unsaid."""
        slots = set()
        for variable in ("principal", "resource"):
            for part in _conjuncts(policy.scope[variable]):
                if len(part) > 1 and part[2] == (f"?{variable}",):
                    slots.add(variable)
                elif len(part) > 1 and part[0] != "is":
                    raise _Unsaid(f"it names one {variable}: a row of a state can")
                elif len(part) > 1 and variable == "principal" and {*map(_last, self.schema.users)} != {_last(part[2])}:
                    raise _Unsaid(f"it is about `{part[2]}` alone, and others are users, too")
        if len(slots) == 1:
            raise _Unsaid(f"its only slot is `?{slots.pop()}`")
        if slots:
            yield self._held(policy, kind)
        for word, condition in policy.conditions:
            if word == "unless":
                raise _Unsaid("`unless`: a table has no negation")
            yield self._said(condition, kind)

    def _held(self, policy: Policy, kind: str) -> Tree:
        """The privilege of a policy with slots, on a resource or on what it lies in."""
        name, word = self.types[kind], _word(policy.name)
        if word in self.operations[name] or word in self.schema.attributes[kind]:
            raise _Unsaid(f"`{word}` is a policy with slots, and an action or an attribute")
        if word not in self.model[name]:
            parts: list[Tree] = [Direct(PEOPLE)]
            self.model[name][word] = Relation(parts[0], policy.place)
            if any(part[0] == "in" for part in _conjuncts(policy.scope["resource"])):
                for above in self.schema.parents[kind]:
                    if above in self.types:
                        self._held(policy, above)
                        place = f"in_{self.types[above]}"
                        self.model[name][place] = Relation(Direct((self.types[above],)), policy.place)
                        parts.append(Computed(word, place))
                self.model[name][word] = Relation(Joined("or", tuple(parts)), policy.place)
        return Computed(word)

    def _said(self, condition: Expression, kind: str) -> Any:
        """A condition as a relation, True or False. Raises _Unsaid."""
        match condition:
            case ("true",) | ("false",):
                return condition == ("true",)
            case ("&&", *_):
                parts = _conjuncts(condition)
                used = [part for part in parts if part[0] != "has"]
                known = {attribute for part in used for attribute in _attributes(part)}
                if any(part[1] != ("resource",) or part[2] not in known for part in parts if part[0] == "has"):
                    raise _Unsaid("`has` of an attribute that nothing else asks for")
                said = [self._said(part, kind) for part in used]
                rest = tuple(part for part in said if part is not True)
                return False if False in rest else Joined("and", rest) if len(rest) > 1 else rest[0] if rest else True
            case ("||", left, right):
                sides = [self._said(left, kind), self._said(right, kind)]
                rest = tuple(part for part in sides if part is not False)
                return True if True in rest else Joined("or", rest) if rest else False
            case ("is", ("resource",), other):
                return _last(other) == _last(kind)
            case ("in" | "==", ("principal",), of) | ("==", of, ("principal",)):
                return self._relation(of, kind, condition[0])
            case ("contains", of, ("principal",)):
                return self._relation(of, kind, "contains")
        raise _Unsaid(f"`{_text(condition)}`: a condition on values")

    def _relation(self, of: Expression, kind: str, how: str) -> Tree:
        """What is held by an attribute of a resource, or of what it lies in. Raises _Unsaid."""
        attributes = self.schema.attributes[kind]
        match of:
            case (".", ("resource",), str(word)) if self.schema.people(attributes.get(word, "")):
                alone = self.schema.users - self.schema.groups  # a row that names a group is about its members
                users = alone if how == "==" else {f"Set {user}" for user in alone}
                if how != "in" and attributes[word] not in users:
                    raise _Unsaid(f"`{word}` is not of the principal's type")
                if word in self.operations[self.types[kind]] or not word.isidentifier():
                    raise _Unsaid(f"`{word}` is an attribute and an action, or no name of a privilege")
                self.model[self.types[kind]][word] = Relation(Direct(PEOPLE), self.path)
                return Computed(word)
            case (".", (".", ("resource",), str(place)), str(word)) if attributes.get(place, "") in [*self.types]:
                above = attributes[place]
                if self.types[above] == self.types[kind]:
                    raise _Unsaid(f"`{place}`: it lies in another of its type")
                self._relation((".", ("resource",), word), above, how)
                self.model[self.types[kind]][place] = Relation(Direct((self.types[above],)), self.path)
                return Computed(word, place)
        raise _Unsaid(f"`{_text(of)}`: no attribute of the resource that is a user, a group or a set of them")


def _conjuncts(condition: Expression) -> list[Expression]:
    return [*_conjuncts(condition[1]), *_conjuncts(condition[2])] if condition[0] == "&&" else [condition]


def _attributes(condition: Any) -> Iterator[str]:
    """The attributes of the resource that a condition cannot do without."""
    if isinstance(condition, tuple) and condition[:1] != ("||",):
        if condition[:2] == (".", ("resource",)):
            yield condition[2]
        for part in condition:
            yield from _attributes(part)


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _last(kind: str) -> str:
    return kind.rpartition("::")[2]


def _snake(kind: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", _last(kind)).lower()


def _text(condition: Any) -> str:
    """A condition, much as it was written."""
    match condition:
        case (".", of, word):
            return f"{_text(of)}.{word}"
        case ("entity", kind, name):
            return f'{kind}::"{name}"'
        case (str(word),):
            return word
        case (str(sign), one) if not sign.isalpha():
            return f"{sign}{_text(one)}"
        case (str(word), left, right) if not word.isalpha() or word in {"in", "is", "has", "like"}:
            return f"{_text(left)} {word} {_text(right)}"
        case (str(word), *parts):
            return f"{word}({', '.join(map(_text, parts))})"
    return str(condition)
