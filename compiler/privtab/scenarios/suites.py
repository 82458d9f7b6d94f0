"""Entries of `suites`: a matrix of users, operations and entities, and which of its cells are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from privtab.diagnostics import Span
from privtab.request import Entity, Request, flag_name
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


@dataclass(slots=True)
class _Matrix:
    """One suite while it is read."""

    author: Author
    fields: Fields
    name: str
    span: Span
    users: list[str]
    operations: list[str]
    entities: list[str]
    explicit: frozenset[str]
    """Operations that are written out; the others come from a pattern."""
    context: tuple[frozenset[str], frozenset[str]]
    """The `with` objects and the flags of the suite."""
    stated: dict[Cell, tuple[bool, Span]] = field(default_factory=dict)

    def exists(self, operation: str, entity: str) -> bool:
        """Whether the policy has the operation for the entity's type; one from a pattern must need no other input."""
        type_ = entity.partition(":")[0]
        rule = self.author.program.rules.get((type_, operation))
        if rule is None or operation in self.explicit:
            return rule is not None
        with_, flags = self.context
        operation_ = self.author.vocabulary.operations[type_][operation]
        is_known = {flag_name(flag) for flag in flags} <= operation_.flags and not operation_.missing_flags(flags)
        is_known = is_known and not operation_.needs_active_role
        return is_known and with_ == {slot.name for slot in rule.withs}

    def cells(self) -> Iterator[Cell]:
        """Every cell that the policy has an operation for."""
        for user in self.users:
            for operation in self.operations:
                for entity in self.entities:
                    if self.exists(operation, entity):
                        yield user, operation, entity


def read_suites(author: Author, node: Node) -> None:
    """Read the entries of `suites`."""
    for item in author.reader.items(node, "`suites`"):
        for entry, _ in author.combinations.of(item):
            fields = author.reader.fields(entry, "a suite", KEYS, required=("users", "operations", "entities"))
            if fields is not None:
                _suite(author, fields, author.reader.span(entry))


def _suite(author: Author, fields: Fields, span: Span) -> None:
    unlisted = "deny"
    if "unlisted" in fields:
        unlisted = author.reader.word(fields["unlisted"], "`unlisted`", ("deny", "ignore")) or "deny"
    entities = [text.value for text in _axis(author, fields, "entities")]
    operation_texts = _axis(author, fields, "operations")
    with_ = author.reader.entries(fields.get("with"), "`with`")
    matrix = _Matrix(
        author=author,
        fields=fields,
        name=author.optional(fields, "name") or "matrix",
        span=span,
        users=[text.value.removeprefix("user:") for text in _axis(author, fields, "users")],
        operations=list(
            dict.fromkeys(
                name for text in operation_texts for name in _matching_operations(author, text.value, entities)
            )
        ),
        entities=entities,
        explicit=frozenset(text.value for text in operation_texts),
        context=(
            frozenset(key.text for key, _ in with_),
            frozenset(text.value for text in author.reader.texts(fields.get("flags"), "`flags`")),
        ),
    )
    before = len(author.reader.found)
    _check_axes(matrix, operation_texts)
    for key, allowed in (("allow", True), ("deny", False)):
        if key in fields:
            _read_answers(matrix, fields[key], key, allowed=allowed)
    if "visible" in fields:
        _visible(matrix, fields["visible"])
    state = author.state(fields)
    if state is None or len(author.reader.found) > before:
        return
    world = author.world(state)
    for user, operation, entity in matrix.cells():
        statement = matrix.stated.get((user, operation, entity))
        if statement is None and unlisted == "ignore":
            continue
        allowed, position = statement or (False, span)
        request = author.request(fields, user, operation, entity, position)
        if request is not None:
            author.cases.append(_cell(matrix, request, world, position, allowed=allowed))


def _cell(matrix: _Matrix, request: Request, world: int, position: Span, *, allowed: bool) -> Case:
    return Case(
        name=f"{matrix.name}: {request.user} {request.action} {request.resource}",
        kind="cell",
        world=world,
        request=request,
        expected=Expected(allowed=allowed),
        span=position,
        why=matrix.author.why(matrix.fields),
        tags=matrix.author.tags(matrix.fields),
    )


def _axis(author: Author, fields: Fields, key: str) -> tuple[Text, ...]:
    texts = author.reader.texts(fields[key], f"`{key}`")
    if not texts:
        author.reader.report("T203", fields[key], f"`{key}` is empty: the suite asks nothing")
    return texts


def _matching_operations(author: Author, text: str, entities: list[str]) -> list[str]:
    """The operation as written, or those of the entities' types that match a pattern."""
    if not set(text) & set("*?["):
        return [text]
    types = {entity.partition(":")[0] for entity in entities}
    return [operation for type_, operation in author.program.rules if type_ in types and fnmatchcase(operation, text)]


def _check_axes(matrix: _Matrix, operation_texts: tuple[Text, ...]) -> None:
    """Report operations that no entity has, and entities without any of the operations."""
    reader, program = matrix.author.reader, matrix.author.program
    for entity, node in zip(matrix.entities, _nodes(matrix.fields["entities"]), strict=False):
        type_ = entity.partition(":")[0]
        if type_ not in program.entities:
            reader.report("T103", node, f"unknown entity type `{type_}`", near(type_, program.entities, "types"))
        elif not any(matrix.exists(operation, entity) for operation in matrix.operations):
            reader.report("T203", node, f"no operation of the suite is one of `{entity}`")
    for text in operation_texts:
        operations = _matching_operations(matrix.author, text.value, matrix.entities)
        if not any(matrix.exists(operation, entity) for operation in operations for entity in matrix.entities):
            known = _matching_operations(matrix.author, "*", matrix.entities)
            advice = near(text.value, dict.fromkeys(known), "theirs")
            reader.report("T203", text.span, f"`{text.value}` is not an operation of these entities", advice)


def _nodes(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Sequence) else (node,)


def _read_answers(matrix: _Matrix, node: Node, what: str, *, allowed: bool) -> None:
    """Read `{user: [operations]}` or `{user: {operation: [entities]}}`; each name may be a pattern with `*`."""
    for user, content in matrix.author.reader.entries(node, f"`{what}`"):
        users = _matching(matrix, user, matrix.users, "users")
        if isinstance(content, Mapping):
            for operation, entities in content.entries:
                operations = _matching(matrix, operation, matrix.operations, "operations")
                _record(
                    matrix,
                    users,
                    operations,
                    _matching_names(matrix, entities, matrix.entities, "entities"),
                    operation,
                    allowed,
                )
        else:
            _record(
                matrix,
                users,
                _matching_names(matrix, content, matrix.operations, "operations"),
                matrix.entities,
                user,
                allowed,
            )


def _matching_names(matrix: _Matrix, node: Node, known: list[str], what: str) -> list[str]:
    nodes = [scalar for scalar in _nodes(node) if isinstance(scalar, Scalar)]
    return [name for scalar in nodes for name in _matching(matrix, scalar, known, what)]


def _matching(matrix: _Matrix, node: Scalar, known: list[str], what: str) -> list[str]:
    pattern = node.text.removeprefix("user:") if what == "users" else node.text
    found = [name for name in known if name == pattern or fnmatchcase(name, pattern)]
    if not found:
        matrix.author.reader.report(
            "T105", node, f"`{node.text}` is not among the {what} of the suite", near(pattern, known, what)
        )
    return found


def _record(
    matrix: _Matrix,
    users: list[str],
    operations: list[str],
    entities: list[str],
    node: Scalar,
    allowed: bool,  # noqa: FBT001
) -> None:
    span = matrix.author.reader.span(node)
    for user in users:
        for operation in operations:
            for entity in entities:
                if not matrix.exists(operation, entity):
                    continue
                cell = user, operation, entity
                previous = matrix.stated.setdefault(cell, (allowed, span))
                if previous[0] is not allowed:
                    message = f"{user} {operation} {entity} is both allowed and denied"
                    matrix.author.reader.report("T202", span, message, f"the other is on line {previous[1].line}")


def _visible(matrix: _Matrix, node: Node) -> None:
    """Read `{user: {operation: [entities]}}`: of the entities that the operation lists, only these are shown."""
    for user, content in matrix.author.reader.entries(node, "`visible`"):
        for name in _matching(matrix, user, matrix.users, "users"):
            for operation, entities in matrix.author.reader.entries(content, f"what `{user.text}` sees"):
                listed = [entity_ for entity_ in matrix.entities if _is_listing(matrix, operation.text, entity_)]
                if not listed:
                    matrix.author.reader.report("T203", operation, f"`{operation.text}` lists none of the entities")
                shown = set(_matching_names(matrix, entities, listed, "entities"))
                for entity in listed:
                    _record(matrix, [name], [operation.text], [entity], operation, entity in shown)


def _is_listing(matrix: _Matrix, operation: str, entity: str) -> bool:
    rule = matrix.author.program.rules.get((Entity.parse(entity).type, operation))
    return rule is not None and rule.each is not None
