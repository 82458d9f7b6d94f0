"""Mapping documents: what the rows of a state are in a target. `docs/reference/push.md` describes them."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from privtab.base import (
    PRINCIPAL_KINDS,
    Diagnostic,
    Entity,
    Located,
    SourceFile,
    encode_name,
    last_name,
    load_plugin,
    plugin_names,
)
from privtab.ir import Program
from privtab.language import DocumentProblem, DocumentReader, MappingNode, ScalarNode, SequenceNode, YamlNode
from privtab.state import TABLE_COLUMNS, principal_entity
from privtab_connect.documents import document as find
from privtab_connect.errors import TemplateError
from privtab_connect.importing.template import Template
from privtab_connect.names import names_of
from privtab_connect.pushdown.rights import EVERYONE, OWNER, Account, AccountKind, Object, Traits

MARK = "push"
SAME = "same"
"""The key for all privileges under their own names."""
IN_NAME = "@"
"""The host that stands behind the last `@` of a user's name, as an import writes it; without one it is any host."""
KEYS = (
    "title", "target", "within", "objects", "privileges", "members", "owners", "names", "host", "leave_out", "operations",
)  # fmt: skip
LEFT_OUT = ("tables", "types", "privileges")
Part: TypeAlias = Literal["tables", "types", "privileges"]
Needed: TypeAlias = tuple[tuple[str, str], ...]
"""Native privileges that are needed together: (entity type, privilege or OWNER)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingDocument:
    """A mapping document, checked against a policy."""

    path: str
    target: str
    traits: Traits
    inherits: bool
    """True if a privilege on an object of the target counts for everything in it."""
    within: MappingOf[str, str]
    """Names of entities on the path, by type: the target is only about what lies below them."""
    objects: MappingOf[str, str]
    """Entity type → kind of object."""
    privileges: MappingOf[str, MappingOf[str, tuple[str, ...]]]
    """Privilege of the policy → entity type → native privileges."""
    members: MappingOf[str, tuple[str, ...]]
    """Entity type → native privileges that its members hold on it."""
    owners: MappingOf[str, tuple[str, ...]]
    """Entity type → native privileges that an owner holds beside ownership."""
    names: MappingOf[str, Template]
    """Kind of principal → its native name."""
    host: str
    left_out: MappingOf[Part, MappingOf[str, str]]
    """Names that the document declares to have no counterpart, with the reason."""
    operations: MappingOf[tuple[str, str], tuple[Needed, ...]] = field(default_factory=dict)
    """(entity type, operation) → alternatives of what the target requires for it."""

    def places(self, object_: Object) -> tuple[Object, ...]:
        """The objects whose grants count for one: itself, and if grants are inherited, the objects that contain it."""
        if not self.inherits:
            return (object_,)
        kinds = self.traits.kinds
        roots = [Object(kind, ()) for kind, names in kinds.items() if not names and kind != object_.kind]
        around = kinds[object_.kind][:-1]
        return (*roots, *(Object(kind, object_.names[: n + 1]) for n, kind in enumerate(around)), object_)


def load(document: str, program: Program, values: MappingOf[str, str]) -> MappingDocument:
    """Read a mapping document by path or by name. Raises UsageError, and PolicyInvalid with every finding.

    `values`: what placeholders under `within` stand for.
    """
    file = SourceFile.load(find(document, "mapping")[1])
    begins = f"a mapping document begins with `{MARK}: 1`"
    return DocumentReader.whole(file, begins, lambda found, root: _Reader(file, found, program, values).document(root))


class _Reader(DocumentReader):
    """The reader of mapping documents."""

    NAMES: ClassVar = {"N001": "bad-mapping-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "N001")

    def __init__(
        self, file: SourceFile, found: list[Diagnostic], program: Program, values: MappingOf[str, str]
    ) -> None:
        super().__init__(file, found)
        self._program = program
        self._values = values

    def document(self, root: YamlNode) -> MappingDocument | None:
        """The whole document."""
        fields = self.fields(root, "a mapping document", (MARK, *KEYS), (MARK, "title", "target"))
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        self.text(fields["title"], "`title`")
        target = self.word(fields["target"], "`target`", plugin_names("privtab.push_targets"))
        if target is None:
            return None
        traits: Traits = load_plugin("privtab.push_targets", target).TRAITS
        within = {type_: self._value(text) for type_, text in self._typed_texts(fields.get("within"), "`within`")}
        objects = self._objects(fields["objects"], traits, within) if "objects" in fields else self._usual(target)
        privileges = self._privileges(fields.get("privileges"), objects, traits)
        return MappingDocument(
            path=self.source.path,
            target=target,
            traits=traits,
            inherits=self._program.semantics.inheritance == "down" if traits.inherits is None else traits.inherits,
            within={type_: name for type_, name in within.items() if name is not None},
            objects=objects,
            privileges=privileges,
            members=self._native(fields.get("members"), "`members`", objects, traits),
            owners=self._native(fields.get("owners"), "`owners`", objects, traits),
            names=self._names(fields.get("names")),
            host="%" if (host := self.text(fields.get("host"), "`host`")) is None else host.value,
            left_out=self._left_out(fields.get("leave_out")),
            operations=self._operations(fields.get("operations"), objects, traits),
        )

    def _privileges(
        self, node: YamlNode | None, objects: MappingOf[str, str], traits: Traits
    ) -> dict[str, dict[str, tuple[str, ...]]]:
        """The native privileges of each privilege; `same`: the privilege of the same name, wherever it can be granted."""
        if isinstance(node, ScalarNode) and node.text == SAME:
            return {
                name: {type_: (name,) for type_ in privilege.on if type_ in objects}
                for name, privilege in self._program.grantable.items()
            }
        return {
            key.text: self._native(value, f"`{key.text}`", objects, traits)
            for key, value in self.entries(node, "`privileges`", f"or `{SAME}`, if all have the same names")
            if self._is_known(key, tuple(self._program.grantable), "privilege")
        }

    def _is_known(self, key: YamlNode, known: tuple[str, ...], what: str) -> bool:
        text = self.text(key, f"a {what}")
        if text is None or text.value in known:
            return text is not None
        self.report("N001", key, f"the policy has no {what} `{text.value}`", self.near(text.value, known, f"{what}s"))
        return False

    def _typed_texts(self, node: YamlNode | None, what: str) -> list[tuple[str, Located[str]]]:
        """Texts by entity type."""
        found = []
        for key, value in self.entries(node, what):
            text = self.text(value, f"`{key.text}`")
            if self._is_known(key, tuple(self._program.entities), "type") and text is not None:
                found.append((key.text, text))
        return found

    def _value(self, text: Located[str]) -> str | None:
        try:
            return Template(text.value).plain(self._values)
        except TemplateError as error:
            self.report("N001", text.span, f"{error}: give it by --set NAME=VALUE")
            return None

    def _objects(self, node: YamlNode, traits: Traits, within: MappingOf[str, str | None]) -> dict[str, str]:
        """Read the kinds of objects by entity type; the names of a path must match the names of the kind."""
        found = {}
        for type_, kind in self._typed_texts(node, "`objects`"):
            path = [self._program.entities[above] for above in self._program.chain(type_)]
            message, advice = "", None
            if kind.value not in traits.kinds:
                message, advice = f"the target has no {kind.value}", self.near(kind.value, traits.kinds, "kinds")
            elif any(above.nested for above in path):
                message = f"`{type_}` nests, and objects of a target do not"
            elif kind.value == traits.role_kind and path[-1].principal not in ("role", "group"):
                message = f"a {kind.value} is a role or a group, and `{type_}` is neither"
            elif any(above.flat for above in path):
                message = f"the ids of `{type_}` do not say where its entities lie"
            if message:
                self.report("N001", kind.span, message, advice)
                continue
            names = tuple(above.name for above in path if not above.single and above.name not in within)
            own = traits.kinds[kind.value]
            if len(names) not in (len(own), len(own) + 1) or (not own and names):
                written, has = (", ".join(names) or "nothing"), (", ".join(own) or "none")
                message = f"the path of `{type_}` has the names {written}, and a {kind.value} has {has}"
                advice = "`within` says which entity above contains all objects of the target"
                self.report("N001", kind.span, message, advice)
            found[type_] = kind.value
        return found

    def _usual(self, target: str) -> dict[str, str]:
        """The types of the policy that the names of the target give its kinds of objects."""
        names, types = names_of(target), self._program.entities
        found = {names.type_of(kind, types): kind for kind in names.kinds}
        return {type_: kind for type_, kind in found.items() if type_ in types}

    def _native(
        self, node: YamlNode | None, what: str, objects: MappingOf[str, str], traits: Traits
    ) -> dict[str, tuple[str, ...]]:
        """Native privileges by entity type."""
        found = {}
        for key, value in self.entries(node, what):
            if not self._is_known(key, tuple(objects), "mapped type"):
                continue
            empty = isinstance(value, SequenceNode) and not value.items
            texts = () if empty else self.texts(value, f"`{key.text}`")
            found[key.text] = tuple(t.value for t in texts if self._is_native(t, objects[key.text], traits))
        return found

    def _is_native(self, text: Located[str], kind: str, traits: Traits, *, owned: bool = False) -> bool:
        known = None if traits.privileges is None else (*traits.privileges[kind], *((OWNER,) if owned else ()))
        if known is None or text.value in known:
            return True
        advice = self.near(text.value, known, "its privileges are")
        self.report("N001", text.span, f"a {kind} of the target has no privilege `{text.value}`", advice)
        return False

    def _names(self, node: YamlNode | None) -> dict[str, Template]:
        """The native names of principals."""
        found: dict[str, Template] = {kind: Template("{name}") for kind in PRINCIPAL_KINDS}
        for key, value in self.entries(node, "`names`"):
            text = self.text(value, f"`{key.text}`")
            if key.text not in PRINCIPAL_KINDS:
                self.unknown(key, value, "`names`", PRINCIPAL_KINDS)
            elif text is not None and "{name}" not in text.value:
                self.report("N001", text.span, f"`{key.text}` must contain `{{name}}`: two of them would have one name")
            elif text is not None:
                found[key.text] = Template(text.value)
        return found

    def _left_out(self, node: YamlNode | None) -> dict[Part, dict[str, str]]:
        """Read the names that are left out, with reasons."""
        types, privileges = tuple(self._program.entities), tuple(self._program.grantable)
        names: dict[Part, tuple[str, ...]] = {"tables": tuple(TABLE_COLUMNS), "types": types, "privileges": privileges}
        found: dict[Part, dict[str, str]] = {part: {} for part in names}
        for key, value in self.entries(node, "`leave_out`"):
            part = next((part for part in names if part == key.text), None)
            if part is None:
                self.unknown(key, value, "`leave_out`", LEFT_OUT)
                continue
            for name, why in self.entries(value, f"`{key.text}`"):
                reason = self.text(why, f"the reason for `{name.text}`")
                if self._is_known(name, names[part], part[:-1]) and reason is not None:
                    found[part][name.text] = reason.value
        return found

    def _operations(
        self, node: YamlNode | None, objects: MappingOf[str, str], traits: Traits
    ) -> dict[tuple[str, str], tuple[Needed, ...]]:
        """Read the native rights that the target requires for each operation."""
        found = {}
        rows = {f"{type_}/{operation}": (type_, operation) for type_, operation in self._program.rules}
        for key, value in self.entries(node, "`operations`"):
            if not self._is_known(key, tuple(rows), "operation"):
                continue
            type_ = rows[key.text][0]
            if type_ not in objects:
                self.report("N001", key, f"`{type_}` is not under `objects`")
                continue
            alternatives = (value,) if isinstance(value, MappingNode) else self.items(value, f"`{key.text}`")
            known = tuple(t for t in self._program.chain(type_) if t in objects)
            found[rows[key.text]] = tuple(
                tuple(
                    (inner.text, text.value)
                    for inner, texts in self.entries(alternative, f"`{key.text}`")
                    if self._is_known(inner, known, "mapped type on its path")
                    for text in self.texts(texts, f"`{inner.text}`")
                    if self._is_native(text, objects[inner.text], traits, owned=True)
                )
                for alternative in alternatives
            )
        return found


# --- names -----------------------------------------------------------------------------------------------------------


_KINDS: dict[str, AccountKind] = {"user": "login", "group": "group", "role": "role"}


class NativeNames:
    """The names of a policy's entities and principals in a target, and back: entities are objects, principals are accounts."""

    def __init__(self, program: Program, document: MappingDocument, within: tuple[str, ...] = ()) -> None:
        """`within`: the names of what contains all objects of the target, as Inventory has them."""
        self._program = program
        self._document = document
        self._within = within
        self.own_roles: MappingOf[Account, Account] = {}
        """Roles that are logins: role → login."""

    def object(self, entity: Entity) -> Object | None:
        """The object that an entity of a mapped type is; None if it lies elsewhere."""
        kind = self._document.objects[entity.type]
        types = self._named_types(entity.type)
        names = []
        for type_, name in zip(types, entity.plain_names, strict=True):
            if type_ not in self._document.within:
                names.append(name)
            elif name != self._document.within[type_]:
                return None
        surplus = len(names) - len(self._document.traits.kinds[kind])
        if surplus and tuple(names[:surplus]) != self._within:
            return None
        return Object(kind, tuple(names[surplus:]))

    def entity(self, type_: str, object_: Object) -> Entity:
        """The entity of a mapped type that an object is."""
        types = self._named_types(type_)
        fixed = self._document.within
        missing = sum(name not in fixed for name in types) - len(object_.names)
        names = iter((*(self._within if missing else ()), *object_.names))
        return Entity(type_, "/".join(encode_name(fixed[name] if name in fixed else next(names)) for name in types))

    def entities(self, objects: Iterable[Object]) -> dict[Entity, Object]:
        """Return the entities of a target's objects, entities of containing types first."""
        by_kind: dict[str, list[Object]] = {}
        for object_ in sorted(objects):
            by_kind.setdefault(object_.kind, []).append(object_)
        types = sorted(self._document.objects, key=lambda type_: len(self._program.chain(type_)))
        pairs = ((type_, object_) for type_ in types for object_ in by_kind.get(self._document.objects[type_], ()))
        return {self.entity(type_, object_): object_ for type_, object_ in pairs}

    def account(self, principal: str) -> Account:
        """The account that a principal (`user:…`, `group:…`, `role:…`) is."""
        if principal == self._program.semantics.everybody:
            return EVERYONE
        kind, _, name = principal.partition(":")
        entity = principal_entity(self._program, kind, name)
        # In the target, a name is of what contains all of its objects.
        if entity is not None and self._container(entity):
            name = last_name(entity.id)
        elif not name.replace("%2A", "").replace("%3F", ""):
            name = name.replace("%2A", "*").replace("%3F", "?")
        native = self._document.names[kind].plain({"name": name})
        account_kind = _KINDS[kind]
        if account_kind == "group" and self._document.traits.groups_are_roles:
            account_kind = "role"
        host = self._document.host if account_kind == "login" and self._document.traits.login_hosts else ""
        if host == IN_NAME:
            native, host = native.rpartition("@")[::2] if "@" in native else (native, "%")
        account = Account(account_kind, native, host)
        return self.own_roles.get(account, account)

    def elsewhere(self, principal: str) -> bool:
        """Return whether a principal is a role or a group of an entity that the target does not have."""
        entity = principal_entity(self._program, *principal.split(":", 1))
        around = {} if entity is None else self._container(entity)
        return any(name != self._document.within[type_] for type_, name in around.items())

    def _container(self, entity: Entity) -> dict[str, str]:
        """The names of the entities that contain a principal, by type, among the entities that contain all objects of the target."""
        names = zip(self._named_types(entity.type), entity.plain_names, strict=False)
        return {type_: name for type_, name in names if type_ in self._document.within}

    def path(self, entity: Entity) -> tuple[Entity, ...]:
        """The entities of mapped types on the path of an entity, from the outermost down to itself."""
        return tuple(
            Entity(type_, "/".join(entity.names[: len(self._named_types(type_))]))
            for type_ in self._program.chain(entity.type)
            if type_ in self._document.objects
        )

    def _named_types(self, type_: str) -> tuple[str, ...]:
        """The types on a path that have a name of their own."""
        return tuple(name for name in self._program.chain(type_) if not self._program.entities[name].single)
