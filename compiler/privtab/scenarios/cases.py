"""Entries of `cases`: one request and its answer, or a listing and the items it shows."""

from __future__ import annotations

from dataclasses import replace

from privtab.diagnostics import Span
from privtab.request import Entity, Request
from privtab.scenarios.author import CONTEXT_KEYS, FROZEN_KEYS, Author
from privtab.scenarios.nodes import Case, Expected
from privtab.scenarios.tree import Fields
from privtab.state.located import locations
from privtab.state.nodes import State
from privtab.syntax.yaml_tree import Node, Sequence

KEYS = (
    "name", "user", "action", "resource", *CONTEXT_KEYS, "decision", *FROZEN_KEYS, "visible", "items", "state", "params", "tags",
    "why", "source", "note",
)  # fmt: skip


def read_cases(author: Author, node: Node) -> None:
    """Read the entries of `cases`."""
    for item in author.reader.items(node, "`cases`"):
        for entry, _ in author.combinations.of(item):
            fields = author.reader.fields(entry, "a case", KEYS, required=("user", "action", "resource"))
            if fields is not None:
                _case(author, fields, author.reader.span(entry))


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


def _visible(author: Author, fields: Fields, call: Case, state: State) -> None:
    """Add a case for each item of a listing: those under `visible` pass, all others do not."""
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


def _entities(author: Author, node: Node, request: Request) -> tuple[str, ...]:
    if isinstance(node, Sequence) and not node.items:
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
