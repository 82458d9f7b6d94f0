"""Door documents, read and checked against a policy. `docs/reference/doors.md` describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from privtab.base import LEFT_OUT, Diagnostic, FindingKind, Located, Severity, SourceFile
from privtab.ir import Program, Rule, vocabulary
from privtab.language import DocumentProblem, DocumentReader, MappingNode, ScalarNode, SequenceNode, YamlNode
from privtab_connect.documents import document as find
from privtab_connect.names import Names, names_beside

MARK = "door"
KEYS = ("title", "caller", "operation", "rows", "answers", "kinds", "operations", "later")
OPTIONAL = ("rows", "later")
ITEM = "@"
"""The value of `each` in the path of a kind."""
CASES = ("same", "lower")
UNREACHED = FindingKind("W002", "unreached-row", Severity.NOTE)
Form: TypeAlias = Literal["boolean", "positions", "filters", "mask", "masks", "refusal"]
FORMS: tuple[Form, ...] = ("boolean", "positions", "filters", "mask", "masks", "refusal")
_OF_MODULES = ("as", "contains", "data", "default", "import", "input", "package")
_OF_BODIES = ("else", "every", "false", "if", "in", "not", "null", "some", "true", "with")
KEYWORDS = frozenset((*_OF_MODULES, *_OF_BODIES))
"""Words of Rego that are no names."""
RESERVED = frozenset({"lib", "door", *KEYWORDS})
"""Names that no answer can have."""
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_DOOR = re.compile(r"[a-z][a-z0-9_]*")
PLACE_EXAMPLE = "a place is written `table.name`, `parents[].name` or `parents[type!=ROOT].name`"

Shape: TypeAlias = MappingOf[str, "Shape"] | str | None
"""An answer with keys around it: a mapping whose texts may be placeholders; None for the answer itself."""

_KEY = r"[^.\[\]@!=\s]+"
_KEYS = rf"{_KEY}(?:\.{_KEY})*"
_PLACE = re.compile(rf"({_KEYS})(?:\[(?:({_KEYS})!=([^\[\]]+))?\](?:\.({_KEYS}))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a value, or of the values of a list."""

    at: tuple[str, ...]
    """The keys that lead to the value, or to the list."""
    items: tuple[str, ...] | None = None
    """The keys that lead from an item of the list to its value; None for a place that has one value."""
    skip: tuple[tuple[str, ...], str] | None = None
    """Items that are left out: items with this value under these keys."""

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Read a place; None if it is none.

        >>> Place.parse("parents[type!=ROOT].name")
        Place(at=('parents',), items=('name',), skip=(('type',), 'ROOT'))
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        keys, skip_keys, skipped, item_keys = found.groups()
        return cls(
            at=_split(keys),
            items=_split(item_keys) if "[" in text else None,
            skip=(_split(skip_keys), skipped) if skip_keys else None,
        )

    def to_json(self) -> dict[str, Any]:
        """As the generated Rego reads it."""
        found: dict[str, Any] = {"at": list(self.at)}
        if self.items is not None:
            found["items"] = list(self.items)
        if self.skip is not None:
            found["skip"] = {"at": list(self.skip[0]), "value": self.skip[1]}
        return found


def _split(keys: str | None) -> tuple[str, ...]:
    return tuple(keys.split(".")) if keys else ()


Conditions: TypeAlias = tuple[tuple[Place, tuple[str | list[str] | None, ...]], ...]
"""The values that stand at some places, each one of several; a list means an empty one."""
_NOTHING: Conditions = ((Place(at=()), (None,)),)
"""Conditions of a kind that looks at nothing of an object: for requests about no object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A rule that the other system asks for."""

    name: str
    form: Form
    about: Place
    """Place of the object that a request is about, or of the list of objects."""
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Names that are made of an entity's own, behind a sign, and show something of its contents: they stand for that entity."""

    type: str
    at: int
    """The position of the name in a path."""
    sign: str
    reads: str
    """The row by which the type, and the types right below it, are read: all of it must be readable, unfiltered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The entity for objects of one kind in the other system."""

    type: str
    path: tuple[Place | None, ...]
    """The places of its names; None for the value of `each`."""
    unnamed: bool
    """True if the path leaves off the entity's own name."""
    each: Place | None
    """Places of values, each of which makes an entity."""
    conditions: Conditions
    """The values that an object of this kind has."""
    derived: Derived | None
    least: int
    most: int
    """Number of names in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A row that an operation may be, for objects of one kind."""

    kind: str
    row: str
    """An operation of the policy, or the kind of its filters."""
    filters: bool
    """True if it asks for filters or masks."""
    objects: MappingOf[str, tuple[tuple[str, ...], Place]]
    """The kinds of each further object of the row, and its place in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A door document, checked against a policy."""

    name: str
    title: str
    user: Place
    groups: Place | None
    roles: Place | None
    caller: Conditions
    """The values that a request about a caller has."""
    operation: Place
    answers: tuple[Answer, ...]
    kinds: MappingOf[str, Kind]
    operations: MappingOf[str, tuple[Alternative, ...]]
    """The alternatives in the order of the document: the first that an object fits counts."""
    notes: tuple[Diagnostic, ...]
    """Findings about parts of the policy that the document does not mention."""


def load(document: str, program: Program) -> Door:
    """Read a door document by path or by name. Raises UsageError, and PolicyInvalid with every finding."""
    name, path = find(document, "door")
    file = SourceFile.load(path)
    begins, names = f"a door document begins with `{MARK}: 1`", names_beside(path)
    return DocumentReader.whole(
        file, begins, lambda found, root: _Reader(file, found, program, name, names).document(root)
    )


class _Reader(DocumentReader):
    """The reader of door documents."""

    NAMES: ClassVar = {"W001": "bad-door-document", UNREACHED.code: UNREACHED.name}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "W001")

    def __init__(self, file: SourceFile, found: list[Diagnostic], program: Program, name: str, names: Names) -> None:
        super().__init__(file, found)
        self._names = names
        self._program = program
        self._name = name

    def document(self, root: YamlNode) -> Door | None:
        """The whole document."""
        fields = self.fields(root, "a door document", (MARK, *KEYS), (MARK, *(k for k in KEYS if k not in OPTIONAL)))
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        title = self.text(fields["title"], "`title`")
        if not _DOOR.fullmatch(self._name):
            message = f"the name of the file, `{self._name}`, is a part of addresses: small letters, digits and `_`"
            self.report("W001", fields[MARK], message)
        case = self.word(fields["rows"], "`rows`", CASES) if "rows" in fields else "same"
        caller = self.fields(fields["caller"], "`caller`", ("user", "groups", "roles", "is"), ("user",)) or {}
        user, groups, roles = (self.place(caller.get(key), f"`{key}`") for key in ("user", "groups", "roles"))
        self.check_caller(caller)
        derived = self.derived()
        kinds = self.kinds(fields["kinds"], derived)
        operation = self.place(fields["operation"], "`operation`")
        operations = self.operations(fields, kinds, lower=case == "lower")
        answers = self.answers(fields["answers"])
        if title is None or user is None or operation is None or self.mistakes:
            return None
        return Door(
            name=self._name,
            title=title.value,
            user=user,
            groups=groups,
            roles=roles,
            caller=self.conditions(caller.get("is")),
            operation=operation,
            answers=answers,
            kinds=kinds,
            operations=operations,
            notes=self.unreached(fields["operations"], kinds, operations),
        )

    def check_caller(self, caller: MappingOf[str, YamlNode]) -> None:
        """Report what a request would say of its caller in vain: to leave roles out would allow more."""
        semantics = self._program.semantics
        if "groups" in caller and "request" not in semantics.groups:
            message, help_ = "the policy does not take groups from requests", "say `groups: [state, request]` there"
            self.report("W001", caller["groups"], message, help_)
        if "roles" in caller and semantics.active_roles == "none":
            self.report("W001", caller["roles"], "the policy has no active roles", "say `active_roles: request` there")

    def place(self, node: YamlNode | None, what: str, *, single: bool = True) -> Place | None:
        """A place in a request."""
        text = self.text(node, what)
        place = None if text is None else Place.parse(text.value)
        if text is not None and (place is None or (single and place.items is not None)):
            problem = "is not a place" if place is None else "has the values of a list"
            self.report("W001", text.span, f"{what}, `{text.value}`, {problem}", PLACE_EXAMPLE)
            return None
        return place

    # --- answers ---

    def answers(self, node: YamlNode) -> tuple[Answer, ...]:
        """Read the answers that the other system asks for, by the names of rules."""
        found = []
        for key, value in self.entries(node, "`answers`"):
            fields = self.fields(value, f"`{key.text}`", ("form", "about", "shape"), ("form", "about"))
            if not _NAME.fullmatch(key.text) or key.text in RESERVED:
                self.report("W001", key, f"`{key.text}` cannot be the name of an answer")
            elif fields is not None:
                form = self.word(fields["form"], "`form`", FORMS)
                about = self.place(fields["about"], "`about`", single=False)
                shape = self.shape(fields["shape"]) if "shape" in fields else None
                if about is not None:
                    found += [Answer(name=key.text, form=f, about=about, shape=shape) for f in FORMS if f == form]
        return tuple(found)

    def shape(self, node: YamlNode) -> Shape:
        """Read the structure around an answer."""
        if isinstance(node, MappingNode):
            return {key.text: self.shape(value) for key, value in self.entries(node, "`shape`")}
        text = self.text(node, "`shape`")
        return None if text is None else text.value

    # --- kinds ---

    def derived(self) -> tuple[Derived, ...]:
        """The types whose names may be derived from another's."""
        found = []
        for kind, named in self._names.kinds.items():
            if not named.sign:
                continue
            type_, row = self._names.type_of(kind, self._program.entities), named.reads
            readers = [other for other, operation in self._program.rules if operation == row]
            if type_ not in readers:
                advice = self.near(type_, readers, f"the types with a row `{row}` are")
                self.report("W001", named.span, f"the policy has no row `{type_}/{row}`", advice)
            elif any(type_ in self._program.chain(other)[:-2] for other in readers):
                self.report("W001", named.span, f"`{row}` reads types further below `{type_}`")
            else:
                at = self._program.depth(type_) - 1
                found.append(Derived(type=type_, at=at, sign=named.sign, reads=row))
        return tuple(found)

    def kinds(self, node: YamlNode, derived: tuple[Derived, ...]) -> dict[str, Kind]:
        """Read the kinds of objects by name."""
        read = {key.text: self.kind(key, value, derived) for key, value in self.entries(node, "`kinds`")}
        return {name: kind for name, kind in read.items() if kind is not None}

    def kind(self, key: ScalarNode, node: YamlNode, derived: tuple[Derived, ...]) -> Kind | None:
        """Read one kind of objects; without a type, it is the kind of its name in the names of the system."""
        what = f"`{key.text}`"
        usual = key.text in self._names.kinds
        fields = self.fields(node, what, ("type", "path", "unnamed", "each", "is"), () if usual else ("type",))
        if fields is None:
            return None
        own = Located(self._names.type_of(key.text, self._program.entities), self.span(key))
        type_ = self.text(fields["type"], "`type`") if "type" in fields else own
        if type_ is None:
            return None
        if type_.value not in self._program.entities:
            advice = self.near(type_.value, self._program.entities, "types")
            self.report("W001", type_.span, f"the policy has no type `{type_.value}`", advice)
            return None
        if vocabulary(self._program).lies_in_state(type_.value):
            self.report("W001", type_.span, f"the ids of `{type_.value}` do not say where its entities lie")
            return None
        each = self.place(fields.get("each"), "`each`", single=False)
        if each is not None and each.items is None:
            self.report("W001", fields["each"], "`each` is about one value", "write `[]` behind the list")
        unnamed = self.truth(fields.get("unnamed"), "`unnamed`")
        path: list[Place | None] = []
        path_node = fields.get("path")
        for part in path_node.items if isinstance(path_node, SequenceNode) else (path_node,) if path_node else ():
            if isinstance(part, ScalarNode) and part.text == ITEM:
                path.append(None)
                if each is None:
                    self.report("W001", part, f"`{ITEM}` stands for the value of `each`, which is missing")
            elif (place := self.place(part, "`path`", single=False)) is not None:
                path.append(place)
        least = self._program.depth(type_.value) - unnamed
        most = vocabulary(self._program).shapes[type_.value].most - unnamed
        if unnamed and self._program.entities[type_.value].single:
            self.report("W001", fields["unnamed"], f"`{type_.value}` has no name of its own")
        elif all(place is None or place.items is None for place in path) and not least <= len(path) <= most:
            names = f"{least}" if least == most else f"{least} to {most}"
            message = f"the path of {what} has {len(path)} names, and that of `{type_.value}` {names}"
            self.report("W001", path_node or node, message, "without its own name" if unnamed else None)
        chain = self._program.chain(type_.value)
        named = next((one for one in derived if one.type in chain and one.at < len(path)), None)
        lists = any(place is not None and place.items is not None for place in path)
        if named is not None and (lists or least != most or path[named.at] is None):
            self.report(
                "W001", path_node or node, f"names of `{named.type}` may be derived: {what} needs a place for each name"
            )
        return Kind(
            type=type_.value,
            path=tuple(path),
            unnamed=unnamed,
            each=each,
            conditions=self.conditions(fields.get("is")) or (() if path or each else _NOTHING),
            derived=named,
            least=least,
            most=most,
        )

    def conditions(self, node: YamlNode | None) -> Conditions:
        """The values that an object has at some places: a text, one of a list, or an empty list."""
        found: list[tuple[Place, tuple[str | list[str] | None, ...]]] = []
        for key, value in self.entries(node, "`is`"):
            place = self.place(key, "a key of `is`", single=False)
            words = tuple(text.value for text in self.texts(value, f"`{key.text}`"))
            if place is not None:
                found.append((place, words or ([],)))
        return tuple(found)

    # --- operations ---

    def operations(
        self, fields: MappingOf[str, YamlNode], kinds: MappingOf[str, Kind], *, lower: bool
    ) -> dict[str, tuple[Alternative, ...]]:
        """The rows of each operation; a key may name several operations.

        What stands under `later` comes behind, without what the policy has no row for.
        """
        given: dict[str, list[tuple[ScalarNode, YamlNode, bool]]] = {}
        for section in ("operations", "later"):
            seen = set()
            for key, value in self.entries(fields.get(section), f"`{section}`"):
                for name in map(str.strip, key.text.split(",")):
                    if not name or name in seen:
                        message = f"`{name}` occurs twice in `{section}`" if name else "a name is missing"
                        self.report("W001", key, message)
                        continue
                    seen.add(name)
                    nodes = value.items if isinstance(value, SequenceNode) else (value,)
                    given.setdefault(name, []).extend((key, node, section == "later") for node in nodes)
        found: dict[str, tuple[Alternative, ...]] = {}
        for name, entries in given.items():
            read = [
                self.alternative(
                    node, key, name.lower() if lower else name, kinds, last=node is entries[-1][1], later=is_later
                )
                for key, node, is_later in entries
            ]
            if any(read) or not all(is_later for _, _, is_later in entries):
                found[name] = tuple(alternative for alternative in read if alternative is not None)
        return found

    def alternative(
        self, node: YamlNode, key: YamlNode, row: str, kinds: MappingOf[str, Kind], *, last: bool, later: bool
    ) -> Alternative | None:
        """One row that an operation may be: the name of a kind, or `kind`, `row` and `with`; None where only a later policy has the row."""
        fields: MappingOf[str, YamlNode] = {"kind": node}
        if isinstance(node, MappingNode):
            fields = self.fields(node, "an operation", ("kind", "row", "with", "filter"), ("kind",)) or {}
        kind_name = self.known_kind(fields.get("kind"), kinds)
        own = self.text(fields.get("row"), "`row`")
        row = row if own is None else own.value
        if kind_name is None:
            return None
        kind = kinds[kind_name]
        if not last and not kind.conditions:
            self.report("W001", node, f"every object is `{kind_name}`, so that what follows is never reached")
        if "filter" in fields:
            filter_kind = self.word(fields["filter"], "`filter`", ("row_filter", "column_mask"))
            return (
                None if filter_kind is None else Alternative(kind=kind_name, row=filter_kind, filters=True, objects={})
            )
        rule = self._program.rules.get((kind.type, row))
        if rule is None and later:
            return None
        if rule is None:
            rows = [operation for type_, operation in self._program.rules if type_ == kind.type]
            at = key if own is None else own.span
            self.report("W001", at, f"the policy has no row `{kind.type}/{row}`", self.near(row, rows, "its rows are"))
            return None
        objects = self.objects(fields.get("with"), node, rule, kinds)
        # What a row needs of requests, and a door cannot give.
        problems = [f"requires the flag `{flag}`" for flag in rule.required_flags]
        problems += ["is about a named entity"] if kind.unnamed and not rule.unnamed else []
        for problem in problems:
            self.report("W001", node, f"`{rule.entity}/{rule.operation}` {problem}")
        return Alternative(kind=kind_name, row=row, filters=False, objects=objects)

    def known_kind(self, node: YamlNode | None, kinds: MappingOf[str, Kind]) -> str | None:
        """The name of a kind."""
        text = self.text(node, "`kind`")
        if text is None or text.value in kinds:
            return None if text is None else text.value
        self.report("W001", text.span, f"there is no kind `{text.value}`", self.near(text.value, kinds, "kinds"))
        return None

    def objects(
        self, node: YamlNode | None, at: YamlNode, rule: Rule, kinds: MappingOf[str, Kind]
    ) -> dict[str, tuple[tuple[str, ...], Place]]:
        """The further objects of a row."""
        slots = {slot.name: slot.types for slot in rule.withs}
        row = f"`{rule.entity}/{rule.operation}`"
        found = {}
        entries = self.entries(node, "`with`")
        for key, value in entries:
            fields = self.fields(value, f"`{key.text}`", ("kind", "about"), ("kind", "about"))
            if key.text not in slots:
                self.report(
                    "W001", key, f"{row} has no object `{key.text}`", self.near(key.text, slots, "its objects are")
                )
            elif fields is not None:
                about = self.place(fields["about"], "`about`", single=False)
                kind_nodes = fields["kind"].items if isinstance(fields["kind"], SequenceNode) else (fields["kind"],)
                names = [name for kind_node in kind_nodes if (name := self.known_kind(kind_node, kinds)) is not None]
                wrong = [name for name in names if kinds[name].type not in slots[key.text]]
                if wrong:
                    types = " or ".join(name for name in slots[key.text] if name != LEFT_OUT)
                    message = f"`{key.text}` is a {types}, and `{wrong[0]}` a {kinds[wrong[0]].type}"
                    self.report("W001", fields["kind"], message)
                elif about is not None:
                    found[key.text] = (tuple(names), about)
        given = {key.text for key, _ in entries}
        for name in sorted(slot for slot, types in slots.items() if slot not in given and LEFT_OUT not in types):
            self.report("W001", at, f"{row} needs an object `{name}`", "say it under `with`")
        return found

    def unreached(
        self, node: YamlNode, kinds: MappingOf[str, Kind], operations: MappingOf[str, tuple[Alternative, ...]]
    ) -> tuple[Diagnostic, ...]:
        """A note with the rows that no operation reaches."""
        reached = {f"{kinds[a.kind].type}/{a.row}" for alternatives in operations.values() for a in alternatives}
        # Filters and masks are asked for by their kind.
        filters = {(one.entity, one.operation) for one in self._program.filters}
        rows = ((pair[0], pair[1].partition(".")[0] if pair in filters else pair[1]) for pair in self._program.rules)
        missing = [row for row in dict.fromkeys(map("/".join, rows)) if row not in reached]
        if not missing:
            return ()
        return (UNREACHED.at(self.span(node), f"no operation reaches {', '.join(f'`{row}`' for row in missing)}"),)
