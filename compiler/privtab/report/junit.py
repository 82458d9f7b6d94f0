"""Test results as JUnit XML, in the dialect that CI servers read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from privtab.report.nodes import Case, Suite

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(suites: Iterable[Suite], *, name: str = "privtab") -> str:
    """The document, ending in a line break; characters that XML cannot hold become U+FFFD."""
    all_ = tuple(suites)
    root = Element("testsuites", {"name": _clean(name), **_counts([case for suite in all_ for case in suite.cases])})
    for suite in all_:
        element = SubElement(root, "testsuite", {"name": _clean(suite.name), **_counts(suite.cases)})
        _properties(element, suite.properties)
        for case in suite.cases:
            _case(element, case)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, case: Case) -> None:
    attributes = {"name": case.name, "classname": case.classname, "time": _seconds(case.seconds)}
    if case.file is not None:
        attributes["file"] = case.file
    if case.line is not None:
        attributes["line"] = str(case.line)
    element = SubElement(suite, "testcase", {key: _clean(value) for key, value in attributes.items()})
    _properties(element, case.properties)
    if case.skipped is not None:
        SubElement(element, "skipped", {"message": _clean(case.skipped)})
    elif case.failure is not None:
        attributes = {"message": _clean(case.failure.message), "type": _clean(case.failure.kind)}
        SubElement(element, "failure", attributes).text = _clean(case.failure.text)


def _properties(element: Element, properties: Sequence[tuple[str, str]]) -> None:
    if properties:
        parent = SubElement(element, "properties")
        for name, value in properties:
            SubElement(parent, "property", {"name": _clean(name), "value": _clean(value)})


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.failure is not None and case.skipped is None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.skipped is not None for case in cases)),
        "time": _seconds(sum(case.seconds for case in cases)),
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
