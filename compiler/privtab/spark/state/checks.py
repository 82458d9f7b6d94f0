"""Validate rows of Spark tables against a policy: SQL expressions accept ordinary rows, `row_checks` checks all others.

The expressions accept a row only if it is certainly valid and has no finding of its own. All other rows are checked one by one on
executors, by the same code as rows of files. So findings are the same for files and for Spark, and millions of valid rows need no
Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from privtab.characters import LONGEST_NAME, UNUSABLE
from privtab.ir.nodes import Program
from privtab.moments import WINDOW
from privtab.spark.state.schemas import CANONICAL
from privtab.state.names import StateNames
from privtab.state.raw import COLUMNS
from privtab.state.uses import uses

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INK = r"[^\p{Z}\p{Cc}]"
_END = r"(?<=[^\p{Z}\p{Cc}])\z"
"""Matches at the end if the last character is neither a space nor a control character, so that no warning is due."""
_NAME = r"(?:[^/%*?]++|%2F|%25)++"
_WILDCARD = r"[*?%]++\z"
"""Such names are not accepted here but checked row by row, as is every path with a `*` or `?`."""
_KIND = "(?i:users?|groups?|roles?):"
"""Names with such a prefix are checked row by row: they look like principals of another kind."""


def rejected_type(data_type: str) -> str | None:
    """The type of a column whose cells cannot be read as text; None if they can."""
    accepted = ("string", "tinyint", "smallint", "int", "bigint", "void")
    return None if data_type in accepted or data_type.startswith(("varchar", "char")) else data_type


def raw(df: DataFrame, table: str) -> DataFrame:
    """The columns of a table as strings, in their order; a missing column is null.

    `from` and `until` follow if there is one of them, timestamps as RFC 3339.
    """
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    window = WINDOW if set(WINDOW) & set(types) else ()

    def text(name: str) -> Column:
        if name not in types:
            return fn.lit(None).cast("string")
        if name in WINDOW and types[name] == "timestamp":
            return fn.date_format(f"`{name}`", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
        return fn.col(f"`{name}`").cast("string")

    return df.select(*(text(name).alias(name) for name in (*COLUMNS[table].names, *window)))


def ordinary(program: Program, table: str, window: Sequence[str] = ()) -> Column:
    """Whether a raw row is certainly valid, has no finding of its own and holds at any time; never null."""
    if table in ("attributes", "entities"):  # their rows are checked one by one, and with each other
        return fn.expr("false")
    ready = _Expressions(program)
    build: Mapping[str, Callable[[], Column]] = {
        "members": lambda: ready.bare("user", "user") & ready.entity("of"),
        "memberships": lambda: ready.member("user") & ready.bare("group", "group"),
        "assignments": ready.assignment,
        "grants": ready.grant,
        "owners": ready.owner,
        "service_admins": lambda: ready.bare("user", "user"),
    }
    # These columns are compared with lists of names, so their text is valid.
    listed = {"effect", "privilege"}
    good = build[table]()
    for column in COLUMNS[table].names:
        if column not in listed:
            good &= fn.coalesce(_usable(column), fn.expr("true"))
    for column in window:
        good &= fn.coalesce(column, fn.lit("")) == ""
    return fn.coalesce(good, fn.expr("false"))


def _usable(column: str) -> Column:
    """Whether a string has only characters allowed in names and is not too long; null for null."""
    return (
        fn.expr(f"is_valid_utf8(`{column}`)")
        & ~fn.col(column).rlike(f"[{UNUSABLE}]")
        & (fn.length(column) <= LONGEST_NAME)
    )


def canonical(table: str, window: Sequence[str] = ()) -> list[Column]:
    """The canonical columns of ordinary raw rows; aliases and sets of privileges are not resolved."""
    return [*_canonical(table), *(fn.lit(None).cast("string").alias(name) for name in window)]


def _canonical(table: str) -> list[Column]:
    col = fn.col

    def named(column: str, kind: str) -> Column:
        begins = col(column).startswith(f"{kind}:")
        return fn.when(begins, fn.substring(col(column), len(kind) + 2, 2**30)).otherwise(col(column)).alias(column)

    def place(column: str, prefix: str = "") -> list[Column]:
        entity = fn.when(col(column) != "", col(column))
        type_ = fn.substring_index(entity, ":", 1)
        path = fn.expr(f"case when `{column}` != '' then substr(`{column}`, instr(`{column}`, ':') + 1) end")
        return [type_.alias(f"{prefix}type"), path.alias(f"{prefix}path")]

    match table:
        case "members":
            return [named("user", "user"), *place("of")]
        case "memberships":
            return [named("user", "user"), named("group", "group")]
        case "assignments":
            return [col("principal"), named("role", "role"), *place("scope", "scope_")]
        case "grants":
            return [col("grantee"), col("effect"), col("privilege"), *place("entity")]
        case "owners":
            owner = fn.when(col("owner").contains(":"), col("owner")).otherwise(
                fn.concat(fn.lit("user:"), col("owner"))
            )
            return [*place("entity"), owner.alias("owner")]
        case "attributes" | "entities":
            return [fn.lit(None).cast("string").alias(name) for name in CANONICAL[table]]
        case _:
            return [named("user", "user")]


class _Expressions:
    """Conditions on raw cells, by the names of one policy."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = StateNames(program)

    def entity(self, column: str) -> Column:
        """Whether a cell is certainly an entity. Whether one with a flat id lies anywhere is found out row by row."""
        by_depth: dict[tuple[int, int], list[str]] = {}
        for type_, shape in self.names.shapes.items():
            if shape.flat is None:
                by_depth.setdefault((shape.depth, shape.most), []).append(re.escape(type_))
        shapes = (
            f"(?:{'|'.join(types)}):{'/'.join([_NAME] * depth)}"
            + (f"(?:/{_NAME}){{0,{most - depth}}}" if most > depth else "")
            for (depth, most), types in sorted(by_depth.items())
        )
        return fn.col(column).rlike(rf"\A(?:{'|'.join(shapes) or '(?!)'}){_END}")

    def principal(self, column: str, kinds: Sequence[str]) -> Column:
        return fn.col(column).rlike(rf"\A(?:{'|'.join(kinds)}):(?!{_KIND}|{_WILDCARD})[^\n]+{_END}")

    def bare(self, column: str, kind: str) -> Column:
        return fn.col(column).rlike(rf"\A(?:{kind}:)?(?!{_KIND}|{_WILDCARD}){_INK}[^\n]*{_END}")

    def member(self, column: str) -> Column:
        """Whether a cell is certainly a user, or a group if groups contain groups."""
        user = self.bare(column, "user")
        nested = "groups" in self.program.semantics.hierarchy
        return user | self.principal(column, ("group",)) if nested else user

    def grant(self) -> Column:
        """Whether a grant has a privilege that applies to the type and an effect that the policy supports."""
        names = [name for name in self.names.known_privileges() if name == name.strip()]
        binding = fn.when(fn.expr("false"), fn.expr("false"))
        for type_ in self.program.entities:
            grantable = [name for name in names if self.names.privileges_of(name, type_, "deny")]
            # `startswith` avoids building a string for each row.
            binding = binding.when(fn.col("entity").startswith(f"{type_}:"), fn.col("privilege").isin(grantable))
        effects = ["allow"] if self.program.semantics.deny == "none" else ["allow", "deny"]
        return (
            self.principal("grantee", self.program.semantics.grantees)
            & self.entity("entity")
            & fn.col("effect").isin(effects)
            & binding
        )

    def owner(self) -> Column:
        semantics = self.program.semantics.owner
        if semantics is None:
            return fn.expr("false")
        kinds = "|".join(semantics.kinds)
        bare = rf"{_INK}[^:\n]*" if "user" in semantics.kinds else r"(?!)"
        return fn.col("owner").rlike(
            rf"\A(?:(?:{kinds}):(?!{_KIND}|{_WILDCARD})[^\n]+|(?!:|{_WILDCARD}){bare}){_END}"
        ) & self.entity("entity")

    def assignment(self) -> Column:
        bound = {name: role.scope for name, role in self.program.roles.items() if role.scope is not None}
        role = fn.regexp_replace(fn.col("role"), r"\Arole:", "")
        no_scope = fn.coalesce(fn.col("scope"), fn.lit("")) == ""
        scope_type = fn.substring_index(fn.coalesce(fn.col("scope"), fn.lit("")), ":", 1)
        right_scope = fn.concat_ws("\n", role, scope_type).isin([f"{name}\n{type_}" for name, type_ in bound.items()])
        return (
            self.principal("principal", self.names.holders)
            & self.bare("role", "role")
            & (no_scope | self.entity("scope"))
            & (~role.isin(list(bound)) | right_scope)
        )


def row_warning(program: Program, table: str) -> Column | None:
    """The warning `S161` or `S162` about an ordinary row, as a struct; None if the table can have none."""
    used = uses(program)
    system = program.system
    advice: str | None
    match table:
        case "grants":
            old = {p.name: p.deprecated for p in program.privileges.values() if p.deprecated is not None}
            old |= {a.name: a.deprecated for a in program.aliases.values() if a.deprecated is not None}
            if not old:
                return None
            found = fn.when(fn.expr("false"), _warning("S161", "", None))
            for name, instead in old.items():
                found = found.when(
                    fn.col("privilege") == name, _warning("S161", f"`{name}` is deprecated", instead or None)
                )
            return found
        case "members":
            types = ", ".join(f"`{t}`" for t in sorted(used.member_types))
            advice = f"members count on {types}" if types else None
            found = fn.when(fn.expr("false"), _warning("S162", "", None))
            for type_ in program.entities:
                if type_ not in used.member_types:
                    warned = _warning("S162", f"no rule depends on the members of a `{type_}`", advice)
                    found = found.when(fn.substring_index(fn.col("of"), ":", 1) == type_, warned)
            return found
        case "memberships" if not used.state_groups:
            warned = _warning("S162", f"`{system}` takes groups only from the request", None)
            return fn.when(~fn.col("user").startswith("group:"), warned)
        case "service_admins" if not used.service_admins:
            message = "no row of this policy requires service administrators"
            return _warning("S162", message, "grant them what they need, in `grants`")
        case _:
            return None


def _warning(code: str, message: str, advice: str | None) -> Column:
    values = {"code": code, "severity": "warning", "message": message, "help": advice}
    return fn.struct(*(fn.lit(value).cast("string").alias(name) for name, value in values.items()))


def row_json(table: str, window: Sequence[str] = ()) -> Column:
    """The cells of a raw row as JSON text, in the format of `row_checks`: empty cells are left out."""
    names = (*COLUMNS[table].names, *window)
    return fn.to_json(fn.struct(*(fn.nullif(fn.col(c), fn.lit("")).alias(c) for c in names)))
