"""Pages made from small random tables, with one addition: it is reported, and no row is other than its table says."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import yaml
from seeds import seeds

from privtab.base import FileError, UsageError
from privtab_pages.imported import TableReader
from privtab_pages.names import identifier
from privtab_pages.page_files import page_of, page_source, tables

PARTS = ("Entity", "Operation", "Privileges")
TYPES = ("table", "view", "topic")
OPERATIONS = ("load", "drop", "set owner", "describe", "purge")
CONDITIONS = (
    "READ (entity)",
    "WRITE (entity)",
    "READ/WRITE (entity)",
    "none",
    "READ (table) and WRITE (view)",
    "owner (entity)",
)
UNSEEN = "\u200b\u00ad\u2060\ufeff\u202e\u200e\u034f\u115f\u3164\ufe0f\u2800\U000e0041\x7f\u180e"
FOOTNOTES = ("*", "†", "¹", "²", "[1]", " (1)", "[^1]", "‡", "①")
UNREADABLE = ("see below", "not applicable", "READ (table) unless locked", "", "READ (table", "as agreed", "—")


class Text(NamedTuple):
    """The text of a cell, and what is done to it: nothing, or it is struck or hidden, or has a part that is."""

    text: str
    how: str = ""
    before: str = ""
    """A part that stands before it and is struck or hidden."""


Rows = list[list[Text]]


class Made(NamedTuple):
    """A page: its tables with their headings, and the sheets, rows and columns that are hidden."""

    tables: list[tuple[str, Rows]]
    hidden: frozenset[int] = frozenset()
    """The positions of hidden tables or sheets."""
    lines: tuple[str, ...] = ()
    """Text below the tables."""


def cell(text: str) -> Text:
    return Text(text)


def base(random: Random) -> Rows:
    """A table with at most one row for each operation of a type, and every type that a condition names."""
    pairs = [(type_, operation) for type_ in TYPES for operation in random.sample(OPERATIONS, 2)]
    rows = [[*map(cell, (*pair, random.choice(CONDITIONS)))] for pair in sorted(random.sample(pairs, 5))]
    return [[*map(cell, PARTS)], *([*map(cell, (type_, "see", "READ (entity)"))] for type_ in TYPES), *rows]


def added(random: Random, rows: Rows) -> Made:
    """A page of the table with one addition."""
    rows = [list(row) for row in rows]
    at, column = random.randrange(1, len(rows)), random.randrange(3)
    chosen = rows[at][column]
    more: Rows = [[*map(cell, PARTS)], [*map(cell, ("table", "drop all", "none"))]]
    match random.randrange(11):
        case 0:
            position = random.randrange(4)
            heading = random.choice(("Additional privileges", "Only if", "Ownership: YES", "Needs", "", "Denied to"))
            for number, row in enumerate(rows):
                row.insert(position, cell(heading if not number else "WRITE (table)" if number == at else ""))
        case 1:
            rows[at] = [Text(text.text, random.choice(("struck", "hidden"))) for text in rows[at]]
        case 2:
            rows[at][column] = Text(chosen.text, random.choice(("struck", "hidden")))
        case 3:
            rows[at][2] = Text(
                chosen.text if column == 2 else "WRITE (entity)",
                random.choice(("struck before", "hidden before")),
                "none or",
            )
        case 4:
            other = [[*map(cell, ("Term", "Meaning"))], [*map(cell, ("drop", "only by night"))]]
            return Made([("", rows), ("Glossary", other)])
        case 5:
            return Made([("", rows), ("Old", more)], frozenset({1}))
        case 6:
            return Made([("Old", more), ("", rows)], frozenset({0}))
        case 7:
            place = random.randrange(1, len(chosen.text) or 1)
            rows[at][column] = cell(chosen.text[:place] + random.choice(UNSEEN) + chosen.text[place:])
        case 8:
            rows[at][random.randrange(2)] = cell(chosen.text.split()[0].strip("()/") + random.choice(FOOTNOTES))
        case 9:
            rows[at][2] = cell(random.choice(UNREADABLE))
        case _:
            rows[at][random.randrange(2)] = cell(
                random.choice(("12", "查看", "\u043epen", "=A2", "(see below)", "\u27e6x\u27e7"))
            )
    return Made([("", rows)])


def marked(text: Text, random: Random, *, markdown: bool = False) -> str:
    """A cell as HTML or Markdown."""
    struck = [
        "<s>{}</s>",
        "<del>{}</del>",
        "<strike>{}</strike>",
        '<span style="text-decoration: line-through">{}</span>',
        '<b class="old">{}</b>',
    ]
    hidden = [
        "<span hidden>{}</span>",
        '<i style="display : none">{}</i>',
        '<span style="visibility:hidden">{}</span>',
        "<template>{}</template>",
        "<details><summary></summary>{}</details>",
    ]
    plain = escape(text.text)
    if markdown:
        plain, struck = plain.replace("[", "\\["), [*struck[:4], "~~{}~~"]
    wrapped = random.choice(struck if "struck" in text.how else hidden)
    if text.before:
        return f"{wrapped.format(text.before)} {plain}"
    return wrapped.format(plain) if text.how and plain else plain


def in_markdown(made: Made, random: Random, path: Path) -> None:
    lines = []
    for number, (heading, rows) in enumerate(made.tables):
        prefix = random.choice(("", "> ", "   ")) if number not in made.hidden else ""
        level = f"# {heading}" if random.random() < 0.5 else f"{heading}\n==="
        lines += [level if heading else "", "", "<details>\n" if number in made.hidden else ""]
        # A line that begins with `2.` or `[` would be an item, or a reference.
        bars = random.choice(("| {} |", "{} |")) if all(row[0].text[:1].isalpha() for row in rows) else "| {} |"
        body = [bars.format(" | ".join(marked(text, random, markdown=True) for text in row)) for row in rows]
        lines += [prefix + line for line in (body[0], "|".join(["---"] * len(rows[0])), *body[1:])]
        lines += ["", "</details>\n" if number in made.hidden else ""]
    path.write_text("\n\n".join(["\n".join(lines), *made.lines]), encoding="utf-8")


def in_html(made: Made, random: Random, path: Path) -> None:
    parts = ["<style>.old { text-decoration: line-through }</style>"]
    for number, (heading, rows) in enumerate(made.tables):
        attribute = random.choice(("hidden", 'style="display:none"')) if number in made.hidden else ""
        caption = f"<caption>{heading}</caption>" if heading and random.random() < 0.5 else ""
        parts.append(f"<h{number + 2}>{heading}</h{number + 2}>" if heading and not caption else "")
        ends = random.choice((("</td>", "</tr>"), ("", "")))
        body = "".join(
            f"<tr>{''.join(f'<td>{marked(text, random)}{ends[0]}' for text in row)}{ends[1]}\n" for row in rows
        )
        parts.append(f"<table {attribute}>{caption}{body}</table>")
    parts += [f"<p>{escape(line)}</p>" for line in made.lines]
    path.write_text("\n".join(parts), encoding="utf-8")


def in_csv(made: Made, random: Random, path: Path) -> None:
    """A page without marks: nothing of it is hidden or struck."""
    with path.open("w", newline="", encoding="utf-8") as file:
        for _, rows in made.tables:
            csv.writer(file).writerows([text.text for text in row] for row in rows)
            file.write("\n" * random.randrange(3))


def in_workbook(made: Made, random: Random, path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    rich_text = pytest.importorskip("openpyxl.cell.rich_text")
    inline_font = pytest.importorskip("openpyxl.cell.text").InlineFont

    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, (heading, rows) in enumerate(made.tables):
        sheet = book.create_sheet(heading or f"Sheet{number}")
        for line, row in enumerate(rows, 1):
            for column, text in enumerate(row, 1):
                at = sheet.cell(line, column, text.text or None)
                if text.before:
                    at.value = rich_text.CellRichText(
                        rich_text.TextBlock(inline_font(strike=True), text.before), f" {text.text}"
                    )
                elif text.how == "struck":
                    at.font = openpyxl.styles.Font(strike=True)
            if any(text.how == "hidden" for text in row):
                sheet.row_dimensions[line].hidden = True
        if number in made.hidden:
            sheet.sheet_state = random.choice(("hidden", "veryHidden"))
    book.active = next(number for number in range(len(made.tables)) if number not in made.hidden)
    book.save(path)


WRITERS: dict[str, Callable[[Made, Random, Path], None]] = {
    "md": in_markdown,
    "html": in_html,
    "csv": in_csv,
    "xlsx": in_workbook,
}


def outcome(path: Path) -> tuple[str | None, list[Any]]:
    reader = TableReader(system="page", version="draft", document="page")
    try:
        return reader.read(tables(page_source(path))), reader.found
    except (FileError, UsageError) as error:
        return None, [error]


def rows_of(policy: str | None) -> set[tuple[str, str, str]]:
    """The rows of a policy, which is also what `--allow-partial` writes."""
    tables_of = yaml.safe_load(policy or "{}").get("tables", {})
    rows = {(type_, name, row["requires"]) for type_, rows in tables_of.items() for name, row in rows.items()}
    return {row for row in rows if row[2] != "nobody"}


def misread(seeds: range, folder: Path) -> Iterator[str]:
    """The pages that gave a row which their table does not have, or no finding."""
    for seed in seeds:
        random = Random(seed)
        rows = base(random)
        kind = random.choice((*("md", "html") * 4, "csv", "xlsx"))
        plain, path = folder / f"plain.{kind}", folder / f"page.{kind}"
        WRITERS[kind](Made([("", rows)]), random, plain)
        made = added(random, rows)
        decorated = bool(made.hidden) or any(text.how for _, table in made.tables for row in table for text in row)
        if kind == "csv" and decorated:
            continue
        if kind == "xlsx" and any("\x7f" in text.text for _, table in made.tables for row in table for text in row):
            continue
        WRITERS[kind](made, random, path)
        policy, found = outcome(plain)
        assert policy is not None, seed
        assert found == [], (seed, found)
        rest, found = outcome(path)
        if not found or not rows_of(rest) <= rows_of(policy):
            yield f"{seed}: {path.read_text(encoding='utf-8') if kind != 'xlsx' else made}"


ROLES = ("Guest", "Reporter", "Developer", "Maintainer", "Project Admin", "Owner", "Read only", "Viewer")
ACTIONS = (
    "Open",
    "See the list of projects",
    "Create/edit labels",
    "GET /v1/tables/{name}",
    "Add or remove members, groups",
    "Export (CSV)",
    "Manage \u201cown\u201d pages",
    "2. Delete a project",
    "[Labels]: add",
    "CI/CD analytics",
)
STYLES = (
    ("✓", ""),
    ("✔", "✖"),
    ("✅", "❌"),
    ("x", ""),
    ("Yes", "No"),
    ("Y", "-"),
    ("●", "○"),
    ("[x]", "[ ]"),
    ("X", "—"),
    ("All", "None"),
    ("1", "0"),
    ("F", "Z"),
)
LEGENDS = {"F": ("F = Full access", "Z = No access")}
"""The lines that explain marks."""
CONDITIONAL = (
    "{} (1)",
    "{}*",
    "{} own",
    "View",
    "Limited",
    "?",
    "(2)",
    "{} / {}",
    "{}\u200b",
    "if asked",
    "~{}",
    "partial",
)
Cells = dict[tuple[str, str], bool]
"""The answer of a matrix for an action and a role."""


def matrix(random: Random) -> tuple[Rows, Cells]:
    """A matrix of actions and roles, and what it says."""
    yes, no = random.choice(STYLES)
    roles = random.sample(ROLES, random.randrange(2, 6))
    actions = random.sample(ACTIONS, random.randrange(3, 9))
    says = {(action, role): random.random() < 0.5 for action in actions for role in roles}
    says |= {(actions[0], role): True for role in roles} | {(actions[1], roles[0]): False}
    rows = [[*map(cell, ("Action", *roles))]]
    rows += [[cell(action), *(cell(yes if says[action, role] else no) for role in roles)] for action in actions]
    return rows, says


def decorated(random: Random, rows: Rows, says: Cells) -> tuple[Made, set[tuple[str, str]]]:
    """A page of a matrix with additions, and the cells that need not be as the matrix says: they are to be denied."""
    rows = [list(row) for row in rows]
    names, loose = [row[0].text for row in rows], set[tuple[str, str]]()
    roles = [text.text for text in rows[0][1:]]
    hidden: set[int] = set()
    tables: list[tuple[str, Rows]] = [("Project roles", rows)]
    for _ in range(random.randrange(1, 4)):
        at, column = random.randrange(1, len(names)), random.randrange(1, len(roles) + 1)
        chosen = rows[at][column]
        if chosen.how:
            continue
        mine = {(names[at], roles[column - 1])}
        match random.randrange(12):
            case 0:
                rows[at][column] = cell(random.choice(CONDITIONAL).replace("{}", chosen.text or "✓"))
                loose |= mine
            case 1:
                rows[at][column] = Text(chosen.text or "Yes", random.choice(("struck", "hidden")))
                loose |= {(names[at], role) for role in roles}
            case 2:
                rows[at][column] = Text(chosen.text, random.choice(("struck before", "hidden before")), "Yes")
                loose |= {(names[at], role) for role in roles}
            case 3 if not rows[at][0].how:
                rows[at][0] = cell(rows[at][0].text + random.choice(FOOTNOTES[:2] + FOOTNOTES[4:8]))
                loose |= {(names[at], role) for role in roles}
            case 4:
                rows[0][column] = cell(rows[0][column].text + random.choice(("*", " (1)", " [2]")))
                loose |= {(name, roles[column - 1]) for name in names}
            case 5 if len(rows[0]) == len(roles) + 1:
                for number, row in enumerate(rows):
                    row.append(cell("Only if" if not number else "it is day" if number == at else ""))
                loose |= {(names[at], role) for role in roles}
            case 6:
                glossary = [[*map(cell, ("Term", "Meaning"))], [*map(cell, (names[at], "only by night"))]]
                tables.append(("Glossary", glossary))
            case 7:
                old = [[*map(cell, ("Action", *roles))], [*map(cell, ("drop all", *["Yes"] * len(roles)))]]
                hidden.add(len(tables))
                tables.append(("Old", old))
            case 8 if len(rows[0]) == len(roles) + 1 and any(says[names[at], role] for role in roles):
                for number, row in enumerate(rows):
                    row.append(cell("Notes" if not number else "by day" if number == at else ""))
                loose |= {(names[at], role) for role in roles}
            case 9 if at > 2 and len(tables) == 1:
                rows.insert(at, list(rows[0]))  # long tables have their headings again
                names.insert(at, "")
                break
            case 10:
                plans = [[*map(cell, ("Feature", "Free", "Premium"))], [*map(cell, (names[at], "✓", "✓"))]]
                tables.append(("Plans", plans))
            case _:
                rows[at] = [Text(text.text, "struck") if text.text else text for text in rows[at]]
                loose |= {(names[at], role) for role in roles}
    return Made(tables, frozenset(hidden)), loose


def stated(path: Path) -> tuple[set[tuple[str, str, bool]], int]:
    """The cells of a page that its draft states, by the names of action and role, and the number of findings."""
    reader = TableReader(system="page", version="draft", document="page")
    page = page_of(page_source(path))
    policy = reader.read(page.tables, page.lines)
    if policy is None:
        return set(), 1
    document = yaml.safe_load(policy)
    roles = document["roles"].items()
    granted = {(role, name) for role, of in roles for names in of.get("grants", {}).values() for name in names}
    marks = {(mark.operation, mark.role, mark.allowed) for mark in reader.draft.marks}
    assert {(role, operation.upper()) for operation, role, may in marks if may} == granted
    return marks, len(reader.found)


def lists(random: Random) -> tuple[Rows, Cells]:
    """Actions with the roles that may take them, or roles with what they may do; and what the plain cells say."""
    names = random.sample(("Guest", "Reporter", "lead_dev", "Project Admin", "Owner"), 4)
    actions = random.sample(("open", "see all", "GET /v1/{name}", "Export (CSV)", "drop:all"), 4)
    says = {(action, name): random.random() < 0.6 for action in actions for name in names}
    says |= {(action, names[0]): True for action in actions} | {(actions[0], name): True for name in names}
    if random.random() < 0.5:
        between = random.choice((", ", " / ", " and "))
        held = {action: between.join(name for name in names if says[action, name]) for action in actions}
        head = ("Action", random.choice(("Role", "Allowed roles")))
        return [[*map(cell, head)], *([cell(action), cell(held[action])] for action in actions)], says
    words = random.sample(("open", "see", "drop:all", "edit"), 4)
    says = dict(zip(((word, name) for word in words for name in names), says.values(), strict=True))
    may = {name: ", ".join(word for word in words if says[word, name]) for name in names}
    return [[*map(cell, ("Role", "Permissions"))], *([cell(name), cell(may[name] or "-")] for name in names)], says


LIMITS = ("{} (own)", "{} only", "anyone", "{}*", "see below", "", "not {}", "{} and above", "any {}", "{} if asked")


def misread_lists(seeds: range, folder: Path) -> Iterator[str]:
    """The pages of a list of which more was read than it says, or less without a finding."""
    for seed in seeds:
        random = Random(seed)
        rows, says = lists(random)
        kind = random.choice((*("md", "html") * 4, "csv", "xlsx"))
        right = {(identifier(action), identifier(role), True) for (action, role), may in says.items() if may}
        path = folder / f"page.{kind}"
        WRITERS[kind](Made([("Project roles", rows)]), random, path)
        read, found = stated(path)
        if found or read != right:
            yield f"plain {seed}: {rows} {read ^ right}"
        if rows[0][0].text == "Action":
            at = random.randrange(1, len(rows))
            rows[at][1] = cell(random.choice(LIMITS).replace("{}", rows[at][1].text))
            WRITERS[kind](Made([("Project roles", rows)]), random, path)
            read, found = stated(path)
            others = {mark for mark in right if mark[0] != identifier(rows[at][0].text)}
            if not found or not others <= read <= right:
                yield f"{seed}: {rows} {read ^ right}"


def misread_matrices(seeds: range, folder: Path) -> Iterator[str]:
    """The pages of a matrix of which a cell was read otherwise than it says, or not read without a finding."""
    for seed in seeds:
        random = Random(seed)
        rows, says = matrix(random)
        kind = random.choice((*("md", "html") * 4, "csv", "xlsx"))
        said = next((LEGENDS[text.text] for row in rows[1:] for text in row[1:] if text.text in LEGENDS), ())
        kind = "md" if said else kind
        plain, path = folder / f"plain.{kind}", folder / f"page.{kind}"
        if kind in ("md", "html"):
            WRITERS[kind](Made([("Project roles", rows)], lines=said), random, plain)
            read, found = stated(plain)
            whole = {(identifier(action), identifier(role), may) for (action, role), may in says.items()}
            if found or read != whole:
                yield f"plain {seed}: {plain.read_text(encoding='utf-8')}"
        made, loose = decorated(random, rows, says)
        made = made._replace(lines=said)
        texts = [text for _, table in made.tables for row in table for text in row]
        if kind == "csv" and (made.hidden or len(made.tables) > 1 or any(text.how for text in texts)):
            continue
        WRITERS[kind](made, random, path)
        read, found = stated(path)
        right = {(identifier(action), identifier(role), may) for (action, role), may in says.items()}
        certain = {(identifier(action), identifier(role), says[action, role]) for action, role in says.keys() - loose}
        if not read <= right or not (found or (not loose and certain <= read)):
            yield f"{seed}: {path.read_text(encoding='utf-8') if kind != 'xlsx' else made} {read - right}"
        if kind in ("md", "html") and read and not certain <= read:  # without a mark that allows, nothing is read
            yield f"lost {seed}: {path.read_text(encoding='utf-8')} {certain - read}"


Answers = set[tuple[object, ...]]
"""What a page says: type, operation, role and whether the role may do it; or type, operation and what it requires."""


class Form(NamedTuple):
    """A table in one of the forms, and what it says."""

    rows: Rows
    says: Answers
    lines: tuple[str, ...] = ()


def _held(random: Random, operations: Sequence[str]) -> tuple[list[str], dict[tuple[str, str], bool]]:
    """Roles, and which of them may do what: the first may do everything, so that no column is empty, and one lacks something."""
    roles = random.sample(ROLES, 3)
    says = {(operation, role): random.random() < 0.5 for operation in operations for role in roles}
    return roles, says | {(operation, roles[0]): True for operation in operations} | {(operations[0], roles[1]): False}


def turned(random: Random) -> Form:
    """Roles and privileges."""
    (yes, no), names = random.choice(STYLES[:-1]), random.sample(("Select", "Insert", "Delete", "Alter", "Usage"), 3)
    roles, says = _held(random, names)
    rows = [[cell(role), *(cell(yes if says[name, role] else no) for name in names)] for role in roles]
    answers: Answers = {("project", identifier(name), identifier(role), may) for (name, role), may in says.items()}
    return Form([[*map(cell, ("Role", *names))], *rows], answers)


def listed(random: Random) -> Form:
    """Objects and roles, with the actions that a role may take on an object."""
    things = random.sample(("Files", "Saved groups", "Metrics", "Lists"), 3)
    verbs = random.sample(("View", "Edit", "Add", "Comment", "Run queries"), 3)
    roles, rows, answers = random.sample(ROLES, 3), list[list[Text]](), Answers()
    for thing in things:
        may = {role: [verb for verb in verbs if random.random() < 0.5] for role in roles}
        may[roles[0]] = may[roles[0]] or verbs[:1]
        between = random.choice((", ", " / ", "/", " and ", "; "))
        rows.append([cell(thing), *(cell(between.join(may[role]) or random.choice("-—")) for role in roles)])
        named = {verb for verbs in may.values() for verb in verbs}
        answers |= {
            (identifier(thing), identifier(verb), identifier(role), verb in may[role])
            for verb in named
            for role in roles
        }
    return Form([[*map(cell, ("Feature", *roles))], *rows], answers)


def demanded(random: Random) -> Form:
    """Operations and privileges, whose marks say what is required."""
    names = random.sample(("SELECT", "INSERT", "DELETE", "UPDATE"), 3)
    rows, answers = list[list[Text]](), Answers()
    for operation in random.sample(("load", "analyze", "set owner", "purge all"), 3):
        needed = [name for name in names if not rows or random.random() < 0.6] or names[:1]
        rows.append([cell(operation), *(cell("Y" if name in needed else "") for name in names)])
        answers.add(("project", identifier(operation), " and ".join(f"{name} (entity)" for name in needed)))
    return Form([[*map(cell, ("Action", *names))], *rows], answers, ("Y: Privilege required.",))


def apart(random: Random) -> Form:
    """Operations with a privilege and its object in two columns."""
    pairs = random.sample([(type_, name) for type_ in TYPES for name in OPERATIONS], 4)
    rows = [(name, random.choice(("READ", "WRITE", "ALTER TABLE")), type_) for type_, name in pairs]
    form = {name: f'"{name}"' if " " in name else name for _, name, _ in rows}
    answers: Answers = {(type_, identifier(name), f"{form[held]} (entity)") for name, held, type_ in rows}
    return Form([[*map(cell, ("Operation", "Privilege", "Object"))], *([*map(cell, row)] for row in rows)], answers)


def routed(random: Random) -> Form:
    """Methods and paths, and the roles that may ask them."""
    routes = random.sample([(method, path) for method in ("GET", "PUT") for path in ("/a", "/a/{name}", "/b-c")], 4)
    roles, says = _held(random, [" ".join(route) for route in routes])
    rows = [(*route, ", ".join(role for role in roles if says[" ".join(route), role])) for route in routes]
    answers: Answers = {("project", identifier(op), identifier(role), True) for (op, role), may in says.items() if may}
    head = ("Method", random.choice(("Path", "Endpoint", "Route")), "Allowed roles")
    return Form([[*map(cell, head)], *([*map(cell, row)] for row in rows)], answers)


def levelled(random: Random) -> Form:
    """Actions and the least role that may take each, in the order of a line."""
    roles, actions = random.sample(("Guest", "Reporter", "Editor", "Owner"), 4), random.sample(ACTIONS, 4)
    least = {action: random.randrange(4) for action in actions}
    above = random.choice(("", " and above", "+", " or higher"))
    rows = [[cell(action), cell(roles[level] + above)] for action, level in least.items()]
    answers: Answers = {
        ("project", identifier(action), identifier(role), at >= level)
        for action, level in least.items()
        for at, role in enumerate(roles)
        if at >= min(least.values())
    }
    line = random.choice((" < ".join(roles), " > ".join(roles[::-1]), f"From lowest to highest: {', '.join(roles)}"))
    return Form([[*map(cell, ("Action", "Minimum role"))], *rows], answers, (line,))


def typed(random: Random) -> Form:
    """Objects, actions and roles: the name of an object spans its rows where a format has spans."""
    (yes, no), pairs = random.choice(STYLES[:-1]), [(type_, name) for type_ in TYPES for name in OPERATIONS]
    roles, says = _held(random, [" ".join(pair) for pair in pairs])
    rows = [[*map(cell, pair), *(cell(yes if says[" ".join(pair), role] else no) for role in roles)] for pair in pairs]
    answers: Answers = {
        (type_, identifier(name), identifier(role), says[f"{type_} {name}", role])
        for type_, name in pairs
        for role in roles
    }
    return Form([[*map(cell, ("Object", "Action", *roles))], *rows], answers)


def in_spans(made: Made, random: Random, path: Path) -> None:
    """HTML in which equal cells below each other are one, with marks as entities and blanks that do not break."""
    parts = []
    for heading, rows in made.tables:
        body = ""
        for at, row in enumerate(rows):
            cells = []
            for column, text in enumerate(row):
                same = [other[0].text == text.text for other in rows[at:]] if column == 0 and len(rows[0]) > 3 else []
                if column == 0 and same and at > 1 and rows[at - 1][0] == text:
                    continue
                count = (*same, False).index(False) if at and same else 1
                shown = "".join(f"&#{ord(c)};" if not c.isalnum() and c != " " else c for c in text.text)
                shown = shown.replace(" ", random.choice((" ", "&nbsp;", "\n")))
                shown = f"<s>{shown}</s>" if text.how == "struck" else f"<i hidden>{shown}</i>" if text.how else shown
                cells.append(f"<td{f' rowspan={count}' if count > 1 else ''}>{shown}</td>")
            body += f"<tr>{''.join(cells)}</tr>"
        parts.append(f"<h2>{heading}</h2><table>{body}</table>")
    path.write_text("".join([*parts, *(f"<p>{escape(line)}</p>" for line in made.lines)]), encoding="utf-8")


FORMS = (turned, listed, demanded, apart, routed, levelled, typed)


def changed(random: Random, rows: Rows) -> Made:
    """A page of a table with one addition; some additions leave the table as it is, and are to be reported."""
    rows = [list(row) for row in rows]
    at, column = random.randrange(1, len(rows)), random.randrange(1, len(rows[0]))
    chosen, last = rows[at][column], len(rows[0]) - 1
    match random.randrange(7):
        case 0:
            held = 1 if rows[0][1].text == "Privilege" else last
            rows[at][held] = cell(
                random.choice(("{} (1)", "{}*", "{} [2]", "if asked", "partial", "?")).replace(
                    "{}", rows[at][last].text or "Yes"
                )
            )
        case 1:
            rows[at] = [
                Text(text.text, random.choice(("struck", "hidden"))) if text.text else text for text in rows[at]
            ]
        case 2:
            rows[at][column] = Text(chosen.text or "Yes", random.choice(("struck", "hidden")))
        case 3:
            for number, row in enumerate(rows):
                row.append(cell("Only if" if not number else "it is day" if number == at else ""))
        case 4:
            rows[at][0] = cell(rows[at][0].text + random.choice(("*", "†", " (1)", " [2]")))
        case 5:
            return Made(
                [
                    ("Project roles", rows),
                    ("Glossary", [[*map(cell, ("Term", "Meaning"))], [*map(cell, ("load", "by night"))]]),
                ]
            )
        case _:
            rows[0][last] = cell(rows[0][last].text + random.choice(("*", " (1)")))
    return Made([("Project roles", rows)])


def answers_of(path: Path) -> tuple[Answers, int]:
    """What the draft of a page says, and the number of findings."""
    reader = TableReader(system="page", version="draft", document="page")
    try:
        page = page_of(page_source(path))
    except FileError:  # columns apart by `,` or `;`
        return set(), 1
    policy = reader.read(page.tables, page.lines)
    if policy is None:
        return set(), 1
    marks: Answers = {(mark.type, mark.operation, mark.role, mark.allowed) for mark in reader.draft.marks}
    rows = ((type_, name, row["requires"]) for type_, of in reader.draft.rows.items() for name, row in of.items())
    return marks | {row for row in rows if row[2] != "nobody" and not _own(row)}, len(reader.found)


def _own(row: tuple[str, str, str]) -> bool:
    """True for a row of a matrix, which requires a privilege of its own."""
    return row[2] == f"{row[1].upper()} ({row[0]})"


def misread_forms(seeds: range, folder: Path) -> Iterator[str]:
    """The pages of any form of which more or other was read than they say, or less without a finding."""
    for seed in seeds:
        random = Random(seed)
        form = random.choice(FORMS)(random)
        kinds = ("md", "html", "spans") if form.lines else ("md", "html", "spans", "md", "html", "spans", "csv", "xlsx")
        kind = random.choice(kinds)
        write, path = {**WRITERS, "spans": in_spans}[kind], folder / f"page.{'html' if kind == 'spans' else kind}"
        write(Made([("Project roles", form.rows)], lines=form.lines), random, path)
        read, found = answers_of(path)
        root = {"project": "system"} if kind in ("csv", "xlsx") else {}  # pages without a heading
        form = form._replace(says={(root.get(str(answer[0]), answer[0]), *answer[1:]) for answer in form.says})
        if kind in ("md", "html", "spans") and (found or read != form.says):
            yield f"plain {seed}: {path.read_text(encoding='utf-8')} {read ^ form.says}"
        made = changed(random, form.rows)._replace(lines=form.lines)
        if kind == "csv" and (len(made.tables) > 1 or any(text.how for row in made.tables[0][1] for text in row)):
            continue
        write(made, random, path)
        read, found = answers_of(path)
        if not read <= form.says or not found:
            yield f"{seed}: {made if kind == 'xlsx' else path.read_text(encoding='utf-8')} {read - form.says}"


@pytest.mark.parametrize("seed", seeds(range(40), quick=5))
def test_all_forms_are_read_or_reported(seed: int, tmp_path: Path) -> None:
    assert list(misread_forms(range(seed * 5, seed * 5 + 5), tmp_path)) == []


@pytest.mark.long
def test_many_pages_of_all_forms_are_read_or_reported(search_seed: int, tmp_path: Path) -> None:
    assert list(misread_forms(range(search_seed, search_seed + 10_000), tmp_path)) == []


@pytest.mark.parametrize("seed", seeds(range(40), quick=5))
def test_an_addition_to_a_page_is_reported(seed: int, tmp_path: Path) -> None:
    assert list(misread(range(seed * 5, seed * 5 + 5), tmp_path)) == []


@pytest.mark.parametrize("seed", seeds(range(40), quick=5))
def test_cells_of_a_matrix_are_read_or_reported(seed: int, tmp_path: Path) -> None:
    assert list(misread_matrices(range(seed * 5, seed * 5 + 5), tmp_path)) == []


@pytest.mark.long
def test_cells_of_many_matrices_are_read_or_reported(search_seed: int, tmp_path: Path) -> None:
    assert list(misread_matrices(range(search_seed, search_seed + 10_000), tmp_path)) == []


@pytest.mark.long
def test_additions_to_many_pages_are_reported(search_seed: int, tmp_path: Path) -> None:
    assert list(misread(range(search_seed, search_seed + 10_000), tmp_path)) == []


@pytest.mark.parametrize("seed", seeds(range(20), quick=5))
def test_lists_are_read_or_reported(seed: int, tmp_path: Path) -> None:
    assert list(misread_lists(range(seed * 5, seed * 5 + 5), tmp_path)) == []


@pytest.mark.long
def test_many_lists_are_read_or_reported(search_seed: int, tmp_path: Path) -> None:
    assert list(misread_lists(range(search_seed, search_seed + 10_000), tmp_path)) == []
