"""Pages made from small random tables, with one addition: it is reported, and no row is other than its table says."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
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


@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
def test_an_addition_to_a_page_is_reported(seed: int, tmp_path: Path) -> None:
    assert list(misread(range(seed * 5, seed * 5 + 5), tmp_path)) == []


@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
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
