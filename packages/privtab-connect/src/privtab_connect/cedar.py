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
from typing import Any, ClassVar, TypeAlias

from privtab.base import FileError
from privtab_connect.fga import USER, Anyone, Computed, Direct, Joined, Model, Relation, Tokens, Tree, Unsaid

Expression: TypeAlias = tuple[Any, ...]
"""An operator or a kind of value, and what belongs to it: `("in", ("principal",), (".", ("resource",), "readers"))`."""
GROUP, PEOPLE = "group", (USER, "group#member")
_BINARY = ("==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "in", "like", "has", "is")
_LEVELS = (("||",), ("&&",), _BINARY)


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

    def people(self, kind: Any) -> bool:
        """Whether values of a type are users, groups, or sets of them."""
        return isinstance(kind, str) and kind.removeprefix("Set ") in self.users | self.groups


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: its effect, scope and conditions, and its place."""

    effect: str
    name: str
    scope: Mapping[str, Expression]
    conditions: tuple[tuple[str, Expression], ...]
    place: str


class _Reader(Tokens):
    """Reads Cedar's languages: of schemas, and of policies."""

    TOKEN: ClassVar = re.compile(
        r"(?P<skip>(?:\s|//[^\n]*)+)|(?P<name>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*|\?(?:principal|resource)\b)"
        r'|(?P<value>"(?:[^"\\]|\\.)*"|\d+)|(?P<mark>\|\||&&|[=!<>]=|::|\S)'
    )

    def ahead(self) -> str:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else "the end"

    def any(self) -> str:
        """The next token, whatever it is."""
        self.next += 1
        return self.tokens[self.next - 1][0] if self.next <= len(self.tokens) else self.need()

    def word(self) -> str:
        """A name, or a text without its quotes."""
        place = self.place()
        found = self.any() if self.ahead().startswith('"') else self.need()
        try:
            return json.loads(found) if found.startswith('"') else found
        except ValueError:
            raise FileError(f"{place}: {found} has an escape that is not read here") from None

    def words(self) -> list[str]:
        """A word, or a list of them in brackets or behind commas."""
        listed, found = self.take("["), []
        while not (listed and self.take("]")):
            found.append(self.word())
            if not self.take(",") and not listed:
                return found
        return found

    def annotations(self) -> str | None:
        """The value of `@id`, if it is among the annotations that are read."""
        found = None
        while self.take("@"):
            name = self.need()
            value = self.word() if self.take("(") and not self.take(")") else ""
            self.take(")")
            found = value if name == "id" else found
        return found

    def schema(self) -> Schema:
        found, commons = Schema(), dict[str, Any]()
        while self.next < len(self.tokens):
            self.annotations()
            match self.need("entity", "action", "type", "namespace", "}"):
                case "namespace":
                    self.need()
                    self.need("{")
                case "type":
                    place, name = self.place(), self.need()
                    if name in commons:
                        raise FileError(f"{place}: two types are called `{name}` without their namespaces")
                    self.need("=")
                    commons[name] = self.kind(commons)
                    self.need(";")
                case "entity":
                    place, names = self.place(), self.words()
                    parents = [*map(_last, self.words())] if self.take("in") else []
                    shape = self.kind(commons) if self.take("=") or self.ahead() == "{" else {}
                    while not self.take(";"):  # `tags`, `enum`
                        self.any()
                    for name in names:
                        if name in found.parents:
                            raise FileError(f"{place}: two types are called `{name}` without their namespaces")
                        found.parents[name] = parents
                        found.attributes[name] = shape if isinstance(shape, dict) else {}
                case "action":
                    place, names, applies = self.place(), self.words(), dict[str, Any]()
                    if twice := found.within.keys() & {*names}:
                        raise FileError(f"{place}: two actions are called `{twice.pop()}` without their namespaces")
                    groups = self.words() if self.take("in") else []
                    if self.take("appliesTo"):
                        applies = self.kind(commons)
                    self.need(";")
                    found.within |= dict.fromkeys(names, groups)
                    found.actions |= dict.fromkeys(names, _listed(applies.get("resource", [])))
                    found.users |= set(_listed(applies.get("principal", [])))
        if twice := commons.keys() & found.parents.keys():
            raise FileError(f"{self.place()}: two types are called `{twice.pop()}` without their namespaces")
        return found

    def kind(self, commons: Mapping[str, Any]) -> Any:
        """A type: a name, `Set NAME`, a list of names, or the types of a record by its keys."""
        if self.ahead() == "[":
            return [*map(_last, self.words())]
        if not self.take("{"):
            name = _last(self.need())
            if name == "Set":
                self.need("<")
                name = f"Set {self.kind(commons)}"
                self.need(">")
            return commons.get(name, name)
        found = {}
        while not self.take("}"):
            self.annotations()
            key = self.word()
            self.take("?")
            self.need(":")
            found[key] = self.kind(commons)
            self.take(",")
        return found

    def policies(self) -> Iterator[Policy]:
        number, names = 0, set[str]()
        while self.next < len(self.tokens):
            name, place = self.annotations() or f"policy{number}", self.place()
            if _word(name) in names:
                raise FileError(f"{place}: two policies are called `{_word(name)}`")
            names.add(_word(name))
            effect = self.need("permit", "forbid")
            self.need("(")
            scope = {}
            for variable in ("principal", "action", "resource"):
                scope[variable] = self.expression()
                if not all(_scopes(part, variable) for part in _conjuncts(scope[variable])):
                    raise FileError(f"{place}: expected `{variable}` in the scope, alone or with `==`, `in` or `is`")
                self.take(",")
            self.need(")")
            conditions = []
            while word := self.take("when", "unless"):
                self.need("{")
                conditions.append((word, self.expression()))
                self.need("}")
            self.need(";")
            yield Policy(effect, name, scope, tuple(conditions), place)
            number += 1

    def expression(self, level: int = 0) -> Expression:
        if level == len(_LEVELS):
            return self.member()
        found = self.expression(level + 1)
        while word := self.take(*_LEVELS[level]):
            if word == "is":
                found = ("is", found, self.need())
                if self.take("in"):
                    found = ("&&", found, ("in", found[1], self.expression(level + 1)))
            elif word == "has":
                found = ("has", found, self.word())
            else:
                found = (word, found, self.expression(level + 1))
        return found

    def member(self) -> Expression:
        found = self.value()
        while word := self.take(".", "[", "("):
            match word:
                case ".":
                    found = (".", found, self.need())
                case "[":
                    found = (".", found, self.word())
                    self.need("]")
                case _:
                    found = ("call", found, *self.several(")"))
        return found

    def several(self, end: str) -> list[Expression]:
        found = []
        while not self.take(end):
            found.append(self.expression())
            self.take(",")
        return found

    def value(self) -> Expression:
        if self.take("("):
            found = self.expression()
            self.need(")")
            return found
        if self.take("["):
            return ("list", *self.several("]"))
        if (sign := self.take("!", "-")) is not None:
            return (sign, self.member())
        word = self.any()
        if self.take("::"):
            return ("entity", word, self.word())
        if word == "if":
            parts = [self.expression()]
            for more in ("then", "else"):
                self.need(more)
                parts.append(self.expression())
            return ("if", *parts)
        if not re.match(r'["?\w]', word, re.ASCII):
            self.next -= 1
            raise FileError(f"{self.place()}: expected a value, not `{word}`")
        return (word,)


def _scopes(part: Expression, variable: str) -> bool:
    """Whether a part of a scope is a variable, or compares it with what scopes may name."""
    match part:
        case (str(word),):
            return word == variable
        case ("is", (str(word),), _):
            return word == variable != "action"
        case ("==" | "in", (str(word),), ("entity", *_)):
            return word == variable
        case ("==" | "in", (str(word),), (str(slot),)):
            return word == variable != "action" and slot == f"?{variable}"
        case ("in", ("action",), ("list", *entities)):
            return variable == "action" and all(entity[0] == "entity" for entity in entities)
    return False


def _listed(found: Any) -> list[str]:
    return found if isinstance(found, list) else [found]


def read(schema: str, policies: str, paths: tuple[str, str]) -> CedarModel:
    """The model of a schema and its policies. Raises FileError for what is neither."""
    try:
        return CedarModel(_Reader(schema, paths[0]).schema(), tuple(_Reader(policies, paths[1]).policies()), paths[0])
    except RecursionError:
        raise FileError(f"{paths[1]}: conditions are nested too deep") from None


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
            if not self._concerns(policy, action, kind):
                continue
            of = f"`{policy.name}` for `{action}` of `{kind}`"
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
            asked = scope[2][1:] if scope[2][0] == "list" else (scope[2],)
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
            case ("call", (".", of, "contains"), ("principal",)):
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
        case (".", of, str(word)):
            return f"{_text(of)}.{word}"
        case ("call", of, *given):
            return f"{_text(of)}({', '.join(map(_text, given))})"
        case ("entity", kind, name):
            return f'{kind}::"{name}"'
        case ("if", when, then, otherwise):
            return f"if {_text(when)} then {_text(then)} else {_text(otherwise)}"
        case ("list", *parts):
            return f"[{', '.join(map(_text, parts))}]"
        case (str(word), left, right):
            return f"{_text(left)} {word} {_text(right)}"
        case (str(sign), one):
            return f"{sign}{_text(one)}"
        case (str(word),):
            return word
    return str(condition)
