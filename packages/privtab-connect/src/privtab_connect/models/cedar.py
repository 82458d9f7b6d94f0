"""Cedar's schemas and policies as models, of which `fga.Derived` makes policies, as far as a table can say them.

An attribute of a resource that is a user, a group or a set of them is a privilege (`owner` is ownership), and one that is a resource is what
the entity lies in. A policy with slots is a privilege of its name. What allows and cannot be said is left out, and what forbids takes
everything that it concerns away: a table has no negation. Both are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from privtab.base import FileError
from privtab_connect.models.cedar_language import (
    Expression,
    Policy,
    Schema,
    conjuncts,
    last,
    read_policies,
    read_schema,
    word_of,
)
from privtab_connect.models.fga import USER, Computed, Direct, Joined, Model, Relation, Tree, Unsaid

GROUP, PEOPLE = "group", (USER, "group#member")


class _Unsaid(Exception):
    """A condition that a table cannot say."""


def read(schema: str, policies: str, paths: tuple[str, str]) -> CedarModel:
    """The model of a schema and its policies, each in Cedar's language or its JSON. Raises FileError for what is neither."""
    path = paths[0]
    try:
        known = read_schema(schema, path)
        path = paths[1]
        return CedarModel(known, tuple(read_policies(policies, path)), paths[0])
    except RecursionError:
        raise FileError(f"{path}: nested too deep") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: neither Cedar nor its JSON: {error}") from error


class CedarModel:
    """A model made of a schema and policies: `operations` are the relations of each type that are, `unsaid` what it does not say."""

    def __init__(self, schema: Schema, policies: tuple[Policy, ...], path: str) -> None:
        self.schema, self.path = schema, path
        for policy in policies:
            for name in _names([*policy.scope.values(), *(of for _, of in policy.conditions)]):
                if name not in schema.names:
                    raise FileError(f"{policy.place}: the schema has no `{name}`")
        self.unsaid: list[Unsaid] = []
        self.types = {kind: _snake(kind) for kind in schema.parents if kind not in schema.users | schema.groups}
        if len({*self.types.values()} | {USER, GROUP}) < len(self.types) + 2:
            raise FileError(f"{path}: two types are called alike in small letters, or as users and groups are")
        self.model: Model = {USER: {}, GROUP: {"member": Relation(Direct(PEOPLE), path)}}
        self.model |= {name: {} for name in self.types.values()}
        self.operations: dict[str, set[str]] = {name: set() for name in self.types.values()}
        if len({*map(word_of, schema.actions)}) < len(schema.actions):
            raise FileError(f"{path}: two actions are called alike but for signs")
        asked = [(action, kind) for action, kinds in schema.actions.items() for kind in dict.fromkeys(kinds)]
        for action, kind in asked:
            if kind in self.types:
                self.operations[self.types[kind]].add(word_of(action))
            else:
                self._say(path, f"`{action}` of `{kind}`", "it is about a principal")
        for action, kind in asked:
            if kind in self.types:
                row = self._row(policies, action, kind)
                self.model[self.types[kind]][word_of(action)] = Relation(row, path)

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
                if others := self.schema.users - self.schema.groups - self.schema.asking[action]:
                    raise _Unsaid(f"nobody of `{min(others)}` may, and they are users, too")
                parts = [part for part in self._parts(policy, kind) if part is not True]
            except _Unsaid as error:
                self._say(policy.place, of, str(error))
                continue
            if False not in parts:
                found.append(
                    Joined("and", tuple(parts)) if len(parts) > 1 else parts[0] if parts else Joined("and", ())
                )
        return Joined("or", () if forbidden else tuple(found))

    def _concerns(self, policy: Policy, action: str, kind: str) -> bool:
        """Whether a policy's scope leaves an action on a type."""
        scope, names = policy.scope["action"], {action}
        if len(scope) > 1:
            while scope[0] == "in" and (more := {g for n in names for g in self.schema.within.get(n, ())} - names):
                names |= more
            asked = scope[2][1:] if scope[2][0] == "Set" else (scope[2],)
            if not names & {entity[2] for entity in asked if last(entity[1]) == "Action"}:
                return False
        kinds = [part[2] for part in conjuncts(policy.scope["resource"]) if part[0] == "is"]
        return all(last(each) == last(kind) for each in kinds)

    def _parts(self, policy: Policy, kind: str) -> Iterator[Any]:
        """The conditions that all must hold: relations, True and False. Raises _Unsaid."""
        slots = set()
        for variable in ("principal", "resource"):
            for part in conjuncts(policy.scope[variable]):
                if len(part) > 1 and part[2] == (f"?{variable}",):
                    slots.add(variable)
                elif len(part) > 1 and part[0] != "is":
                    raise _Unsaid(f"it names one {variable}: a row of a state can")
                elif len(part) > 1 and variable == "principal" and {*map(last, self.schema.users)} != {last(part[2])}:
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
        name, word = self.types[kind], word_of(policy.name)
        if word in self.operations[name] or word in self.schema.attributes[kind]:
            raise _Unsaid(f"`{word}` is a policy with slots, and an action or an attribute")
        if word not in self.model[name]:
            parts: list[Tree] = [Direct(PEOPLE)]
            self.model[name][word] = Relation(parts[0], policy.place)
            if any(part[0] == "in" for part in conjuncts(policy.scope["resource"])):
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
                parts = conjuncts(condition)
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
                return last(other) == last(kind)
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


def _attributes(condition: Any) -> Iterator[str]:
    """The attributes of the resource that a condition cannot do without."""
    if isinstance(condition, tuple) and condition[:1] != ("||",):
        if condition[:2] == (".", ("resource",)):
            yield condition[2]
        for part in condition:
            yield from _attributes(part)


def _names(part: Any) -> Iterator[str]:
    """The names of types and actions in scopes and conditions."""
    match part:
        case ("entity", str(kind), name):
            yield f"{kind}::{name}" if last(kind) == "Action" else kind
        case ("is", of, kind):
            yield from _names(of)
            yield kind
        case tuple() | list():
            for each in part:
                yield from _names(each)


def _snake(kind: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last(kind)).lower()


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
