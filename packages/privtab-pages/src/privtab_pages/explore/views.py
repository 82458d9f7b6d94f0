"""The pages about a policy and a state as they are: the table, a decision, who can, what can, a filter, a heat map."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Any, TypeAlias

from privtab.base import Entity, Request, UsageError
from privtab.filters import filter_of
from privtab.ir import Program
from privtab.state import TABLE_COLUMNS, State
from privtab_analysis.answer_view import answered, chain_rows
from privtab_analysis.changes import RemoveDenial, apply
from privtab_analysis.entitlements.universe import asked_entities, notes
from privtab_analysis.explanation import Proposal
from privtab_analysis.permissions import lines, what_can
from privtab_analysis.principals import evidence_text, who_can
from privtab_analysis.rights_map import rights_map
from privtab_analysis.state_diff.entities import written
from privtab_analysis.state_diff.subjects import ANY_OTHER
from privtab_pages.explore.picture import picture
from privtab_pages.explore.world import LONGEST_TEXT, MOST_NAMES, Query, World, entity_of, linked, one_of

Values: TypeAlias = dict[str, Any]
"""The values that a template shows."""
View: TypeAlias = Callable[[World, Query], Values]

MOST_LINES = 200
"""Maximum lines of a list on one page."""
MOST_WAYS = 8
"""Maximum ways, and lines of a reason, on the page of a decision."""
MOST_CHAINS = 4
"""Maximum chains of rows shown for one atom."""
MOST_TRIED = 10
"""Users, and entities, among whom the start page looks for its question."""
MOST_USERS = 16
"""Users on one page of the heat map."""
MOST_EDITED = 2_000
"""Rows of a state up to which they are written as text to edit."""
MOST_ORDERED = 100
"""Users up to which the heat map begins with those who may do most; of more, each page is by name."""
DIALECTS = ("postgres", "mysql", "sqlite", "duckdb", "spark", "trino", "snowflake", "bigquery")


def start(world: World, _asked: Query) -> Values:
    """The contents of the policy and the state, and links to begin with."""
    program = world.program
    numbers = [
        ("operations", len(program.rules), "table"),
        ("entity types", len(program.entities), "table#entities"),
        ("privileges", len(program.grantable), "table#privileges"),
    ]
    if world.state is not None:
        numbers += [("users", len(world.users), "heat"), ("entities", len(world.universe), "heat")]
        sizes = ((table, len(getattr(world.state, table))) for table in TABLE_COLUMNS)
        numbers += [(table.replace("_", " "), size, "what-if") for table, size in sizes if size]
    asked = _question(world)
    return {"numbers": numbers, "asked": Query(asked), "examples": list(_examples(asked))}


def _question(world: World) -> list[tuple[str, str]]:
    """A question to begin with, about names of rows: one that is allowed deep in the tree if there is one near; empty without rows."""
    if world.state is None:
        return []
    keys = islice(world.state.named_entities(), MOST_TRIED**2)
    deepest = sorted(map(Entity.parse, keys), key=lambda entity: -len(world.program.chain(entity.type)))[:MOST_TRIED]
    first: list[tuple[str, str]] = []
    plain = (rule for rule in world.program.rules.values() if not (rule.creates or rule.withs or rule.required_flags))
    operations = {rule.entity: rule.operation for rule in reversed([*plain])}  # the first of each type
    for entity, user in product(deepest, world.users[:MOST_TRIED]):
        if (operation := operations.get(entity.type)) is not None:
            asked = [("user", user), ("operation", operation), ("entity", str(entity))]
            first = first or asked
            if world.reference.decide(Request(user=user, action=operation, resource=entity)).allowed:
                return asked
    return first


def _examples(asked: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Questions to begin with, as texts and URLs."""
    if not asked:
        return
    user, operation, entity = (value for _, value in asked)
    yield f"May {user} {operation} {entity}?", linked("decision", asked)
    yield f"Who can {operation} {entity}?", linked("who-can", asked[1:])
    yield f"What may {user} do?", linked("what-can", asked[:1])
    yield "What if the policy were another?", linked("edit", asked)


# --- one decision ----------------------------------------------------------------------------------------------------


def decision(world: World, query: Query) -> Values:
    """One decision: the view of its answer, the row that decides, a picture, and for each way to an allow its link to `what-if`."""
    if not query.one("operation"):
        return {}
    request = world.requested(query)
    answer = answered(world.reference, request, world.rows, world.places)
    keys = world.reference.holdings.locations.find(request.resource) or [str(request.resource)]
    return {
        "answer": answer,
        "row": world.table[f"{request.resource.type}.{request.action}"],
        "picture": picture(answer, keys),
        "ways": [(way, _what_if(request.user, way.proposal)) for way in answer.ways[:MOST_WAYS]],
        "sets": sorted(answer.explanation.sets, key=lambda parts: not all(part.holds for part in parts)),
        "most": MOST_WAYS,
        "chain_rows": lambda chains: list(map(chain_rows, chains[:MOST_CHAINS])),
        "notes": answer.notes,
    }


def _what_if(user: str, proposal: Proposal) -> str:
    """The URL of what a proposal would change for anybody; empty for a new role, whose name is not known."""
    if proposal.new_role:
        return ""
    given = [change for change in proposal.changes if not isinstance(change, RemoveDenial)]
    taken = tuple(change.row for change in proposal.changes if isinstance(change, RemoveDenial))
    pairs = [*changed_rows_of(apply(State(), user, given), "add"), *changed_rows_of(State(grants=taken), "remove")]
    return linked("what-if", pairs)


def changed_rows_of(state: State, name: str) -> Iterator[tuple[str, str]]:
    """Rows as parameters of a URL of `what-if`."""
    for table in TABLE_COLUMNS:
        for cells in state.cells(table):
            yield name, linked(table, cells.items())


# --- who can, what can -----------------------------------------------------------------------------------------------


def who(world: World, query: Query) -> Values:
    """The users who may do an operation on an entity, with the rows; or the principals that suffice alone."""
    if not query.one("operation"):
        return {}
    request = world.anybody(query)
    found = who_can(world.reference, world.rows, request, world.holders)
    by_principal = query.one("by") == "principal"
    begin = min(query.number("from"), len(found.users))
    page = found.users[begin : begin + MOST_LINES]
    values: Values = {
        "found": found,
        "known": len(found.known | set(found.users)),
        "by_principal": by_principal,
        "begin": begin,
        "step": MOST_LINES,
        "row": world.table[f"{request.resource.type}.{request.action}"],
        "notes": notes(world.program, world.rows, entities=asked_entities(world.program, request)),
        "excepted": found.excepted[:MOST_LINES],
    }
    if by_principal:
        principals = found.principals()
        return values | {"principals": principals[:MOST_LINES], "principals_left": len(principals[MOST_LINES:])}
    through = ((user, "anyone" if found.anyone else evidence_text(found.through(user))) for user in page)
    return values | {"users": list(through)}


def what(world: World, query: Query) -> Values:
    """The permissions of a user, a group or a role, everywhere or on one entity."""
    about = query.one("entity")
    if not query.one("user"):
        return {}
    principal, flags = world.caller(query.one("user"), query.all("flag"))
    resource = entity_of(about) if about else None
    found = what_can(
        world.reference,
        world.rows,
        principal,
        resource,
        flags=flags,
        known=None if about else world.universe,
    )
    by_type: dict[str, list[tuple[str, list[str], bool]]] = defaultdict(list)
    listed = lines(world.program, found)
    begin = min(query.number("from"), len(listed))
    for type_, path, words in islice(listed, begin, begin + MOST_LINES):
        by_type[type_].append((path, words, type_ in world.program.entities and "{" not in path))
    return {
        "found": found,
        "by_type": by_type,
        "begin": begin,
        "step": MOST_LINES,
        "total": len(listed),
        "notes": notes(world.program, world.rows, [found.principal], [resource] if resource is not None else []),
    }


# --- texts to edit ---------------------------------------------------------------------------------------------------


def edit(world: World, _asked: Query) -> Values:
    """The texts to begin with: as they were read, of a state of another kind its rows; none that are too long."""
    texts = dict(world.texts)
    if world.state is not None and "state" not in texts:
        rows = sum(len(getattr(world.state, table)) for table in TABLE_COLUMNS)
        texts["state"] = _state_text(world.state) if rows <= MOST_EDITED else ""
    fitting = {name: text if len(text) <= LONGEST_TEXT // 2 else "" for name, text in texts.items()}
    return {"texts": fitting, "most": LONGEST_TEXT}


def _state_text(state: State) -> str:
    """The rows of a state as YAML, a row a line."""
    lines: list[str] = []
    for table in TABLE_COLUMNS:
        rows = list(state.cells(table))
        lines += [f"{table}:"] if rows else []
        for cells in rows:
            pairs = (f"{column}: {json.dumps(text, ensure_ascii=False)}" for column, text in cells.items())
            lines.append(f"  - {{{', '.join(pairs)}}}")
    return "\n".join([*lines, ""])


# --- a filter --------------------------------------------------------------------------------------------------------


def where(world: World, query: Query) -> Values:
    """The WHERE of a query that lists what a user may see."""
    dialect = query.one("dialect") or DIALECTS[0]
    values: Values = {"dialects": DIALECTS, "dialect": dialect}
    if not query.one("operation"):
        return values
    type_ = query.one("type")
    one_of(type_, world.program.entities, "type")
    request = world.requested(Query([*query.pairs, ("entity", f"{type_}:")]))
    known = world.reference.vocabulary
    known.check_context(request, known.check_operation(type_, request.action))
    known.check_active_roles(request)
    opened = world.open_engine
    found = filter_of(opened.engine, request, opened.window)
    sql = found.sql(dialect, found.quoted_levels(dialect), pretty=True)
    return values | {
        "found": found,
        "sql": sql.text,
        "parameters": list(enumerate(sql.parameters, start=1)),
        "notes": notes(world.program, world.rows, [f"user:{request.user}"]),
    }


# --- the heat map ----------------------------------------------------------------------------------------------------


def heat(world: World, query: Query) -> Values:
    """On how many of the entities of a subtree each user may do each operation."""
    program, within = world.program, query.one("within")
    outer = entity_of(within) if within else None
    if outer is not None:
        world.reference.vocabulary.check_path(outer)
    inside = _types_inside(program, None if outer is None else outer.type)
    type_ = query.one("type") or _nearest(program, outer)
    one_of(type_, dict.fromkeys(program.entities), "type")
    wanted = query.one("user").lower()
    names = [name for name in world.users if wanted in name.lower()] if wanted else world.users
    begin = min(query.number("from"), len(names))
    ordered = len(names) <= MOST_ORDERED
    subjects = [f"user:{name}" for name in (names if ordered else names[begin : begin + MOST_USERS])]
    around = _around(world, outer)
    found = rights_map(world.comparison, [*subjects, *([] if wanted else [ANY_OTHER])], type_, outer)
    totals = {subject: sum(found.count(subject, column) for column in found.columns) for subject in subjects}
    rows = [subject for subject in sorted(subjects, key=lambda subject: -totals[subject]) if totals[subject]]
    listed = len(rows) if ordered else len(names)
    rows = (rows[begin : begin + MOST_USERS] if ordered else rows) + list(found.subjects[len(subjects) :])
    children = _children(world, outer)
    first = min(query.number("first"), len(children))
    return {
        "found": found,
        "type": type_,
        "types": inside,
        "rows": [(s, [(c, found.count(s, c)) for c in found.columns]) for s in rows],
        "ordered": ordered,
        "nothing": sum(not total for total in totals.values()),
        "shade": lambda n: 0 if not n else 1 + min(8, n * 8 // max(1, found.entities)),
        "children": children[first : first + MOST_NAMES],
        "children_left": max(0, len(children) - first - MOST_NAMES),
        "first": first,
        "around": around,
        "begin": begin,
        "step": MOST_USERS,
        "users": listed,
        "any_other": ANY_OTHER,
    }


def _types_inside(program: Program, type_: str | None) -> list[str]:
    return [name for name in program.entities if type_ is None or type_ in program.chain(name)]


def _nearest(program: Program, outer: Entity | None) -> str:
    """The type that is shown first: the nearest inside that is no single one, else the type itself."""
    inside = _types_inside(program, None if outer is None else outer.type)
    parents = (None,) if outer is None else (outer.type,)
    named = (name for name in inside if program.entities[name].parent in parents and not program.entities[name].single)
    return next(named, inside[0] if outer is None else outer.type)


def _children(world: World, outer: Entity | None) -> list[tuple[str, int]]:
    """The entities directly in another one, each with how many lie below it."""
    tree, program = world.comparison.tree, world.program
    address = "" if outer is None else tree.addresses.of(str(outer))
    depth = address.count("/") + 1 if address else 0
    counts: dict[tuple[str, str], int] = {}
    for name in _types_inside(program, None if outer is None else outer.type):
        if program.entities[name].single:
            continue
        *_, begin, end = tree.span(name, address)
        nested = program.entities[name].nested and outer is not None and name == outer.type
        if program.entities[name].parent == (None if outer is None else outer.type) or nested:
            paths = tree.paths[name][begin:end]
            for path in paths if not program.entities[name].nested else (p for p in paths if p.count("/") == depth):
                *_, inner, last = tree.span(name, path)
                counts[name, path] = last - inner
    for name, path in counts:
        for deeper in program.entities:
            if deeper != name and name in program.chain(deeper):
                *_, inner, last = tree.span(deeper, path)
                counts[name, path] += last - inner
    return [(f"{name}:{written(path)}", number) for (name, path), number in counts.items()]


def _around(world: World, outer: Entity | None) -> list[str]:
    """The entity and its containers, from the root on."""
    if outer is None:
        return []
    found = world.reference.holdings.locations.find(outer)
    if found is None:
        raise UsageError(f"no row of the state tells where `{outer}` lies")
    return found
