"""Check each row of a state by itself: its value, or a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from privtab.base.hints import did_you_mean, listed_names
from privtab.base.moments import ALWAYS, WINDOW_COLUMNS, Window, WrongTime, parse_moment
from privtab.base.names import PRINCIPAL_KINDS, mixed_scripts
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.attribute_rows import value_problem
from privtab.state.findings import StateFinding
from privtab.state.names import RowProblem, StateNames, UsedParts
from privtab.state.nodes import ENTITIES, Cells, ColumnRows, State
from privtab.state.raw import NAMED, RawRow, RawState

T = TypeVar("T")
Reader: TypeAlias = Callable[[RawRow], Cells | None]
"""What reads a row; None after reporting what is wrong with it."""

MAX_FINDINGS_OF_KIND = 10_000
"""Limit on findings of one kind in one table; the others are only counted."""


class Checker:
    """One pass over the rows of a state. A row's method returns its value, or None after reporting an error."""

    def __init__(self, program: Program, raw: RawState, *, alone: bool = False) -> None:
        """`alone`: each row is checked without the others, for readers that distribute the rows of a state and compare them themselves.

        So `S152` (a role that no other row mentions) is not reported, and every finding is, however many there are of its kind.
        """
        self.program = program
        self.raw = raw
        self.alone = alone
        self.readers: dict[str, Reader] = {
            "members": self.member,
            "memberships": self.membership,
            "assignments": self.assignment,
            "grants": self.grant,
            "owners": self.owner,
            "service_admins": self.service_admin,
            "attributes": self.attribute,
            ENTITIES: self.placement,
        }
        """What reads a row of each table."""
        self.names = StateNames(program)
        self.uses = UsedParts.of(program)
        self.findings: list[StateFinding] = list(raw.findings)
        self.valid_rows: dict[str, Sequence[RawRow]] = {}
        self.finding_counts: Counter[tuple[str, str, str, Literal["error", "warning", "note"]]] = Counter()
        self.grantees: set[str] = set()
        self.grantable: dict[tuple[str, str], RowProblem | None] = {}
        self.roles: dict[str, str | None] = {}
        self.windows: dict[str, Sequence[Window]] = {}
        """By table that has any: one for each valid row."""
        self.deprecated = {p.name: p.deprecated for p in program.privileges.values() if p.deprecated is not None}
        self.deprecated |= {a.name: a.deprecated for a in program.aliases.values() if a.deprecated is not None}

    def table(self, name: str) -> Sequence[Any]:
        """The valid rows of one table; repetitions are reported and omitted."""
        read, telling = self.readers[name], _TELLING.get(name)
        self.valid_rows[name] = valid_rows = list[RawRow]()
        if name not in self.raw.rows:
            return ()
        first_rows: dict[tuple[Cells, Window], int] = {}
        values: list[Cells] = []
        windows: list[Window] = []
        for row in self.raw.rows[name]:
            found = self.value(read, row)
            if found is None:
                continue
            value, window = found
            first = first_rows.setdefault((value[:telling], window), row.number)
            if first == row.number:
                values.append(value)
                valid_rows.append(row)
                windows.append(window)
                self.look_alikes(row)
            else:
                self.warn(
                    row, StateFinding.REPEATED, f"the row says the same as row {first} of `{name}`", "leave it out"
                )
        if any(window != ALWAYS for window in windows):
            self.windows[name] = tuple(windows)
        return ColumnRows.of(name, values)

    def value(self, read: Reader, row: RawRow) -> tuple[Cells, Window] | None:
        """The value of a row and its window; None after reporting an error."""
        value = read(row)
        window = ALWAYS if row.cells.keys().isdisjoint(WINDOW_COLUMNS) else self.window(row)
        return None if value is None or window is None else (value, window)

    def needs_no_finding(self, row: RawRow) -> bool:
        """Return whether a row, apart from its window, is valid without any finding; reports nothing."""
        before = self.findings, self.finding_counts
        self.findings, self.finding_counts = [], Counter()
        valid = self.readers[row.table](row) is not None and not self.findings
        self.findings, self.finding_counts = before
        return valid

    def window(self, row: RawRow) -> Window | None:
        """The window of a row that has an edge; None after reporting what is wrong with it."""
        edges: list[int | None] = []
        for name, no_edge in zip(WINDOW_COLUMNS, ALWAYS, strict=True):
            text = row.cells.get(name)
            try:
                edges.append(no_edge if text is None else parse_moment(text))
            except WrongTime as error:
                self.error(row, RowProblem("S170", f"`{name}`: `{text}` {error}", error.help))
                edges.append(None)
        begin, end = edges
        if begin is None or end is None:
            return None
        if end <= begin:
            until, since = row.cells.get("until"), row.cells.get("from")
            message, advice = f"`until`, {until}, is not after `from`, {since}", "exchange or correct them"
            if since is None or until is None:
                edge = f"`until`, {until}, is before" if since is None else f"`from`, {since}, is after"
                message, advice = f"{edge} every moment that counts", "correct it, or leave it out"
            self.error(row, RowProblem("S170", f"the row never holds: {message}", advice))
            return None
        return Window(begin, end)

    def note_unused_names(self, state: State) -> None:
        """Note groups without members that rows mention, and roles that are not held but whose name resembles one that is."""
        in_state = self.program.semantics.groups == ("state",)
        groups_with_members = state.distinct(("memberships", "group")) | self.program.semantics.everyones
        known_roles = state.distinct(("assignments", "role")) | set(self.program.roles)
        visited: set[str] = set()
        for table, name in (("grants", "grantee"), ("assignments", "principal"), ("owners", "owner")):
            column = state.column(table, name)
            found = [p for p in column.names if p not in visited and p.startswith(("group:", "role:"))]
            visited |= set(found)
            without_holders = [
                p for p in found if p.partition(":")[2] not in (groups_with_members if p[0] == "g" else known_roles)
            ]
            for row, principal in sorted((column.where([p])[0], p) for p in without_holders):
                kind, _, bare = principal.partition(":")
                if kind == "group" and in_state:
                    advice = did_you_mean(bare, groups_with_members)
                    self.note(self.valid_rows[table][row], "S164", f"`{principal}` has no members", advice)
                elif kind == "role" and (advice := did_you_mean(bare, known_roles)) is not None:
                    self.note(self.valid_rows[table][row], "S165", f"`{principal}` is not assigned", advice)

    def grant(self, row: RawRow) -> Cells | None:
        """One row of `grants`."""
        cells = row.cells
        grantee = self.principal(row, "grantee", self.program.semantics.grantees)
        entity = self.entity(row, "entity")
        effect = cells["effect"].lower()
        privilege = cells["privilege"]
        if effect not in {"allow", "deny"}:
            advice = did_you_mean(effect, ("allow", "deny")) or "an effect is `allow` or `deny`"
            self.error(row, RowProblem("S132", f"unknown effect `{cells['effect']}`", advice))
        elif effect == "deny" and self.program.semantics.deny == "none":
            message = f"`{self.program.system}` has no denials"
            self.error(row, RowProblem("S133", message, "what is not allowed is refused: leave the row out"))
            effect = ""
        problem = self.grant_problem(privilege, entity.type if entity is not None else None)
        if problem is not None:
            self.error(row, problem)
        if grantee is None or entity is None or problem is not None or effect not in {"allow", "deny"}:
            return None
        if privilege in self.deprecated:
            self.warn(row, "S161", f"`{privilege}` is deprecated", self.deprecated[privilege] or None)
        return grantee, effect, privilege, str(entity)

    def owner(self, row: RawRow) -> Cells | None:
        """One row of `owners`."""
        entity = self.entity(row, "entity")
        semantics = self.program.semantics.owner
        if semantics is None:
            self.error(row, RowProblem("S140", f"`{self.program.system}` has no owners", "leave the row out"))
            return None
        found = self.accepted(row, self.names.principal(row.cells["owner"], PRINCIPAL_KINDS, bare="user"))
        if found is None:
            return None
        kind, name = found
        if kind not in semantics.kinds:
            message = f"`{row.cells['owner']}` is a {kind}; only a {' or a '.join(semantics.kinds)} can be an owner"
            self.error(row, RowProblem("S141", message))
            return None
        return None if entity is None else (str(entity), f"{kind}:{name}")

    def member(self, row: RawRow) -> Cells | None:
        """One row of `members`."""
        user = self.bare(row, "user", "user")
        entity = self.entity(row, "of")
        if user is None or entity is None:
            return None
        if entity.type not in self.uses.member_types:
            types = ", ".join(f"`{t}`" for t in sorted(self.uses.member_types))
            advice = f"members count on {types}" if types else None
            self.warn(row, "S162", f"no rule depends on the members of a `{entity.type}`", advice)
        return user, str(entity)

    def membership(self, row: RawRow) -> Cells | None:
        """One row of `memberships`."""
        user = self.bare(row, "user", "user", self.names.member)
        group = self.bare(row, "group", "group")
        if user is None or group is None:
            return None
        if not self.uses.state_groups and not user.startswith("group:"):
            self.warn(row, "S162", f"`{self.program.system}` takes groups only from the request")
        return user, group

    def assignment(self, row: RawRow) -> Cells | None:
        """One row of `assignments`."""
        principal = self.principal(row, "principal", self.names.holders)
        role = self.bare(row, "role", "role")
        scope = self.entity(row, "scope") if "scope" in row.cells else None
        has_scope = "scope" in row.cells or _inherits_scope(self.program, principal, role)
        problem = self.scope(role, scope, has_scope=has_scope) if role is not None else None
        if problem is not None:
            self.error(row, problem)
        if principal is None or role is None or problem is not None or (scope is None and "scope" in row.cells):
            return None
        advice = self.advice(role)
        if advice is not None:
            self.warn(row, "S152", f"role `{role}` is not declared, and no row grants it anything", advice)
        return principal, role, None if scope is None else str(scope)

    def service_admin(self, row: RawRow) -> Cells | None:
        """One row of `service_admins`."""
        if not self.uses.service_admins:
            advice = "grant them what they need, in `grants`"
            self.warn(row, "S162", "no row of this policy requires service administrators", advice)
        user = self.bare(row, "user", "user")
        return None if user is None else (user,)

    def attribute(self, row: RawRow) -> Cells | None:
        """The value of a row of `attributes`; None after reporting what is wrong with it."""
        cells = row.cells
        if ("user" in cells) == ("entity" in cells):
            message = f"the row names {'a user and an entity' if 'user' in cells else 'neither a user nor an entity'}"
            self.error(row, RowProblem("S190", message, "a value belongs to one `user` or to one `entity`"))
            return None
        user = self.bare(row, "user", "user") if "user" in cells else None
        entity = self.entity(row, "entity") if "entity" in cells else None
        if user is None and entity is None:
            return None
        problem = value_problem(self.program, entity, cells["attribute"], cells["value"])
        if problem is not None:
            self.error(row, problem)
            return None
        return cells["attribute"], cells["value"], user, None if entity is None else str(entity)

    def placement(self, row: RawRow) -> Cells | None:
        """One row, without whether what contains the entity lies anywhere."""
        if not self.program.flat:
            message = f"no type of `{self.program.system}` has flat ids"
            self.warn(row, "S185", message, "the path of an entity says where it lies: leave the table out")
            return None
        entity, parent = self.entity(row, "entity"), self.entity(row, "parent")
        if entity is None or parent is None:
            return None
        if entity.type not in self.program.flat:
            message = f"ids of `{entity.type}` are not flat: the path of `{entity}` says where it lies"
            self.error(row, RowProblem("S181", message, "leave the row out"))
            return None
        known = vocabulary(self.program).containers(entity.type)
        if parent.type not in known:
            types = " or a ".join(f"`{type_}`" for type_ in known)
            self.error(
                row, RowProblem("S181", f"`{entity}` cannot lie in `{parent}`", f"a `{entity.type}` lies in a {types}")
            )
            return None
        return str(entity), str(parent), row.cells.get("name")

    def scope(self, role: str, scope: Entity | None, *, has_scope: bool) -> RowProblem | None:
        """Why a role cannot be assigned for a scope; an undeclared role can be assigned for any."""
        declared = self.program.roles.get(role)
        if declared is None or not declared.scopes:
            return None
        types = listed_names(declared.scopes, last="or")
        shapes = listed_names(map(self.names.shape, declared.scopes), last="or")
        advice = f"write the scope as {shapes}"
        if not has_scope:
            return RowProblem("S150", f"role `{role}` is assigned for one {types}, and no scope is given", advice)
        if scope is not None and scope.type not in declared.scopes:
            return RowProblem("S151", f"`{scope}` is not a scope for role `{role}`: it must be a {types}", advice)
        return None

    def advice(self, role: str) -> str | None:
        """The advice for a role that has no effect but whose name resembles a declared one; none if other rows may mention the role."""
        if self.alone or f"role:{role}" in self.grantees:
            return None
        if role not in self.roles:
            self.roles[role] = self.names.similar_declared_role(role)
        return self.roles[role]

    def grant_problem(self, privilege: str, type_: str | None) -> RowProblem | None:
        """Why a privilege cannot be granted; without a type (the entity is wrong), only whether it is known."""
        if type_ is None:
            return None if self.names.privileges(privilege) is not None else self.names.grantable(privilege, "")
        key = privilege, type_
        if key not in self.grantable:
            self.grantable[key] = self.names.grantable(privilege, type_)
        return self.grantable[key]

    def principal(self, row: RawRow, column: str, allowed: tuple[str, ...]) -> str | None:
        """The value of a `kind:name` cell; None after reporting what is wrong with it."""
        found = self.accepted(row, self.names.principal(row.cells[column], allowed))
        return None if found is None else row.cells[column]

    def bare(
        self, row: RawRow, column: str, kind: str, read: Callable[[str, str], str | RowProblem] | None = None
    ) -> str | None:
        """The value of a cell with a name of one kind; None after reporting what is wrong with it."""
        return self.accepted(row, (read or self.names.bare)(row.cells[column], kind))

    def entity(self, row: RawRow, column: str) -> Entity | None:
        """The value of an entity cell; None after reporting what is wrong with it."""
        return self.accepted(row, self.names.entity(row.cells[column]))

    def accepted(self, row: RawRow, found: T | RowProblem) -> T | None:
        """The value read from a cell; None after reporting a problem."""
        if isinstance(found, RowProblem):
            self.error(row, found)
            return None
        return found

    def look_alikes(self, row: RawRow) -> None:
        """Warn about names that mix scripts: letters of another script make another name, although it looks the same."""
        for column, text in row.cells.items():
            if column in NAMED and (mixed := mixed_scripts(text)) is not None:
                self.warn(row, "S118", f"a name in `{text}` mixes scripts: {mixed}", "write it in one script")

    def error(self, row: RawRow, problem: RowProblem) -> None:
        """Report an error, which removes the row from the state."""
        self._report(row, problem, "error")

    def warn(self, row: RawRow, code: str, message: str, advice: str | None = None) -> None:
        """Report an oddity of a row that stays in the state."""
        self._report(row, RowProblem(code, message, advice), "warning")

    def note(self, row: RawRow, code: str, message: str, advice: str | None = None) -> None:
        """Note a probable mistake in a valid row."""
        self._report(row, RowProblem(code, message, advice), "note")

    def report_omitted(self) -> None:
        """Report how many findings were left out beyond the limit."""
        for (path, table, code, severity), number in self.finding_counts.items():
            if number > MAX_FINDINGS_OF_KIND:
                omitted = number - MAX_FINDINGS_OF_KIND
                self.findings.append(StateFinding.of_more(path, table, omitted, code, severity))

    def _report(self, row: RawRow, problem: RowProblem, severity: Literal["error", "warning", "note"]) -> None:
        kind = row.path, row.table, problem.code, severity
        self.finding_counts[kind] += 1
        if self.finding_counts[kind] > MAX_FINDINGS_OF_KIND and not self.alone:
            return
        self.findings.append(
            StateFinding(
                place=row.place,
                message=problem.message,
                code=problem.code,
                severity=severity,
                help=problem.help,
                row=row.cells,
            )
        )


_TELLING = {"entities": 2}
"""How many cells tell the rows of a table apart, where not all do."""


def _inherits_scope(program: Program, principal: str | None, role: str | None) -> bool:
    """Return whether a role is held by one that is declared for scopes of its types alone, and so within these scopes."""
    kind, _, holder = (principal or "").partition(":")
    held_role, holding = program.roles.get(role or ""), program.roles.get(holder)
    if kind != "role" or held_role is None or holding is None or not holding.scopes:
        return False
    return {*holding.scopes} <= {*held_role.scopes}
