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
from typing import TypeAlias, TypeVar

from privtab.base import Diagnostic, FileError
from privtab_connect.models.grammar import Language, place

USER = "user"
MEMBERS = {"group": "member", "role": "assignee"}
"""Types whose usersets are principals, and the relation that makes them so."""
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
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
    place: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """Several: `or`, `and` or `but not`; an `and` of nothing is everybody."""

    word: str
    parts: tuple[Tree, ...]


Tree: TypeAlias = Direct | Computed | Joined
_P = TypeVar("_P", Direct, Computed)


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


_LANGUAGE = Language(
    "openfga",
    {
        "reference": lambda parts: "".join(part or "" for part in parts[:3]) + (f" {parts[3]}" if parts[3] else ""),
        "direct": lambda parts: Direct(tuple(parts)),
        "computed": lambda parts: Computed(str(parts[0]), str(parts[1] or "")),
        "any_of": lambda parts: Joined("or", tuple(parts)),
        "all_of": lambda parts: Joined("and", tuple(parts)),
        "without": lambda parts: Joined("but not", tuple(parts)),
        "relation": tuple,
        "type": tuple,
        "model": tuple,
    },
)


def read(text: str, path: str) -> Model:
    """The types and relations of a model in OpenFGA's language. Raises FileError for anything else."""
    if text.lstrip().startswith("{"):
        raise FileError(f"{path}: a model in JSON; `fga model transform --file={path}` writes it in OpenFGA's language")
    version, *types = _LANGUAGE.parse(text, path, "model")
    if version not in ("1.1", "1.2"):
        raise FileError(f"{place(path, version)}: a model of schema {version}: the command reads 1.1 and 1.2")
    found: Model = {}
    wrong = []
    for name, *relations in types:
        if name in found:
            wrong.append(f"{place(path, name)}: a second type `{name}`")
        known = found[name] = {}  # a name of the language keeps its place
        for word, tree in relations:
            if word in known:
                wrong.append(f"{place(path, word)}: a second relation `{word}` of `{name}`")
            known[word] = Relation(tree, place(path, word))
    if wrong:
        raise FileError("\n".join(wrong))
    return found


@dataclass(slots=True, eq=False)
class Derived:
    """A policy made of a model: `lines` are YAML, each with its place in the model, and `unsaid` is what they do not say."""

    model: Model
    system: str
    document: str
    operations: Mapping[str, Collection[str]] | None = None
    """The relations of each type that are operations; None: all but places."""
    unsaid: list[Unsaid] = field(default_factory=list, init=False)
    places: set[str] = field(default_factory=set, init=False)
    entities: list[str] = field(default_factory=list, init=False)
    lines: list[tuple[str, str]] = field(default_factory=list, init=False)
    _above: dict[str, str] = field(default_factory=dict, init=False)
    _nested: set[str] = field(default_factory=set, init=False)
    _used: dict[str, list[str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Make the policy. Raises FileError for names that a policy cannot have."""
        names = [(place(self.document, name), name, name) for name in self.model]
        names += [(r.place, word, name) for name, of in self.model.items() for word, r in of.items()]
        if wrong := [each for each in names if not _NAME.fullmatch(each[1])]:
            raise FileError(
                "\n".join(f"{at}: `{word}` of `{name}` cannot be a name in a policy" for at, word, name in wrong)
            )
        self.entities = [name for name in self.model if name != USER and not self._principal(name)]
        for name in (name for name in self.model if name not in self.entities):
            for word in self.model[name]:
                if word != MEMBERS.get(name):
                    self._say(name, word, f"a relation to a {name}, which is a principal")
                    continue
                for each in self._named(name, word):
                    if each != USER and not (each in {"group#member", f"{name}#{word}"} and self._members(each)):
                        self._say(name, word, f"`{each.replace(' ', ' with ')}`: users and groups alone are members")
        self._find_places()
        rows = {name: self._rows(name) for name in self.entities}
        self.lines = list(self._lines(rows))

    @property
    def text(self) -> str:
        """The policy."""
        return "".join(f"{line}\n" for line, _ in self.lines)

    def values(self) -> dict[str, str]:
        """The values by which `state import openfga` reads the tuples of the model."""
        given = {"parent": ",".join(sorted(self.places)), "outermost": ",".join(self._outermost())}
        return {name: value for name, value in given.items() if value}

    def on_model(self, finding: Diagnostic) -> Unsaid:
        """A finding of the policy, at the type or relation of the model that its line was made of."""
        why = finding.message + (f" ({finding.help})" if finding.help else "")
        return Unsaid(self.lines[finding.span.line - 1][1], finding.code, why)

    def _principal(self, name: str) -> bool:
        """Whether a type is one of principals: it is called so, and has the relation that makes it one directly.

        A role is none if members of groups have it whom the model works out: all whom tuples name as members would have it.
        """
        types = self._named(name, MEMBERS.get(name, ""))
        of_groups = name != "group" and any(each.split()[0] == "group#member" for each in types)
        return bool(types) and (not of_groups or "group" not in self.model or self._principal("group"))

    def _members(self, each: str) -> bool:
        """Whether a type is the members of a group, or the holders of a role, of the model."""
        kind, _, among = each.partition("#")
        return MEMBERS.get(kind) == among and kind in self.model

    def _named(self, name: str, word: str) -> tuple[str, ...]:
        """The types that tuples of a relation name; none if others have it, too."""
        relation = self.model.get(name, {}).get(word)
        return relation.tree.types if relation and isinstance(relation.tree, Direct) else ()

    def _around(self, name: str, word: str) -> tuple[str, ...]:
        """The types of the entities that a relation which is a place names; none if it names others, too."""
        types = self._named(name, word) if word in self.places else ()
        return types if {*types} <= {*self.entities} else ()

    def _outermost(self) -> list[str]:
        return [name for name in self.entities if name in self._nested and name not in self._above]

    def _say(self, name: str, word: str, why: str) -> list[str]:
        """Name what a table cannot say, which is no alternative."""
        unsaid = Unsaid(self.model[name][word].place, f"`{word}` of `{name}`", why)
        if unsaid not in self.unsaid:
            self.unsaid.append(unsaid)
        return []

    def _find_places(self) -> None:
        """Find the relations that are places, and what entities of each type lie in.

        An entity lies in one of a type: what lies in two by two relations would have the rights of both.
        """
        used = {name: [part.place for part in self._all(Computed, name)] for name in self.entities}
        self.places = {word for words in used.values() for word in words}
        self.places = {word for name, words in used.items() for word in words if self._around(name, word)}
        for name in self.entities:
            known: set[str] = set()
            for word in dict.fromkeys((*used[name], *sorted(self.places))):
                types = self._around(name, word)
                if known & {*types}:
                    self.places.remove(word)  # of every type: the tuples of a relation are read alike
                    self._say(name, word, f"it names a second place in a {types[0]}")
                known |= {*types}
        for name, words in used.items():
            for word, kind in [(each, kind) for each in words for kind in self._around(name, each)]:
                if kind == name:
                    self._nested.add(name)
                elif (first := self._above.setdefault(name, kind)) != kind:
                    self._say(name, word, f"it lies in `{first}` and in `{kind}`; the second is left out")

    def _rows(self, name: str) -> dict[str, str]:
        """The operations of a type, and their conditions."""
        of = self.operations
        words = [word for word in self.model[name] if (word in of[name] if of else not self._around(name, word))]
        return {word: " or ".join(dict.fromkeys(self._atoms(name, word, (), ""))) or "nobody" for word in words}

    def _recursive(self, name: str, word: str) -> bool:
        """Whether a relation is inherited from entities of the same type: `viewer: … or viewer from parent`."""
        tree = self.model[name][word].tree
        parts = tree.parts if isinstance(tree, Joined) and tree.word == "or" else ()
        from_own = (part.place for part in parts if isinstance(part, Computed) and part.relation == word)
        return any(name in self._around(name, place) for place in from_own)

    def _atoms(self, name: str, word: str, seen: tuple[tuple[str, str], ...], level: str) -> list[str]:
        """The alternatives of a relation, as cells; what a table cannot say is named, and no alternative."""
        if (name, word) in seen:
            return self._say(name, word, "it is defined by itself")
        seen = (*seen, (name, word))
        level = "any " if self._recursive(name, word) else level

        def said(tree: Tree) -> list[str]:
            match tree:
                case Direct(types):
                    return self._direct(types, name, word, level)
                case Computed(other, ""):
                    if other in self.model[name]:
                        return self._atoms(name, other, seen, level)
                    return self._say(name, word, f"`{name}` has no relation `{other}`")
                case Computed():
                    return self._inherited(tree, name, word, seen, level)
                case Joined("or", parts):
                    return [cell for part in parts for cell in said(part)]
                case Joined("and", parts):
                    if level:
                        return self._say(name, word, "`and` of what is inherited from the same type")
                    every = [said(part) for part in parts]
                    whole = " and ".join(cells[0] if len(cells) == 1 else f"({' or '.join(cells)})" for cells in every)
                    return [whole or "anyone"] if all(every) else []
            return self._say(name, word, "`but not`: a table says what is allowed alone")

        return said(self.model[name][word].tree)

    def _direct(self, types: Iterable[str], name: str, word: str, level: str) -> list[str]:
        known = False
        for each in types:
            if self._members(each) and not self._principal(each.partition("#")[0]):
                # its tuples are read as grants to those whom others name as members, more than it has
                return self._say(name, word, f"`{each}`: the model works them out")
            if " " in each:
                self._say(name, word, f"`{each.replace(' ', ' with ')}`: a condition")
            elif each not in {USER, f"{USER}:*"} and not self._members(each):
                self._say(name, word, f"`{each}`: neither users, the members of a group, nor a role")
            elif word == "member" and each != USER:
                self._say(name, word, f"`{each}`: users alone are members of an entity")
            else:
                known = True
        if known and word not in {"owner", "member"} and name not in self._used.setdefault(word, []):
            self._used[word].append(name)
        return [f"{word} ({level}{name})"] if known else []

    def _inherited(
        self, of: Computed, name: str, word: str, seen: tuple[tuple[str, str], ...], level: str
    ) -> list[str]:
        """`viewer from parent`: what those have who have `viewer` on what an entity lies in."""
        other, what = of.relation, f"`{of.relation} from {of.place}`"
        if not self._around(name, of.place):
            self._say(name, word, f"{what}: `{of.place}` is no place, as its tuples are not of entities alone")
        cells = []
        for above in self._around(name, of.place):
            if above == name:
                if other != word or not self._recursive(name, word):
                    self._say(name, word, f"{what}: another relation to the entity of the same type around it")
            elif above != self._above[name]:
                self._say(name, word, f"{what}: `{above}` is not what it lies in")
            elif name in self._nested and not level:
                # an entity within another of its type has no tuple of its own by which it lies in `above`
                self._say(name, word, f"{what}: for the outermost `{name}` alone")
            elif other in self.model[above]:
                cells += self._atoms(above, other, seen, "")
        return cells

    def _lines(self, rows: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
        """The lines of the policy, each with the place in the model of what it is about."""
        yield (
            f"# Made of the model {Path(self.document).name} by `privtab import`; what it could not say is nobody's.",
            "",
        )
        yield from (
            (line, self.document) for line in ("privtab: 1", f"system: {self.system}", 'version: "1"', "", "entities:")
        )
        outermost = self._outermost()
        roots = [name for name in self.entities if name not in self._above and name not in outermost]
        yield from self._tree_of(roots, "  ")
        if outermost:
            yield f"  {STORE}:", self.document
            yield from self._tree_of(outermost, "    ")
        if placed := [name for name in self.entities if name not in roots]:
            yield "types:", self.document
            if outermost:
                yield f"  {STORE}: {{single: true}}", self.document
            for name in placed:
                nested = ", nested: true" if name in self._nested else ""
                yield f"  {name}: {{flat: true{nested}}}", place(self.document, name)
        if self._used:
            yield "privileges:", self.document
            for word, on in self._used.items():
                yield f"  {word}: {{on: [{', '.join(on)}]}}", self.model[on[0]][word].place
        everyone = any(f"{USER}:*" in direct.types for direct in self._all(Direct, *self.model))
        kinds = [kind for kind in MEMBERS if self._principal(kind) or (kind == "group" and everyone)]
        public = ", everyone: public" if everyone else ""
        nesting = [
            f"{kind}s"
            for kind, word in MEMBERS.items()
            if any(f"{kind}#{word}" in direct.types for direct in self._all(Direct, kind))
        ]
        groups = f", hierarchy: [{', '.join(nesting)}]" if nesting else ""
        owners = ", ".join([USER, *kinds])
        yield (
            f"semantics: {{inheritance: none, deny: none, owner: {{kinds: [{owners}]}}{public}{groups}}}",
            self.document,
        )
        yield "tables:", self.document
        for name, of_type in rows.items():
            if of_type:
                yield f"  {name}:", place(self.document, name)
                yield from ((f'    {word}: "{cell}"', self.model[name][word].place) for word, cell in of_type.items())

    def _tree_of(self, names: Iterable[str], indent: str) -> Iterator[tuple[str, str]]:
        for name in names:
            yield f"{indent}{name}:", place(self.document, name)
            yield from self._tree_of([each for each in self.entities if self._above.get(each) == name], indent + "  ")

    def _all(self, kind: type[_P], *types: str) -> list[_P]:
        """The parts of one kind of the relations of types."""
        relations = [relation for name in types for relation in self.model.get(name, {}).values()]
        return [part for relation in relations for part in _parts(relation.tree) if isinstance(part, kind)]


def _parts(tree: Tree) -> Iterator[Tree]:
    yield tree
    if isinstance(tree, Joined):
        for part in tree.parts:
            yield from _parts(part)
