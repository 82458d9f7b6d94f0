"""The data source reads the matrix, and takes over the filters of a query."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, datasource
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.errors import UsageError
from privtab.spark import entitlements, register
from privtab.spark.matrix.broadcast import opened
from privtab.spark.source import PUSHDOWN, EntitlementReader, EntitlementSource, NarrowedReader

PUSHES = hasattr(datasource, "EqualTo")
"""Whether this Spark hands filters to sources in Python: 4.1 and later."""
pushing = pytest.mark.skipif(not PUSHES, reason="Spark 4.0 hands no filters to sources in Python")

POLICY = "gravitino/1.1.0"
# In full: of a Connect session it is the server that opens it, wherever that was started.
STATE = str(Path(__file__).resolve().parents[2] / "policy_src" / "gravitino" / "state.yaml")
TABLES = ("demo/hive/sales/orders", "demo/hive/sales/customers")


@pytest.fixture(scope="module")
def entities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("entities") / "tables.csv"
    file.write_text("type,path\n" + "".join(f"table,{path}\n" for path in TABLES))
    return file


def reader(**options: str) -> EntitlementReader:
    full_reader = EntitlementSource({"policy": POLICY, "state": STATE, **options}).reader(None)
    assert isinstance(full_reader, EntitlementReader)
    return full_reader


def narrowed(**options: str) -> NarrowedReader:
    narrowed_reader = reader(pushdown="true", **options)
    assert isinstance(narrowed_reader, NarrowedReader)
    return narrowed_reader


def load(spark: SparkSession, **options: str) -> DataFrame:
    register(spark)
    return spark.read.format("privtab").options(policy=POLICY, state=STATE, **options).load()


@pytest.mark.slow
def test_the_source_has_the_rows_of_entitlements(spark: SparkSession, entities: Path) -> None:
    frame = load(spark, entities=str(entities), operations="load, drop")
    keys = [f"table:{path}" for path in TABLES]
    expected = entitlements(POLICY, STATE, keys, operations=["load", "drop"], spark=spark)
    assert frame.schema == expected.schema
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, expected.collect()))


@pytest.mark.slow
def test_one_frame_in_several_queries_has_all_its_rows_in_each(spark: SparkSession) -> None:
    frame = load(spark, operations="load", partitions="1")
    of = {user: frame.where(F.col("user") == user) for user in ("bob", "carl")}
    both = of["bob"].unionAll(of["carl"]).groupBy("user").count()
    counts = {row["user"]: row["count"] for row in both.collect()}
    assert set(counts) == {"bob", "carl"}
    whole = {row["user"]: row["count"] for row in frame.groupBy("user").count().collect()}
    assert len(whole) > 2
    assert {user: whole[user] for user in counts} == counts


@pytest.mark.slow
def test_columns_may_be_chosen_by_the_schema(spark: SparkSession) -> None:
    register(spark)
    reading = spark.read.format("privtab").schema("path string, user string")
    found = reading.options(policy=POLICY, state=STATE, operations="table/load", users="alice").load()
    assert found.columns == ["path", "user"]
    assert {tuple(row) for row in found.collect()} >= {("demo/hive/sales/orders", "alice")}
    for schema, message in (
        ("pth string", "no column `pth`; did you mean `path`?"),
        ("user int", "has type string, not int"),
    ):
        with pytest.raises(PySparkException, match=re.escape(message)):
            spark.read.format("privtab").schema(schema).options(policy=POLICY, state=STATE).load().collect()


@pytest.mark.slow
def test_filters_of_a_query_reach_the_matrix_on_request(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    register(spark, pushdown=True)
    try:
        loaded = spark.read.format("privtab").options(policy=POLICY, state=STATE, pushdown="true").load()
        frame = loaded.where("user = 'bob' and operation in ('load', 'drop') and type = 'table' and via_kind = 'grant'")
        found = {(row.user, row.operation, row.path) for row in frame.select("user", "operation", "path").collect()}
        assert found == {("bob", "load", "demo/hive/sales/customers"), ("bob", "load", "demo/hive/sales/orders_old")}
        frame.explain()
    finally:
        spark.conf.unset(PUSHDOWN)
    if not PUSHES:
        return
    plan = capsys.readouterr().out
    # Spark looks at what the source did not take over, and at nothing else.
    assert "via_kind" in plan.partition("Filter")[2]
    assert "bob" not in plan


@pushing
def test_pushed_filters_make_the_matrix_smaller() -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull

    everything = reader().partitions()
    pushed = narrowed()
    left = [IsNotNull(("user",)), GreaterThan(("path",), "a"), EqualTo(("via_kind",), "grant")]
    taken = [EqualTo(("user",), "bob"), In(("operation",), ("load", None)), EqualTo(("type",), "table")]
    assert list(pushed.pushFilters([*left, *taken])) == left
    assert sum(len(p.value) for p in pushed.partitions()) < sum(len(p.value) for p in everything)
    state = pushed.__getstate__()
    assert opened(state["_shipped"]).users == ["bob"]
    rows = [row for part in pushed.partitions() for batch in pushed.read(part) for row in batch.to_pylist()]
    assert {(row["user"], row["operation"], row["type"]) for row in rows} == {("bob", "load", "table")}


@pushing
@pytest.mark.parametrize(
    "values",
    [
        [("user", "bob"), ("user", "alice")],
        [("principal", "role:analyst")],
        [("operation", "none")],
        [("path", "none")],
        [("user", "somebody else")],
        [("user", "")],
        [("user", "BOB")],
        [("user", ())],
    ],
)
def test_filters_that_leave_nothing(values: list[tuple[str, str | tuple[str, ...]]]) -> None:
    from pyspark.sql.datasource import EqualTo, Filter, In

    filters: list[Filter] = [
        In((column,), value) if isinstance(value, tuple) else EqualTo((column,), value) for column, value in values
    ]
    pushed = narrowed()
    assert not list(pushed.pushFilters(filters))
    pushed.__getstate__()
    assert sum(batch.num_rows for part in pushed.partitions() for batch in pushed.read(part)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"polcy": "x"}, "unknown option `polcy`; did you mean `policy`?"),
        ({"policy": "gravitino/1.2"}, "no policy `gravitino/1.2`"),
        ({"operations": "lod"}, "unknown operation `lod`; did you mean `load`?"),
        ({"with": "template"}, "option `with` is not JSON"),
        ({"with": '{"template": "x"}'}, "is not an entity"),
        ({"users": "[1]"}, "not a list of strings"),
        ({"partitions": "0"}, "give a number, 1 or more"),
        ({"ways": "any"}, "unknown ways `any`"),
        ({"users": " "}, "option `users` is empty"),
        ({"principals": "bob"}, "`bob` is not a principal"),
        ({"pushdown": "yes"}, "give true or false"),
        ({"path": "a.csv", "entities": "b.csv"}, "give one of them"),
        ({"state": ""}, "give the option `state`"),
    ],
)
def test_wrong_options_say_what_is_wrong(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        reader(**options)
    assert message in str(raised.value)


@pytest.mark.slow
def test_an_error_reaches_the_caller(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(PySparkException, match="give the option `state`"):
        spark.read.format("privtab").option("policy", POLICY).load().collect()


@pushing
def test_filters_find_only_users_of_the_matrix(tmp_path: Path) -> None:
    from pyspark.sql.datasource import EqualTo

    policy, state = tmp_path / "shop.yaml", tmp_path / "state.yaml"
    policy.write_text(
        "privtab: 1\nsystem: shop\nversion: '1'\nentities: {shop: }\nprivileges: [READ]\n"
        "tables: {shop: {enter: anyone}}\n"
    )
    state.write_text("grants:\n- {grantee: 'user:ann', effect: allow, privilege: READ, entity: 'shop:s'}\n")
    for user, rows in (("ann", 1), ("zed", 0)):
        pushed = narrowed(policy=str(policy), state=str(state))
        assert not list(pushed.pushFilters([EqualTo(("user",), user)]))
        pushed.__getstate__()
        assert sum(batch.num_rows for part in pushed.partitions() for batch in pushed.read(part)) == rows
