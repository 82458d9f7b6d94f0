"""The sources of `privtab state import` in programs on Spark, with the same report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import decision_rows
import pytest
from pyspark.sql import SparkSession
from ranger import LAKE, ranger_policy

from privtab.base import FileError, StateInvalid, UsageError
from privtab_spark import decide
from privtab_spark.state import import_state


def files(folder: Path, *policies: object) -> tuple[str, str]:
    """A policy, and an export of Ranger."""
    lake, export = folder / "lake.yaml", folder / "export.json"
    lake.write_text(LAKE, encoding="utf-8")
    export.write_text(json.dumps({"policies": policies}), encoding="utf-8")
    return str(lake), str(export)


DENIAL = {"denyPolicyItems": [{"accesses": [{"type": "select"}], "users": ["ann"], "groups": [], "roles": []}]}
UNKNOWN = {"denyPolicyItems": [{"accesses": [{"type": "drop"}], "users": ["ann"], "groups": [], "roles": []}]}


@pytest.mark.slow
def test_an_imported_state_decides_and_has_the_report_of_the_command(spark: SparkSession, tmp_path: Path) -> None:
    lake, export = files(tmp_path, ranger_policy(1, policyItems=[
        {"accesses": [{"type": "select"}], "users": ["ann", "bob"], "groups": [], "roles": []}
    ], **DENIAL), ranger_policy(2, policyType=1))  # fmt: skip
    found = import_state(lake, "ranger", export, accept=["data-mask"])
    command = [
        "state",
        "import",
        "ranger",
        export,
        "-p",
        lake,
        "-o",
        str(tmp_path / "out.json"),
        "--format",
        "json",
        "--accept",
        "data-mask",
    ]
    completed = subprocess.run(
        [sys.executable, "-m", "privtab", *command], capture_output=True, text=True, check=True, timeout=120
    )
    report = json.loads(completed.stdout)
    assert report["taken"] == found.taken == {"grants": 3}
    assert report["translated"] == list(found.translated)
    assert [skipped["what"] for skipped in report["not_taken"]] == [skipped.what for skipped in found.not_taken] != []
    rows = decision_rows.frame(spark, [("ann", "sales/orders"), ("bob", "sales/orders")], "who string, path string")
    answers = decide(rows, lake, found.state, subject="who", action="read", resource=("table", "path"))
    assert decision_rows.answer_rows(answers, "allowed") == [(False,), (True,)]


def test_rights_that_a_state_cannot_express_fail_strict_imports(tmp_path: Path) -> None:
    lake, export = files(tmp_path, ranger_policy(1, **UNKNOWN), ranger_policy(2, policyPriority=1))
    with pytest.raises(StateInvalid, match="denial") as lost:
        import_state(lake, "ranger", export)
    assert [finding.denies for finding in lost.value.findings] == [True]  # type: ignore[attr-defined]
    partial = import_state(lake, "ranger", export, allow_partial=True)
    assert len(partial.not_taken) == 2
    with pytest.raises(StateInvalid, match=r"^2 .*`strict` accepts none") as strict:
        import_state(lake, "ranger", export, strict=True, allow_partial=True)
    assert strict.value.findings == partial.not_taken


def test_wildcards_stand_for_the_given_entities(tmp_path: Path) -> None:
    resources = {"database": {"values": ["sales"]}, "table": {"values": ["o*"]}, "column": {"values": ["*"]}}
    lake, export = files(tmp_path, ranger_policy(1, resources=resources))
    found = import_state(lake, "ranger", export, entities=["table:sales/orders", "table:sales/rest"])
    assert {str(grant.entity) for grant in found.state.grants} == {"table:sales/orders"}
    assert len(found.translated) == 1


def test_a_source_that_does_not_answer_and_a_missing_value_are_errors(tmp_path: Path) -> None:
    lake, _ = files(tmp_path)
    with pytest.raises(UsageError, match="no such file or folder"):
        import_state(lake, "ranger", str(tmp_path / "missing.json"))
    with pytest.raises(UsageError, match="needs `metalake`"):
        import_state(lake, "gravitino", str(tmp_path))
    with pytest.raises(FileError, match="there is no answer"):
        import_state("gravitino/1.1.0", "gravitino", str(tmp_path), values={"metalake": "m"})
    with (
        pytest.warns(DeprecationWarning, match="`given` of `import_state` is now `values`"),
        pytest.raises(FileError, match="there is no answer"),
    ):
        import_state("gravitino/1.1.0", "gravitino", str(tmp_path), given={"metalake": "m"})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="both `given` and `values`"):
        import_state("gravitino/1.1.0", "gravitino", str(tmp_path), values={}, given={})  # type: ignore[call-arg]
