"""Models of OpenFGA as policies, as far as a table can say them.

A relation that users have directly is a privilege (`owner` is ownership, `member` membership); each relation is an operation of its
name. A relation by which others are inherited (`viewer from parent`) is the place of an entity with a flat id. The tuples are read by
`privtab state import openfga`. What a table cannot say (`but not`, conditions, usersets of other types, two places) is left out of the
condition, which allows less then, and named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from privtab.base import FileError

USER = "user"
MEMBERS = {"group": "member", "role": "assignee"}
"""Types whose usersets are principals, and the relation that makes them so."""
STORE = "fga_store"
"""The one entity around those that lie in entities of their own type: a type that nests lies in another."""
_TOKEN = re.compile(r"(?P<skip>(?:\s|(?<!\S)#[^\n]*)+)|(?P<name>[^\s\[\](){},:#]+)|(?P<mark>[\[\](){},:#])")


@dataclass(frozen=True, slots=True)
class Direct:
    """Those whom tuples name: types, usersets as `group#member`, `user:*`; a condition stands behind a blank."""

    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Computed:
    """Those who have another relation to the object, or, with `place`, to the objects that `place` names."""

    relation: str
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Several: `or`, `and` or `but not`."""

    word: str
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Anyone:
    """Everybody, whom no tuple names."""


Tree: TypeAlias = Direct | Computed | Joined | Anyone


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of a type, and where it is defined: `model.fga:7:12`."""

    tree: Tree
    place: str


Model: TypeAlias = dict[str, dict[str, Relation]]


@dataclass(frozen=True, slots=True)
class Unsaid:
    """A part of a model that the table does not say."""

    place: str
    of: str
    why: str

    def __str__(self) -> str:
        """One line, with the place in the model."""
        return f"{self.place}: error: {self.of}: {self.why}"


def read(text: str, path: str) -> Model:
    """The types and relations of a model: OpenFGA's language, or its JSON. Raises FileError for anything else."""
    if not text.lstrip().startswith("{"):
        return _Reader(text, path).model()
    try:
        document = json.loads(text)
        if document["schema_version"] != "1.1":
            raise FileError(f"{path}: a model of schema {document['schema_version']}: the command reads 1.1")
        found = {each["type"]: _relations(each, path) for each in document["type_definitions"]}
        if len(found) < len(document["type_definitions"]):
            raise FileError(f"{path}: two types have one name")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{path}: no authorization model of OpenFGA: {error}") from error
    return found


def _relations(definition: Mapping[str, Any], path: str) -> dict[str, Relation]:
    metadata = (definition.get("metadata") or {}).get("relations") or {}
    found = {}
    for name, userset in (definition.get("relations") or {}).items():
        direct = tuple(map(_reference, (metadata.get(name) or {}).get("directly_related_user_types") or ()))
        found[name] = Relation(_userset(userset, direct), path)
    return found


def _reference(given: Mapping[str, Any]) -> str:
    among = f"#{given['relation']}" if given.get("relation") else ":*" if "wildcard" in given else ""
    return f"{given['type']}{among}" + (f" {given['condition']}" if given.get("condition") else "")


def _userset(given: Mapping[str, Any], direct: tuple[str, ...]) -> Tree:
    [(kind, content)] = given.items()
    match kind:
        case "this":
            return Direct(direct)
        case "computedUserset":
            return Computed(content["relation"])
        case "tupleToUserset":
            return Computed(content["computedUserset"]["relation"], content["tupleset"]["relation"])
        case "union" | "intersection":
            word = "or" if kind == "union" else "and"
            return Joined(word, tuple(_userset(part, direct) for part in content["child"]))
        case "difference":
            return Joined("but not", (_userset(content["base"], direct), _userset(content["subtract"], direct)))
    raise ValueError(f"unknown userset `{kind}`")


class Tokens:
    """The tokens of a model, for readers by recursive descent."""

    TOKEN: ClassVar = _TOKEN
    """What a token is: the group `skip` is none, and `name` is a name."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        found = [token for token in self.TOKEN.finditer(text) if token.lastgroup != "skip"]
        self.tokens = [(token[0], token.start(), token.lastgroup == "name") for token in found]
        self.next = 0

    def place(self) -> str:
        """The place of the next token."""
        at = self.tokens[self.next][1] if self.next < len(self.tokens) else len(self.text)
        line = self.text.count("\n", 0, at) + 1
        return f"{self.path}:{line}:{at - self.text.rfind(chr(10), 0, at)}"

    def take(self, *words: str) -> str | None:
        """The next token, if it is one of some words."""
        if self.next < len(self.tokens) and self.tokens[self.next][0] in words:
            self.next += 1
            return self.tokens[self.next - 1][0]
        return None

    def need(self, *words: str) -> str:
        """The next token, which must be one of some words, or a name if there are none. Raises FileError if it is not."""
        found, _, is_name = self.tokens[self.next] if self.next < len(self.tokens) else ("the end", 0, False)
        if self.next == len(self.tokens) or (found not in words if words else not is_name):
            expected = " or ".join(f"`{word}`" for word in words) or "a name"
            raise FileError(f"{self.place()}: expected {expected}, not `{found}`")
        self.next += 1
        return found


class _Reader(Tokens):
    """Reads OpenFGA's modelling language."""

    def model(self) -> Model:
        self.need("model")
        self.need("schema")
        if (version := self.need()) != "1.1":
            raise FileError(f"{self.path}: a model of schema {version}: the command reads 1.1")
        found: Model = {}
        while word := self.take("type", "condition"):
            if word == "condition":
                self._condition()
                continue
            place, name = self.place(), self.need()
            if name in found:
                raise FileError(f"{place}: a second type `{name}`")
            relations = found[name] = {}
            if self.take("relations"):
                while self.take("define"):
                    place, relation = self.place(), self.need()
                    if relation in relations:
                        raise FileError(f"{place}: a second relation `{relation}` of `{name}`")
                    self.need(":")
                    relations[relation] = Relation(self.tree(), place)
        if self.next < len(self.tokens):
            self.need("type", "condition")
        return found

    def _condition(self) -> None:
        """Pass over a condition: relations that name it are not said."""
        depth, begun = 0, False
        while depth or not begun:
            if self.next == len(self.tokens):
                self.need("}" if begun else "{")
            word = self.tokens[self.next][0]
            begun = begun or word == "{"
            depth += (word == "{") - (word == "}")
            self.next += 1

    def tree(self) -> Tree:
        parts, word = [self.part()], None
        while (found := self.take("or", "and", "but")) is not None:
            if found == "but":
                self.need("not")
                found = "but not"
            if (word and word != found) or word == "but not":
                raise FileError(f"{self.place()}: `{word}` and `{found}` need parentheses")
            word = found
            parts.append(self.part())
        return Joined(word, tuple(parts)) if word else parts[0]

    def part(self) -> Tree:
        if self.take("("):
            found = self.tree()
            self.need(")")
            return found
        if self.take("["):
            types = [self.reference()]
            while self.take(","):
                types.append(self.reference())
            self.need("]")
            return Direct(tuple(types))
        relation = self.need()
        return Computed(relation, self.need()) if self.take("from") else Computed(relation)

    def reference(self) -> str:
        found = self.need()
        if mark := self.take("#", ":"):
            found += mark + self.need()
        return f"{found} {self.need()}" if self.take("with") else found


@dataclass(slots=True, eq=False)
class Derived:
    """A policy made of a model: `text` is YAML, `unsaid` what it does not say, `places` the relations that are places."""

    model: Model
    system: str
    document: str
    operations: Mapping[str, Collection[str]] | None = None
    """The relations of each type that are operations; None: all of them."""
    unsaid: list[Unsaid] = field(default_factory=list, init=False)
    places: set[str] = field(default_factory=set, init=False)
    entities: list[str] = field(default_factory=list, init=False)
    text: str = field(default="", init=False)
    _above: dict[str, str | None] = field(default_factory=dict, init=False)
    _nested: set[str] = field(default_factory=set, init=False)
    _used: dict[str, list[str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Make the policy."""
        self.entities = [name for name in self.model if name != USER and not self._principal(name)]
        for name in (name for name in self.model if name not in {USER, *self.entities}):
            for word in self.model[name]:
                if word != MEMBERS[name]:
                    self._say(name, word, f"a relation to a {name}, which is a principal")
        self._second_places()
        for name in self.entities:
            self._place(name)
        rows = {name: self._rows(name) for name in self.entities}
        self.text = "\n".join(self._lines(rows)) + "\n"

    def values(self) -> dict[str, str]:
        """The values by which `state import openfga` reads the tuples of the model."""
        outermost = [name for name in self.entities if name in self._nested and self._above[name] is None]
        given = {"parent": ",".join(sorted(self.places)), "outermost": ",".join(outermost)}
        return {name: value for name, value in given.items() if value}

    def _principal(self, name: str) -> bool:
        """Whether a type is one of principals: it is called so, and has the relation that makes it one directly."""
        relation = self.model[name].get(MEMBERS.get(name, ""))
        return relation is not None and isinstance(relation.tree, Direct)

    def _say(self, name: str, word: str, why: str) -> None:
        unsaid = Unsaid(self.model[name][word].place, f"`{word}` of `{name}`", why)
        if unsaid not in self.unsaid:
            self.unsaid.append(unsaid)

    def _inherits(self, name: str) -> Iterator[str]:
        """The relations by which entities of a type inherit others from entities."""
        words = (c.place for r in self.model[name].values() for c in _computed(r.tree) if c.place)
        return (word for word in dict.fromkeys(words) if self._around(name, word))

    def _around(self, name: str, word: str) -> tuple[str, ...]:
        """The types that a relation names entities of; none if it names others, too."""
        tree = self.model[name][word].tree if word in self.model[name] else None
        return tree.types if isinstance(tree, Direct) and {*tree.types} <= {*self.entities} else ()

    def _second_places(self) -> None:
        """Find the places: an entity lies in one of a type, and what lies in two by two relations would have the rights of both."""
        self.places = {word for name in self.entities for word in self._inherits(name)}
        for name in self.entities:
            known: set[str] = set()
            for word in dict.fromkeys((*self._inherits(name), *sorted(self.places))):
                types = self._around(name, word) if word in self.places else ()
                if known & {*types}:
                    self.places.remove(word)  # of every type: the tuples of a relation are read alike
                    self._say(name, word, f"it names a second place in a {types[0]}")
                known |= {*types}

    def _place(self, name: str) -> None:
        """What entities of a type lie in, by the relations that others are inherited by."""
        around: dict[str, None] = {}
        for word in self._inherits(name):
            around |= dict.fromkeys(self._around(name, word) if word in self.places else ())
        if name in around:
            self._nested.add(name)
        others = [other for other in around if other != name]
        self._above[name] = others[0] if others else None
        for other in others[1:]:
            self._say(
                name, next(iter(self.model[name])), f"it lies in `{others[0]}` and in `{other}`; the second is left out"
            )

    def _rows(self, name: str) -> dict[str, str]:
        """The operations of a type, and their conditions; relations that are places are none."""
        found = {}
        for word, relation in self.model[name].items():
            if (
                word not in self.operations[name]
                if self.operations
                else word in self.places and not _computed(relation.tree)
            ):
                continue
            parts = self._atoms(name, word, (), level="")
            found[word] = " or ".join(dict.fromkeys(parts)) or "nobody"
        return found

    def _recursive(self, name: str, word: str) -> bool:
        """Whether a relation is inherited from entities of the same type: `viewer: … or viewer from parent`."""
        tree = self.model[name][word].tree
        parts = tree.parts if isinstance(tree, Joined) and tree.word == "or" else ()
        return name in self._nested and any(
            isinstance(part, Computed)
            and part.relation == word
            and part.place
            and name in self._types(name, part.place)
            for part in parts
        )

    def _types(self, name: str, place: str) -> tuple[str, ...]:
        return self._around(name, place) if place in self.places else ()

    def _atoms(self, name: str, word: str, seen: tuple[tuple[str, str], ...], *, level: str) -> list[str]:
        """The alternatives of a relation, as cells; what a table cannot say is named, and no alternative."""
        if (name, word) in seen:
            self._say(name, word, "it is defined by itself")
            return []
        level = "any " if self._recursive(name, word) else level
        return self._tree(self.model[name][word].tree, name, word, (*seen, (name, word)), level)

    def _tree(self, tree: Tree, name: str, word: str, seen: tuple[tuple[str, str], ...], level: str) -> list[str]:
        match tree:
            case Anyone():
                return ["anyone"]
            case Direct(types=types):
                return self._direct(types, name, word, level)
            case Computed(relation=other, place=None):
                if other in self.model[name]:
                    return self._atoms(name, other, seen, level=level)
                self._say(name, word, f"`{name}` has no relation `{other}`")
                return []
            case Computed(relation=other, place=str(place)):
                return self._inherited(other, place, name, word, seen, level)
            case Joined(word="or", parts=parts):
                return [cell for part in parts for cell in self._tree(part, name, word, seen, level)]
            case Joined(word="and", parts=parts):
                if level:
                    self._say(name, word, "`and` of what is inherited from the same type")
                    return []
                every = [self._tree(part, name, word, seen, level) for part in parts]
                if not all(every):
                    return []
                return [" and ".join(cells[0] if len(cells) == 1 else f"({' or '.join(cells)})" for cells in every)]
        self._say(name, word, "`but not`: a table says what is allowed alone")
        return []

    def _direct(self, types: Iterable[str], name: str, word: str, level: str) -> list[str]:
        known = False
        if not types:
            self._say(name, word, "it does not say who may have it")
        for each in types:
            kind, _, among = each.replace(":", "#").partition("#")
            if among and MEMBERS.get(kind) == among and kind in self.model and not self._principal(kind):
                # its tuples are read as grants to those whom others name as members, more than it has
                self._say(name, word, f"`{each}`: the model works them out")
                return []
            if " " in each:
                self._say(name, word, f"`{each.replace(' ', ' with ')}`: a condition")
            elif each in {USER, f"{USER}:*"} or (kind in MEMBERS and among == MEMBERS[kind] and kind in self.model):
                if word == "member" and each != USER:
                    self._say(name, word, f"`{each}`: users alone are members of an entity")
                else:
                    known = True
            else:
                self._say(name, word, f"`{each}`: neither users, the members of a group, nor a role")
        if not known:
            return []
        if word not in {"owner", "member"}:
            self._used.setdefault(word, [])
            if name not in self._used[word]:
                self._used[word].append(name)
        return [f"{word} ({level}{name})"]

    def _inherited(
        self, other: str, place: str, name: str, word: str, seen: tuple[tuple[str, str], ...], level: str
    ) -> list[str]:
        """`other from place`: what those have who have `other` on what an entity lies in."""
        around, cells = self._types(name, place), []
        if not around:
            self._say(
                name, word, f"`{other} from {place}`: `{place}` is no place, as its tuples are not of entities alone"
            )
        for above in around:
            if above == name:
                if other != word or not self._recursive(name, word):
                    self._say(
                        name, word, f"`{other} from {place}`: another relation to the entity of the same type around it"
                    )
            elif above != self._above[name]:
                self._say(name, word, f"`{other} from {place}`: `{above}` is not what it lies in")
            elif name in self._nested and not level:
                # an entity within another of its type has no tuple of its own by which it lies in `above`
                self._say(name, word, f"`{other} from {place}`: for the outermost `{name}` alone")
            elif other in self.model[above]:
                cells += self._atoms(above, other, seen, level="")
        return cells

    def _lines(self, rows: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        yield f"# Made of the model {self.document} by `privtab import model`; what it could not say is nobody's."
        yield "privtab: 1"
        yield f"system: {self.system}"
        yield 'version: "1"'
        yield ""
        yield "entities:"
        roots = [name for name in self.entities if self._above[name] is None]
        outermost = [name for name in roots if name in self._nested]
        yield from self._tree_of([name for name in roots if name not in outermost], "  ")
        if outermost:
            yield f"  {STORE}:"
            yield from self._tree_of(outermost, "    ")
        placed = [name for name in self.entities if name not in roots or name in outermost]
        if placed:
            yield "types:"
            if outermost:
                yield f"  {STORE}: {{single: true}}"
            for name in placed:
                yield f"  {name}: {{flat: true{', nested: true' if name in self._nested else ''}}}"
        if self._used:
            yield "privileges:"
            yield from (f"  {word}: {{on: [{', '.join(on)}]}}" for word, on in self._used.items())
        everyone = any(f"{USER}:*" in d.types for d in self._directs())
        kinds = [
            USER,
            *(
                kind
                for kind in MEMBERS
                if (kind in self.model and self._principal(kind)) or (kind == "group" and everyone)
            ),
        ]
        public = ", everyone: public" if everyone else ""
        groups = ", hierarchy: [groups]" if any("group#member" in d.types for d in self._directs("group")) else ""
        yield f"semantics: {{inheritance: none, deny: none, owner: {{kinds: [{', '.join(kinds)}]}}{public}{groups}}}"
        yield "tables:"
        for name, of_type in rows.items():
            if of_type:
                yield f"  {name}:"
                yield from (f'    {word}: "{cell}"' for word, cell in of_type.items())

    def _tree_of(self, names: Iterable[str], indent: str) -> Iterator[str]:
        for name in names:
            yield f"{indent}{name}:"
            yield from self._tree_of([other for other in self.entities if self._above[other] == name], indent + "  ")

    def _directs(self, *types: str) -> Iterator[Direct]:
        for name in types or self.model:
            for relation in self.model.get(name, {}).values():
                yield from (part for part in _parts(relation.tree) if isinstance(part, Direct))


def _parts(tree: Tree) -> Iterator[Tree]:
    yield tree
    if isinstance(tree, Joined):
        for part in tree.parts:
            yield from _parts(part)


def _computed(tree: Tree) -> list[Computed]:
    return [part for part in _parts(tree) if isinstance(part, Computed)]
