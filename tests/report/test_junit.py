from __future__ import annotations

from xml.etree import ElementTree

from privtab.language.report import CaseResult, SuiteResult, junit

SUITE = SuiteResult(
    name="shop.scenarios.yaml",
    properties=(("policy", "shop.yaml"),),
    cases=(
        CaseResult(
            name="reads", classname="shop", seconds=0.25, properties=(("engine", "opa"),), file="s.yaml", line=4
        ),
        CaseResult(name="writes", classname="shop", seconds=0.5, failure="allowed <it>", details="a & b\n  c"),
        CaseResult(name="later", classname="shop", skipped="not yet"),
    ),
)


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314  our own text


def test_counts_times_and_cases_come_back() -> None:
    root = parsed(junit([SUITE]))
    assert root.tag == "testsuites"
    assert root.attrib | {"name": ""} == {
        "name": "",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "0.750",
    }
    (suite,) = root
    assert suite.find("properties/property[@name='policy']") is not None
    reads, writes, later = suite.findall("testcase")
    assert (reads.get("file"), reads.get("line"), reads.get("time")) == ("s.yaml", "4", "0.250")
    assert reads.find("properties/property[@value='opa']") is not None
    failure = writes.find("failure")
    assert failure is not None
    assert failure.get("message") == "allowed <it>"
    assert failure.text == "a & b\n  c"
    skipped = later.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "not yet"


def test_the_order_of_elements_is_the_one_of_the_schema() -> None:
    root = parsed(junit([SUITE]))
    for case in root.iter("testcase"):
        assert [child.tag for child in case] in (["properties"], ["failure"], ["skipped"])
    assert [child.tag for child in root[0]] == ["properties", "testcase", "testcase", "testcase"]


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    case = CaseResult(name="a\x00b\ud800", classname="\x1b[1m", failure="\ufffe", details="\x08")
    root = parsed(junit([SuiteResult(name="s", cases=(case,))]))
    found = next(root.iter("testcase"))
    assert found.get("name") == "a\ufffdb\ufffd"
    assert found.get("classname") == "\ufffd[1m"


def test_no_suites_are_a_document_too() -> None:
    assert parsed(junit([])).get("tests") == "0"
