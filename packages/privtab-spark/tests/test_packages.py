"""Jars that a session fetches, and what they need."""

from __future__ import annotations

import pytest

from privtab.base import UsageError
from privtab_spark.jobs._session import EXTENSIONS, PACKAGES, with_packages

DELTA, ICEBERG = "io.delta:delta-spark_2.13:4.0.0", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"


def test_well_known_ones_bring_their_settings() -> None:
    found = with_packages([DELTA, ICEBERG], {PACKAGES: f"a:b:1,{DELTA}"}, remote=False)
    assert found[PACKAGES] == f"a:b:1,{DELTA},{ICEBERG}"
    assert [name.rpartition(".")[2] for name in found[EXTENSIONS].split(",")] == [
        "DeltaSparkSessionExtension", "IcebergSparkSessionExtensions",
    ]  # fmt: skip
    assert "spark.sql.catalog.spark_catalog" in found


def test_explicit_settings_stay() -> None:
    settings = {EXTENSIONS: "mine", "spark.sql.catalog.spark_catalog": "ours"}
    assert with_packages([DELTA], settings, remote=False) == settings | {PACKAGES: DELTA}
    assert with_packages([], settings, remote=True) == settings
    assert with_packages(["org.postgresql:postgresql:42.7.4"], {}, remote=False) == {
        PACKAGES: "org.postgresql:postgresql:42.7.4"
    }


@pytest.mark.parametrize("package", ["delta", "io.delta:delta-spark_2.13", "a:b:1,c:d:2", "a::1", ""])
def test_invalid_packages(package: str) -> None:
    with pytest.raises(UsageError, match="write GROUP:ARTIFACT:VERSION"):
        with_packages([package], {}, remote=False)


def test_a_server_has_its_own() -> None:
    with pytest.raises(UsageError, match="a Spark Connect server has jars of its own"):
        with_packages([DELTA], {}, remote=True)
