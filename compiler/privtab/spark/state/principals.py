"""Build the `people` part of a sharded state: the principals of each user, computed by joins and written by one task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn

from privtab.bundle.archive import json_bytes
from privtab.ir.nodes import Program
from privtab.moments import parts_of
from privtab.request import Entity
from privtab.spark.state.encoding import Texts, large
from privtab.spark.state.files import Root
from privtab.spark.state.worker import bundle_of
from privtab.state.index import without_revision
from privtab.state.json_columns import Level, Part, stamped
from privtab.state.names import uses
from privtab.state.nodes import State
from privtab.state.principal_rows import scoped_principal
from privtab.state.shards import FURTHER_BY_NAME, PEOPLE, people_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = "`part` string, `name` string, `key` string, `value` string"
REPORT = "`revision` string, `bytes` bigint, `json_bytes` bigint, `sha256` string, `principals` bigint, `file` string"


def people_rows(
    program: Program,
    assignments: DataFrame | None,
    memberships: DataFrame | None,
    service_admins: DataFrame | None,
    granted: DataFrame,
) -> DataFrame:
    """Every entry of the `people` part: its member of the document, the name, the key below it, the value.

    The tables have valid rows without duplicates, or are None. `granted`: one column `who` with every principal that a grant or an
    owner names. Unused parts are left out of the plan: Spark takes longer to plan than to join.
    """
    used = uses(program)
    col, lit = fn.col, fn.lit
    none = lit(None).cast("string")
    groups, above = None, None
    if memberships is not None and "groups" in program.semantics.hierarchy:
        nested = col("user").startswith("group:")
        bare = fn.substring("user", len("group:") + 1, 2**30).alias("user")
        above = _groups(memberships.filter(nested).select(bare, "group"))
        memberships = memberships.filter(~nested)
    if memberships is not None and used.state_groups:
        groups = _groups(memberships)
    users = [_named(granted.select(col("who").alias("principal"), col("who").alias("text")), "user", "text")]
    if groups is not None:
        group_principals = groups.select("name", col("principal_").alias("text"))
        users.append(group_principals if used.group_membership else _mattering(group_principals, "text", granted, []))
    lone = [_named(granted.select(col("who").alias("principal"), col("who").alias("text")), "group", "text")]
    if above is not None:
        containing = above.select("name", col("principal_").alias("text"))
        lone.append(containing if used.group_membership else _mattering(containing, "text", granted, []))
        if used.group_membership:
            lone.append(above.select("name", fn.concat(lit("group:"), "name").alias("text")))
    # A dummy row: without any rows, Spark would start no worker, and the bundle would not be written.
    parts = [granted.sparkSession.range(1).select(lit(""), lit(""), none, none)]
    if assignments is not None:
        declared = [f"role:{name}" for name in program.roles]
        assigned = assignments.select(
            "principal",
            fn.concat(lit("role:"), "role").alias("role"),
            fn.when(col("scope_type").isNotNull(), fn.concat_ws(":", "scope_type", "scope_path")).alias("scope"),
        )
        matters = assigned if used.holds else _mattering(assigned, "role", granted, declared)
        scoped_pairs = assigned.filter("scope is not null").select("role", "scope").distinct()
        named = scoped_pairs.mapInArrow(_scoped_names, "`role_` string, `scope_` string, `text` string")
        plain = matters.filter("scope is null").select("principal", col("role").alias("text"))
        within = matters.filter("scope is not null").join(
            named, (col("role") == col("role_")) & (col("scope") == col("scope_"))
        )
        principals_of_names = plain.unionAll(within.select("principal", "text"))
        users += [_named(principals_of_names, "user", "text"), *_through(groups, principals_of_names, "text")]
        lone += [_named(principals_of_names, "group", "text"), *_through(above, principals_of_names, "text")]
        if used.group_membership:
            lone.append(_named(assigned.withColumn("text", col("principal")), "group", "text"))
        parts.append(named.select(lit("within"), "text", "role_", "scope_"))
        if declared:
            scoped = assigned.filter(col("scope").isNotNull() & col("role").isin(declared))
            by_scope = [_named(scoped, "user", "scope", "role"), *_through(groups, scoped, "scope", "role")]
            parts.append(_by_scope("scoped", by_scope))
            if used.request_groups:
                of_groups = [_named(scoped, "group", "scope", "role"), *_through(above, scoped, "scope", "role")]
                parts.append(_by_scope("group_scoped", of_groups))
    parts.append(_flat("principals", users))
    if used.request_groups:
        parts.append(_flat("group_principals", lone))
    if service_admins is not None:
        parts.append(service_admins.select(lit("service_admins"), "user", none, none))
    return reduce(lambda a, b: a.unionAll(b), parts).toDF("part", "name", "key", "value")


def _groups(memberships: DataFrame) -> DataFrame:
    """Users or groups (`name`) and the groups that they are in (`principal_`)."""
    return memberships.select(fn.col("user").alias("name"), fn.concat(fn.lit("group:"), "group").alias("principal_"))


def _named(rows: DataFrame, kind: str, *columns: str) -> DataFrame:
    """The rows about principals of one kind, with the `name` of the principal."""
    name = fn.substring(fn.col("principal"), len(kind) + 2, 2**30).alias("name")
    return rows.filter(fn.col("principal").startswith(f"{kind}:")).select(name, *columns)


def _through(groups: DataFrame | None, rows: DataFrame, *columns: str) -> list[DataFrame]:
    """The rows about groups, repeated for the users in them."""
    if groups is None:
        return []
    return [groups.join(rows, fn.col("principal_") == fn.col("principal")).select("name", *columns)]


def _mattering(rows: DataFrame, column: str, granted: DataFrame, declared: list[str]) -> DataFrame:
    """The rows whose principal has a grant or an owned entity, or is a declared role."""
    known = granted.select(fn.col("who").alias("__who")).distinct()
    if not declared:
        return rows.join(known, fn.col(column) == fn.col("__who"), "left_semi")
    by_name = fn.col(column).isin(declared)
    return rows.filter(by_name).unionAll(
        rows.filter(~by_name).join(known, fn.col(column) == fn.col("__who"), "left_semi")
    )


def _flat(part: str, frames: list[DataFrame]) -> DataFrame:
    rows = reduce(lambda a, b: a.unionAll(b), frames)
    text = fn.array_join(fn.array_sort(fn.collect_set("text")), "\n").alias("value")
    flat = rows.groupBy("name").agg(text)
    return flat.select(fn.lit(part), "name", fn.lit(None).cast("string"), "value")


def _by_scope(part: str, frames: list[DataFrame]) -> DataFrame:
    rows = reduce(lambda a, b: a.unionAll(b), frames)
    text = fn.array_join(fn.array_sort(fn.collect_set("role")), "\n").alias("value")
    return rows.groupBy("name", "scope").agg(text).select(fn.lit(part), "name", "scope", "value")


def _scoped_names(batches: Iterator[Any]) -> Iterator[Any]:
    """For `mapInArrow`: add to roles and scopes the name of the scoped principal."""
    for batch in batches:
        roles, scopes = (batch.column(position).to_pylist() for position in (0, 1))
        texts = [scoped_principal(role, scope) for role, scope in zip(roles, scopes, strict=True)]
        columns = [pa.array(column, pa.string()) for column in (roles, scopes, texts)]
        yield pa.RecordBatch.from_arrays(columns, names=["role_", "scope_", "text"])


def write_people(
    program: Program, shards: list[str], root: Root, more: Mapping[str, Any], batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow` over one partition: write the bundle from its entries; the result is one row of REPORT.

    `more`: additional metadata, which do not affect the revision.
    """
    schema = pa.schema([(name, pa.string()) for name in ("part", "name", "key", "value")])
    table = _table(batches, schema)
    revision, text = people_document(table, shards)
    principals = int(pc.sum(pc.equal(table.column("part"), "principals")).as_py() or 0)
    document = PeopleDocument(revision=revision, text=text, principals=principals)
    report = write_part(program, document, len(shards), root, more)
    yield pa.RecordBatch.from_arrays([pa.array([value]) for value in report.values()], names=list(report))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleDocument:
    """The `people` part as JSON text."""

    revision: str
    text: bytes
    principals: int
    windows: bool = False
    """Whether users or groups have something for a time."""
    further: tuple[str, ...] = ()
    """The parts that only some policies have (`state.shards.FURTHER_BY_NAME`)."""


def write_part(
    program: Program, document: PeopleDocument, shards: int, root: Root, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the bundle of the `people` part; the result has the columns of REPORT."""
    revision, text = document.revision, document.text
    content = bundle_of(
        program, PEOPLE, revision, text, shards, more, windows=document.windows, further=document.further
    )
    mark = f"-{hashlib.sha256(json_bytes(more)).hexdigest()[:10]}" if more else ""
    file = f"bundles/people-{revision}{mark}.tar.gz"
    root.write(file, content)
    report = {
        "revision": revision, "bytes": len(content), "json_bytes": len(text),
        "sha256": hashlib.sha256(content).hexdigest(), "principals": document.principals, "file": file,
    }  # fmt: skip
    windows = {"windows": True} if document.windows else {}
    return report | windows | ({"further": list(document.further)} if document.further else {})


def needs_rows(program: Program) -> bool:
    """Whether the part is made from rows as for files, because it has more than joins find."""
    return uses(program).roles_of_roles or bool(program.attributes.from_origin("state"))


def people_of_rows(program: Program, rows: State, granted: Iterable[str], shards: Iterable[str]) -> PeopleDocument:
    """The part from rows, made as for files.

    `rows`: assignments, memberships, service administrators, and attributes of users; `granted`: every principal that a grant or an owner names.
    """
    owned = Entity(next(iter(program.entities)), "-")
    document = people_part(
        without_revision(program, replace(rows, owners=tuple((owned, who) for who in granted))), shards
    )
    always, windows = parts_of(document)
    names = {*always["principals"], *windows.get("principals", ())}
    return PeopleDocument(
        revision=always["revision"],
        text=json_bytes(document),
        principals=len(names),
        windows=bool(windows),
        further=tuple(part for part in FURTHER_BY_NAME if part in always),
    )


def _table(batches: Iterator[Any], schema: Any) -> Any:
    found = list(batches)
    return pa.Table.from_batches(found).cast(schema) if found else schema.empty_table()


def people_document(table: Any, shards: list[str]) -> tuple[str, bytes]:
    """The revision and the text of the `people` part."""
    columns = {part: _sorted(table.filter(pc.equal(table.column("part"), part))) for part in _PARTS}
    name = ('"', '":true', ",")
    return stamped(
        {
            **{part: _part(columns[part][::2], [('"', '":"', '",'), ("", "", "")], '"') for part in _FLAT},
            **{part: _scopes(*columns[part]) for part in _SCOPED},
            "within": _part(columns["within"], [('"', '":["', '"],'), ("", '","', ""), ("", "", "")], '"]'),
            "service_admins": _part(columns["service_admins"][:1], [name]),
            "shards": _part([large(sorted(shards))], [name]),
        }
    )


_FLAT, _SCOPED = ("principals", "group_principals"), ("scoped", "group_scoped")
_PARTS = (*_FLAT, *_SCOPED, "within", "service_admins")


def _sorted(table: Any) -> tuple[Texts, Texts, Texts]:
    ordered = table.sort_by([("name", "ascending"), ("key", "ascending")])
    name, key, value = (
        large(ordered.column(column).combine_chunks().fill_null("")) for column in ("name", "key", "value")
    )
    return name, key, value


def _part(columns: Sequence[Texts], around: Iterable[tuple[str, str, str]], end: str = "") -> Part:
    """A flat object from its sorted members, each with the texts of one row."""
    numbers = np.arange(len(columns[0]), dtype=np.int64)
    levels = tuple(Level(texts, *style) for texts, style in zip(columns, around, strict=True))
    return Part(lambda: [[numbers] * len(levels)], levels, end)


def _scopes(name: Texts, key: Texts, value: Texts) -> Part:
    """Name → scope → list of roles, from roles separated by line breaks."""
    names = name.dictionary_encode()
    numbers = np.arange(len(key), dtype=np.int64)
    rows = (np.asarray(names.indices).astype(np.int64), numbers)
    levels = (Level(names.dictionary, '"', '":{', "},"), Level(key, '"', '":', ","))
    return Part(lambda: [rows], levels, "}", (numbers + 1, [roles.split("\n") for roles in value.to_pylist()]))


def people_writer(program: Program, shards: list[str], root: Root, more: Mapping[str, Any]) -> Any:
    """`write_people` for one program and one list of shards."""
    return partial(write_people, program, shards, root, more)
