"""Entries of scenario files: `cases`, `walkthroughs` and `suites`.

One request and its answer; the items that a listing shows; steps that change the state; a matrix of users, operations and entities,
and which of its cells are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product, starmap
from typing import TypeAlias

from privtab.base import NOT_SET, Change, Entity, InvalidRequest, Located, Request, Span
from privtab.ir import SqlFilter
from privtab.language import MappingNode, ScalarNode, SequenceNode, YamlNode
from privtab.state import Grant, RowProblem, State, locations
from privtab_analysis.principal_rows import about_principal
from privtab_testing.scenarios import Case, Expected, Text, size
from privtab_testing.scenarios.author import CONTEXT_KEYS, FROZEN_KEYS, Author, without
from privtab_testing.scenarios.tree import Fields

DENIED = "denied"
"""The word for: no filter applies."""

KEYS = (
    "name", "user", "action", "resource", *CONTEXT_KEYS, "decision", *FROZEN_KEYS, "visible", "items", "filters", "state", "params", "tags",
    "why", "source", "note",
)  # fmt: skip


def read_cases(author: Author, node: YamlNode) -> None:
    """Read the entries of `cases`."""
    for fields, span, _ in author.entries(node, "cases", "a case", KEYS, ("user", "action", "resource")):
        _case(author, fields, span)


def _case(author: Author, fields: Fields, span: Span) -> None:
    user = author.reader.text(fields.get("user"), "`user`")
    state = author.state(fields)
    decision = author.reader.word(fields.get("decision"), "`decision`", ("allow", "deny"))
    if "decision" not in fields and "visible" not in fields:
        author.reader.report("T002", span, "`decision` is missing in a case", "allow or deny")
    if user is None or state is None or (decision is None and "visible" not in fields):
        return
    allowed = decision != "deny"
    author.check_frozen(fields, allowed=allowed)
    for request in author.requests(fields, span, user.value.removeprefix("user:")):
        case = Case(
            name=author.optional(fields, "name") or f"{request.user} {request.action} {request.resource}",
            kind="case",
            world=author.world(state),
            request=request,
            expected=author.expected(fields, request, allowed=allowed),
            span=span,
            why=author.why(fields),
            tags=author.tags(fields),
        )
        author.cases.append(case)
        if "visible" in fields:
            _visible(author, fields, case, state)
        if "filters" in fields:
            _filters(author, fields, case)


def _visible(author: Author, fields: Fields, call: Case, state: State) -> None:
    """Add a case for each item of a listing: items under `visible` pass, all others do not."""
    visible = _entities(author, fields["visible"], call.request)
    explicit_items = author.texts(fields, "items", call.request)
    all_items = tuple(explicit_items) if explicit_items is not None else items_of(author, state, call.request)
    for name in dict.fromkeys((*all_items, *visible)):
        item = author.request(fields, call.request.user, call.request.action, name, call.span)
        if item is not None:
            allowed = name in visible
            author.cases.append(
                replace(
                    call,
                    name=f"{call.name}: {'shows' if allowed else 'hides'} {name}",
                    kind="item",
                    request=item,
                    expected=Expected(allowed=allowed),
                )
            )


def _filters(author: Author, fields: Fields, case: Case) -> None:
    """Add a case for each filter that is tried: the expected one holds, and none before it; of none, all are denied."""
    for entity, expected in author.reader.pairs(fields["filters"], "`filters`"):
        type_ = entity.value.partition(":")[0]
        lists = [listed for (of, _), listed in author.program.filter_lists.items() if of == type_]
        names = [one.name for listed in lists for one in listed]
        if not lists:
            author.reader.report("T105", entity.span, f"`{type_}` has no row filters and no column masks")
        elif expected.value not in (*names, DENIED):
            message = f"`{type_}` has no row filter and no column mask `{expected.value}`"
            author.reader.report(
                "T105", expected.span, message, author.reader.near(expected.value, [*names, DENIED], "filters")
            )
        for listed in lists:
            own = [one.name for one in listed]
            if expected.value in own or expected.value == DENIED:
                tried = listed[: own.index(expected.value) + 1] if expected.value in own else listed
                for one in tried:
                    _filter(author, case, entity, one, allowed=one.name == expected.value)


def _filter(author: Author, case: Case, entity: Located[str], one: SqlFilter, *, allowed: bool) -> None:
    """Add the case that a filter holds for the caller and the context of a case, or does not."""
    try:
        resource = Entity.parse(entity.value)
        flags = author.vocabulary.operations[resource.type][one.operation].flags
        given = case.request.attributes
        request = replace(
            case.request,
            action=one.operation,
            resource=resource,
            with_={},
            flags=frozenset(flag for flag in case.request.flags if flag.removesuffix(NOT_SET) in flags),
            attributes=replace(given, with_={}, entity=given.entity if resource == case.request.resource else {}),
        )
        author.vocabulary.check(request)
    except (InvalidRequest, ValueError) as error:
        author.reader.report("T103", entity.span, str(error))
        return
    name = f"{case.name}: {one.name} {'applies' if allowed else 'does not apply'} to {resource}"
    expected = Expected(allowed=allowed)
    author.cases.append(replace(case, name=name, kind="item", request=request, expected=expected))


def _entities(author: Author, node: YamlNode, request: Request) -> tuple[str, ...]:
    if isinstance(node, SequenceNode) and not node.items:
        return ()
    return tuple(author.texts({"visible": node}, "visible", request) or ())


def items_of(author: Author, state: State, request: Request) -> tuple[str, ...]:
    """The entities of the listed type that the state names, directly below the entity of the call."""
    entities = (
        [entity_ for _, entity_ in state.members]
        + [grant.entity for grant in state.grants]
        + [entity_ for entity_, _ in state.owners]
    )
    entities += [assignment.scope for assignment in state.assignments if assignment.scope is not None]
    type_, parent_path = request.resource.type, request.resource.id
    keys = locations(author.program, state).keys
    if type_ in author.program.flat:
        container = parent_path.removesuffix("/")
        return tuple(sorted(str(row.entity) for row in state.entities if str(row.parent) == container))
    found = {
        key
        for entity in dict.fromkeys(entities)
        for key in keys(entity)
        if key.partition(":")[0] == type_ and Entity.parse(key).id.rpartition("/")[0] == parent_path
    }
    return tuple(sorted(found))


WALKTHROUGH_KEYS = ("name", "state", "steps", "params", "tags", "why", "source", "note")
STEP_KEYS = (
    "say", "user", "action", "resource", *CONTEXT_KEYS, "decision", *FROZEN_KEYS, "then", "gone", "tags", "why", "source", "note",
)  # fmt: skip


def read_walkthroughs(author: Author, node: YamlNode) -> None:
    """Read the entries of `walkthroughs`."""
    for fields, _, _ in author.entries(node, "walkthroughs", "a walkthrough", WALKTHROUGH_KEYS, ("name", "steps")):
        if (state := author.state(fields)) is not None:
            _steps(author, fields, state)


def _steps(author: Author, fields: Fields, state: State) -> None:
    name = author.optional(fields, "name")
    tags = author.tags(fields)
    for number, node in enumerate(author.reader.items(fields["steps"], "`steps`"), start=1):
        step = author.reader.fields(node, "a step", STEP_KEYS, required=("user", "action", "resource", "decision"))
        if step is None:
            return
        span = author.reader.span(node)
        user = author.reader.text(step["user"], "`user`")
        word = author.reader.word(step["decision"], "`decision`", ("allow", "deny"))
        requests = author.requests(step, span, user.value.removeprefix("user:")) if user else []
        if not requests or word is None:
            return
        author.check_frozen(step, allowed=word == "allow")
        for request in requests:
            expected = author.expected(step, request, allowed=word == "allow")
            author.cases.append(
                Case(
                    name=f"{name}, step {number}: {author.optional(step, 'say') or f'{request.user} {request.action}'}",
                    kind="step",
                    world=author.world(state),
                    request=request,
                    expected=expected,
                    span=span,
                    why=author.why(step),
                    tags=(*tags, *author.tags(step)),
                )
            )
            for effect in expected.effects or ():
                state = _apply_effect(author, state, effect, request, step["effects"])
        after = _apply_changes(author, state, step)
        if after is None:
            return
        state = after


def _apply_changes(author: Author, state: State, step: Fields) -> State | None:
    """The state without the rows of `gone` and with the rows of `then`; None after a finding."""
    if "gone" in step:
        removed = author.worlds.rows(step["gone"])
        if removed is None:
            return None
        rest = without(state, removed)
        if size(rest) + size(removed) != size(state):
            author.reader.report(
                "T204", step["gone"], "a row under `gone` is not in the state", "write it as in the state"
            )
        state = rest
    if "then" in step:
        added = author.worlds.rows(step["then"])
        if added is None:
            return None
        state = State.merged((state, added))
    return state


def _apply_effect(author: Author, state: State, effect: str, request: Request, node: YamlNode) -> State:
    """The state after an effect: adds its row, or removes it for a revocation. `at`: the step's `effects`."""
    try:
        change = Change.of(effect, request.user, request.active_roles)
    except ValueError:
        instead = "write `grant READ (type:path)` or `become owner (type:path)`"
        author.reader.report("T004", node, f"`{effect}` is not an effect", instead)
        return state
    key = effect.partition(" (")[2].removesuffix(")")
    entity = author.held_sets.names.entity(key)
    if isinstance(entity, RowProblem):
        message, advice = entity.message, entity.help
        if key == request.resource.type:
            message = f"`{effect}` does not say of which `{key}`, so it cannot become a row"
            advice = f"name it in `resource`: `{author.held_sets.names.shape(key)}`"
        author.reader.report("T103", node, message, advice)
        return state
    if change.row is None:
        return without(state, about_principal(state, change.table, entity, author.held_sets.names.program))
    user = f"user:{request.user}"
    match change.table:
        case "owners":
            rows = State(owners=((entity, user),))
        case "members":
            rows = State(members=((request.user, entity),))
        case _:
            privilege = change.row["privilege"] or ""
            rows = State(grants=(Grant(grantee=user, effect="allow", privilege=privilege, entity=entity),))
    return State.merged((state, rows)) if change.action == "add" else without(state, rows)


SUITE_KEYS = (
    "name", "state", "params", "users", "operations", "entities", *CONTEXT_KEYS, "allow", "deny", "visible", "unlisted", "tags",
    "why", "source", "note",
)  # fmt: skip
Cell: TypeAlias = tuple[str, str, str]
"""A user, an operation, an entity."""
AXES = ("users", "operations", "entities")


def read_suites(author: Author, node: YamlNode) -> None:
    """Read the entries of `suites`."""
    for fields, span, _ in author.entries(node, "suites", "a suite", SUITE_KEYS, AXES):
        author.cases += _Suite(author, fields, span).cases()


class _Suite:
    """One suite while it is read: its matrix, and the answers that it states."""

    def __init__(self, author: Author, fields: Fields, span: Span) -> None:
        self.author = author
        self.reader = author.reader
        self.fields = fields
        self.span = span
        self.stated: dict[Cell, tuple[bool, Span]] = {}
        unlisted = self.reader.word(fields.get("unlisted"), "`unlisted`", ("deny", "ignore"))
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
        self.flags = {text.value.removesuffix(NOT_SET) for text in self.reader.texts(fields.get("flags"), "`flags`")}

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
        """The operation as written, or the operations of the entities' types that match a pattern."""
        if not set(text) & set("*?["):
            return [text]
        types = {entity.partition(":")[0] for entity in self.entities}
        return [name for type_, name in self.author.program.rules if type_ in types and fnmatchcase(name, text)]

    def _exists(self, operation: str, entity: str) -> bool:
        """Return whether the policy has the operation for the entity's type; one from a pattern must need no other input."""
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
                self.reader.report(
                    "T103", node, f"unknown entity type `{type_}`", self.reader.near(type_, types, "types")
                )
            elif not any(self._exists(operation, entity) for operation in self.operations):
                self.reader.report("T203", node, f"no operation of the suite is one of `{entity}`")
        for text in self.operation_texts:
            if not any(starmap(self._exists, product(self._operations(text.value), self.entities))):
                advice = self.reader.near(text.value, dict.fromkeys(self._operations("*")), "theirs")
                self.reader.report("T203", text.span, f"`{text.value}` is not an operation of these entities", advice)

    def _answers(self, user: ScalarNode, content: YamlNode, *, allowed: bool) -> None:
        """Read `{user: [operations]}` or `{user: {operation: [entities]}}`; each name may be a pattern with `*`."""
        users = self._matching(user, self.users, "users")
        if not isinstance(content, MappingNode):
            operations = self._named(content, self.operations, "operations")
            self._record(product(users, operations, self.entities), user, allowed=allowed)
            return
        for operation, entities in content.entries:
            operations = self._matching(operation, self.operations, "operations")
            cells = product(users, operations, self._named(entities, self.entities, "entities"))
            self._record(cells, operation, allowed=allowed)

    def _visible(self, user: ScalarNode, content: YamlNode) -> None:
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

    def _named(self, node: YamlNode, known: list[str], what: str) -> list[str]:
        scalars = (scalar for scalar in _nodes(node) if isinstance(scalar, ScalarNode))
        return [name for scalar in scalars for name in self._matching(scalar, known, what)]

    def _matching(self, node: ScalarNode, known: list[str], what: str) -> list[str]:
        pattern = node.text.removeprefix("user:") if what == "users" else node.text
        found = [name for name in known if name == pattern or fnmatchcase(name, pattern)]
        if not found:
            message = f"`{node.text}` is not among the {what} of the suite"
            self.reader.report("T105", node, message, self.reader.near(pattern, known, what))
        return found

    def _record(self, cells: Iterable[Cell], node: ScalarNode, *, allowed: bool) -> None:
        """Keep the statement about some cells, as far as they exist, and report contradictions."""
        span = self.reader.span(node)
        for cell in cells:
            if self._exists(*cell[1:]):
                is_allowed, where = self.stated.setdefault(cell, (allowed, span))
                if is_allowed is not allowed:
                    message = f"{' '.join(cell)} is both allowed and denied"
                    self.reader.report("T202", span, message, f"the other is on line {where.line}")


def _nodes(node: YamlNode) -> tuple[YamlNode, ...]:
    return node.items if isinstance(node, SequenceNode) else (node,)
