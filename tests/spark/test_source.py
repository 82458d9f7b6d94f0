"""The data source reads the matrix, and takes over the filters of a query."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull

from privtab.errors import UsageError
from privtab.spark import entitlements, register
from privtab.spark.matrix.travel import opened
from privtab.spark.source import EntitlementReader, EntitlementSource

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
    made = EntitlementSource({"policy": POLICY, "state": STATE, **options}).reader(None)  # type: ignore[arg-type]
    assert isinstance(made, EntitlementReader)
    return made


def load(spark: SparkSession, **options: str) -> DataFrame:
    register(spark)
    return spark.read.format("privtab").options(policy=POLICY, state=STATE, **options).load()


def test_the_source_has_the_rows_of_entitlements(spark: SparkSession, entities: Path) -> None:
    frame = load(spark, entities=str(entities), operations="load, drop")
    keys = [f"table:{path}" for path in TABLES]
    wanted = entitlements(POLICY, STATE, keys, operations=["load", "drop"], spark=spark)
    assert frame.schema == wanted.schema
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, wanted.collect()))


def test_filters_of_a_query_reach_the_matrix(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    frame = load(spark).where(
        "user = 'bob' and operation in ('load', 'drop') and type = 'table' and via_kind = 'grant'"
    )
    found = {(row.user, row.operation, row.path) for row in frame.select("user", "operation", "path").collect()}
    assert found == {("bob", "load", "demo/hive/sales/customers"), ("bob", "load", "demo/hive/sales/orders_old")}
    frame.explain()
    plan = capsys.readouterr().out
    # Spark looks at what the source did not take over, and at nothing else.
    assert "via_kind" in plan.partition("Filter")[2]
    assert "bob" not in plan


def test_what_is_pushed_makes_the_matrix_smaller() -> None:
    asked = reader()
    everything = asked.partitions()
    asked = reader()
    left = [IsNotNull(("user",)), GreaterThan(("path",), "a"), EqualTo(("via_kind",), "grant")]
    taken = [EqualTo(("user",), "bob"), In(("operation",), ("load", None)), EqualTo(("type",), "table")]
    assert list(asked.pushFilters([*left, *taken])) == left
    assert sum(len(p.value) for p in asked.partitions()) < sum(len(p.value) for p in everything)
    state = asked.__getstate__()
    assert opened(state["_shipped"]).world.people.labels == ["user:bob"]
    rows = [row for part in asked.partitions() for batch in asked.read(part) for row in batch.to_pylist()]
    assert {(row["user"], row["operation"], row["type"]) for row in rows} == {("bob", "load", "table")}


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ([EqualTo(("user",), "bob"), EqualTo(("user",), "alice")], 0),
        ([EqualTo(("principal",), "role:analyst")], 0),
        ([EqualTo(("operation",), "none")], 0),
        ([EqualTo(("path",), "none")], 0),
        ([EqualTo(("user",), "somebody else")], 0),
        ([In(("user",), ())], 0),
    ],
)
def test_filters_that_leave_nothing(filters: list[EqualTo], rows: int) -> None:
    asked = reader()
    assert not list(asked.pushFilters(filters))  # type: ignore[arg-type]
    asked.__getstate__()
    assert sum(batch.num_rows for part in asked.partitions() for batch in asked.read(part)) == rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"polcy": "x"}, "unknown option `polcy`; did you mean `policy`?"),
        ({"policy": "gravitino/1.2"}, "no policy `gravitino/1.2`"),
        ({"operations": "lod"}, "unknown operation `lod`; did you mean `load`?"),
        ({"with": "template"}, "option `with` is no JSON"),
        ({"with": '{"template": "x"}'}, "is not an entity"),
        ({"users": "[1]"}, "no list of texts"),
        ({"partitions": "0"}, "give a number, 1 or more"),
        ({"ways": "any"}, "unknown ways `any`"),
    ],
)
def test_wrong_options_say_what_is_wrong(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        reader(**options)
    assert message in str(raised.value)


def test_an_error_reaches_the_caller(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(PySparkException, match="give the option `state`"):
        spark.read.format("privtab").option("policy", POLICY).load().collect()
