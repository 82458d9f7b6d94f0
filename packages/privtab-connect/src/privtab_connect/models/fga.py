"""Models of OpenFGA as policies, as far as a table can say them.

A relation that users have directly is a privilege (`owner` is ownership, `member` membership); each relation is an operation of its
name. A relation by which others are inherited (`viewer from parent`) is the place of an entity with a flat id. The tuples are read by
`privtab state import openfga`. What a table cannot say (`but not`, conditions, usersets of other types, two places) is left out of the
condition, which allows less then, and named.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from privtab.base import Diagnostic, FileError, strict_loads
from privtab_connect.models.grammar import Language, place

USER = "user"
MEMBERS = {"group": "member", "role": "assignee"}
"""Types whose usersets are principals, and the relation that makes them so."""
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_SOURCE = ("module", "source_info")
STORE = "fga_store"
"""The one entity around those that lie in entities of their own type: a type that nests lies in another."""


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
    try:
        if text.lstrip().startswith("{"):
            document = only(strict_loads(text), "schema_version", "type_definitions", "conditions", "id")
            version, types = document["schema_version"], [_defined(each) for each in document["type_definitions"]]
        else:
            version, *types = _LANGUAGE.parse(text, path, "model")
    except RecursionError:
        raise FileError(f"{path}: nested too deep") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{path}: no authorization model of OpenFGA: {error}") from error
    if version not in ("1.1", "1.2"):
        raise FileError(f"{path}: a model of schema {version}: the command reads 1.1 and 1.2")
    found: Model = {}
    for name, *relations in types:
        if name in found:
            raise FileError(f"{place(path, name)}: a second type `{name}`")
        known = found[name] = {}  # a name of the language keeps its place
        for word, tree in relations:
            if word in known:
                raise FileError(f"{place(path, word)}: a second relation `{word}` of `{name}`")
            known[str(word)] = Relation(tree, place(path, word))
    return found


def only(given: Any, *keys: str) -> Mapping[str, Any]:
    """An object of JSON. Raises ValueError for another key, which may say less than what is read, and AttributeError for no object."""
    if unknown := sorted(given.keys() - {*keys}):
        raise ValueError(f"unknown key `{unknown[0]}`")
    found: Mapping[str, Any] = given
    return found


def _defined(definition: Any) -> tuple[Any, ...]:
    of = only(definition, "type", "relations", "metadata")
    metadata = only(of.get("metadata") or {}, "relations", *_SOURCE).get("relations") or {}
    if unknown := sorted(metadata.keys() - (of.get("relations") or {}).keys()):
        raise ValueError(f"`{of['type']}` has no relation `{unknown[0]}`")
    relations = []
    for word, userset in (of.get("relations") or {}).items():
        about = only(metadata.get(word) or {}, "directly_related_user_types", *_SOURCE)
        direct = tuple(map(_reference, about.get("directly_related_user_types") or ()))
        relations.append((word, _userset(userset, direct)))
    return (_word(of, "type"), *relations)


def _reference(given: Any) -> str:
    of = only(given, "type", "relation", "wildcard", "condition")
    if of.get("relation") and "wildcard" in of:
        raise ValueError("a reference with `relation` and `wildcard`")
    among = f"#{_word(of, 'relation')}" if of.get("relation") else ":*" if "wildcard" in of else ""
    return f"{_word(of, 'type')}{among}" + (f" {_word(of, 'condition')}" if of.get("condition") else "")


def _word(given: Mapping[str, Any], key: str) -> str:
    word = given[key]
    if not isinstance(word, str):
        raise ValueError(f"`{key}` is no text: {word}")
    return word


def _computed_userset(given: Any) -> str:
    of = only(given, "relation", "object")
    if of.get("object"):
        raise ValueError(f"a userset of `{of['object']}` alone")
    return _word(of, "relation")


def _userset(given: Mapping[str, Any], direct: tuple[str, ...]) -> Tree:
    [(kind, content)] = given.items()
    match kind:
        case "this":
            only(content)
            return Direct(direct)
        case "computedUserset":
            return Computed(_computed_userset(content))
        case "tupleToUserset":
            of = only(content, "computedUserset", "tupleset")
            return Computed(_computed_userset(of["computedUserset"]), _computed_userset(of["tupleset"]))
        case "union" | "intersection":
            word = "or" if kind == "union" else "and"
            return Joined(word, tuple(_userset(part, direct) for part in only(content, "child")["child"]))
        case "difference":
            only(content, "base", "subtract")
            return Joined("but not", (_userset(content["base"], direct), _userset(content["subtract"], direct)))
    raise ValueError(f"unknown userset `{kind}`")


_LANGUAGE = Language(
    "openfga",
    {
        "reference": lambda parts: "".join(part or "" for part in parts[:3]) + (f" {parts[3]}" if parts[3] else ""),
        "direct": lambda parts: Direct(tuple(parts)),
        "computed": lambda parts: Computed(str(parts[0]), parts[1] and str(parts[1])),
        "any_of": lambda parts: Joined("or", tuple(parts)),
        "all_of": lambda parts: Joined("and", tuple(parts)),
        "without": lambda parts: Joined("but not", tuple(parts)),
        "relation": tuple,
        "type": tuple,
        "model": tuple,
    },
)


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
        """Make the policy. Raises FileError for names that a policy cannot have, and relations that are nested too deep."""
        for name, relations in self.model.items():
            for word, at in {
                name: place(self.document, name),
                **{word: r.place for word, r in relations.items()},
            }.items():
                if not _NAME.fullmatch(word):
                    raise FileError(f"{at}: `{word}` of `{name}` cannot be a name in a policy")
        try:
            self._make()
        except RecursionError:
            raise FileError(f"{self.document}: nested too deep") from None

    def _make(self) -> None:
        self.entities = [name for name in self.model if name != USER and not self._principal(name)]
        for name in (name for name in self.model if name not in self.entities):
            for word, relation in self.model[name].items():
                if word != MEMBERS.get(name):
                    self._say(name, word, f"a relation to a {name}, which is a principal")
                elif isinstance(relation.tree, Direct):
                    for each in relation.tree.types:
                        if each != USER and not (each in {"group#member", f"{name}#{word}"} and self._members(each)):
                            self._say(
                                name, word, f"`{each.replace(' ', ' with ')}`: users and groups alone are members"
                            )
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

    def on_model(self, finding: Diagnostic) -> Unsaid:
        """A finding of the policy, at the type or relation of the model that its line was made of."""
        lines = self.text.splitlines()[: finding.span.line]
        found = _NAME.search(lines[-1])
        word, of = found[0] if found else "", self._used
        name = next((name for name in self.model if name == word), None)
        if "tables:" in lines and lines[-1].startswith("    "):
            name, of = None, {word: [next(line.strip(" :") for line in reversed(lines) if line[2:3] != " ")]}
        at = place(self.document, name) if name else self.document
        if name is None and word in of:
            at = self.model[of[word][0]][word].place
        return Unsaid(at, finding.code, finding.message + (f" ({finding.help})" if finding.help else ""))

    def _principal(self, name: str) -> bool:
        """Whether a type is one of principals: it is called so, and has the relation that makes it one directly.

        A role is none if members of groups have it whom the model works out: all whom tuples name as members would have it.
        """
        relation = self.model[name].get(MEMBERS.get(name, ""))
        if relation is None or not isinstance(relation.tree, Direct):
            return False
        of_groups = name != "group" and any(each.split()[0] == "group#member" for each in relation.tree.types)
        return not of_groups or "group" not in self.model or self._principal("group")

    def _members(self, each: str) -> bool:
        """Whether a type is the members of a group, or the holders of a role, of the model."""
        kind, _, among = each.partition("#")
        return MEMBERS.get(kind) == among and kind in self.model

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
        for word in self.model[name]:
            if (
                word not in self.operations[name]
                if self.operations
                else word in self.places and self._around(name, word)
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
            elif each in {USER, f"{USER}:*"} or self._members(each):
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
        yield f"# Made of the model {Path(self.document).name} by `privtab import`; what it could not say is nobody's."
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
        usersets = {f"{kind}s": f"{kind}#{word}" for kind, word in MEMBERS.items()}
        nested = [kind for kind, each in usersets.items() if any(each in d.types for d in self._directs(kind[:-1]))]
        groups = f", hierarchy: [{', '.join(nested)}]" if nested else ""
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
