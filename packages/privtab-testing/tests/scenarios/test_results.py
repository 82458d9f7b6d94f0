"""Results in each format, read back."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from xml.etree import ElementTree

from rich.console import Console
from shop_policy import POLICY, Reads

from privtab.language import junit
from privtab_testing.scenarios.pretty import show
from privtab_testing.scenarios.prove import coverage, observe, score
from privtab_testing.scenarios.results import Result, junit_suites, result_json
from privtab_testing.scenarios.run import ReferenceEngine, failures

TEXT = """\
cases:
  - {user: bob, action: open, resource: "store:s", decision: allow, why: the door is open}
  - {user: bob, action: open, resource: "store:s", decision: deny}
"""


def result(reads: Reads) -> Result:
    plan = reads(TEXT)
    found = tuple(failures(plan, plan.cases, [ReferenceEngine(plan.program)]))
    observed = observe(plan, plan.cases[1:])
    return Result(
        plan=plan, cases=plan.cases, failures=found, coverage=coverage(plan, observed), score=score(plan, observed)
    )


def test_json(reads: Reads) -> None:
    found = json.loads(json.dumps(result_json(result(reads))))
    assert (found["system"], found["cases"], found["passed"]) == ("shop", 2, 1)
    [failure] = found["failures"]
    line = 1 + POLICY.splitlines().index("    open: READ (store)")
    assert (failure["line"], failure["column"], failure["row"]["line"]) == (3, 5, line)
    assert (failure["fault"], failure["expected"], failure["got"]) == ("decision", "allow", "deny")
    assert failure["missing"] == [["READ (store:s)"]]
    assert failure["row"]["text"] == "open: READ (store)"
    assert failure["request"]["action"] == {"name": "open"}
    cells = found["coverage"]
    assert cells["covered"] == sum(row["covered"] for row in cells["rows"]) == cells["cells"] - len(cells["untested"])
    [lack] = [c for c in cells["untested"] if c["rule"] == "shop/store/open"]
    assert (lack["proof"], lack["set"], lack["without"]) == ("allow", ["READ (store)"], None)
    assert found["mutation"]["killed"] + len(found["mutation"]["survived"]) == found["mutation"]["mutants"]
    assert {"rule", "path", "line", "change", "text"} <= found["mutation"]["survived"][0].keys()


def test_junit(reads: Reads) -> None:
    root = ElementTree.fromstring(junit(junit_suites([result(reads)])))  # noqa: S314  our own text
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    suite = root.find("testsuite[@name='shop/1']")
    assert suite is not None
    bad, good = suite.findall("testcase")
    assert (bad.get("classname"), bad.get("line"), good.find("failure")) == ("shop.store.open", "3", None)
    failure = bad.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == ("expected allow, got deny", "decision")
    assert "missing: READ (store:s)" in (failure.text or "")
    assert "open: READ (store)" in (failure.text or "")


def shown(tested: Result, *, verbose: bool = False, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(console, [tested], verbose=verbose)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_person_sees_the_case_the_answer_and_the_row(reads: Reads) -> None:
    text = shown(result(reads))
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "✗ bob open store:s"
    assert lines[1:5] == ["expected  allow", "got       deny", "missing: READ (store:s)", "why       the door is open"]
    assert lines[5].endswith("shop.scenarios.yaml:3:5")
    assert lines[7] == "open: READ (store)"
    assert "✗ 1 of 2 cases failed" in text


def test_the_summary_fits_eighty_columns(reads: Reads) -> None:
    text = shown(result(reads))
    summary = text[text.index("policy  ") :].splitlines()
    assert max(map(len, summary)) <= 80
    assert summary[1].split()[:3] == ["shop/1", "2", "1"]


def test_verbose_shows_every_cell_and_every_fault(reads: Reads) -> None:
    tested = result(reads)
    assert tested.coverage is not None
    assert tested.score is not None
    brief, full = shown(tested), shown(tested, verbose=True)
    assert "--verbose shows all" in brief
    assert "--verbose" not in full
    for cell in tested.coverage.untested:
        assert cell.text in full
    for mutant in tested.score.survived:
        assert mutant.text in full


def test_many_readings_are_counted_for_a_person_and_listed_for_a_program(reads: Reads) -> None:
    tested = result(reads)
    subject = replace(tested.plan.subject, readings=tuple((f"store/open{number}", "strict") for number in range(26)))
    tested = replace(tested, plan=replace(tested.plan, subject=subject))
    text = shown(tested)
    assert "shop/1 (26 other readings)" in text
    assert "store/open" not in text.replace("store/open  ", "")
    assert len(result_json(tested)["readings"]) == 26


READ_AS = POLICY.replace(
    "    open: READ (store)",
    "    open:\n      requires: READ (store)\n      ambiguous:\n        readings:\n          other: {requires: OWN (store)}",
)


def test_a_reading_that_decided_is_shown_in_place_of_the_row_s_words(reads: Reads) -> None:
    plan = reads(f"readings: {{store/open: other}}\n{TEXT}", READ_AS, chosen=True)
    tested = Result(
        plan=plan, cases=plan.cases, failures=tuple(failures(plan, plan.cases, [ReferenceEngine(plan.program)]))
    )
    line = 1 + READ_AS.splitlines().index("          other: {requires: OWN (store)}")
    lines = [line.strip() for line in shown(tested).splitlines()]
    at = next(number for number, text in enumerate(lines) if text.startswith("reading"))
    assert lines[at].endswith(f"shop.yaml:{line}")
    assert lines[at + 1] == "other: requires: OWN (store)"
    assert "requires: READ (store)" not in lines
    [failure] = result_json(tested)["failures"]
    assert failure["reading"] == {"name": "other", "text": "requires: OWN (store)", "line": line}
    assert failure["row"]["line"] == line - 4
    assert f"reading on line {line}\nother: requires: OWN (store)" in junit(junit_suites([tested]))
