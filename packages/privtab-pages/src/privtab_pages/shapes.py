"""The shape of a table, told from what its cells are: what operations require, what roles may do, or what actions need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, TypeAlias, cast

from privtab_pages.conditions import privileges_of
from privtab_pages.marks import Marks, actions_in
from privtab_pages.names import without_notes
from privtab_pages.role_names import AND_ABOVE, ROLE, roles_in
from privtab_pages.tables import Cell, Table

Form: TypeAlias = Literal["requires", "roles", "grants", "marks", "holders", "permissions"]
"""A condition in a cell; actions x roles; roles x actions; actions x the privileges that they require, all of them; lists."""
FORMS: Mapping[Form, str] = {
    "requires": "operations x what they require",
    "roles": "actions x roles",
    "grants": "roles x privileges",
    "marks": "actions x all the privileges that they require",
    "holders": "actions x the roles that may take them",
    "permissions": "roles x the actions that they may take",
}
COLUMNS: Mapping[Form, str] = {"roles": "roles", "grants": "privileges", "marks": "privileges"}
"""The names of columns of marks."""
_KNOWN = {
    "entity": "entity|object|resource|type|securable|securable object|entity type|object type",
    "operation": "operation|action|api|command|operation name",
    "requires": "requires|required privileges|required privilege|privileges|privilege|permissions|required permissions|required condition|required condition(s)",
    "effects": "on success|resultant privileges|effects|grants",
    "note": "notes|note|description|comment|comments|remarks|details|explanation|purpose|summary|effect",
}
HEADINGS: Mapping[str, Sequence[str]] = {part: names.split("|") for part, names in _KNOWN.items()}
"""The headings of columns that hold a part of a row."""
_WORDS: Mapping[str, re.Pattern[str]] = {
    "operation": re.compile(r"\b(?:operation|action|apis?|command|route|endpoint|method|request|protocol|statement)\b"),
    "requires": re.compile(r"\b(?:requires?|required|privileges?|permissions?)\b"),
    "entity": re.compile(r"\b(?:entity|object|resource|securable)\b"),
}
"""The words by which other headings tell their part."""
_CATEGORY = frozenset(("category", "area", "module", "section", "group", "feature area", "topic"))
_PRIVILEGE = re.compile(
    r"(?:select|insert|update|delete|create|drop|alter|read|write|execute|usage|ownership|grant|view|edit|list|describe|use|modify|uri|references|trigger|truncate|connect|temporary|control|index|all|append|get|put|post|patch|rwx)\b",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"\b(?:free|pro|premium|ultimate|enterprise|starter|business|basic|standard|plus|essentials?|trial|saas|self-managed|v?\d+(?:\.\d+)*)\b",
    re.IGNORECASE,
)
RIGHTS = re.compile(
    r"\b(?:roles?|permissions?|privileges?|access|authori[sz]\w+|rbac|acls?|rights|allowed|members?)\b", re.IGNORECASE
)
_MORE = re.compile(
    r"\b(?:requires?|required|needs?|needed|only|if|when|conditions?|approvals?|mfa|2fa|confirm\w*|audit(?:ed)?|logged|deprecated|supported|available|default|licen[cs]es?|den(?:y|ied)|forbidden|prohibited|blocked|restricted|cannot|not|without|except)\b"
)
"""Columns of marks that may ask for more, or turn a mark around."""
_ONLY = re.compile(r"\b(?:read|view)[ -]only\b")
_LEVELS = re.compile(
    r"levels?|objects?|(?:object|channel|entity|securable) types?|securables?|applies to|scopes?|resources?"
)
"""Headings of what a privilege can be granted on."""
_TURNED = re.compile(
    r"\b(?:cannot|can't|can\u2019t|not|den(?:y|ied|ies)|restrict\w*|forbidden|prohibited|blocked|disallowed|without|revoked|exclu\w+)\b",
    re.IGNORECASE,
)
"""Headings of tables whose marks may deny."""
LEAST = re.compile(r"\b(?:min|minimum|least|lowest)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:(?:min\.?|minimum|least|lowest|required|needed|allowed|authorized|default|user) )*(?:roles?|role\(s\))(?: (?:required|needed|allowed))?|who(?: can(?: do (?:it|this|that|so))?)?\??|(?:allowed|available|granted|permitted) (?:to|for)|(?:performed|done) by"
)
"""Headings of columns that name the roles that may take an action."""
_MAY = re.compile(
    r"(?:permissions?|privileges?|capabilit(?:y|ies)|abilit(?:y|ies)|rights|(?:permitted|allowed) actions|(?:what (?:they|it) )?can(?: do)?)"
)
"""Headings of columns that list what a role may do."""
_TASK = re.compile(r"(?:privileged |has )?(?:task|feature|function|capability|permission|activity|use case)s?\??")
_ONE_WORD = re.compile(r"[a-z][a-z0-9]*(?:[-_.:][a-z0-9]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*(?: ?[*\u2020]+)?")
"""The privileges of a table that says nothing else of them than what they are for."""
_ROLES = re.compile(r"(?:user )?roles?(?: name)?|principal")
_HOLDERS = frozenset(("role", "roles", "user", "user role", "role name", "principal", "group", "profile", "persona"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The form of a table, and the columns that hold its parts."""

    form: Form
    columns: Mapping[str, int]
    """The columns of `entity`, `operation`, `requires`, `effects`, `note`, `category` and `role`."""
    marked: Sequence[int] = ()
    """The columns of marks, or of lists of roles or actions."""
    marks: Marks | None = None
    lists: bool = False
    """True if cells of marks list the actions that a role may take on the entity of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Tells the shapes of the tables of a page."""

    columns: Mapping[str, str]
    """The heading of a part's column, where it is none of HEADINGS."""
    wanted: Form | None
    lines: Sequence[str]

    def of(self, table: Table) -> Shape | str:
        """The shape of a table, or why it has none."""
        shape = self._of_marks(table)
        if isinstance(shape, str) or (shape and self.wanted in (None, shape.form)):
            return shape
        listed = self._of_lists(table)
        if listed and self.wanted is None and any(map(_TURNED.search, (*table.headings[-1:], table.first.line))):
            return f"may say what is denied: if it allows, add `--shape {listed.form}`"
        if listed and self.wanted in (None, listed.form):
            return listed
        named = self._columns(table)
        if named is not None and self.wanted in (None, "requires"):
            return Shape(form="requires", columns=named)
        return "has no columns for operations and what these require, and no marks of roles"

    def _known(self, texts: Sequence[str]) -> dict[int, str]:
        """The part that each column holds whose heading tells it."""
        known = {at: part for part, names in HEADINGS.items() for at, text in enumerate(texts) if text in names}
        known |= {texts.index(name.lower()): part for part, name in self.columns.items() if name.lower() in texts}
        return known | {at: "category" for at, text in enumerate(texts) if at and text in _CATEGORY}

    def _of_lists(self, table: Table) -> Shape | None:
        """The shape of a table that says in words which roles may do what; None for other tables."""
        texts = [*map(heading, table.header.cells)]
        known = self._known(texts)
        parts = {part: at for at, part in known.items() if part in ("entity", "note", "category")}
        levels = [at for at, text in enumerate(texts) if _LEVELS.fullmatch(text)]
        parts |= {"entity": levels[0]} if len(levels) == 1 else {}
        marks = Marks.of((), self.lines)
        roles = [at for at, text in enumerate(texts) if text in _HOLDERS]
        may = [at for at, text in enumerate(texts) if _MAY.fullmatch(text)]
        if (
            roles == [0] and _ROLES.fullmatch(texts[0]) and not may and "requires" not in known.values()
        ):  # as in `role,resource,action`
            may = [at for at, part in known.items() if part == "operation"]
        if len(roles) == len(may) == 1 and (roles == [0] or "operation" not in known.values()):
            return Shape(form="permissions", columns={**parts, "role": roles[0]}, marked=may, marks=marks)
        named = [at for at, text in enumerate(texts) if at and _NAMED.fullmatch(text)]
        tasks = [at for at, text in enumerate(texts) if _TASK.fullmatch(text) or _WORDS["operation"].search(text)]
        if (
            len(named) != 1
            or len(tasks) != 1
            or "requires" in [known.get(at) for at in range(len(texts)) if at not in tasks]
        ):
            return None
        cells = [row.cell(named[0]) for row in table.rows if row.cell(named[0]).text]
        plain = sum(bool(roles_in(without_notes(cell)[0]) or AND_ABOVE.search(cell.text)) for cell in cells)
        if 2 * plain < len(cells) or not cells or 2 * sum(bool(_PLAN.search(cell.text)) for cell in cells) > len(cells):
            return None
        return Shape(form="holders", columns={**parts, "operation": tasks[0]}, marked=named, marks=marks)

    def _columns(self, table: Table) -> dict[str, int] | None:
        """The column of each part; None if the table has no operations with requirements."""
        texts = list(map(heading, table.header.cells))
        wanted = {**HEADINGS} | {part: [name.lower()] for part, name in self.columns.items()}
        known = {part: next(filter(texts.__contains__, wanted[part]), None) for part in HEADINGS}
        found = {part: texts.index(name) for part, name in known.items() if name is not None}
        for part in (part for part in _WORDS if part not in (*found, *self.columns)):
            others = [at for at, text in enumerate(texts) if at not in found.values() and _WORDS[part].search(text)]
            found |= {part: others[0]} if len(others) == 1 else {}
        others = [at for at, text in enumerate(texts) if at not in found.values() and _WORDS["operation"].search(text)]
        if "requires" not in found and {"operation", "entity"} <= found.keys() and len(others) == 1:
            # As in `API | Operation | Resource`: the operation is the privilege, which is one of few.
            called, privileges = _values(table, others[0]), _values(table, found["operation"])
            if 2 * len(privileges) <= len(called) and all(" " not in text for text in privileges):
                found |= {"requires": found["operation"], "operation": others[0]}
        levels = [at for at, text in enumerate(texts) if _LEVELS.fullmatch(text)]
        if "operation" not in found and "requires" in found and found["requires"] not in levels:
            # As in `Privilege | Levels`: each privilege is what may be done on each of its types, or in `Privilege | Purpose`.
            named = [row.cell(found["requires"]).text for row in table.rows]
            if len(levels) == 1 or ("note" in found and all(map(_ONE_WORD.fullmatch, named))):
                found |= {"operation": found["requires"]} | ({"entity": levels[0]} if levels else {})
        return found if {"operation", "requires"} <= found.keys() else None

    def _of_marks(self, table: Table) -> Shape | str | None:
        """The shape of a table of marks, or why it cannot be told; None for other tables."""
        texts = list(map(heading, table.header.cells))
        columns = [[row.cells[at] for row in table.rows if at < len(row.cells)] for at in range(len(texts))]
        marks = Marks.of((cell for cells in columns[1:] for cell in cells), self.lines)
        known = self._known(texts)
        free = [
            at
            for at in range(1, len(texts))
            if texts[at] and at not in known and not _MORE.search(_ONLY.sub("", texts[at]))
        ]
        marked = [at for at in free if _marked(columns[at], marks, role=bool(ROLE.search(texts[at])))]
        listed = [at for at in free if _listed(columns[at], marks)]
        allowing = sum(marks.allows(without_notes(cell)[0]) is True for at in marked for cell in columns[at])
        lists = sum(bool(actions_in(cell)) for at in listed for cell in columns[at])
        listing = lists > allowing and len(listed) > 1 and not _WORDS["operation"].search(texts[0])
        chosen = listed if listing else marked
        if not chosen or not (allowing or lists):
            return None
        empty = [at for at in free if at > chosen[0] and not any(cell.text or cell.lost for cell in columns[at])]
        empty = [at for at in empty if at < chosen[-1] or _PRIVILEGE.match(texts[at])]
        chosen = sorted({*chosen, *empty, *(at for at in free if ROLE.search(texts[at]))})
        if len(chosen) < 2:
            return None
        first = [at for at in range(chosen[0]) if known.get(at) not in ("note", "category")] or [0]
        parts = {part: at for at, part in known.items() if part in ("note", "category") and at not in chosen}
        called = [at for at in first if known.get(at) == "operation" or _WORDS["operation"].search(texts[at])]
        entity = [at for at in first if known.get(at) == "entity" and at not in called]
        if listing:
            parts["entity"] = first[0]
        else:
            others = [at for at in first if at not in entity]
            parts["operation"] = (called or others[1:2] if len(others) == 2 else called or others or first)[0]
            parts |= {"entity": entity[0]} if entity and entity[0] != parts["operation"] else {}
            if len(others) == 2 and not called:
                parts["category"] = others[0]
        form = self.wanted or self._form_of_marks(table, texts, chosen, marks)
        if form not in FORMS:
            return form
        return Shape(form=cast("Form", form), columns=parts, marked=chosen, marks=marks, lists=listing)

    def _form_of_marks(self, table: Table, texts: Sequence[str], marked: Sequence[int], marks: Marks) -> Form | str:
        """The form, or why it cannot be told."""
        names = [texts[at] for at in marked]
        roles = sum(bool(ROLE.search(name)) for name in names)
        privileges = sum(bool(_PRIVILEGE.match(name)) and not ROLE.search(name) for name in names)
        rows = [row.cells[0].text for row in table.rows if row.cells[0].text]
        holders = texts[0] in _HOLDERS or 2 * sum(bool(ROLE.search(text)) for text in rows) > len(rows) > 0
        required = marks.required
        if any(map(_TURNED.search, (*table.headings[-1:], texts[0]))):
            return "may say what is denied: if its marks allow, add `--shape roles`"
        if 2 * sum(bool(_PLAN.search(name)) for name in names) > len(names):
            return "may say what plans or versions have: if its columns are roles, add `--shape roles`"
        operations = bool(_WORDS["operation"].search(texts[0]))
        cells = [row.cells[at] for row in table.rows for at in marked if at < len(row.cells)]
        if operations and not roles and any(privileges_of(cell.text) for cell in cells):
            return "marks"
        if (
            roles > privileges
            and (not privileges or _TASK.fullmatch(texts[0]))
            and not required
            and texts[0] not in _HOLDERS
        ):
            return "roles"
        if privileges > roles and holders:
            return "grants"
        if (required or (privileges > 1 and operations)) and privileges > roles:
            return "marks"
        if not privileges and not required and not holders and any(map(RIGHTS.search, (*table.headings, *texts[:1]))):
            return "roles"
        return "may say what roles may do, or what actions require: add `--shape roles`, `--shape grants` or `--shape marks`"


def heading(cell: Cell) -> str:
    """The heading of a column, as headings are compared."""
    return cell.line.lower()


def _values(table: Table, at: int) -> set[str]:
    return {row.cells[at].line for row in table.rows if at < len(row.cells) and row.cells[at].text}


def _marked(cells: Sequence[Cell], marks: Marks, *, role: bool) -> bool:
    """Return whether most of a column's cells are marks, or denials and, in capitals, the privileges that are asked for."""
    texts = [without_notes(cell)[0] for cell in cells if cell.text]
    found = [text for text in texts if marks.allows(text) is not None or marks.allows(text.split()[0]) is not None]
    denied = len(texts) == len(cells) and any(marks.allows(text) is False for text in texts)
    named = sum(bool(privileges_of(text.split(" (")[0])) for text in texts) if denied else 0
    return bool(texts) and (3 * (len(found) + named) >= 2 * len(texts) or (role and bool(found)))


def _listed(cells: Sequence[Cell], marks: Marks) -> bool:
    """Return whether most cells of a column are marks or lists of actions."""
    filled = [cell for cell in cells if cell.text]
    known = sum(bool(marks.allows(cell.text) is not None or actions_in(cell)) for cell in filled)
    return bool(filled) and 3 * known >= 2 * len(filled)


def all_columns(table: Table) -> Iterator[tuple[int, list[Cell | None]]]:
    """Each column of a table with its cells, from its heading on."""
    yield from (
        (at, list(cells)) for at, cells in enumerate(zip_longest(*(row.cells for row in (table.header, *table.rows))))
    )
