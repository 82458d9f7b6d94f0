from __future__ import annotations

from privtab.base.diagnostics import Diagnostic, Located, Severity, Span
from privtab.language import report


def finding(message: str, severity: Severity, span: Span, **more: object) -> Diagnostic:
    return Diagnostic(code="P101", name="unknown-privilege", severity=severity, message=message, span=span, **more)  # type: ignore[arg-type]


def span(path: str = "a.yaml", line: int = 3, column: int = 7, end_line: int = 3, end_column: int = 11) -> Span:
    return Span(path=path, line=line, column=column, end_line=end_line, end_column=end_column)


def test_a_finding_is_one_line_with_its_place_and_title() -> None:
    assert report.github_annotations([finding("unknown privilege `REED`", Severity.ERROR, span())]) == (
        "::error file=a.yaml,line=3,col=7,endColumn=10,title=P101 unknown-privilege::unknown privilege `REED`\n"
    )


def test_notes_are_notices() -> None:
    kinds = [report.github_annotations([finding("x", severity, span())]).split()[0] for severity in Severity]
    assert kinds == ["::error", "::warning", "::notice"]


def test_characters_that_would_end_a_field_or_a_line_are_escaped() -> None:
    text = report.github_annotations(
        [finding("50% of a,b:c\nmore", Severity.NOTE, span("a,b:c%.yaml"), help="do: this, or that")]
    )
    assert text.count("\n") == 1
    head, _, data = text[2:].partition("::")
    assert head.startswith("notice file=a%2Cb%3Ac%25.yaml,line=3,")
    assert data == "50%25 of a,b:c%0Amore%0Ahelp: do: this, or that\n"


def test_second_places_are_named_and_many_lines_have_no_columns() -> None:
    far = Located("the first row", span("b.yaml", line=9))
    text = report.github_annotations([finding("x", Severity.ERROR, span(end_line=5), related=(far,))])
    assert ",line=3,endLine=5,title=" in text
    assert text.endswith("::x%0Ab.yaml:9:7: the first row\n")


def test_an_empty_place_is_one_column() -> None:
    assert ",col=7,endColumn=7," in report.github_annotations([finding("x", Severity.ERROR, span(end_column=7))])


def test_nothing_found_prints_nothing() -> None:
    assert report.github_annotations([]) == ""
