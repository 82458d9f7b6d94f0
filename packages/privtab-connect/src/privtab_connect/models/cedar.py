"""Cedar's schemas and policies as models, of which `fga.Derived` makes policies, as far as a table can say them.

An attribute of a resource that is a user, a group or a set of them is a privilege (`owner` is ownership), and one that is a resource is what
the entity lies in. A policy with slots is a privilege of its name. What allows and cannot be said is left out, and what forbids takes
everything that it concerns away: a table has no negation. Both are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from lark import Token

from privtab.base import FileError
from privtab_connect.models.fga import USER, Computed, Direct, Joined, Model, Relation, Tree, Unsaid
from privtab_connect.models.grammar import Language, place

GROUP, PEOPLE = "group", (USER, "group#member")
_ANYONE, _NOBODY = Joined("and", ()), Joined("or", ())
_ESCAPE = re.compile(r"\\(?:u\{(\w+)\}|x(\w\w)|(.))")
Scope: TypeAlias = list[tuple[str, Any]]
"""The demand of a policy on a variable: `==`, `in` or `is`, each with a type, an entity (its type and id), a list of entities or a slot."""


@dataclass(slots=True)
class Schema:
    """The types with their attributes, the type and place of each; what types lie in; the actions with the types of their resources."""

    attributes: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: its effect, what it asks of each variable, its conditions behind `when` or `unless`, as written, and its place."""

    effect: str
    name: str
    scopes: dict[str, Scope]
    conditions: list[tuple[str, str]]
    place: str


class _Unsaid(Exception):
    """A condition that a table cannot say."""


def _text(parts: list[Token]) -> str:
    def meant(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}.get(found[3], found[3])

    return _at(parts[0], _ESCAPE.sub(meant, parts[0][1:-1]))


def _at(word: str, text: str) -> str:
    """A text at the place of a word."""
    return Token.new_borrow_pos("IDENT", text, word) if isinstance(word, Token) else text


def _condition(parts: list[Token]) -> tuple[str, str, str]:
    """A condition as it is written, without comments."""
    text = "".join(("" if before.end_pos == word.start_pos else " ") + word for before, word in pairwise(parts))
    return "condition", str(parts[0]), text.strip()


def _scope(parts: list[Any]) -> Scope:
    return [(str(how), of) for how, of in zip(parts[::2], parts[1::2], strict=True) if how]


def _types(
    _annotations: Any, names: list[str], _in: Any = None, above: Any = None, shape: Any = None, *_: Any
) -> list[Any]:
    return [("type", name, "", above or [], shape or {}) for name in names]


def _actions(_annotations: Any, _action: str, names: list[str], _in: Any, groups: Any, *applied: Any) -> list[Any]:
    who = {str(part[1]): [last(kind) for kind in part[2]] for part in applied if part[0] == "applied"}
    return [("action", name, "", groups or [], who) for name in names]


_LANGUAGE = Language(
    "cedar",
    {
        "text": _text,
        "name": lambda parts: parts[0],
        "path": lambda parts: _at(parts[1], "::".join(filter(None, parts))),
        "entity": tuple,
        "several": list,
        "annotations": lambda parts: {str(name): text for name, text in zip(parts[::2], parts[1::2], strict=True)},
        "scope": _scope,
        "actions": _scope,
        "condition": _condition,
        "any_of": lambda parts: parts[0] if len(parts) == 1 else ("or", parts),
        "all_of": lambda parts: (
            parts[0]
            if len(parts) == 1
            else ("and", [one for part in parts for one in (part[1] if part[0] == "and" else [part])])
        ),
        "held": lambda parts: ("held", str(parts[1]), parts[0] if isinstance(parts[0], tuple) else parts[2]),
        "is": lambda parts: ("is", parts[0], parts[2]),
        "has": lambda parts: ("has", parts[0], str(parts[2])),
        "of": lambda parts: (*parts[0], str(parts[1])) if len(parts) > 1 else (),
        "types": list,
        "names": list,
        "groups": lambda parts: [str(part[1] if isinstance(part, tuple) else part) for part in parts],
        "set_of": tuple,
        "record": lambda parts: {name: kind for *_, name, kind in parts},
        "type": lambda parts: _types(*parts),
        "enumeration": lambda parts: _types(*parts[:2]),
        "common": lambda parts: [("common", parts[1], "", parts[2])],
        "action": lambda parts: _actions(*parts),
        "namespace": lambda parts: [
            (what, name, f"{parts[1]}::", *of) for each in parts[2:] for what, name, _, *of in each
        ],
        "schema": lambda parts: [each for part in parts for each in part],
    },
)


def _no_two(what: str, path: str, words: Iterable[tuple[str, str]], *taken: str) -> None:
    """Raise FileError for names that are the same word."""
    known, wrong = {*taken}, []
    for name, word in words:
        if word in known:
            wrong.append(f"{place(path, name)}: two {what} are called `{word}`")
        known.add(word)
    if wrong:
        raise FileError("\n".join(wrong))


def _read_policies(text: str, path: str, names: set[str]) -> list[Policy]:
    """The policies of a text, which are about types and actions of these names. Raises FileError."""
    found, called, wrong = [], [], []
    for number, (_, notes, effect, *parts) in enumerate(_LANGUAGE.parse(text, path, "policies")[1:]):
        scopes = {str(variable): scope for variable, scope in zip(parts[:6:2], parts[1:6:2], strict=True)}
        for variable, of in ((variable, of) for variable, scope in scopes.items() for _, of in scope):
            for each in of if isinstance(of, list) else [of]:
                kind = each[0] if isinstance(each, tuple) else each
                name = "::".join(each) if kind != each and last(kind) == "Action" else str(kind)
                if name not in names | {f"?{variable}"}:
                    wrong.append(f"{place(path, kind)}: the schema has no `{name}`" + " here" * (kind[0] == "?"))
        name = notes.get("id") or f"policy{number}"
        called.append((_at(effect, name), word_of(name)))
        found.append(Policy(effect, str(name), scopes, [part[1:] for part in parts[6:]], place(path, effect)))
    if wrong:
        raise FileError("\n".join(wrong))
    _no_two("policies", path, called)
    return found


def _read_schema(text: str, path: str) -> Schema:
    """A schema; namespaces are left off. Raises FileError."""
    declared = _LANGUAGE.parse(text, path, "schema")
    commons = {str(name): of[0] for what, name, _, *of in declared if what == "common"}
    _no_two("types", path, [(name, name) for what, name, *_ in declared if what != "action"])
    _no_two("actions", path, [(name, word_of(name)) for what, name, *_ in declared if what == "action"])

    def label(kind: Any) -> str:
        if isinstance(kind, str):
            return label(commons[last(kind)]) if last(kind) in commons else last(kind)
        return f"Set {label(kind[0])}" if isinstance(kind, tuple) else "{}"

    found = Schema()
    for what, name, inside, *of in declared:
        found.names.add(f"{inside}Action::{name}" if what == "action" else f"{inside}{name}")
        if what == "type":
            above, shape = of
            while isinstance(shape, str):
                if not isinstance(shape := commons.get(last(kind := shape)), str | dict):
                    raise FileError(f"{place(path, kind)}: the schema has no record `{kind}`")
            found.parents[name] = [last(each) for each in above]
            found.attributes[name] = {str(word): (label(kind), place(path, word)) for word, kind in shape.items()}
        elif what == "action":
            found.within[name], who = of
            found.actions[name] = who.get("resource", [])
            found.asking[name] = {*who.get("principal", ())}
            found.users |= found.asking[name]
    return found


def read(schema: str, policies: str, paths: tuple[str, str]) -> CedarModel:
    """The model of a schema and its policies, in Cedar's languages. Raises FileError for what is neither."""
    for text, path, what in ((schema, paths[0], "schema"), (policies, paths[1], "policy")):
        if text.lstrip().startswith("{"):
            tool = f"cedar translate-{what} --direction json-to-cedar"
            raise FileError(f"{path}: this is JSON; `{tool}` writes it in Cedar's language")
    known = _read_schema(schema, paths[0])
    return CedarModel(known, _read_policies(policies, paths[1], known.names), paths[0])


class CedarModel:
    """A model made of a schema and policies: `operations` are the relations of each type that are, `unsaid` what it does not say."""

    def __init__(self, schema: Schema, policies: list[Policy], path: str) -> None:
        self.schema = schema
        self.unsaid: list[Unsaid] = []
        tables = [kind for kind in schema.parents if kind not in schema.users | schema.groups]
        self.types = {str(kind): _at(kind, _snake(kind)) for kind in tables}
        _no_two("types", path, [(name, name) for name in self.types.values()], USER, GROUP)
        self.model: Model = {USER: {}, GROUP: {"member": Relation(Direct(PEOPLE), path)}}
        self.model |= {name: {} for name in self.types.values()}
        self.operations: dict[str, set[str]] = {name: set() for name in self.types.values()}
        asked = [(action, kind) for action, kinds in schema.actions.items() for kind in dict.fromkeys(kinds)]
        for action, kind in asked:
            if kind in self.types:
                self.operations[self.types[kind]].add(word_of(action))
            else:
                self._say(place(path, action), f"`{action}` of `{kind}`", "it is about a principal")
        for action, kind in asked:
            if kind in self.types:
                relation = Relation(self._row(policies, action, kind), place(path, action))
                self.model[self.types[kind]][word_of(action)] = relation

    def _say(self, at: str, of: str, why: str) -> None:
        unsaid = Unsaid(at, of, why)
        if unsaid not in self.unsaid:
            self.unsaid.append(unsaid)

    def _row(self, policies: list[Policy], action: str, kind: str) -> Tree:
        """Who may do an action to resources of a type."""
        found: list[Tree] = []
        forbidden = False
        for policy in policies:
            of = f"`{policy.name}` for `{action}` of `{kind}`"
            if not self._concerns(policy, action, kind):
                continue
            if policy.effect == "forbid":
                self._say(policy.place, of, "a table says what is allowed alone: nobody may do it")
                forbidden = True
                continue
            try:
                if others := self.schema.users - self.schema.groups - self.schema.asking[action]:
                    raise _Unsaid(f"nobody of `{min(others)}` may, and they are users, too")
                found.append(_joined("and", self._parts(policy, kind)))
            except _Unsaid as error:
                self._say(policy.place, of, str(error))
        return _NOBODY if forbidden else _joined("or", found)

    def _concerns(self, policy: Policy, action: str, kind: str) -> bool:
        """Whether a policy's scope leaves an action on a type."""
        for how, of in policy.scopes["action"]:
            names = {str(action)}
            while how == "in" and (more := {g for n in names for g in self.schema.within.get(n, ())} - names):
                names |= more
            if not names & {
                name for kind_of, name in (of if isinstance(of, list) else [of]) if last(kind_of) == "Action"
            }:
                return False
        return all(last(of) == kind for how, of in policy.scopes["resource"] if how == "is")

    def _parts(self, policy: Policy, kind: str) -> Iterator[Tree]:
        """The conditions that all must hold. Raises _Unsaid."""
        slots = set()
        for variable in ("principal", "resource"):
            for how, of in policy.scopes[variable]:
                if of == f"?{variable}":
                    slots.add(of)
                elif how != "is":
                    raise _Unsaid(f"it names one {variable}: a row of a state can")
                elif variable == "principal" and self.schema.users != {last(of)}:
                    raise _Unsaid(f"it is about `{of}` alone, and others are users, too")
        if len(slots) == 1:
            raise _Unsaid(f"its only slot is `{slots.pop()}`")
        if slots:
            yield self._held(policy, kind)
        for word, text in policy.conditions:
            if word == "unless":
                raise _Unsaid("`unless`: a table has no negation")
            try:
                condition = _LANGUAGE.parse(text, "", "any_of")
            except FileError:
                raise _Unsaid(f"`{text}`: a condition that a table cannot say") from None
            yield self._said(condition, kind)

    def _held(self, policy: Policy, kind: str) -> Tree:
        """The privilege of a policy with slots, on a resource or on what it lies in."""
        name, word = self.types[kind], word_of(policy.name)
        if word in self.operations[name] or word in self.schema.attributes[kind]:
            raise _Unsaid(f"`{word}` is a policy with slots, and an action or an attribute")
        if word not in self.model[name]:
            parts: list[Tree] = [Direct(PEOPLE)]
            self.model[name][word] = Relation(parts[0], policy.place)
            for above in self.schema.parents[kind] if any(how == "in" for how, _ in policy.scopes["resource"]) else ():
                if above in self.types:
                    self._held(policy, above)
                    around = f"in_{self.types[above]}"
                    self.model[name][around] = Relation(Direct((self.types[above],)), policy.place)
                    parts.append(Computed(word, around))
            self.model[name][word] = Relation(_joined("or", parts), policy.place)
        return Computed(word)

    def _said(self, condition: Any, kind: str) -> Tree:
        """A condition as a relation. Raises _Unsaid."""
        match condition:
            case ("truth", word):
                return _ANYONE if word == "true" else _NOBODY
            case ("or", parts):
                return _joined("or", [self._said(part, kind) for part in parts])
            case ("and", parts):
                asked = {part[2][0] for part in parts if part[0] == "held" and part[2]}
                used = [part for part in parts if part[0] != "has" or part[1] or part[2] not in asked]
                return _joined("and", [self._said(part, kind) for part in used])
            case ("is", (), name) if name in self.schema.names:
                return _ANYONE if last(name) == kind else _NOBODY
            case ("has", _, name):
                raise _Unsaid(f"`has {name}`: nothing else asks for the attribute")
            case ("held", how, names):
                return self._relation(names, kind, how)
        raise _Unsaid(f"`is {condition[2]}`: no type of the schema, or not of the resource")

    def _relation(self, names: tuple[str, ...], kind: str, how: str) -> Tree:
        """What is held by an attribute of a resource, or of what it lies in. Raises _Unsaid."""
        attributes, own = self.schema.attributes[kind], self.model[self.types[kind]]
        users = self.schema.users | self.schema.groups
        match names:
            case (word,) if word in attributes and attributes[word][0].removeprefix("Set ") in users:
                label, at = attributes[word]
                alone = self.schema.users - self.schema.groups  # a row that names a group is about its members
                if how != "in" and label not in (alone if how == "==" else {f"Set {user}" for user in alone}):
                    raise _Unsaid(f"`{word}` is not of the principal's type")
                if word in self.operations[self.types[kind]] or not word.isidentifier():
                    raise _Unsaid(f"`{word}` is an attribute and an action, or no name of a privilege")
                own[word] = Relation(Direct(PEOPLE), at)
                return Computed(word)
            case (around, word) if around in attributes and attributes[around][0] in self.types:
                above, at = attributes[around]
                if above == kind:
                    raise _Unsaid(f"`{around}`: it lies in another of its type")
                self._relation((word,), above, how)
                own[around] = Relation(Direct((self.types[above],)), at)
                return Computed(word, around)
        text = ".".join(("resource", *names))
        raise _Unsaid(f"`{text}`: no attribute of the resource that is a user, a group or a set of them")


def _joined(word: str, parts: Iterable[Tree]) -> Tree:
    """Conditions of which all (`and`) or one (`or`) must hold."""
    neutral, certain = (_ANYONE, _NOBODY) if word == "and" else (_NOBODY, _ANYONE)
    rest = tuple(part for part in parts if part != neutral)
    return certain if certain in rest else rest[0] if len(rest) == 1 else Joined(word, rest)


def _snake(kind: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()


def word_of(name: str) -> str:
    """A name as tables have it: `view_it` of the action `view-it`."""
    return re.sub(r"\W", "_", name)


def last(kind: str) -> str:
    """A name without its namespace."""
    return kind.rpartition("::")[2]
