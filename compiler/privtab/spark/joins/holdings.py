"""The tables of a state as the joins take them: principals of everybody, and bits for what each principal holds at each place.

A role that is held within a scope is a principal of its own, as in the index: what it holds is entered where it takes effect.
No name of a principal holds a line break, so none imitates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from privtab.spark.joins.places import ADMIN, EVERYWHERE, MEMBER, OWNER, Held, Layout
from privtab.spark.joins.text import beginning, chosen, encoded, literal, one_of, united

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PRINCIPAL, KEY, HOLDER = "__privtab_principal", "__privtab_key", "__privtab_holder"


def word(number: int) -> str:
    """The column of a word."""
    return f"__privtab_word_{number}"


class Tables:
    """Derives what joins need from the tables of a state."""

    def __init__(self, layout: Layout, tables: Mapping[str, DataFrame]) -> None:
        self.layout = layout
        self.tables = tables
        sources = layout.engine.program["semantics"]["groups"]
        self._state_groups = "state" in sources

    def held(self) -> DataFrame:
        """(principal, key, words): one row for each principal and place where he holds anything that is asked for."""
        words = range(self.layout.words)
        frames = [*self._grants(), *self._facts()]
        rows = reduce(lambda one, other: one.unionAll(other), frames)
        return rows.groupBy(PRINCIPAL, KEY).agg(*(F.expr(f"bit_or({word(n)})").alias(word(n)) for n in words))

    def principals(self, held: DataFrame) -> DataFrame:
        """(who, principal) for each user, and each group where requests bring groups: who holds anything at all."""
        assignments, memberships = self.tables["assignments"], self._memberships()
        named = held.select(PRINCIPAL).distinct()
        direct = named.where(f"{PRINCIPAL} LIKE 'user:%' OR {PRINCIPAL} LIKE 'group:%'")
        assigned = assignments.select(F.col("principal").alias("who"), F.expr(_role()).alias(PRINCIPAL))
        in_group = memberships.select(
            F.expr("concat('user:', user)").alias("who"), F.expr("concat('group:', group)").alias("of")
        )
        through = in_group.join(assigned.withColumnRenamed("who", "of"), "of").select("who", PRINCIPAL)
        own = direct.selectExpr(f"{PRINCIPAL} AS who", PRINCIPAL)
        all_ = own.unionAll(in_group.selectExpr("who", f"of AS {PRINCIPAL}")).unionAll(assigned).unionAll(through)
        if not self.layout.meaning.request_groups:
            all_ = all_.where("who LIKE 'user:%'")
        return all_.join(named, PRINCIPAL, "left_semi").distinct().selectExpr(f"who AS {HOLDER}", PRINCIPAL)

    def _memberships(self) -> DataFrame:
        rows = self.tables["memberships"]
        return rows if self._state_groups else rows.where("false")

    def _entry(self, frame: DataFrame, principal: str, key: str, bits: Mapping[Held, str]) -> DataFrame:
        """Rows of `held`; `bits`: what is entered where a condition holds."""
        words: dict[int, list[str]] = {}
        for held, condition in bits.items():
            number, bit = self.layout.bit(held)
            words.setdefault(number, []).append(chosen([(condition, f"{bit}L")], "0L") if condition else f"{bit}L")
        columns = (f"{united(words.get(n, []))} AS {word(n)}" for n in range(self.layout.words))
        return frame.selectExpr(f"{principal} AS {PRINCIPAL}", f"{key} AS {KEY}", *columns)

    def _grants(self) -> list[DataFrame]:
        """Grants, and those of roles within scopes."""
        layout = self.layout
        asked = [one_of("privilege", layout.privileges), one_of("type", sorted(layout.reader.chains))]
        if not layout.meaning.denies:
            asked.append("effect = 'allow'")
        grants = self.tables["grants"].where(" AND ".join(asked))
        words: dict[int, list[tuple[str, str]]] = {}
        for privilege in layout.privileges:
            number, allowed = layout.bit(("allow", privilege))
            _, denied = layout.bit(("deny", privilege))
            value = f"CASE effect WHEN 'allow' THEN {allowed}L ELSE {denied}L END"
            words.setdefault(number, []).append((f"privilege = {literal(privilege)}", value))
        entered = [f"{chosen(words.get(n, []), '0L')} AS {word(n)}" for n in range(layout.words)]
        kept = [word(n) for n in range(layout.words)]
        plain = grants.selectExpr(f"grantee AS {PRINCIPAL}", f"concat(type, ':', path) AS {KEY}", *entered)
        scoped = self._scoped().selectExpr("role", "scoped", "concat(scope_type, ':', scope_path) AS scope")
        above = grants.selectExpr(
            "grantee AS role",
            f"concat(type, ':', path) AS {KEY}",
            f"explode({self._chain('type', 'path')}) AS scope",
            *entered,
        )
        within = above.join(scoped, ["role", "scope"]).selectExpr(f"scoped AS {PRINCIPAL}", KEY, *kept)
        if not layout.meaning.down:
            return [plain, within]
        ancestors = self._scoped().selectExpr(
            "role", "scoped", "concat(scope_type, ':', scope_path) AS scope",
            f"explode({self._chain('scope_type', 'scope_path')}) AS on",
        )  # fmt: skip
        over = plain.withColumnsRenamed({PRINCIPAL: "role", KEY: "on"}).join(
            ancestors.where("on <> scope"), ["role", "on"]
        )
        return [plain, within, over.selectExpr(f"scoped AS {PRINCIPAL}", f"scope AS {KEY}", *kept)]

    def _facts(self) -> list[DataFrame]:
        """All that is no grant."""
        layout, tables = self.layout, self.tables
        types = sorted(layout.types)
        on = "concat(type, ':', path)"
        always: Mapping[Held, str] = {MEMBER: ""}
        found = []
        if layout.asks("owner") or layout.meaning.owner_holds:
            found.append(self._entry(tables["owners"].where(one_of("type", types)), "owner", on, {OWNER: ""}))
        if layout.members:
            members = tables["members"].where(one_of("type", sorted(layout.members)))
            found.append(self._entry(members, "concat('user:', user)", on, always))
        if layout.asks("service_admin"):
            found.append(self._entry(tables["service_admins"], "concat('user:', user)", f"'{EVERYWHERE}'", {ADMIN: ""}))
        if layout.names_groups:
            groups = self._memberships().select("group").distinct()
            who = "concat('group:', group)"
            found.append(self._entry(groups, who, f"concat(':group/', {encoded('group')})", always))
            found.append(self._entry(groups, who, "concat(':group=', group)", always))
        assignments = tables["assignments"].select("role", "scope_type", "scope_path").distinct()
        if layout.asks("holds"):
            found.append(self._entry(assignments, _role(), f"concat(':role/', {encoded('role')})", always))
            found.append(self._entry(assignments, _role(), "concat(':role=', role)", always))
        if layout.roles:
            given: dict[Held, str] = {("role", role): f"role = {literal(role[5:])}" for role in layout.roles}
            declared = assignments.where(one_of("role", [role[5:] for role in layout.roles]))
            where = f"CASE WHEN scope_type IS NULL THEN '{EVERYWHERE}' ELSE concat(scope_type, ':', scope_path) END"
            found.append(self._entry(declared, _role(), where, given))
        return found

    def _scoped(self) -> DataFrame:
        """The roles that are held within scopes: role, its principal there, and the scope."""
        rows = self.tables["assignments"].where("scope_type IS NOT NULL")
        return rows.selectExpr(
            "concat('role:', role) AS role", f"{_role()} AS scoped", "scope_type", "scope_path"
        ).distinct()

    def _chain(self, type_: str, path: str) -> str:
        """The keys of an entity and of all that contain it."""
        arms: dict[str, list[str]] = {}
        for name, chain in self.layout.reader.chains.items():
            keys = ", ".join(f"concat({literal(link + ':')}, {beginning(path, depth)})" for link, depth in chain)
            arms.setdefault(f"array({keys})", []).append(name)
        return chosen(((one_of(type_, names), keys) for keys, names in arms.items()), "array()")


def _role() -> str:
    """The principal of an assignment's role."""
    within = "concat('role:', role, char(10), scope_type, ':', scope_path)"
    return f"CASE WHEN scope_type IS NULL THEN concat('role:', role) ELSE {within} END"
