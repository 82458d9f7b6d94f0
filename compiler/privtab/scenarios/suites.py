"""Entries of `suites`: a matrix of users, operations and entities, and which of its cells are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import product, starmap
from typing import TypeAlias

from privtab.diagnostics import Span
from privtab.request import Entity, flag_name
from privtab.scenarios.author import CONTEXT_KEYS, Author
from privtab.scenarios.nodes import Case, Expected, Text
from privtab.scenarios.tree import Fields
from privtab.syntax.node_reader import near
from privtab.syntax.yaml_tree import Mapping, Node, Scalar, Sequence

KEYS = (
    "name", "state", "params", "users", "operations", "entities", *CONTEXT_KEYS, "allow", "deny", "visible", "unlisted", "tags",
    "why", "source", "note",
)  # fmt: skip
Cell: TypeAlias = tuple[str, str, str]
"""A user, an operation, an entity."""
AXES = ("users", "operations", "entities")


def read_suites(author: Author, node: Node) -> None:
    """Read the entries of `suites`."""
    for item in author.reader.items(node, "`suites`"):
        for entry, _ in author.combinations.of(item):
            fields = author.reader.fields(entry, "a suite", KEYS, required=AXES)
            if fields is not None:
                author.cases += _Suite(author, fields, author.reader.span(entry)).cases()


class _Suite:
    """One suite while it is read: its matrix, and the answers that it states."""

    def __init__(self, author: Author, fields: Fields, span: Span) -> None:
        self.author = author
        self.reader = author.reader
        self.fields = fields
        self.span = span
        self.stated: dict[Cell, tuple[bool, Span]] = {}
        unlisted = (
            self.reader.word(fields["unlisted"], "`unlisted`", ("deny", "ignore")) if "unlisted" in fields else ""
        )
        self.is_unlisted_denied = unlisted != "ignore"
        self.entities = [text.value for text in self._axis("entities")]
        self.operation_texts = self._axis("operations")
        self.with_ = {key.text for key, _ in self.reader.entries(fields.get("with"), "`with`")}
        self.name = author.optional(fields, "name") or "matrix"
        self.users = [text.value.removeprefix("user:") for text in self._axis("users")]
        names = (name for text in self.operation_texts for name in self._operations(text.value))
        self.operations = list(dict.fromkeys(names))
        self.explicit = {text.value for text in self.operation_texts}
        """Operations that are written out; the others come from a pattern."""
        self.flags = {flag_name(text.value) for text in self.reader.texts(fields.get("flags"), "`flags`")}

    def cases(self) -> Iterator[Case]:
        """The case of each cell that is stated, or all; none after findings."""
        mistakes_before = len(self.reader.found)
        self._check_axes()
        for key, allowed in (("allow", True), ("deny", False)):
            for user, content in self.reader.entries(self.fields.get(key), f"`{key}`"):
                self._answers(user, content, allowed=allowed)
        for user, content in self.reader.entries(self.fields.get("visible"), "`visible`"):
            self._visible(user, content)
        state = self.author.state(self.fields)
        if state is None or len(self.reader.found) > mistakes_before:
            return
        world = self.author.world(state)
        for cell in product(self.users, self.operations, self.entities):
            statement = self.stated.get(cell)
            if not self._exists(*cell[1:]) or (statement is None and not self.is_unlisted_denied):
                continue
            allowed, position = statement or (False, self.span)
            request = self.author.request(self.fields, *cell, position)
            if request is not None:
                yield Case(
                    name=f"{self.name}: {request.user} {request.action} {request.resource}",
                    kind="cell",
                    world=world,
                    request=request,
                    expected=Expected(allowed=allowed),
                    span=position,
                    why=self.author.why(self.fields),
                    tags=self.author.tags(self.fields),
                )

    def _axis(self, key: str) -> tuple[Text, ...]:
        texts = self.reader.texts(self.fields[key], f"`{key}`")
        if not texts:
            self.reader.report("T203", self.fields[key], f"`{key}` is empty: the suite asks nothing")
        return texts

    def _operations(self, text: str) -> list[str]:
        """The operation as written, or those of the entities' types that match a pattern."""
        if not set(text) & set("*?["):
            return [text]
        types = {entity.partition(":")[0] for entity in self.entities}
        return [name for type_, name in self.author.program.rules if type_ in types and fnmatchcase(name, text)]

    def _exists(self, operation: str, entity: str) -> bool:
        """Whether the policy has the operation for the entity's type; one from a pattern must need no other input."""
        type_ = entity.partition(":")[0]
        rule = self.author.program.rules.get((type_, operation))
        if rule is None or operation in self.explicit:
            return rule is not None
        known = self.author.vocabulary.operations[type_][operation]
        is_asked = self.flags <= known.flags and not known.missing_flags(self.flags) and not known.needs_active_role
        return is_asked and self.with_ == {slot.name for slot in rule.withs}

    def _check_axes(self) -> None:
        """Report operations that no entity has, and entities without any of the operations."""
        types = self.author.program.entities
        for entity, node in zip(self.entities, _nodes(self.fields["entities"]), strict=False):
            type_ = entity.partition(":")[0]
            if type_ not in types:
                self.reader.report("T103", node, f"unknown entity type `{type_}`", near(type_, types, "types"))
            elif not any(self._exists(operation, entity) for operation in self.operations):
                self.reader.report("T203", node, f"no operation of the suite is one of `{entity}`")
        for text in self.operation_texts:
            if not any(starmap(self._exists, product(self._operations(text.value), self.entities))):
                advice = near(text.value, dict.fromkeys(self._operations("*")), "theirs")
                self.reader.report("T203", text.span, f"`{text.value}` is not an operation of these entities", advice)

    def _answers(self, user: Scalar, content: Node, *, allowed: bool) -> None:
        """Read `{user: [operations]}` or `{user: {operation: [entities]}}`; each name may be a pattern with `*`."""
        users = self._matching(user, self.users, "users")
        if not isinstance(content, Mapping):
            operations = self._named(content, self.operations, "operations")
            self._record(product(users, operations, self.entities), user, allowed=allowed)
            return
        for operation, entities in content.entries:
            operations = self._matching(operation, self.operations, "operations")
            cells = product(users, operations, self._named(entities, self.entities, "entities"))
            self._record(cells, operation, allowed=allowed)

    def _visible(self, user: Scalar, content: Node) -> None:
        """Read `{user: {operation: [entities]}}`: of the entities that the operation lists, only these are shown."""
        for name in self._matching(user, self.users, "users"):
            for operation, entities in self.reader.entries(content, f"what `{user.text}` sees"):
                listed = [entity for entity in self.entities if self._is_listing(operation.text, entity)]
                if not listed:
                    self.reader.report("T203", operation, f"`{operation.text}` lists none of the entities")
                shown = set(self._named(entities, listed, "entities"))
                for entity in listed:
                    self._record([(name, operation.text, entity)], operation, allowed=entity in shown)

    def _is_listing(self, operation: str, entity: str) -> bool:
        rule = self.author.program.rules.get((Entity.parse(entity).type, operation))
        return rule is not None and rule.each is not None

    def _named(self, node: Node, known: list[str], what: str) -> list[str]:
        scalars = (scalar for scalar in _nodes(node) if isinstance(scalar, Scalar))
        return [name for scalar in scalars for name in self._matching(scalar, known, what)]

    def _matching(self, node: Scalar, known: list[str], what: str) -> list[str]:
        pattern = node.text.removeprefix("user:") if what == "users" else node.text
        found = [name for name in known if name == pattern or fnmatchcase(name, pattern)]
        if not found:
            message = f"`{node.text}` is not among the {what} of the suite"
            self.reader.report("T105", node, message, near(pattern, known, what))
        return found

    def _record(self, cells: Iterable[Cell], node: Scalar, *, allowed: bool) -> None:
        """Keep what is stated of some cells, as far as they exist, and report contradictions."""
        span = self.reader.span(node)
        for cell in cells:
            if self._exists(*cell[1:]):
                is_allowed, where = self.stated.setdefault(cell, (allowed, span))
                if is_allowed is not allowed:
                    message = f"{' '.join(cell)} is both allowed and denied"
                    self.reader.report("T202", span, message, f"the other is on line {where.line}")


def _nodes(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Sequence) else (node,)
