"""Derive the tables of the joins from a state: the principals of each holder, and bits for what a principal holds at a place.

As in the index, a role assigned within a scope is a separate principal, whose holdings are entered where they take effect. Its
name contains a line break, which no other principal's name may contain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.engines.plan import GrantSemantics
from privtab.spark.joins.flat import with_whole_path
from privtab.spark.joins.keys import further, keys
from privtab.spark.joins.levels import LevelReader
from privtab.spark.joins.places import ADMIN, EVERYWHERE, MEMBER, OWNER, BitKey, BitNumbers, chain
from privtab.spark.joins.text import bitwise_or, chosen, literal, one_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.spark.policies import OpenPolicy

PRINCIPAL, KEY, HOLDER = "__privtab_principal", "__privtab_key", "__privtab_holder"
WHOLE = "__privtab_whole"


def word(number: int) -> str:
    """The name of the column of a word."""
    return f"__privtab_word_{number}"


class Holdings:
    """Derives from the tables of a state everything that any row of the policy may need."""

    def __init__(
        self,
        policy: OpenPolicy,
        tables: Mapping[str, DataFrame],
        counts: Mapping[str, int],
        located: DataFrame | None,
    ) -> None:
        """`counts`: the number of rows of each table. Empty tables are left out of the plan, as each part of it costs time.

        `located`: the whole paths of entities with flat ids, if the policy has such.
        """
        program = policy.json
        self.semantics = GrantSemantics.read(program)
        self.numbers = BitNumbers(program, self.semantics)
        self.tables = tables
        self._names = policy.vocabulary
        self._located = located
        self._nonempty = {table for table, count in counts.items() if count}
        self._privileges = list(program["privileges"])
        self._reader = LevelReader(program)
        self._state_groups = "state" in program["semantics"]["groups"]
        self._nests_groups = "groups" in program["semantics"].get("hierarchy", ())
        self._used_kinds = {
            kind for rules in program["rules"].values() for rule in rules.values() for kind in _kinds(rule)
        }
        self._principal_types = {entity["principal"] for entity in program["entities"].values()}

    def held(self) -> DataFrame:
        """(principal, key, words): one row for each principal and place where the principal holds anything."""
        rows = reduce(lambda first, second: first.unionAll(second), [*self._grants(), *self._other_rows()])
        return rows.groupBy(PRINCIPAL, KEY).agg(*_any(self.numbers.words))

    def places(self, holdings: DataFrame) -> DataFrame:
        """(key, words): what any principal holds at a place."""
        return holdings.groupBy(KEY).agg(*_any(self.numbers.words))

    def principals(self, holdings: DataFrame) -> DataFrame:
        """(holder, principal) for each user, and for each group if requests name groups; only principals that hold anything."""
        assignments, memberships = self.tables["assignments"], self._memberships()
        holding = holdings.select(PRINCIPAL).distinct()
        direct = holding.where(f"{PRINCIPAL} LIKE 'user:%' OR {PRINCIPAL} LIKE 'group:%'").selectExpr(
            f"{PRINCIPAL} AS who", PRINCIPAL
        )
        assigned = assignments.selectExpr("principal AS who", f"{_role()} AS {PRINCIPAL}")
        pairs = direct.unionAll(assigned)
        if "memberships" in self._nonempty and (self._state_groups or self._nests_groups):
            user = "concat('user:', user)"
            who = f"CASE WHEN user LIKE 'group:%' THEN user ELSE {user} END" if self._nests_groups else user
            in_group = memberships.selectExpr(f"{who} AS who", "concat('group:', group) AS of")
            through_groups = in_group.join(assigned.withColumnRenamed("who", "of"), "of").select("who", PRINCIPAL)
            pairs = pairs.unionAll(in_group.selectExpr("who", f"of AS {PRINCIPAL}")).unionAll(through_groups)
        if not self.semantics.request_groups:
            pairs = pairs.where("who LIKE 'user:%'")
        return pairs.join(holding, PRINCIPAL, "left_semi").distinct().selectExpr(f"who AS {HOLDER}", PRINCIPAL)

    def _memberships(self) -> DataFrame:
        """The memberships that count: without groups of the state, those of groups in groups."""
        rows = self.tables["memberships"]
        return rows if self._state_groups else rows.where("user LIKE 'group:%'" if self._nests_groups else "false")

    def _entry(self, frame: DataFrame, principal: str, key: str, *bits: tuple[BitKey, str]) -> DataFrame:
        """Rows of `held`; `bits`: pairs of what is entered and the SQL condition under which it is."""
        words: dict[int, list[str]] = {}
        for bit_key, condition in bits:
            number, bit = self.numbers.bit(bit_key)
            words.setdefault(number, []).append(chosen([(condition, f"{bit}L")], "0L"))
        columns = (f"{bitwise_or(words.get(n, []))} AS {word(n)}" for n in range(self.numbers.words))
        return frame.selectExpr(f"{principal} AS {PRINCIPAL}", f"{key} AS {KEY}", *columns)

    def _grants(self) -> list[DataFrame]:
        """Grants, and those of roles within scopes."""
        grants = self.tables["grants"].where(one_of("privilege", self._privileges))
        if not self.semantics.denies:
            grants = grants.where("effect = 'allow'")
        words: dict[int, list[tuple[str, str]]] = {}
        for privilege in self._privileges:
            number, allowed = self.numbers.bit(("allow", privilege))
            _, denied = self.numbers.bit(("deny", privilege))
            value = f"CASE effect WHEN 'allow' THEN {allowed}L ELSE {denied}L END"
            words.setdefault(number, []).append((f"privilege = {literal(privilege)}", value))
        word_columns = [word(n) for n in range(self.numbers.words)]
        word_expressions = [f"{chosen(words.get(n, []), '0L')} AS {word(n)}" for n in range(self.numbers.words)]
        plain = grants.selectExpr(f"grantee AS {PRINCIPAL}", f"concat(type, ':', path) AS {KEY}", *word_expressions)
        if "assignments" not in self._nonempty or "grants" not in self._nonempty:
            return [plain]
        scoped = self._scoped().select("role", "scoped", "scope")
        on_and_above = f"explode({self._chain('type', 'path')}) AS scope"
        inside = self._with_whole_path(grants, "type", "path").selectExpr(
            "grantee AS role", f"concat(type, ':', path) AS {KEY}", on_and_above, *word_expressions
        )
        inside_scopes = inside.join(scoped, ["role", "scope"]).selectExpr(f"scoped AS {PRINCIPAL}", KEY, *word_columns)
        if not self.semantics.down:
            return [plain, inside_scopes]
        scope_ancestors = self._with_whole_path(self._scoped(), "scope_type", "scope_path").selectExpr(
            "role", "scoped", "scope", f"explode({self._chain('scope_type', 'scope_path')}) AS on"
        )
        above_scopes = plain.withColumnsRenamed({PRINCIPAL: "role", KEY: "on"}).join(
            scope_ancestors.where("on <> scope"), ["role", "on"]
        )
        return [
            plain,
            inside_scopes,
            above_scopes.selectExpr(f"scoped AS {PRINCIPAL}", f"scope AS {KEY}", *word_columns),
        ]

    def _other_rows(self) -> Iterator[DataFrame]:
        """Rows of `held` from all tables but grants."""
        tables, entity_key = self.tables, "concat(type, ':', path)"
        member = (MEMBER, "true")
        if "owners" in self._nonempty:
            yield self._entry(tables["owners"], "owner", entity_key, (OWNER, "true"))
        if "member" in self._used_kinds and "members" in self._nonempty:
            yield self._entry(tables["members"], "concat('user:', user)", entity_key, member)
        if "service_admin" in self._used_kinds and "service_admins" in self._nonempty:
            yield self._entry(tables["service_admins"], "concat('user:', user)", literal(EVERYWHERE), (ADMIN, "true"))
        if "member" in self._used_kinds and "group" in self._principal_types and "memberships" in self._nonempty:
            groups = self._memberships().select("group").distinct()
            for key in ("concat(':group/', group)", "concat(':group=', group)"):
                yield self._entry(groups, "concat('group:', group)", key, member)
        if "assignments" not in self._nonempty:
            return
        assignments = tables["assignments"].select("role", "scope_type", "scope_path").distinct()
        if "holds" in self._used_kinds:
            for key in ("concat(':role/', role)", "concat(':role=', role)"):
                yield self._entry(assignments, _role(), key, member)
        if self.semantics.roles:
            role_bits: list[tuple[BitKey, str]] = [
                (("role", r), f"role = {literal(r[5:])}") for r in self.semantics.roles
            ]
            declared_assignments = assignments.where(one_of("role", [role[5:] for role in self.semantics.roles]))
            scope_key = f"CASE WHEN scope_type IS NULL THEN '{EVERYWHERE}' ELSE concat(scope_type, ':', scope_path) END"
            yield self._entry(declared_assignments, _role(), scope_key, *role_bits)

    def _scoped(self) -> DataFrame:
        """The roles assigned within scopes: role, its scoped principal, and the scope."""
        rows = self.tables["assignments"].where("scope_type IS NOT NULL")
        return rows.selectExpr(
            "concat('role:', role) AS role", f"{_role()} AS scoped",
            "concat(scope_type, ':', scope_path) AS scope", "scope_type", "scope_path",
        ).distinct()  # fmt: skip

    def _with_whole_path(self, rows: DataFrame, type_: str, path: str) -> DataFrame:
        """Rows with the whole path of an entity in the column `WHOLE`, if the policy has flat ids."""
        if self._located is None:
            return rows
        return with_whole_path(rows, self._names, type_, path, self._located, WHOLE)

    def _chain(self, type_: str, path: str) -> str:
        """SQL array of the keys of an entity and of all entities that contain it, in rows as by `_with_whole_path`."""
        path = path if self._located is None else WHOLE
        arms: dict[str, list[str]] = {}
        for name, shape in self._reader.shapes.items():
            places = chain(self._reader, f"{name}/nearest" if shape.nested is not None else name)
            arms.setdefault(keys(path, places, further(path, shape)), []).append(name)
        return chosen(((one_of(type_, names), keys) for keys, names in arms.items()), "cast(null AS array<string>)")


def _any(words: int) -> list[Any]:
    return [F.expr(f"bit_or({word(n)})").alias(word(n)) for n in range(words)]


def _kinds(formula: object) -> Iterator[str]:
    """The keys of all mappings in a rule's JSON, which include the kinds of its nodes."""
    match formula:
        case Mapping():
            for name, value in formula.items():
                yield name
                yield from _kinds(value)
        case list():
            for part in formula:
                yield from _kinds(part)
        case _:
            return


def _role() -> str:
    """SQL expression for the principal of an assignment's role."""
    within = "concat('role:', role, char(10), scope_type, ':', scope_path)"
    return f"CASE WHEN scope_type IS NULL THEN concat('role:', role) ELSE {within} END"
