"""Derive the tables of the joins from a state: the principals of each holder, and bits for what a principal holds at a place.

As in the index, a role assigned within a scope is a separate principal, whose holdings are entered where they take effect. Its
name contains a line break, which no other principal's name may contain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, assert_never

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.attributes import Attribute, Attributes, Kind
from privtab.engines.plan import GrantSemantics
from privtab.spark.frames import folded
from privtab.spark.joins.bits import ADMIN, MEMBER, OWNER, BitKey, BitNumbers, nodes
from privtab.spark.joins.flat import with_whole_path
from privtab.spark.joins.keys import further, keys
from privtab.spark.joins.levels import LevelReader
from privtab.spark.joins.places import EVERYWHERE, chain
from privtab.spark.joins.text import bitwise_or, chosen, literal, one_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.spark.policies import OpenPolicy

PRINCIPAL, KEY, HOLDER = "__privtab_principal", "__privtab_key", "__privtab_holder"
WHOLE = "__privtab_whole"
VALUES = "__privtab_values"
THROUGH = "__privtab_through"
"""The names of the roles through which a holder has a principal, if requests may name active roles."""
OF_USER = ":user="
"""Begins the keys of users among those of entities, none of which begins with a colon."""


def word(number: int) -> str:
    """The name of the column of a word."""
    return f"__privtab_word_{number}"


def value_field(kind: str, name: str) -> str:
    """The name of the field of `VALUES` with an attribute of users or of entities."""
    return f"{kind}_{folded(name)}"


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
        self.attributes = Attributes.from_json(program.get("attributes", {})).from_origin("state")
        """The attributes whose values the state may have."""
        self._privileges = list(program["privileges"])
        self._reader = LevelReader(program)
        self._state_groups = "state" in program["semantics"]["groups"]
        self._nests_groups = "groups" in program["semantics"].get("hierarchy", ())
        self._nests_roles = "roles" in program["semantics"].get("hierarchy", ())
        self._used_kinds = {
            kind for rules in program["rules"].values() for rule in rules.values() for kind, _ in nodes(rule)
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
        """(holder, principal) for each user, and for each group if requests name groups; only principals that hold anything.

        If requests may name active roles, all roles, and `THROUGH`.
        """
        memberships = self._memberships()
        holding = holdings.select(PRINCIPAL).distinct()
        through = ["cast(null AS string) AS through"] if self.semantics.active_roles else []
        direct = holding.where(f"{PRINCIPAL} LIKE 'user:%' OR {PRINCIPAL} LIKE 'group:%'").selectExpr(
            f"{PRINCIPAL} AS who", PRINCIPAL, *through
        )
        assigned = self._assigned()
        pairs = direct.unionAll(assigned)
        if "memberships" in self._nonempty and (self._state_groups or self._nests_groups):
            user = "concat('user:', user)"
            who = f"CASE WHEN user LIKE 'group:%' THEN user ELSE {user} END" if self._nests_groups else user
            in_group = memberships.selectExpr(f"{who} AS who", "concat('group:', group) AS of")
            through_groups = in_group.join(assigned.withColumnRenamed("who", "of"), "of").select(*assigned.columns)
            pairs = pairs.unionAll(in_group.selectExpr("who", f"of AS {PRINCIPAL}", *through)).unionAll(through_groups)
        if not self.semantics.request_groups:
            pairs = pairs.where("who LIKE 'user:%'")
        counting = pairs.join(holding, PRINCIPAL, "left_semi")
        if not through:
            return counting.distinct().selectExpr(f"who AS {HOLDER}", PRINCIPAL)
        rows = counting.where("through IS NULL").unionByName(pairs.where("through IS NOT NULL"))
        return rows.groupBy(F.col("who").alias(HOLDER), PRINCIPAL).agg(F.collect_set("through").alias(THROUGH))

    def _assigned(self) -> DataFrame:
        """(who, principal of a role) for each assignment; if requests may name active roles, with `through`."""
        assignments = self.tables["assignments"]
        if not self.semantics.active_roles:
            return assignments.selectExpr("principal AS who", f"{_role()} AS {PRINCIPAL}")
        found = assignments.selectExpr("principal AS who", f"{_role()} AS {PRINCIPAL}", "role AS through")
        if not self._nests_roles:
            return found
        # A role is also active with a role that holds it, where the scopes of both overlap.
        scope = "concat(scope_type, ':', scope_path)"
        chain = self.chain("scope_type", "scope_path")
        located = self.with_whole_path(assignments, "scope_type", "scope_path")
        outer = located.where("principal NOT LIKE 'role:%'").selectExpr(
            "principal AS who", "role AS through", f"{scope} AS outer_scope", f"{chain} AS outer_chain"
        )
        inner = located.where("principal LIKE 'role:%'").selectExpr(
            "substr(principal, 6) AS through", "role", f"{scope} AS inner_scope", f"{chain} AS inner_chain"
        )
        in_outer = "(outer_scope IS NULL OR array_contains(inner_chain, outer_scope))"
        in_inner = "(inner_scope IS NULL OR array_contains(outer_chain, inner_scope))"
        both = f"CASE WHEN {in_inner} THEN outer_scope ELSE inner_scope END"
        brought = (
            outer.join(inner, "through")
            .where(f"{in_outer} OR {in_inner}")
            .selectExpr("who", f"concat_ws(char(10), concat('role:', role), {both}) AS {PRINCIPAL}", "through")
        )
        return found.unionAll(brought)

    def values(self) -> DataFrame:
        """(key, values): the values of a user or an entity, null where there is none, or more than one for what is no set."""
        owners: tuple[tuple[Kind, str], ...] = (("user", "user IS NOT NULL"), ("entity", "user IS NULL"))
        fields = [
            f"'{value_field(kind, name)}', {_value(attribute, f'{owner} AND attribute = {literal(name)}')}"
            for kind, owner in owners
            for name, attribute in self.attributes.of(kind).items()
        ]
        key = f"CASE WHEN user IS NULL THEN concat(type, ':', path) ELSE concat('{OF_USER}', user) END"
        values = F.expr(f"named_struct({', '.join(fields)})").alias(VALUES)
        return self.tables["attributes"].groupBy(F.expr(key).alias(KEY)).agg(values)

    def _memberships(self) -> DataFrame:
        """The memberships that count: without groups of the state, those of groups in groups."""
        rows = self.tables["memberships"]
        return rows if self._state_groups else rows.where("user LIKE 'group:%'" if self._nests_groups else "false")

    def entry(self, frame: DataFrame, principal: str, key: str, *bits: tuple[BitKey, str], more: str = "") -> DataFrame:
        """Rows of `held`; `bits`: pairs of what is entered and the SQL condition under which it is; `more`: another column."""
        words: dict[int, list[str]] = {}
        for bit_key, condition in bits:
            number, bit = self.numbers.bit(bit_key)
            words.setdefault(number, []).append(chosen([(condition, f"{bit}L")], "0L"))
        columns = (f"{bitwise_or(words.get(n, []))} AS {word(n)}" for n in range(self.numbers.words))
        return frame.selectExpr(f"{principal} AS {PRINCIPAL}", f"{key} AS {KEY}", *columns, *filter(None, [more]))

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
        on_and_above = f"explode({self.chain('type', 'path')}) AS scope"
        inside = self.with_whole_path(grants, "type", "path").selectExpr(
            "grantee AS role", f"concat(type, ':', path) AS {KEY}", on_and_above, *word_expressions
        )
        inside_scopes = inside.join(scoped, ["role", "scope"]).selectExpr(f"scoped AS {PRINCIPAL}", KEY, *word_columns)
        if not self.semantics.down:
            return [plain, inside_scopes]
        scope_ancestors = self.with_whole_path(self._scoped(), "scope_type", "scope_path").selectExpr(
            "role", "scoped", "scope", f"explode({self.chain('scope_type', 'scope_path')}) AS on"
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
            yield self.entry(tables["owners"], "owner", entity_key, (OWNER, "true"))
        if "member" in self._used_kinds and "members" in self._nonempty:
            yield self.entry(tables["members"], "concat('user:', user)", entity_key, member)
        if "service_admin" in self._used_kinds and "service_admins" in self._nonempty:
            yield self.entry(tables["service_admins"], "concat('user:', user)", literal(EVERYWHERE), (ADMIN, "true"))
        if "member" in self._used_kinds and "group" in self._principal_types and "memberships" in self._nonempty:
            groups = self._memberships().select("group").distinct()
            for key in ("concat(':group/', group)", "concat(':group=', group)"):
                yield self.entry(groups, "concat('group:', group)", key, member)
        if "assignments" not in self._nonempty:
            return
        assignments = tables["assignments"].select("role", "scope_type", "scope_path").distinct()
        if "holds" in self._used_kinds:
            for key in ("concat(':role/', role)", "concat(':role=', role)"):
                yield self.entry(assignments, _role(), key, member)
        if self.semantics.roles:
            role_bits: list[tuple[BitKey, str]] = [
                (("role", r), f"role = {literal(r[5:])}") for r in self.semantics.roles
            ]
            declared_assignments = assignments.where(one_of("role", [role[5:] for role in self.semantics.roles]))
            scope_key = f"CASE WHEN scope_type IS NULL THEN '{EVERYWHERE}' ELSE concat(scope_type, ':', scope_path) END"
            yield self.entry(declared_assignments, _role(), scope_key, *role_bits)

    def _scoped(self) -> DataFrame:
        """The roles assigned within scopes: role, its scoped principal, and the scope."""
        rows = self.tables["assignments"].where("scope_type IS NOT NULL")
        return rows.selectExpr(
            "concat('role:', role) AS role", f"{_role()} AS scoped",
            "concat(scope_type, ':', scope_path) AS scope", "scope_type", "scope_path",
        ).distinct()  # fmt: skip

    def with_whole_path(self, rows: DataFrame, type_: str, path: str) -> DataFrame:
        """Rows with the whole path of an entity in the column `WHOLE`, if the policy has flat ids."""
        if self._located is None:
            return rows
        return with_whole_path(rows, self._names, type_, path, self._located, WHOLE)

    def chain(self, type_: str, path: str) -> str:
        """SQL array of the keys of an entity and of all entities that contain it, in rows as by `with_whole_path`."""
        path = path if self._located is None else WHOLE
        arms: dict[str, list[str]] = {}
        for name, shape in self._reader.shapes.items():
            places = chain(self._reader, f"{name}/nearest" if shape.nested is not None else name)
            arms.setdefault(keys(path, places, further(path, shape)), []).append(name)
        return chosen(((one_of(type_, names), keys) for keys, names in arms.items()), "cast(null AS array<string>)")


def _any(words: int) -> list[Any]:
    return [F.expr(f"bit_or({word(n)})").alias(word(n)) for n in range(words)]


def _value(attribute: Attribute, condition: str) -> str:
    """SQL aggregate of the rows of `attributes` that fulfil a condition: the value that they give."""
    texts = f"CASE WHEN {condition} THEN value END"
    single = f"CASE WHEN min({texts}) = max({texts}) THEN min({texts}) END"
    match attribute.type:
        case "set":
            return f"CASE WHEN count({texts}) > 0 THEN collect_set({texts}) END"
        case "bool":
            return f"{single} = 'true'"
        case "integer":
            return f"try_cast({single} AS bigint)"
        case "text" | "enum":
            return single
        case _:
            assert_never(attribute.type)


def _role() -> str:
    """SQL expression for the principal of an assignment's role."""
    within = "concat('role:', role, char(10), scope_type, ':', scope_path)"
    return f"CASE WHEN scope_type IS NULL THEN concat('role:', role) ELSE {within} END"
