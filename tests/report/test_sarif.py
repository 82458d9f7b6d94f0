"""SARIF against a schema of the parts that we write, which allows no other property (see `sarif.schema.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from privtab.base.diagnostics import Diagnostic, FindingKind, Located, Severity, Span
from privtab.language.report import FINGERPRINT, SuppressedFinding, sarif

SCHEMA = json.loads((Path(__file__).parent / "sarif.schema.json").read_text(encoding="utf-8"))
TEXT = "privtab: 1\nprivileges: [READ]\nopen: REED (shop)\nshut: REED (shop)\n"


def span(line: int, column: int, end: int, path: str = "policy_src/my shop.yaml") -> Span:
    return Span(path=path, line=line, column=column, end_line=line, end_column=end)


def finding(line: int = 3, path: str = "policy_src/my shop.yaml", **changes: Any) -> Diagnostic:
    fields: dict[str, Any] = {
        "code": "P101",
        "name": "unknown-privilege",
        "severity": Severity.ERROR,
        "message": "unknown privilege `REED`",
        "span": span(line, 7, 11, path),
        "help": "did you mean `READ`?",
        "fix": "READ",
    }
    return Diagnostic(**{**fields, **changes})


def run(text: str) -> Any:
    log = json.loads(text)
    Draft202012Validator(SCHEMA).validate(log)
    (only,) = log["runs"]
    return only


def test_a_result_has_its_rule_place_advice_fix_and_second_places() -> None:
    rules = {FindingKind("P101", "unknown-privilege", Severity.ERROR): "a privilege nobody listed"}
    second_place = Located("listed here", span(2, 14, 18))
    written = run(
        sarif(
            [finding(related=(second_place,))], rules, pages={"P101": "# P101"}, texts={"policy_src/my shop.yaml": TEXT}
        )
    )
    (described,) = written["tool"]["driver"]["rules"]
    assert described["id"] == "P101"
    assert described["name"] == "UnknownPrivilege"
    assert described["help"]["markdown"] == "# P101"
    (result,) = written["results"]
    assert result["level"] == "error"
    assert result["message"]["text"].splitlines() == ["unknown privilege `REED`", "help: did you mean `READ`?"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "policy_src/my%20shop.yaml", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 3, "startColumn": 7, "endLine": 3, "endColumn": 11}
    assert place["contextRegion"]["snippet"]["text"] == "open: REED (shop)"
    assert result["relatedLocations"][0]["message"]["text"] == "listed here"
    (replacement,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement["insertedContent"]["text"] == "READ"
    assert "suppressions" not in result


def test_undescribed_rules_are_named_and_indexed() -> None:
    written = run(sarif([finding(code="P305", name="never-granted", severity=Severity.NOTE, fix=None), finding()]))
    rules = written["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["P101", "P305"]
    assert [(r["ruleId"], r["ruleIndex"], r["level"]) for r in written["results"]] == [
        ("P305", 1, "note"),
        ("P101", 0, "error"),
    ]


def test_ignored_findings_are_there_and_say_why() -> None:
    hidden = [
        SuppressedFinding(finding=finding(), reason="the document says so"),
        SuppressedFinding(finding=finding(4), reason="off in the settings", in_source=False),
    ]
    results = run(sarif([], suppressed=hidden))["results"]
    assert [result["suppressions"] for result in results] == [
        [{"kind": "inSource", "justification": "the document says so"}],
        [{"kind": "external", "justification": "off in the settings"}],
    ]


def test_fingerprints_survive_moved_lines_and_distinguish_duplicates() -> None:
    path = "policy_src/my shop.yaml"

    def prints(found: list[Diagnostic], text: str) -> list[str]:
        return [r["partialFingerprints"][FINGERPRINT] for r in run(sarif(found, texts={path: text}))["results"]]

    before = prints([finding(3), finding(4)], TEXT)
    assert before == prints([finding(5), finding(6)], "# a\n# b\n" + TEXT)
    assert len(set(prints([finding(3), finding(4)], TEXT.replace("shut", "open")))) == 2
    assert before[0] != prints([finding(3, message="another")], TEXT)[0]


def test_an_absolute_path_is_a_uri_of_its_own(tmp_path: Path) -> None:
    (result,) = run(sarif([finding(path=str(tmp_path / "a b.yaml"))]))["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": (tmp_path / "a b.yaml").as_uri()}


def test_no_findings_are_an_empty_run() -> None:
    assert run(sarif([]))["results"] == []


def test_the_schema_refuses_what_sarif_does_not_know() -> None:
    log = json.loads(sarif([finding()]))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(ValidationError, match="fatal"):
        Draft202012Validator(SCHEMA).validate(log)
