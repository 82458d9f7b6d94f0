"""Options of jobs: the parser follows from a signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from privtab_spark.jobs._options import Option, arguments_of, parser_of


@dataclass(frozen=True, kw_only=True)
class Group:
    names: Annotated[tuple[str, ...], Option("names; may repeat", "NAME")] = ("first",)
    with_: Annotated[str | None, Option("a second object", "OBJECT")] = None


def job(
    table: Annotated[str, Option("the table", "TABLE")],
    *,
    level: Annotated[Literal["low", "high"] | None, Option("a level")] = None,
    rows: Annotated[int, Option("rows", "ROWS", "-r")] = 20,
    must: Annotated[str, Option("must be given", "TEXT")],
    loud: Annotated[bool, Option("be loud")] = False,
    group: Annotated[Group, "a heading"],
) -> int:
    """Do the job."""
    return 0


def test_defaults_are_those_of_the_signature() -> None:
    found = arguments_of(job, vars(parser_of(job, "decide").parse_args(["t", "--must", "x"])))
    assert found == {"table": "t", "level": None, "rows": 20, "must": "x", "loud": False, "group": Group()}


def test_values_have_the_types_of_the_signature() -> None:
    parser = parser_of(job, "decide")
    given = ["t", "--must", "x", "-r", "3", "--level", "high", "--loud", "--names", "a", "--names", "b", "--with", "to"]
    found = arguments_of(job, vars(parser.parse_args(given)))
    assert (found["rows"], found["level"], found["loud"]) == (3, "high", True)
    assert found["group"] == Group(names=("first", "a", "b"), with_="to")
    assert arguments_of(job, vars(parser.parse_args(["t", "--must", "x"])))["group"] == Group()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "the following arguments are required: TABLE, --must"),
        (["t", "--must", "x", "--rows", "many"], "argument -r/--rows: invalid int value: 'many'"),
        (["t", "--must", "x", "--level", "mid"], "argument --level: invalid choice: 'mid'"),
    ],
)
def test_wrong_usage_is_named(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser_of(job, "decide").parse_args(given)
    assert message in capsys.readouterr().err


def test_help_has_the_docstring_and_the_headings() -> None:
    text = parser_of(job, "decide").format_help()
    assert text.startswith("Usage: privtab spark decide [OPTIONS]\n\nDo the job.\n")
    assert "a heading:\n  --names NAME" in text
