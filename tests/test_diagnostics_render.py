from __future__ import annotations

from privtab.base.diagnostics import Diagnostic, Located, Severity, Span, render


def span(line: int, column: int, end: int, *, end_line: int | None = None) -> Span:
    return Span(path="a.yaml", line=line, column=column, end_line=end_line or line, end_column=end)


def finding(where: Span, *, help_: str | None = None, related: tuple[Located[str], ...] = ()) -> Diagnostic:
    return Diagnostic(
        code="P101",
        name="unknown-privilege",
        severity=Severity.ERROR,
        message="unknown privilege `REED`",
        span=where,
        help=help_,
        related=related,
    )


def test_place_line_carets_and_help() -> None:
    shown = render([finding(span(2, 7, 11), help_="did you mean `READ`?")], {"a.yaml": "tables:\nopen: REED (shop)\n"})
    assert shown == (
        "a.yaml:2:7: error[P101 unknown-privilege]: unknown privilege `REED`\n"
        "   2 | open: REED (shop)\n"
        "     |       ^^^^\n"
        "  help: did you mean `READ`?"
    )


def test_related_places_have_their_lines() -> None:
    related = (Located("first here", span(1, 1, 5)),)
    shown = render([finding(span(2, 1, 5), related=related)], {"a.yaml": "open: x\nopen: y\n"})
    assert shown.splitlines()[3:] == ["  a.yaml:1:1: first here", "   1 | open: x", "     | ^^^^"]


def test_findings_are_parted_by_a_blank_line() -> None:
    shown = render([finding(span(1, 1, 2)), finding(span(1, 3, 4))], {"a.yaml": "a b\n"})
    assert len(shown.split("\n\n")) == 2


def test_a_file_without_text_is_named_alone() -> None:
    assert render([finding(span(3, 1, 2))], {}) == "a.yaml:3:1: error[P101 unknown-privilege]: unknown privilege `REED`"


def test_a_place_behind_the_end_has_a_caret() -> None:
    assert render([finding(span(1, 3, 3))], {"a.yaml": "ab"}).splitlines()[2] == "     |   ^"


def test_places_that_span_lines_are_marked_to_the_end_of_the_first() -> None:
    assert render([finding(span(1, 3, 2, end_line=2))], {"a.yaml": "a bcd\ne\n"}).splitlines()[2] == "     |   ^^^"


def test_tabs_and_wide_characters_keep_carets_below_the_name() -> None:
    shown = render([finding(span(1, 5, 6))], {"a.yaml": "\ta店 x: y\n"}).splitlines()
    assert shown[2] == "     | \t    ^"


def test_long_lines_are_cut_around_the_place() -> None:
    line = "x" * 400 + " REED " + "y" * 400
    shown = render([finding(span(1, 402, 406))], {"a.yaml": line}).splitlines()
    assert len(shown[1]) < 200
    at = shown[2].index("^")
    assert shown[1][at : at + 4] == "REED"
    assert shown[1].count("…") == 2


def test_color_is_only_added() -> None:
    import re

    found, sources = [finding(span(1, 1, 3), help_="x")], {"a.yaml": "ab: c\n"}
    colored = render(found, sources, color=True)
    assert "\x1b[1;31m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render(found, sources)
