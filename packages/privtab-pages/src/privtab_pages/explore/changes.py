"""The pages about hypothetical changes: a state with other rows, a policy as another version, variant or reading, two of them side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from urllib.parse import parse_qsl

from privtab.base import UsageError, count, parse_key_values
from privtab.ir import EntityType, Feature, Program, Tool
from privtab.state import ENTITY_COLUMNS, TABLE_COLUMNS, State, StateFinding, from_tables, validate
from privtab_analysis.diff import diff
from privtab_analysis.diff.summary import page_values
from privtab_analysis.row_sentences import row_sentence
from privtab_analysis.state_diff import Comparison, StateDiff, state_diff
from privtab_analysis.state_diff.chosen import without_rows
from privtab_analysis.state_diff.subjects import Side
from privtab_analysis.state_diff.summary import groups, headline, totals
from privtab_pages.explore.views import MOST_LINES, Values
from privtab_pages.explore.world import Query, World, linked, one_of

MOST_QUESTIONS = 100_000
"""Limit on the questions that one page decides in two states."""
MOST_OF_POLICIES = 20_000
"""The same for two policies, which may differ for everybody and everywhere."""
MOST_CHECKED = 5_000
"""Rows of a state up to which an added row is checked beside all others, and not by itself."""
MOST_USERS = 5_000
"""Users of a state for whom a page compares two policies."""
MOST_ROWS = 60
"""Maximum rows that a page offers to take away."""


# --- rows that would be added or gone --------------------------------------------------------------------------------


def what_if(world: World, query: Query) -> Values:
    """The changes of decisions if rows were added or gone, or if the policy were another one, and the users whom they affect."""
    before = world.rows
    added = [_row(text) for text in query.all("add")]
    removed = [_row(text) for text in query.all("remove")]
    about = query.one("about")
    values: Values = {
        "added": [(row_sentence(*row), text) for row, text in zip(added, query.all("add"), strict=True)],
        "removed": [(row_sentence(*row), text) for row, text in zip(removed, query.all("remove"), strict=True)],
        "without": lambda name, text: linked("what-if", [pair for pair in query.pairs if pair != (name, text)]),
        "about": list(islice(_about(world.rows, about), MOST_ROWS)) if about else [],
        "tables": {table: columns for table, columns in TABLE_COLUMNS.items() if _used(world.program, table)},
        "privileges": [*world.program.grantable, *world.program.aliases, *world.program.sets],
        "diff": None,
    }
    if added or removed:
        after = _with_rows(world, _without_rows(before, removed), added)
        found = state_diff(world.program, before, after, moment=world.moment, most=MOST_QUESTIONS, alike_together=True)
        values["diff"] = state_page(found)
    return values | _policies(world, query)


def _used(program: Program, table: str) -> bool:
    """Return whether rows of a table can say anything under a policy."""
    return bool(program.flat) if table == "entities" else table != "attributes" or bool(program.attributes)


def added_row(query: Query) -> str | None:
    """The URL to which the form that adds a row leads: the same question with this row; None if the form was not sent."""
    table = query.one("new")
    if not table:
        return None
    one_of(table, TABLE_COLUMNS, "table")
    cells = [(column, query.one(column).strip()) for column in TABLE_COLUMNS[table].names if query.one(column)]
    others = {"new", *(column for columns in TABLE_COLUMNS.values() for column in columns.names)}
    kept = [(name, value) for name, value in query.pairs if name not in others]
    return linked("what-if", [*kept, ("add", linked(table, cells))])


def _row(text: str) -> tuple[str, dict[str, str]]:
    """A row as URLs write it: `grants?grantee=role:x&…`. Raises UsageError."""
    table, _, query = text.partition("?")
    one_of(table, TABLE_COLUMNS, "table")
    cells = dict(parse_qsl(query, keep_blank_values=False, max_num_fields=10))
    if missing := [column for column in TABLE_COLUMNS[table].required if column not in cells]:
        raise UsageError(f"a row of `{table}` needs {', '.join(f'`{column}`' for column in missing)}")
    if unknown := [column for column in cells if column not in TABLE_COLUMNS[table].names]:
        raise UsageError(f"`{table}` has no column `{unknown[0]}`; it has {', '.join(TABLE_COLUMNS[table].names)}")
    return table, cells


def _with_rows(world: World, state: State, rows: Sequence[tuple[str, dict[str, str]]]) -> State:
    """The state with further rows, which are checked like rows of a file. Raises UsageError with every finding."""
    if not rows:
        return state
    # With all others, unless there are too many to check again: then with those that tell where entities lie.
    together = sum(len(getattr(state, table)) for table in TABLE_COLUMNS) <= MOST_CHECKED
    tables = (state if together else State(entities=state.entities)).to_tables()
    for table, cells in rows:
        tables.setdefault(table, []).append(cells)
    checked, findings = validate(world.program, from_tables(tables, "the new row"), notes=False)
    if wrong := [f for f in findings if f.severity == "error"]:
        texts = (f.message + (f" ({f.help})" if f.help else "") for f in wrong)
        raise UsageError("; ".join(dict.fromkeys(texts)))
    if together:
        return checked
    placed = {str(row.entity) for row in state.entities}
    for table in TABLE_COLUMNS:
        for row in getattr(checked, table):
            if table != "entities" or str(row.entity) not in placed:
                state = state.with_row(table, row)
    return state


def _without_rows(state: State, rows: Iterable[tuple[str, dict[str, str]]]) -> State:
    """The state without some rows. Raises UsageError for one that it does not have."""
    numbers = []
    for table, cells in rows:
        found = _numbers(state, table, cells)
        if not found:
            raise UsageError(f"no row of the state is `{row_sentence(table, cells)}`")
        numbers += [(table, number) for number in found]
    return without_rows(state, numbers) if numbers else state


def _numbers(state: State, table: str, cells: dict[str, str]) -> list[int]:
    """The rows of a table with exactly the given cells."""
    found: set[int] | None = None
    for column, text in cells.items():
        rows = set(state.column(table, column).where([text]))
        found = rows if found is None else found & rows
    others = [column for column in TABLE_COLUMNS[table].optional if column not in cells]
    return sorted(n for n in found or () if all(state.column(table, column).take([n]) == [None] for column in others))


def _about(state: State, name: str) -> Iterator[tuple[str, str]]:
    """The rows that name a principal, as `user:…` or bare, or an entity: sentences, and as URLs write them."""
    kind, _, bare = name.partition(":")
    principal = kind in ("user", "group", "role")
    texts = {name, f"user:{name}", *([bare] if principal else [])}
    for table in TABLE_COLUMNS:
        columns = TABLE_COLUMNS[table].names
        found = sorted({row for column in columns for row in state.column(table, column).where(texts)})
        for number in found:
            read = ((column, state.column(table, column).take([number])[0]) for column in columns)
            cells = {column: text for column, text in read if text is not None}
            # Columns with bare names say which kind of principal they mean.
            if not principal or name in cells.values() or cells.get(kind) == bare:
                yield row_sentence(table, cells), linked(table, cells.items())


def state_page(found: StateDiff) -> Values:
    """The values for the template of a difference between states."""
    listed = [(group, line) for group in groups(found) for line in group.lines]
    return {
        "diff": found,
        "headline": headline(found),
        "totals": [totals(found, gained=gained).text(verb) for verb, gained in (("gained", True), ("lost", False))],
        "lines": listed[:MOST_LINES],
        "lines_left": max(0, len(listed) - MOST_LINES),
        "rows": found.rows[:MOST_LINES],
        "rows_left": max(0, len(found.rows) - MOST_LINES),
    }


# --- another policy --------------------------------------------------------------------------------------------------


def _policies(world: World, query: Query) -> Values:
    """The policies that may be chosen instead of the policy, and the page of the chosen one."""
    variants = world.variants if world.chosen is not None else ()
    program, shown = _other(world, query)
    chosen = None if program is None else policy_page(world, program, shown)
    return {"versions": list(world.versions), "variants": variants, "readings": world.readings, "policy": chosen}


def _other(world: World, query: Query) -> tuple[Program | None, str]:
    """The policy that a URL chooses instead, and its name; None if it chooses none."""
    version, variant, readings = query.one("version"), query.one("variant"), query.all("reading")
    if not (version or variant or readings):
        return None, ""
    if version:
        if variant or readings:
            raise UsageError("a version stands alone: leave the variant and the readings out")
        return one_of(version, world.versions, "version")(), version
    if world.chosen is None:
        raise UsageError(f"{world.shown} is compiled already: variants and readings are for tables")
    chosen = parse_key_values(readings, "reading", "ROW=NAME", example="namespace/list=parent")
    shown = " ".join([world.shown, *([f"variant {variant}"] if variant else []), *readings])
    return world.chosen(variant or None, chosen), shown


def policy_page(world: World, program: Program, shown: str) -> Values:
    """The exact difference of two policies, and for whom it makes one in the state."""
    found = diff(world.program, program, shown=(world.shown, shown))
    values: Values = {"shown": shown, **page_values(found), "whom": None, "whom_problem": ""}
    if world.state is None or not found.changes:
        return values
    try:
        values["whom"] = state_page(_for_whom(world, program, [(row.entity, row.operation) for row in found.changes]))
    except UsageError as error:
        values["whom_problem"] = str(error)
    return values


def _for_whom(world: World, program: Program, pairs: Sequence[tuple[str, str]]) -> StateDiff:
    """The users who gain and lose operations in the state if the policy were another one. Raises UsageError if that cannot be told.

    Where types differ, operations are compared on the types that lie in the same types in both.
    """
    Tool.STATE_DIFF.check(program)
    if len(world.users) > MOST_USERS:
        raise UsageError(f"the state names {len(world.users):,} users, and {MOST_USERS:,} are the most")
    shared = _shared_types(world.program, program)
    own = [name for each in (world.program, program) for name in each.entities if name not in shared]
    if own and any(Feature.BELOW.used_by(each) for each in (world.program, program)):
        raise UsageError(
            "the policies have other types of entities, and conditions ask what lies below: rows do not mean the same"
        )
    state, findings = validate(program, from_tables(world.rows, world.state_shown), notes=False)
    left_out = [found for found in findings if found.severity == "error" and _is_of_other_type(found, program)]
    wrong = [found for found in findings if found.severity == "error" and found not in left_out]
    if wrong:
        raise UsageError(
            f"{count(len(wrong), 'row')} of the state would be wrong under {program.version}: {wrong[0].message}"
        )
    sides = Side(world.program, world.rows), Side(program, state if left_out else world.rows)
    comparison = Comparison(world.program, sides, (), MOST_OF_POLICIES, causes=False)
    comparison.only = {
        pair for pair in pairs if all(_is_about(pair, each, shared) for each in (world.program, program))
    }
    access = tuple(comparison.everywhere(sides[0].everyone()))
    notes = [f"compared on the types that both have alike, so not on {', '.join(sorted(set(own)))}"] if own else []
    notes += [f"{count(len(left_out), 'row')} about types that {program.version} does not have"] if left_out else []
    return StateDiff(
        rows=(),
        access=access,
        decided=comparison.decided,
        undecided=tuple(comparison.undecided),
        notes=tuple(notes),
    )


def _shared_types(one: Program, other: Program) -> set[str]:
    """The types that lie in the same types in both policies."""

    def chain(program: Program, name: str) -> list[EntityType]:
        return [program.entities[outer] for outer in program.chain(name)]

    return {name for name in one.entities if name in other.entities and chain(one, name) == chain(other, name)}


def _is_of_other_type(found: StateFinding, program: Program) -> bool:
    """Return whether a row is wrong only because it is about a type that a policy does not have."""
    cells = (str(found.row.get(column, "")).partition(":")[0] for column in ENTITY_COLUMNS)
    return StateFinding.NAMES[found.code] == "unknown-type" and any(
        cell and cell not in program.entities for cell in cells
    )


def _is_about(pair: tuple[str, str], program: Program, shared: Collection[str]) -> bool:
    """Return whether a policy has an operation, and its objects are of shared types."""
    rule = program.rules.get(pair)
    return rule is not None and {rule.entity, *(name for slot in rule.withs for name in slot.types)} <= {*shared}


def compare(world: World, query: Query) -> Values:
    """Two policies, or two states, side by side: the one that is looked at and another one."""
    state = query.one("state")
    values: Values = {"states": list(world.states), **_policies(world, query), "diff": None}
    if state:
        other, places = one_of(state, world.states, "state")
        found = state_diff(
            world.program,
            other,
            world.rows,
            places=(places, world.places),
            moment=world.moment,
            most=MOST_QUESTIONS,
            alike_together=True,
        )
        values["diff"] = state_page(found)
    return values
